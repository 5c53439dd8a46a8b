"""Waiting until changes come to an end, so that a burst of them costs a bounded number of looks.

A hundred shares that are prepared one after the other are hundreds of events, nearly all our own. A look at each would cost as much as all shares
together, under the very locks that the next share waits for.
"""

import time
from collections.abc import Callable
from typing import Protocol

from drakit.devices.nic import port


class Stop(Protocol):
    """What ends a wait: a ``threading.Event``."""

    def wait(self, timeout: float) -> bool:
        """Whether it is set within so many seconds."""


def settle(watch: port.Watch, stopping: Stop, *, quiet: float, most: float, monotonic: Callable[[], float] = time.monotonic) -> None:
    """Return when nothing has happened for ``quiet`` seconds, when about ``most`` are over, or when stopped. What happened meanwhile is drained."""
    until = monotonic() + most
    while True:
        watch.drain()
        if stopping.wait(quiet) or not watch.wait(0) or monotonic() >= until:
            return
