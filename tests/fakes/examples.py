"""How many examples hypothesis tries: a quarter in `make test`, other ones in each run; all with ``DRAKIT_TEST_EXAMPLES=full`` (`make crash`)."""

import os

FULL = os.environ.get("DRAKIT_TEST_EXAMPLES") == "full"
_LEAST = 10


def count(full: int) -> int:
    """Return how many of ``full`` examples are tried."""
    return full if FULL else max(_LEAST, full // 4)
