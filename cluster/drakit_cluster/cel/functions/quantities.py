"""Quantities inside selectors: the exact quantity, and the arithmetic that CEL adds.

Kubernetes stores a quantity as an integer and a power of ten if both fit. Only in that form, with a power of at least 0, does it report the
value as an integer. `quantity("1000m")` is therefore not an integer, though it equals 1. This module stores the power for that reason.
"""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Value
from drakit_cluster.objects import quantity

_NANO: Final = -9
_DIGITS_MAX: Final = 18
_BINARY_DIGITS_MAX: Final = 15
_WRITTEN: Final = re.compile(r"[+-]?0*([0-9]*)(?:\.([0-9]*))?([KMGTPE]i)?")


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Amount:
    """A quantity: its value in nanos, and the power of ten of its unit; None if it needs more than 64 bits."""

    nanos: int
    power: int | None = dataclasses.field(compare=False)

    @property
    def integer(self) -> int | None:
        """The integer that it equals; None unless Kubernetes would report one."""
        if self.power is None or self.power < 0:
            return None
        units = self.nanos // quantity.NANOS
        return units if values.INT_MIN <= units <= values.INT_MAX else None

    def plus(self, other: "Amount | int", sign: int = 1) -> "Amount":
        """Return the sum, or the difference if `sign` is -1."""
        if isinstance(other, int):
            other = Amount(other * quantity.NANOS, 0)
        if not self.nanos or not other.nanos:
            power = self.power if self.nanos else other.power
        else:
            power = None if self.power is None or other.power is None else min(self.power, other.power)
        return Amount(self.nanos + sign * other.nanos, power)


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Amount:
    """Parse a quantity. Raises ValueError."""
    if text != text.strip():
        raise ValueError(f"{text!r} is not a quantity")
    parsed = quantity.parse(text)
    return Amount(parsed.nanos, _power(text, parsed.nanos))


def _power(text: str, nanos: int) -> int | None:
    """Return the power of ten in which Kubernetes stores the quantity; None if it falls back to big decimals."""
    match = _WRITTEN.match(text)
    integer_digits, fraction, binary = match.groups() if match else ("", None, None)
    fraction = fraction or ""
    if binary:
        shift = 10 * (" KMGTPE".index(binary[0]))
        fits = not fraction and _BINARY_DIGITS_MAX - len(integer_digits) - int(shift * 3 / 10) - 1 >= 0
        return 0 if fits else None
    power = _exponent(text) - len(fraction)
    fits = len(integer_digits) + len(fraction) <= _DIGITS_MAX and power >= _NANO
    return power if fits and abs(nanos) <= values.INT_MAX * quantity.NANOS * 10 ** max(power, 0) else None


def _exponent(text: str) -> int:
    tail = text.lstrip("+-0123456789.")
    return int(tail[1:]) if len(tail) > 1 else {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}[tail]


def _to_quantity(text: str) -> Amount:
    try:
        return parse(text)
    except ValueError as error:
        raise errors.EvalError(str(error)) from error


def as_integer(value: Amount) -> int:
    """Return `quantity.asInteger()`. Raises EvalError for a quantity that Kubernetes stores in another form."""
    if value.integer is None:
        raise errors.EvalError("cannot convert value to integer")
    return value.integer


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "quantity": _to_quantity,
    "isQuantity": lambda text: values.is_accepted(_to_quantity, text),
    "sign": lambda value: (value.nanos > 0) - (value.nanos < 0),
    "asInteger": as_integer,
    "isInteger": lambda value: value.integer is not None,
    "asApproximateFloat": lambda value: value.nanos / quantity.NANOS,
    "add": lambda left, right: left.plus(right),
    "sub": lambda left, right: left.plus(right, -1),
}
