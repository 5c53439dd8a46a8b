"""Ranges of sizes and costs, from the least to the most, that stop at 2**64 - 1 instead of overflowing."""

import dataclasses
import math
from typing import Final

MOST: Final = 2**64 - 1


def _capped(value: int) -> int:
    return min(value, MOST)


def _scaled(value: int, factor: float) -> int:
    return _capped(math.ceil(float(value) * factor))


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`, both possible."""

    low: int
    high: int

    def __add__(self, other: "Range") -> "Range":
        return Range(_capped(self.low + other.low), _capped(self.high + other.high))

    def times(self, other: "Range") -> "Range":
        return Range(_capped(self.low * other.low), _capped(self.high * other.high))

    def scaled(self, factor: float) -> "Range":
        """By a factor, rounded up."""
        return Range(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: "Range") -> "Range":
        return Range(min(self.low, other.low), max(self.high, other.high))


def fixed(value: int) -> Range:
    """Exactly this."""
    return Range(_capped(value), _capped(value))


ZERO: Final = Range(0, 0)
ONE: Final = Range(1, 1)
UNKNOWN: Final = Range(0, MOST)
