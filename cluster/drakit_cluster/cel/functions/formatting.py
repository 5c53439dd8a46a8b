"""CEL's `format`: format strings of cel-go's strings extension, version 2, and their clauses. Functions raise EvalError."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Value
from drakit_cluster.cel.functions import conversions

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
