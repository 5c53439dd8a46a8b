"""Limit repeated reports of one kind to one in a period.

The kind must have few values, such as an HTTP status. The text of an error is no kind, because it names the object that the error is about.
"""

import collections
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

KINDS_MAX = 1024

Kind = TypeVar("Kind", bound=Hashable)


class Repeats(Generic[Kind]):
    """The reports of the last ``seconds``, by kind. Safe between threads."""

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._guard = threading.Lock()
        self._reported: collections.OrderedDict[Kind, tuple[float, int]] = collections.OrderedDict()

    def due(self, kind: Kind) -> int | None:
        """Return None if a report of this kind is recent, else the number of reports that were suppressed since the last one."""
        with self._guard:
            now = self._monotonic()
            last, suppressed = self._reported.get(kind, (now - self._seconds, 0))
            is_due = now - last >= self._seconds
            self._reported[kind] = (now, 0) if is_due else (last, suppressed + 1)
            self._reported.move_to_end(kind)
            while len(self._reported) > KINDS_MAX:
                self._reported.popitem(last=False)
        return suppressed if is_due else None
