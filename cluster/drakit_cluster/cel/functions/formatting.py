"""`format`: text with clauses such as `%s` and `%.2f` (cel-go's strings extension)."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Value
from drakit_cluster.cel.functions import conversions

_CLAUSE: Final = re.compile(r"%(?:\.([0-9]+))?(.)?", re.DOTALL)
_VERBS: Final = frozenset("sdfebxXo")
_DEFAULT_PRECISION: Final = 6
_SPECIAL: Final = {"NaN": "NaN", "Infinity": "∞", "-Infinity": "-∞"}
_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_MAX_PRECISION: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Text, or a clause where `verb` is not empty."""

    text: str = ""
    verb: str = ""
    precision: int = _DEFAULT_PRECISION


def pieces(text: str) -> list[Piece]:
    """The parts of a format string. Raises EvalError for a clause that is none."""
    found: list[Piece] = []
    last = 0
    for match in _CLAUSE.finditer(text):
        if match.start() < last:
            continue
        found.append(Piece(text=text[last : match.start()]))
        found.append(_clause(match))
        last = match.end()
    found.append(Piece(text=text[last:]))
    return found


def _clause(match: re.Match[str]) -> Piece:
    digits, verb = match.groups()
    if verb is None:
        raise errors.EvalError("unexpected end of string")
    if verb == "%" and digits is None:
        return Piece(text="%")
    if verb not in _VERBS or int(digits or 0) > _MAX_PRECISION:
        raise errors.EvalError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
    return Piece(verb=verb, precision=int(digits) if digits else _DEFAULT_PRECISION)


def render(text: Value, args: Value) -> str:
    """The format string with its clauses replaced by the arguments in turn. Raises EvalError."""
    if not isinstance(text, str) or not isinstance(args, (list, tuple)):
        raise errors.no_such_overload()
    remaining = iter(args)
    return "".join(_rendered(piece, remaining, len(args)) for piece in pieces(text))


def _rendered(piece: Piece, remaining: Iterable[Value], count: int) -> str:
    if not piece.verb:
        return piece.text
    for value in remaining:
        return _RENDERERS[piece.verb](value, piece.precision)
    raise errors.EvalError(f"index {count} out of range")


def shown(value: Value, _: int = 0) -> str:
    """A value as `%s` writes it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{shown(key)}: {shown(held)}' for key, held in value.items()))}}}"
    if value is None:
        return "null"
    if isinstance(value, values.TypeValue):
        return value.name
    return conversions.to_string(value)


def _decimal(value: Value, _: int) -> str:
    return str(_integer(value, "d"))


def _integer(value: Value, verb: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _unfit(verb)
    return int(value)


def _unfit(verb: str) -> errors.EvalError:
    return errors.EvalError(f"error during formatting: no formatting clause %{verb} for this type of value")


def _double(letter: str) -> Callable[[Value, int], str]:
    """Doubles are written as in American English: groups of thousands, and a power of ten instead of an `e`."""

    def rendered(value: Value, precision: int) -> str:
        if isinstance(value, str) and value in _SPECIAL:
            return _SPECIAL[value]
        if not isinstance(value, float):
            raise _unfit(letter)
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "∞" if value > 0 else "-∞"
        if letter == "f":
            return f"{value:,.{precision}f}"
        digits, _, exponent = f"{value:.{precision}e}".partition("e")
        return f"{digits}\u202f×\u202f10{exponent.removeprefix('+').translate(_SUPERSCRIPT)}"  # noqa: RUF001

    return rendered


def _binary(value: Value, _: int) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{_integer(value, 'b'):b}"


def _hex(letter: str) -> Callable[[Value, int], str]:
    def rendered(value: Value, _: int) -> str:
        if isinstance(value, (str, bytes)):
            digits = conversions.to_bytes(value).hex()
            return digits.upper() if letter == "X" else digits
        return f"{_integer(value, letter):{letter}}"

    return rendered


def _octal(value: Value, _: int) -> str:
    return f"{_integer(value, 'o'):o}"


_RENDERERS: Final[dict[str, Callable[[Value, int], str]]] = {
    "s": shown,
    "d": _decimal,
    "f": _double("f"),
    "e": _double("e"),
    "b": _binary,
    "x": _hex("x"),
    "X": _hex("X"),
    "o": _octal,
}
