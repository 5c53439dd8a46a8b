"""The hardware state that no claim has, as the metric ``drakit_unclaimed`` shows it: read at most once a minute, in a thread of its own.

A scrape must neither touch hardware often nor wait for a call that hangs. While such a call hangs no other read starts, and what was read last is
shown.
"""

import threading
from collections.abc import Callable, Sequence

from drakit.core import advanced, errors, ports

SECONDS = 60.0
"""The shortest time between two reads."""
FIRST_SECONDS = 2.0
"""For how long the first scrape waits for its read."""


class UnclaimedCache:
    """What ``read`` returned last. Any thread may call it."""

    def __init__(
        self, read: Callable[[], Sequence[advanced.Leftover]], clock: ports.Clock, *, first_seconds: float = FIRST_SECONDS
    ) -> None:
        self._read, self._clock, self._first_seconds = read, clock, first_seconds
        self._lock = threading.Lock()
        self._is_reading = False
        self._due = float("-inf")
        self._leftovers: Sequence[advanced.Leftover] = ()
        self._error: Exception | None = errors.HardwareError("unclaimed", "not read yet: the hardware has not answered")

    def __call__(self) -> Sequence[advanced.Leftover]:
        """Return what was read last, and read again in the background where that is due. Raises the error of the last read."""
        with self._lock:
            is_first = self._due == float("-inf")
            reader = self._start_due()
        if is_first and reader is not None:
            reader.join(self._first_seconds)
        with self._lock:
            if self._error is not None:
                raise self._error.with_traceback(None)
            return self._leftovers

    def _start_due(self) -> threading.Thread | None:
        """Start a read unless one runs or the last one is recent."""
        if self._is_reading or self._clock.monotonic() < self._due:
            return None
        self._is_reading, self._due = True, self._clock.monotonic() + SECONDS
        reader = threading.Thread(target=self._refresh, name="unclaimed", daemon=True)
        reader.start()
        return reader

    def _refresh(self) -> None:
        leftovers: Sequence[advanced.Leftover] = ()
        failure: Exception | None = None
        try:
            leftovers = self._read()
        except Exception as error:  # noqa: BLE001 - any error of hardware or of an author's code; the gauge's reader logs it
            failure = error
        with self._lock:
            self._leftovers, self._error, self._is_reading = leftovers, failure, False
