"""How long a test waits at most, in one place.

A test that passes never waits that long, however loaded the machine is; pytest's own limit (pyproject.toml) is longer. A test that proves
that something does not happen, or that a deadline is kept, has a limit of its own.
"""

import time
from collections.abc import Callable

SECONDS = 300.0
_POLL_SECONDS = 0.02


def eventually(holds: Callable[[], object]) -> bool:
    """Return True as soon as a condition holds, and False where it does not hold within ``SECONDS``."""
    end = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_SECONDS)
    return True
