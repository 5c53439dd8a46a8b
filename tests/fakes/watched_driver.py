"""A driver that is started and watched as a node does it, for tests without a node."""

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

from drakit.core import driver as drivers
from drakit.node import background, timing
from fakes import waits

Driver = TypeVar("Driver", bound=drivers.Driver[Any])


@contextlib.contextmanager
def watching(driver: Driver, context: background.StoppableContext) -> Iterator[Driver]:
    """Start a driver and call its watch in a thread; stop both at the end. The context can be used again."""
    with background.watching(driver, context, timing.SYSTEM, seconds=waits.SECONDS) as thread:
        yield driver
    assert not thread.is_alive(), "the watch did not end"
    context.stopping.clear()
