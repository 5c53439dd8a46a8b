"""Follows a slice store in a thread, and lists it at every notice, as the publisher does."""

import contextlib
import queue
import threading

from drakit.core import errors, ports
from fakes import waits


class Follower:
    """What a watch has yielded and nobody has asked for yet."""

    def __init__(self, store: ports.SliceStore) -> None:
        self._stop = threading.Event()
        self._seen: queue.Queue[None] = queue.Queue()
        self._thread = threading.Thread(target=self._follow, args=(store,), daemon=True)
        self._thread.start()

    def saw_one(self, seconds: float = 10) -> bool:
        """Wait for the next notice; whether there was one."""
        try:
            self._seen.get(timeout=seconds)
        except queue.Empty:
            return False
        return True

    def end(self) -> bool:
        """Tell the watch to stop; whether it has, soon."""
        self._stop.set()
        self._thread.join(waits.SECONDS)
        return not self._thread.is_alive()

    def _follow(self, store: ports.SliceStore) -> None:
        for _ in store.watch(self._stop):
            with contextlib.suppress(errors.ApiError):
                store.list()
            self._seen.put(None)
