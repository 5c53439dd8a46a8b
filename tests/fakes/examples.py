"""How many examples tests try, and which: a part in `make test`, other ones in each run; all with ``DRAKIT_TEST_EXAMPLES=full`` (`make crash`).

A run draws its points of a matrix by the seed in ``TEST_EXAMPLES_SEED``, which is random unless it is given, and is printed where a test fails.
"""

import os
import random
from collections.abc import Sequence
from typing import TypeVar

Point = TypeVar("Point")

FULL = os.environ.get("DRAKIT_TEST_EXAMPLES") == "full"
SEED = "TEST_EXAMPLES_SEED"
_LEAST = 10


def count(full: int) -> int:
    """Return how many of ``full`` examples are tried."""
    return full if FULL else max(_LEAST, full // 4)


def draw(name: object) -> random.Random:
    """Return what draws the points of the matrix of this name in this run."""
    return random.Random(f"{os.environ[SEED]} {name}")


def sample(name: object, points: Sequence[Point]) -> list[Point]:
    """Return those of the points of the matrix of this name that are tried in this run."""
    return draw(name).sample(points, min(len(points), count(len(points))))
