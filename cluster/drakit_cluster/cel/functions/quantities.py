"""Quantities inside selectors: the judge's exact quantity, and the arithmetic that CEL adds.

Kubernetes keeps a quantity as an integer and a power of ten where both fit, and says that a value is an integer only in that form
with a power of at least 0. `quantity("1000m")` is therefore no integer, though it equals 1; the power is kept here for that.
"""

import dataclasses
import functools
import re
from typing import Final

from drakit_cluster.cel.evaluation import values
from drakit_cluster.objects import quantity

_NANO: Final = -9
_DIGITS_MAX: Final = 18
_BINARY_DIGITS_MAX: Final = 15
_WRITTEN: Final = re.compile(r"[+-]?0*([0-9]*)(?:\.([0-9]*))?([KMGTPE]i)?")


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Amount:
    """A quantity: its value in nanos, and the power of ten that it is counted in, None where it needs more than 64 bits."""

    nanos: int
    power: int | None = dataclasses.field(compare=False)

    @property
    def integer(self) -> int | None:
        """The whole number it stands for, None unless Kubernetes would give one."""
        if self.power is None or self.power < 0:
            return None
        units = self.nanos // quantity.NANOS
        return units if values.INT_MIN <= units <= values.INT_MAX else None

    @property
    def sign(self) -> int:
        return (self.nanos > 0) - (self.nanos < 0)

    def plus(self, other: "Amount", sign: int = 1) -> "Amount":
        """The sum, or the difference where `sign` is -1."""
        return Amount(self.nanos + sign * other.nanos, self._common(other))

    def _common(self, other: "Amount") -> int | None:
        if not self.nanos:
            return other.power
        if not other.nanos:
            return self.power
        return None if self.power is None or other.power is None else min(self.power, other.power)

    def approximate(self) -> float:
        """The nearest double."""
        return self.nanos / quantity.NANOS


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Amount:
    """The quantity that the text is. Raises ValueError."""
    if text != text.strip():
        raise ValueError(f"{text!r} is no quantity")
    read = quantity.parse(text)
    return Amount(read.nanos, _power(text, read.nanos))


def of_int(units: int) -> Amount:
    """A whole number of units."""
    return Amount(units * quantity.NANOS, 0)


def _power(text: str, nanos: int) -> int | None:
    """The power of ten that Kubernetes counts the written quantity in, None where it falls back to big decimals."""
    match = _WRITTEN.match(text)
    whole, fraction, binary = match.groups() if match else ("", None, None)
    fraction = fraction or ""
    if binary:
        shift = 10 * (" KMGTPE".index(binary[0]))
        fits = not fraction and _BINARY_DIGITS_MAX - len(whole) - int(shift * 3 / 10) - 1 >= 0
        return 0 if fits else None
    power = _exponent(text) - len(fraction)
    fits = len(whole) + len(fraction) <= _DIGITS_MAX and power >= _NANO
    return power if fits and abs(nanos) <= values.INT_MAX * quantity.NANOS * 10 ** max(power, 0) else None


def _exponent(text: str) -> int:
    tail = text.lstrip("+-0123456789.")
    if len(tail) > 1:
        return int(tail[1:])
    return {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}[tail]
