"""Backoff: the pauses between attempts, which double after each failure up to a longest one, and their jitter."""

import random

JITTER = 0.2
_random = random.SystemRandom()


class Backoff:
    """The pauses between attempts in seconds, from ``first`` to ``longest``. Not thread-safe."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self.pause = first
        """The pause after the next failure."""

    def next(self) -> float:
        """Return the pause after this failure; the one after the next failure is twice as long."""
        pause, self.pause = self.pause, longer(self.pause, self._longest)
        return pause

    def reset(self) -> None:
        """Start again with the first pause, after a success."""
        self.pause = self._first


def jittered(seconds: float) -> float:
    """Return ``seconds`` longer or shorter by up to a fifth, so that the nodes of a cluster do not act at the same moment."""
    return seconds * _random.uniform(1 - JITTER, 1 + JITTER)


def longer(pause: float, longest: float) -> float:
    """Return the pause that follows ``pause``: twice as long, at most ``longest`` seconds."""
    return min(2 * pause, longest)
