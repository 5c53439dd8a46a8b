"""Delays between retries."""

import random
import time

_FACTOR = 2.0


class Backoff:
    """Delays in seconds that double from ``initial`` up to ``limit``. ``jitter`` adds up to that fraction of each delay."""

    def __init__(self, initial: float, limit: float, *, jitter: float = 0.0) -> None:
        self._initial = initial
        self._limit = limit
        self._jitter = jitter
        self._next = initial
        self.due = 0.0
        """When the next attempt may begin, on the monotonic clock."""

    def next(self) -> float:
        """Return the delay before the next attempt."""
        delay, self._next = self._next, min(self._next * _FACTOR, self._limit)
        delay *= 1 + self._jitter * random.random()  # noqa: S311 - spreads retries; not for security.
        self.due = time.monotonic() + delay
        return delay

    def reset(self) -> None:
        """Restart from the initial delay, after a successful attempt."""
        self._next = self._initial
