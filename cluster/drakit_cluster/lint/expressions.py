"""Fixes for selectors that do not compile: missing quotes, quantities, and operators of other languages."""

import difflib
import re

from drakit_cluster.cel.types import declarations
from drakit_cluster.lint import findings

_PLACE = re.compile(r"<input>:(\d+):(\d+): (.*)")
_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'")
_UNDEFINED = re.compile(r"undefined field '([^']*)'")
_WORD = re.compile(r"[A-Za-z0-9_.+/-]*[A-Za-z0-9_]")
_QUANTITY = re.compile(r"[0-9.]+([kMGTPE]|[KMGTPE]i)")
_AFTER = re.compile(r"(==|!=|<|>|\bin|[\[,(])\s*$")
_VERSION = re.compile(r"v?([0-9]+\.[0-9]+\.[0-9]+([-+].*)?)")
_NOT = re.compile(r"\b(not|NOT)\s+$")
_DOTTED = re.compile(r"\bdevice\.(attributes|capacity)\.([a-z0-9-]+(?:\.[a-z0-9-]+)+)\.([A-Za-z_]\w*)")
_JOINED = re.compile(r"""\bdevice\.(attributes|capacity)\[["']([^"'/]+)/(\w+)["']\]""")
_OPERATORS = {"and": "&&", "or": "||", "not": "!", "AND": "&&", "OR": "||", "NOT": "!"}
_WORDS = {**_OPERATORS, "True": "true", "False": "false"}
_COMPARED = '.compareTo({function}("{text}")) > 0, or >= 0, < 0, == 0'
_EXISTS = 'to ask whether one exists, write "name" in device.attributes["domain"]'
_NAMES = ("driver", "attributes", "capacity", "allowMultipleAllocations")
_FIELDS = "device has driver, attributes, capacity and allowMultipleAllocations"


def misplaced_domain(expression: str) -> str:
    """Return the fix for an attribute or capacity whose domain is not the key in brackets, else ""."""
    if place := _DOTTED.search(expression) or _JOINED.search(expression):
        group, domain, name = place.groups()
        return f'write device.{group}["{domain}"].{name}'
    return ""


def fix(expression: str, message: str) -> str:
    """Return the fix for the first error of an expression. ``message`` has its line, column and text."""
    place = _PLACE.search(message)
    line = [*expression.split("\n"), ""][int(place[1]) - 1] if place else ""
    known = _known(place[3], line, int(place[2]) - 1) if place else ""
    known = known or misplaced_domain(expression)
    return known or f"fix the expression; {_FIELDS}"


def _known(text: str, line: str, column: int) -> str:
    """Return the fix for an error at a column, "" for others than those that people often make."""
    if "token recognition error" in text:
        quoted = line[column : column + 1] in {'"', "'"}
        return f"close the quotes that begin at column {column + 1}" if quoted else "write == to compare" if "at: '='" in text else ""
    if "overload" in text and "kubernetes.Quantity" in text:
        return f"quantities are compared by a function: {_COMPARED.format(function='quantity', text='5Gi')}"
    if undefined := _UNDEFINED.match(text):
        return f"{findings.suggestion(undefined[1], _NAMES)}; {_FIELDS}"
    if undeclared := _UNDECLARED.match(text):
        return _undeclared(undeclared[1], line, column)
    return _unexpected(line, column) if "mismatched input" in text else ""


def _undeclared(name: str, line: str, column: int) -> str:
    """Return the fix for a name that is no variable: CEL's own word, quotes where a value is expected, or else a similar variable."""
    if name in _WORDS:
        return f"write {_WORDS[name]} for {name}"
    if name == "None":
        return f"no attribute is null; {_EXISTS}"
    if _AFTER.search(line[:column]) and (word := _WORD.match(line, column)):
        is_function = word[0] in declarations.functions() or line[word.end() :].lstrip().startswith("(")
        return "" if is_function else _quotes(word[0])
    return f"write device; {_FIELDS}" if difflib.get_close_matches(name, ["device"]) else ""


def _unexpected(line: str, column: int) -> str:
    """Return the fix for a word that cannot be there: an operator of another language, or the rest of a text that begins with a digit."""
    word = _WORD.match(line, column)
    if word and word[0] in _OPERATORS:
        return f"write {_OPERATORS[word[0]]} for {word[0]}"
    if word_before := _NOT.search(line[:column]):
        return f"write ! for {word_before[1]}"
    start = column
    while start and re.match(r"[A-Za-z0-9_.]", line[start - 1]):
        start -= 1
    whole = _WORD.match(line, start)
    if start == column or whole is None:
        return ""
    if _QUANTITY.fullmatch(whole[0]):
        return f"a quantity needs quotes and a function: {_COMPARED.format(function='quantity', text=whole[0])}"
    if version := _VERSION.fullmatch(whole[0]):
        return f"a version needs quotes and a function: {_COMPARED.format(function='semver', text=version[1])}"
    return _quotes(whole[0])


def _quotes(word: str) -> str:
    return f'put quotes around a text: "{word}"'
