"""Functions on strings: the standard ones, cel-go's strings extension, version 2, with `format`, and Kubernetes' `find`.

Positions count characters. Functions raise EvalError for arguments out of range. Regular expressions are RE2's, as in Kubernetes.
"""

import functools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import re2

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Value
from drakit_cluster.cel.functions import conversions

SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_UPPER: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TO_LOWER: Final = str.maketrans(_UPPER, _UPPER.lower())
_TO_UPPER: Final = str.maketrans(_UPPER.lower(), _UPPER)
_QUOTED: Final = str.maketrans(
    {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\""}
)
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
    return separator.join(parts)


_CLAUSE: Final = re.compile(r"%(?:\.([0-9]+))?(.)?", re.DOTALL)
_PRECISION: Final = 6
_MAX_PRECISION: Final = 1000
_SPECIAL: Final = {"NaN": "NaN", "Infinity": "∞", "-Infinity": "-∞"}
_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a format string: text, or a clause such as `%.2f` where `verb` is not empty."""

    text: str = ""
    verb: str = ""
    precision: int = _PRECISION


def pieces(text: str) -> list[Piece]:
    """Return the parts of a format string. Raises EvalError for an invalid clause."""
    parts: list[Piece] = []
    last = 0
    for match in _CLAUSE.finditer(text):
        digits, verb = match.groups()
        if verb is None:
            raise errors.EvalError("unexpected end of string")
        literal = verb == "%" and digits is None
        if not literal and (verb not in _RENDERERS or int(digits or 0) > _MAX_PRECISION):
            raise errors.EvalError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
        parts.append(Piece(text=text[last : match.start()]))
        parts.append(Piece(text="%") if literal else Piece(verb=verb, precision=int(digits) if digits else _PRECISION))
        last = match.end()
    return [*parts, Piece(text=text[last:])]


def render(text: str, args: list[Value]) -> str:
    """Return `text.format(args)`: the clauses replaced by the arguments in turn. Raises EvalError."""
    remaining = iter(args)
    return "".join(_rendered(piece, remaining, len(args)) if piece.verb else piece.text for piece in pieces(text))


def _rendered(piece: Piece, remaining: Iterator[Value], count: int) -> str:
    for value in remaining:
        rendered = _RENDERERS[piece.verb](value, piece.precision)
        if rendered is None:
            raise errors.EvalError(f"error during formatting: no formatting clause %{piece.verb} for this type of value")
        return rendered
    raise errors.EvalError(f"index {count} out of range")


def _shown(value: Value, _: int = 0) -> str:
    """Return a value as `%s` writes it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{_shown(key)}: {_shown(item)}' for key, item in value.items()))}}}"
    if value is None:
        return "null"
    return value.name if isinstance(value, values.TypeValue) else conversions.to_string(value)


def _integer(form: str) -> Callable[[Value, int], str | None]:
    def rendered(value: Value, _: int) -> str | None:
        if form in "xX" and isinstance(value, (str, bytes)):
            digits = conversions.to_bytes(value).hex()
            return digits.upper() if form == "X" else digits
        unfit = not isinstance(value, int) or (isinstance(value, bool) and form != "b")
        return None if unfit else f"{int(value):{form}}"

    return rendered


def _double(value: Value, write: Callable[[float], str]) -> str | None:
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    if not isinstance(value, float):
        return None
    if math.isnan(value):
        return "NaN"
    return write(value) if math.isfinite(value) else "∞" if value > 0 else "-∞"


def _scientific(value: float, precision: int) -> str:
    """Return scientific notation with a power of ten instead of an `e`, as in American English."""
    digits, _, exponent = f"{value:.{precision}e}".partition("e")
    return f"{digits}\u202f×\u202f10{exponent.removeprefix('+').translate(_SUPERSCRIPT)}"  # noqa: RUF001


_RENDERERS: Final[dict[str, Callable[[Value, int], str | None]]] = {
    "s": _shown,
    "f": lambda value, precision: _double(value, lambda number: f"{number:,.{precision}f}"),
    "e": lambda value, precision: _double(value, lambda number: _scientific(number, precision)),
    **{form: _integer(form) for form in "dbxXo"},
}
"""Write a value at a precision; None for a value of a type that the clause does not take."""

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
    "replace": lambda text, old, new, count=-1: text.replace(old, new, max(count, -1)),
    "split": split,
    "substring": _substring,
    "join": _join,
    "format": render,
}
