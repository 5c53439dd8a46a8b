"""How long to wait before trying again."""

import random

_FACTOR = 2.0


class Backoff:
    """Delays in seconds that double from ``initial`` up to ``limit``. ``jitter`` adds up to that fraction of each delay."""

    def __init__(self, initial: float, limit: float, *, jitter: float = 0.0) -> None:
        self._initial = initial
        self._limit = limit
        self._jitter = jitter
        self._next = initial

    def next(self) -> float:
        """Return the delay before the coming attempt."""
        delay, self._next = self._next, min(self._next * _FACTOR, self._limit)
        return delay * (1 + self._jitter * random.random())  # noqa: S311 - spreads retries; guards nothing.

    def reset(self) -> None:
        """Begin again: the last attempt went well."""
        self._next = self._initial
