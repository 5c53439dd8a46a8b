"""How long a test waits at most, in one place.

A test that passes never waits that long, however loaded the machine is; pytest's own limit (pyproject.toml) is longer. A test that proves
that something does not happen, or that a deadline is kept, has a limit of its own.
"""

import time
from collections.abc import Callable

SECONDS = 300.0
_FIRST_PAUSE, _LAST_PAUSE, _GROWTH = 0.01, 0.1, 1.2


def eventually(holds: Callable[[], object], seconds: float = SECONDS) -> bool:
    """Return True soon after a condition holds, and False where it does not hold within a time. The longer it waits, the less often it asks."""
    end, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
        pause = min(pause * _GROWTH, _LAST_PAUSE)
    return True
