"""When to reconcile: at every wake, now and then without one, less often the more there was to mend, and with growing pauses after errors.

``SlicePublisher`` is what the publishers of a node's pool and of a cluster's pools have in common.
"""

import abc
import collections
import threading
from collections.abc import Callable

from drakit.core import backoff, errors, ports
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
RESYNC = 600.0
SETTLE = 0.05
LONGEST_SETTLE = 30.0
MENDS_WINDOW = 60.0
MENDS_MAX = 16


class SlicePublisher(abc.ABC):
    """Keeps the slices of a store equal to an offer. ``published`` is set once they have been; ``run`` and ``follow`` work until stopped."""

    def __init__(self, driver: str, store: ports.SliceStore, clock: ports.Clock, meter: ports.Meter | None = None) -> None:
        self._store = store
        self._clock = clock
        self._rounds = ReconcileLoop(driver, self.reconcile, clock, meter)
        self.published = threading.Event()

    @abc.abstractmethod
    def reconcile(self) -> int:
        """One round; the number of writes. Raises DrakitErrors."""

    def wake(self) -> None:
        """Look at the slices soon."""
        self._rounds.wake()

    def follow(self, stop: threading.Event) -> None:
        """Wake at every change of the slices, whoever made it, until ``stop`` is set."""
        for _ in self._store.watch(stop):
            self._rounds.wake()

    def run(self, stop: threading.Event) -> None:
        """Reconcile at every wake, until ``stop`` is set and ``wake`` called."""
        self._rounds.run(stop)

    def _changed(self) -> None:
        """Something else is offered now."""
        self._rounds.calm()
        self._rounds.wake()


class ReconcileLoop:
    """Calls ``reconcile``, which returns the number of its writes and may raise DrakitErrors, for the driver named ``driver``."""

    def __init__(self, driver: str, reconcile: Callable[[], int], clock: ports.Clock, meter: ports.Meter | None = None) -> None:
        self._driver = driver
        self._reconcile = reconcile
        self._clock = clock
        self._meter: ports.Meter = meter or ports.Unmeasured()
        self._mends: collections.deque[float] = collections.deque(maxlen=MENDS_MAX)
        self._wake = threading.Event()

    def wake(self) -> None:
        """Have a round soon."""
        self._wake.set()

    def calm(self) -> None:
        """Forget what was mended: something new is wanted, and nobody disagrees with it yet."""
        self._mends.clear()

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set and ``wake`` called."""
        pauses = backoff.Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while not stop.is_set():
            self._clock.wait(self._wake, backoff.jittered(RESYNC))
            self._wake.clear()
            if stop.is_set():
                return
            try:
                writes = self._reconcile()
                if writes:
                    self._mends.append(self._clock.monotonic())
                    self._meter.published(writes)
                pauses.reset()
                self._clock.wait(stop, self._settle())
            except errors.DrakitError as error:
                self._meter.failed_to_publish()
                pause = backoff.jittered(pauses.next())
                _log.warning("publishing failed", driver=self._driver, error=str(error), retry_in_s=round(pause, 1))
                self._clock.wait(stop, pause)
                self._wake.set()

    def _settle(self) -> float:
        """Seconds until the next look: longer with every mend of the last minute, so that two who disagree do not fight at full speed."""
        since = self._clock.monotonic() - MENDS_WINDOW
        recent = sum(moment > since for moment in self._mends)
        return float(min(SETTLE * 2**recent, LONGEST_SETTLE))
