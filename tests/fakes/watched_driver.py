"""A driver that is started and watched as a node does it, for tests without a node."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Protocol

from drakit.core import context as contexts
from drakit.core import driver as drivers
from drakit.node import background, timing

STOP_SECONDS = 30.0


class StoppableContext(contexts.DriverContext, Protocol):
    """A context that can be told to stop."""

    @property
    def stopping(self) -> threading.Event:
        """The event that ends a watch."""


@contextlib.contextmanager
def watching(driver: drivers.Driver[Any], context: StoppableContext) -> Iterator[None]:
    """Start a driver and call its watch in a thread; stop both at the end. The context can be used again."""
    driver.start(context)
    loop = background.WatchLoop(driver, context, timing.SystemClock())
    thread = threading.Thread(target=loop.run, args=(context.stopping,), name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        context.stopping.set()
        thread.join(STOP_SECONDS)
        assert not thread.is_alive(), "the watch did not end"
        driver.stop()
        context.stopping.clear()
