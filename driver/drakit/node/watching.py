"""The loop that calls an author's ``watch``: at the driver's interval, later after errors, until the driver stops."""

import threading

from drakit.core import backoff, errors, ports
from drakit.core import context as contexts
from drakit.node import inventory_cache
from drakit.telemetry import logs

_log = logs.get_logger(__name__)


class WatchLoop:
    """Calls ``author.watch``; an error of the author's never ends it."""

    def __init__(self, author: inventory_cache.Author, context: contexts.DriverContext, clock: ports.Clock) -> None:
        self._author = author
        self._context = context
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Watch until ``stop`` is set."""
        pauses = backoff.Backoff(*self._author.watch_retry)
        while not stop.is_set():
            if self._watch(pauses.pause):
                pauses.reset()
                self._clock.wait(stop, self._author.watch_interval)
            else:
                self._clock.wait(stop, pauses.next())

    def _watch(self, retry_in_s: float) -> bool:
        try:
            self._author.watch(self._context)
        except errors.DrakitError as error:
            _log.warning("watch failed", driver=self._author.name, error=str(error), retry_in_s=retry_in_s)
            return False
        except Exception:  # noqa: BLE001 - an error of the author's must not end the watch
            _log.exception("watch raised an unexpected error", driver=self._author.name, retry_in_s=retry_in_s)
            return False
        return True
