"""How many examples a test tries: a quarter in `make test`, other ones in each run; all with ``DRAKIT_TEST_EXAMPLES=full`` (`make crash`)."""

import os
import random
from collections.abc import Sequence
from typing import TypeVar

Point = TypeVar("Point")

FULL = os.environ.get("DRAKIT_TEST_EXAMPLES") == "full"
_LEAST = 10


def count(full: int) -> int:
    """Return how many of ``full`` examples are tried."""
    return full if FULL else max(_LEAST, full // 4)


def sample(points: Sequence[Point]) -> list[Point]:
    """Return those of the points that are tried."""
    return random.sample(points, min(len(points), count(len(points))))
