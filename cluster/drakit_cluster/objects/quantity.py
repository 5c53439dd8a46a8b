"""Kubernetes quantities, exactly: "10Gi", "500m", "1e3".

The value is kept as an integer of thousand-millionths (nanos), the finest step the API knows, so sums and comparisons never round.
Source: k8s.io/apimachinery resource.Quantity. Its rules, kept here:

- ``<sign><digits>[.<digits>]<suffix>`` with a decimal (n u m k M G T P E), binary (Ki Mi Gi Ti Pi Ei) or exponent (e3, E-2) suffix;
- a value finer than one nano is rounded away from zero, so that a small request never becomes zero;
- a binary quantity is capped at 2**63 - 1, and below 1 it is written in decimal form;
- two quantities are equal when their values are, however they are written.
"""

import enum
import functools
import re
from dataclasses import dataclass, field
from typing import Self

from drakit import units
from drakit_cluster.objects.json_types import Json

NANOS = 10**9
MILLI_NANOS = 10**6
_MAX_MILLI = 2**63 - 1
_MAX_BINARY = (2**63 - 1) * NANOS
_EXPONENT_LIMIT = 1000

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_BY_EXPONENT = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_FORM = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]+))?")


class QuantityError(ValueError):
    """A text that is not a quantity."""


class Format(enum.Enum):
    """The notation of a quantity, which never changes the value."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Quantity:
    """An exact amount of ``nanos`` / 10**9. Compared by value alone; ``str`` gives Kubernetes' canonical form."""

    nanos: int
    format: Format = field(default=Format.DECIMAL, compare=False)
    source: str = field(default="", compare=False, repr=False)
    """The text it was read from, or ``""`` if it was computed."""

    @classmethod
    def of(cls, units: int, form: Format = Format.DECIMAL) -> Self:
        """Return ``units`` whole units."""
        return cls(nanos=units * NANOS, format=form)

    @property
    def units(self) -> int:
        """The value in whole units, a fraction rounded away from zero (Go's ``Quantity.Value``)."""
        magnitude = -(-abs(self.nanos) // NANOS)
        return magnitude if self.nanos >= 0 else -magnitude

    @property
    def is_fraction(self) -> bool:
        """Whether it is not a whole number of units."""
        return self.nanos % NANOS != 0

    @property
    def is_milli(self) -> bool:
        """Whether it is a whole number of thousandths that 64 bits hold (Go's ``Quantity.MilliValue`` without loss)."""
        return self.nanos % MILLI_NANOS == 0 and abs(self.nanos) // MILLI_NANOS <= _MAX_MILLI

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(nanos=self.nanos + other.nanos, format=self.format)

    def __str__(self) -> str:
        if self.nanos == 0:
            return "0"
        if self.format is Format.BINARY and self.nanos % NANOS == 0 and abs(self.nanos) >= 1024 * NANOS:
            return _binary_text(self.nanos // NANOS)
        return _decimal_text(self.nanos, self.format)


def parse(value: Json) -> Quantity:
    """Return the quantity of a JSON value: a string, or a number as Kubernetes also takes it. Raises :class:`QuantityError` otherwise."""
    if isinstance(value, str):
        return _parse_text(value.strip())
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _parse_text(str(value))
    raise QuantityError(f"{value!r} is not a quantity: write a string such as 10Gi, 500m or 1e3")


def canonical(value: Json) -> str:
    """Return the canonical form of a quantity in JSON. Raises :class:`QuantityError` for what is not one."""
    return _canonical(value) if isinstance(value, str) else str(parse(value))


@functools.lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    return str(parse(text))


@functools.lru_cache(maxsize=4096)
def _parse_text(text: str) -> Quantity:
    match = _FORM.fullmatch(text)
    if match is None:
        fix = units.without_unit(text) or "write digits and one suffix, such as 10Gi, 500m or 1e3"
        raise QuantityError(f"{text!r} is not a quantity: {fix}")
    sign, integer, fraction, binary, decimal, power = match.groups()
    digits = int(integer + (fraction or ""))
    exponent = int(power) if power else _DECIMAL[decimal or ""]
    if abs(exponent) > _EXPONENT_LIMIT:
        raise QuantityError(f"{text!r} is not a quantity: the exponent is beyond {_EXPONENT_LIMIT}")
    scale = exponent - len(fraction or "") + 9
    nanos, remainder = divmod(digits * 10 ** max(scale, 0) * 2 ** _BINARY.get(binary or "", 0), 10 ** max(-scale, 0))
    nanos += 1 if remainder else 0
    form = Format.BINARY if binary else Format.EXPONENT if power else Format.DECIMAL
    if form is Format.BINARY:
        nanos = min(nanos, _MAX_BINARY)
        form = form if nanos >= NANOS or nanos == 0 else Format.DECIMAL
    return Quantity(nanos=-nanos if sign == "-" else nanos, format=form, source=text)


def _binary_text(units: int) -> str:
    suffix = ""
    for suffix_of, shift in reversed(_BINARY.items()):
        if units % (1 << shift) == 0:
            units, suffix = units >> shift, suffix_of
            break
    return f"{units}{suffix}"


def _decimal_text(nanos: int, form: Format) -> str:
    """Write with the largest power of a thousand that leaves an integer."""
    exponent = -9
    while nanos % 1000 == 0 and (exponent < 18 or form is Format.EXPONENT):
        nanos, exponent = nanos // 1000, exponent + 3
    if form is Format.EXPONENT:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL_BY_EXPONENT[exponent]}"
