"""Functions on strings: the standard ones, cel-go's strings extension, version 2 without `format`, and Kubernetes' `find`.

Positions count characters. Functions raise EvalError for arguments out of range. Regular expressions are RE2's, as in Kubernetes.
"""

import functools
import math
from collections.abc import Callable
from typing import Final

import re2

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation.values import Value

SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_UPPER: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TO_LOWER: Final = str.maketrans(_UPPER, _UPPER.lower())
_TO_UPPER: Final = str.maketrans(_UPPER.lower(), _UPPER)
_QUOTED: Final = str.maketrans(
    {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\""}
)
_SIZE_MAX: Final = 10_000_000
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False


@functools.lru_cache(maxsize=512)
def pattern(text: str) -> "re2._Regexp[str]":
    """Return the compiled regular expression. Raises EvalError."""
    try:
        return re2.compile(text, options=_OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        shown = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise errors.EvalError(f"error parsing regexp: {shown}") from error


def find(text: str, expression: str) -> str:
    """Return the first match, empty if there is none."""
    match = pattern(expression).search(text)
    return "" if match is None else str(match.group())


def find_all(text: str, expression: str, limit: int = -1) -> list[str]:
    """Return the matches from left to right, no more than `limit` unless that is negative.

    An empty match directly after the previous match does not count.
    """
    matches: list[str] = []
    last = -1
    for match in pattern(expression).finditer(text):
        if len(matches) == limit:
            break
        if match.end() > match.start() or match.start() != last:
            matches.append(match.group())
        last = match.end()
    return matches


def char_at(text: str, position: int) -> str:
    """Return `text.charAt(position)`, empty at the end."""
    _in_range(position, len(text))
    return text[position : position + 1]


def _in_range(position: int, length: float = math.inf) -> None:
    if not 0 <= position <= length:
        raise errors.EvalError(f"index out of range: {position}")


def index_of(text: str, part: str, start: int = 0) -> int:
    """Return `text.indexOf(part, start)`, -1 if it does not occur."""
    if not part:
        return start
    _in_range(start)
    return text.find(part, start)


def last_index_of(text: str, part: str, start: int | None = None) -> int:
    """Return `text.lastIndexOf(part, start)`: the last place not after `start`, -1 if there is none."""
    if start is None:
        return text.rfind(part)
    if not part:
        return start
    _in_range(start)
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def split(text: str, separator: str, count: int = -1) -> list[str]:
    """Return `text.split(separator, count)`: no more than `count` parts unless that is negative."""
    if count == 0:
        return []
    if separator:
        return text.split(separator, -1 if count < 0 else count - 1)
    if 0 < count < len(text):
        return [*text[: count - 1], text[count - 1 :]]
    return [*text]


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if start > end:
        raise errors.EvalError(f"invalid substring range. start: {start}, end: {end}")
    _in_range(start, len(text))
    _in_range(end, len(text))
    return text[start:end]


def _join(parts: list[Value], separator: str = "") -> str:
    if not all(isinstance(part, str) for part in parts):
        raise errors.no_such_overload()
    _affordable(sum(map(len, parts)) + len(parts) * len(separator))
    return separator.join(parts)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    _affordable(len(text) + text.count(old) * len(new))
    return text.replace(old, new, max(count, -1))


def _affordable(size: int) -> None:
    """Raise BudgetError for a text that costs more than any expression may spend, before it is made."""
    if size > _SIZE_MAX:
        raise errors.BudgetError


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "charAt": char_at,
    "lowerAscii": lambda text: text.translate(_TO_LOWER),
    "upperAscii": lambda text: text.translate(_TO_UPPER),
    "trim": lambda text: text.strip(SPACES),
    "strings.quote": lambda text: f'"{text.translate(_QUOTED)}"',
    "contains": lambda text, part: part in text,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "matches": lambda text, expression: pattern(expression).search(text) is not None,
    "find": find,
    "findAll": find_all,
    "replace": _replace,
    "split": split,
    "substring": _substring,
    "join": _join,
}
