"""Exact quantities in the notation of Kubernetes (apimachinery resource.Quantity).

A quantity is a whole number of nano units and one of three formats. The format only decides the notation: comparison, hashing and arithmetic are by
value, so ``Quantity.parse("1Gi") == Quantity.parse("1024Mi")``. As in Kubernetes, a text finer than a nano is rounded away from zero, and a binary
quantity is capped at 2**63 - 1. Other than in Kubernetes, a lone sign or dot is an error and not zero.
"""

import dataclasses
import enum
import functools
import re
from typing import Self

from drakit import units
from drakit.core import errors

_NANO = 10**9
_TEXT = re.compile(r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?P<suffix>[A-Za-z]{0,2}|[eE][+-]?[0-9]+)")
_WRITE = "write a number with an optional suffix, such as 40Gi, 500m or 5G"
_EXPONENT = re.compile(r"[eE](?P<power>[+-]?[0-9]+)")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_MAX_POWER = 60
MAX_NANOS = (2**63 - 1) * _NANO
"""The largest absolute value whose text is exact. Larger binary amounts are capped when they are read."""
_MAX_TEXT = 128


class Format(enum.Enum):
    """The notation of a quantity."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


@functools.total_ordering
@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact number without a unit, stored in nanos (10**-9)."""

    nanos: int
    format: Format = Format.DECIMAL

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the quantity of a text such as ``40Gi``, ``500m``, ``1e3`` or ``-1.5``. Raises QuantityError if Kubernetes would reject it."""
        match = _TEXT.fullmatch(text) if len(text) <= _MAX_TEXT else None
        if match is None or not (match["whole"] or match["part"]):
            raise errors.QuantityError(f"{text[:_MAX_TEXT]!r} is not a quantity; {units.without_unit(text) or _WRITE}")
        power_of_two, power_of_ten, form = _scale(match["suffix"], text)
        digits = int(match["whole"] + (match["part"] or "") or "0")
        nanos = _scaled(digits, power_of_two, power_of_ten - len(match["part"] or ""))
        if form is Format.BINARY:
            nanos = min(nanos, MAX_NANOS)
            form = Format.DECIMAL if 0 < nanos < _NANO else form
        return cls(-nanos if match["sign"] == "-" else nanos, form)

    @classmethod
    def of(cls, value: "Amount") -> "Quantity":
        """Return a quantity from an integer, a text or a quantity. Raises QuantityError."""
        if isinstance(value, Quantity):
            return value
        if not isinstance(value, int | str):
            raise errors.QuantityError(f"{value!r} is not an amount; write a whole number, text such as '40Gi', or a Quantity")
        return cls(value * _NANO) if isinstance(value, int) else cls.parse(value)

    @classmethod
    def binary(cls, value: int) -> Self:
        """Return an integer that is written with binary suffixes, such as a number of bytes."""
        return cls(value * _NANO, Format.BINARY)

    @property
    def value(self) -> int:
        """The integer value, rounded away from zero like Quantity.Value()."""
        whole = -(-abs(self.nanos) // _NANO)
        return whole if self.nanos >= 0 else -whole

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos + other.nanos, (self or other).format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, (self or other).format)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __str__(self) -> str:
        """Return the canonical form: the largest suffix that keeps the number whole; decimal where a binary one would lose a fraction."""
        if self.format is Format.BINARY and abs(self.nanos) >= 1024 * _NANO and self.nanos % _NANO == 0:
            return _binary_text(self.value)
        mantissa, power = _decimal_parts(self.nanos, cap=_MAX_POWER if self.format is Format.EXPONENT else 18)
        if self.format is Format.EXPONENT:
            return f"{mantissa}e{power}" if power else str(mantissa)
        return f"{mantissa}{_DECIMAL_SUFFIX[power]}"

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"


Amount = int | str | Quantity
"""The types that an author may use for a quantity: an integer, a text such as ``40Gi``, or a quantity."""

ZERO = Quantity(0)
ONE = Quantity(_NANO)


def _scale(suffix: str, text: str) -> tuple[int, int, Format]:
    if suffix in _BINARY:
        return _BINARY[suffix], 0, Format.BINARY
    if suffix in _DECIMAL:
        return 0, _DECIMAL[suffix], Format.DECIMAL
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None:
        raise errors.QuantityError(
            f"{text!r} has an unknown suffix {suffix!r}; {units.without_unit(text) or 'use n u m k M G T P E or Ki Mi Gi Ti Pi Ei'}"
        )
    power = int(exponent["power"])
    if abs(power) > _MAX_POWER:
        raise errors.QuantityError(f"{text!r} has an exponent beyond {_MAX_POWER}")
    return 0, power, Format.EXPONENT


def _scaled(digits: int, power_of_two: int, power_of_ten: int) -> int:
    """Return ``digits * 2**power_of_two * 10**power_of_ten`` in nanos, rounded away from zero."""
    power = power_of_ten + 9
    shifted = digits << power_of_two
    factor: int = 10 ** abs(power)
    return shifted * factor if power >= 0 else -(-shifted // factor)


def _binary_text(value: int) -> str:
    suffix = ""
    for name in _BINARY:
        if value % 1024:
            break
        value, suffix = value // 1024, name
    return f"{value}{suffix}"


def _decimal_parts(nanos: int, *, cap: int) -> tuple[int, int]:
    """Return mantissa and power of ten. The power is the largest multiple of three, up to ``cap``, that keeps the mantissa whole."""
    if nanos == 0:
        return 0, 0
    power = -9
    while power < cap and nanos % 1000 == 0:
        nanos, power = nanos // 1000, power + 3
    return nanos, power
