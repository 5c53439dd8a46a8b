"""Deleting the node's slices: all of them when the kubelet starts, a driver's when it has been unusable for a while.

Only slices with the node's name go. A driver that comes back in time keeps its slices; one that comes back later must publish again.
"""

import threading
from collections.abc import Callable

from drakit.telemetry import logs
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import Backoff
from drakit_cluster.kubelet.timing import Timing
from drakit_cluster.objects import errors
from drakit_cluster.objects.resources import SLICE

_log = logs.get_logger(__name__)


class SliceWiper:
    """Deletes slices of one node; failed deletions are repeated until they work or :meth:`stop`."""

    def __init__(self, api: Api, node: str, timing: Timing, on_wipe: Callable[[str], None]) -> None:
        self._api = api
        self._node = node
        self._timing = timing
        self._on_wipe = on_wipe
        self._lock = threading.Lock()
        self._pending: dict[str, threading.Event] = {}

    def wipe_all(self) -> None:
        """Delete every slice of the node before this returns, or go on trying after it."""
        try:
            self._delete("")
        except errors.ApiError as error:
            _log.warning("slices of the node not deleted yet", node=self._node, error=str(error))
            self._begin("", self._timing.wipe_retry[0])

    def lost(self, driver: str) -> None:
        """Note that a driver became unusable; a wipe that is pending already stays as it is."""
        self._begin(driver, self._timing.wipe_delay)

    def returned(self, driver: str) -> None:
        """Note that a driver is usable again."""
        with self._lock:
            if cancelled := self._pending.pop(driver, None):
                cancelled.set()

    def stop(self) -> None:
        """Cancel what is pending."""
        with self._lock:
            for cancelled in self._pending.values():
                cancelled.set()
            self._pending.clear()

    def _begin(self, driver: str, delay: float) -> None:
        with self._lock:
            if driver in self._pending:
                return
            cancelled = self._pending[driver] = threading.Event()
        threading.Thread(target=self._run, args=(driver, delay, cancelled), name=f"wipe-{self._node}", daemon=True).start()

    def _run(self, driver: str, delay: float, cancelled: threading.Event) -> None:
        backoff = Backoff(*self._timing.wipe_retry, jitter=0.2)
        while not cancelled.wait(delay):
            try:
                self._delete(driver)
            except errors.ApiError as error:
                delay = backoff.next()
                _log.warning("slices not deleted", node=self._node, driver=driver, error=str(error), retry_in_s=delay)
                continue
            with self._lock:
                if self._pending.get(driver) is cancelled:
                    del self._pending[driver]
            if driver:
                self._on_wipe(driver)
            return

    def _delete(self, driver: str) -> None:
        selector = f"spec.nodeName={self._node}" + (f",spec.driver={driver}" if driver else "")
        self._api.delete_collection(SLICE, field_selector=selector)
