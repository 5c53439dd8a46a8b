"""How much of the machine was somebody else's while something was measured, so that a reader can judge a figure."""

import contextlib
import pathlib
import time
from collections.abc import Iterator

_STAT = pathlib.Path("/proc/stat")
_IDLE, _WAIT, _STEAL = 3, 4, 7
_BEFORE_SECONDS = 0.3


class Watch:
    """What the machine did while it was watched; ``text`` is complete when the ``with`` block of ``watched`` is left."""

    def __init__(self, busy: float) -> None:
        self.busy = busy
        self.stolen = 0.0
        self.idle = 0.0

    @property
    def text(self) -> str:
        """``stolen``: by the host of a virtual machine; ``busy before``: what others used of the processors just before."""
        return f"[stolen {self.stolen:.1%}, idle {self.idle:.0%}, busy before {self.busy:.0%}]"


@contextlib.contextmanager
def watched() -> Iterator[Watch]:
    """Look at the processors for a moment before the body, and during it."""
    start = _times()
    time.sleep(_BEFORE_SECONDS)
    middle = _times()
    found = Watch(1 - _part(start, middle, _IDLE, _WAIT))
    yield found
    end = _times()
    found.stolen, found.idle = _part(middle, end, _STEAL), _part(middle, end, _IDLE, _WAIT)


def _times() -> list[int]:
    """The processors' time by use since boot, in ticks (proc(5))."""
    return [int(word) for word in _STAT.read_text().partition("\n")[0].split()[1:9]]


def _part(before: list[int], after: list[int], *uses: int) -> float:
    spent = [late - early for early, late in zip(before, after, strict=True)]
    return sum(spent[use] for use in uses) / max(sum(spent), 1)
