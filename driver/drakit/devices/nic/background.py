"""Checks in the background: after the kernel reported changes and none for a moment, and at intervals.

A hundred shares prepared one after the other cause hundreds of events, nearly all by the driver itself. A check after each would cost as much as all
shares together, under the locks that the next share waits for. So a burst of events costs a bounded number of checks.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from drakit.devices.nic import port

_JOIN_SECONDS = 10.0


class Stop(Protocol):
    """What ends a wait: a ``threading.Event``."""

    def wait(self, timeout: float) -> bool:
        """Return whether it is set within ``timeout`` seconds."""


def wait_until_quiet(
    watch: port.Watch, stopping: Stop, *, quiet: float, most: float, monotonic: Callable[[], float] = time.monotonic
) -> None:
    """Return when no event came for ``quiet`` seconds, after about ``most`` seconds, or when stopped. Events until then are drained."""
    until = monotonic() + most
    while True:
        watch.drain()
        if stopping.wait(quiet) or not watch.wait(0) or monotonic() >= until:
            return


class CheckLoop:
    """A thread that runs ``check``, waits for an event of ``watch`` or ``interval()`` seconds, and then until events stop for ``quiet`` seconds.

    ``check`` must not raise. ``stop`` ends the thread and closes the watch.
    """

    def __init__(
        self, name: str, check: Callable[[], None], watch: port.Watch, *, interval: Callable[[], float], quiet: float, most: float
    ) -> None:
        self._check, self._watch = check, watch
        self._interval, self._quiet, self._most = interval, quiet, most
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._watch.wake()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)
        if not self._thread.is_alive():
            self._watch.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._check()
            if self._stopping.is_set():
                return
            self._watch.wait(self._interval())
            wait_until_quiet(self._watch, self._stopping, quiet=self._quiet, most=self._most)
