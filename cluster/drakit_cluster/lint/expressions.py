"""Fixes for selectors that do not compile: missing quotes, quantities, and operators of other languages."""

import difflib
import re

from drakit_cluster.lint import findings

_PLACE = re.compile(r"<input>:(\d+):(\d+): (.*)")
_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'")
_UNDEFINED = re.compile(r"undefined field '([^']*)'")
_WORD = re.compile(r"[A-Za-z0-9_.+/-]*[A-Za-z0-9_]")
_QUANTITY = re.compile(r"[0-9.]+([kMGTPE]|[KMGTPE]i)")
_AFTER = re.compile(r"(==|!=|<|>|\bin|[\[,(])\s*$")
_OPERATORS = {"and": "&&", "or": "||", "not": "!", "AND": "&&", "OR": "||", "NOT": "!"}
_COMPARED = '.compareTo(quantity("{quantity}")) > 0, or >= 0, < 0, == 0'
_NAMES = ("driver", "attributes", "capacity", "allowMultipleAllocations")
_FIELDS = "device has driver, attributes, capacity and allowMultipleAllocations"


def fix(expression: str, message: str) -> str:
    """Return the fix for the first error of an expression. ``message`` has its line, column and text."""
    place = _PLACE.search(message)
    line = [*expression.split("\n"), ""][int(place[1]) - 1] if place else ""
    known = _known(place[3], line, int(place[2]) - 1) if place else ""
    return known or f"fix the expression; {_FIELDS}"


def _known(text: str, line: str, column: int) -> str:
    """Return the fix for an error at a column, "" for others than those that people often make."""
    if "token recognition error" in text:
        quoted = line[column : column + 1] in {'"', "'"}
        return f"close the quotes that begin at column {column + 1}" if quoted else "write == to compare" if "at: '='" in text else ""
    if "overload" in text and "kubernetes.Quantity" in text:
        return f"quantities are compared by a function: {_COMPARED.format(quantity='5Gi')}"
    if undefined := _UNDEFINED.match(text):
        return f"{findings.suggestion(undefined[1], _NAMES)}; {_FIELDS}"
    if undeclared := _UNDECLARED.match(text):
        return _undeclared(undeclared[1], line, column)
    return _unexpected(line, column) if "mismatched input" in text else ""


def _undeclared(name: str, line: str, column: int) -> str:
    """Return the fix for a name that is no variable: quotes where a value is expected, or else a similar variable."""
    if _AFTER.search(line[:column]) and (word := _WORD.match(line, column)):
        return _quotes(word[0])
    return f"write device; {_FIELDS}" if difflib.get_close_matches(name, ["device"]) else ""


def _unexpected(line: str, column: int) -> str:
    """Return the fix for a word that cannot be there: an operator of another language, or the rest of a text that begins with a digit."""
    word = _WORD.match(line, column)
    if word and word[0] in _OPERATORS:
        return f"write {_OPERATORS[word[0]]} for {word[0]}"
    start = column
    while start and re.match(r"[A-Za-z0-9_.]", line[start - 1]):
        start -= 1
    whole = _WORD.match(line, start)
    if start == column or whole is None:
        return ""
    if _QUANTITY.fullmatch(whole[0]):
        return f"a quantity needs quotes and a function: {_COMPARED.format(quantity=whole[0])}"
    return _quotes(whole[0])


def _quotes(word: str) -> str:
    return f'put quotes around a text: "{word}"'
