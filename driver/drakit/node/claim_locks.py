"""Locks keyed by claim, within one process: two calls for one claim never overlap, calls for different claims never wait for each other."""

import contextlib
import threading
from collections.abc import Iterator

from drakit.core import names


class ClaimLocks:
    """One lock per claim in use; the table holds only claims that somebody holds or waits for."""

    def __init__(self) -> None:
        self._table_lock = threading.Lock()
        self._table: dict[names.ClaimUid, tuple[threading.Lock, int]] = {}

    @contextlib.contextmanager
    def hold(self, uid: names.ClaimUid) -> Iterator[None]:
        """Hold the lock of one claim."""
        lock = self._enter(uid)
        try:
            with lock:
                yield
        finally:
            self._leave(uid)

    def __len__(self) -> int:
        with self._table_lock:
            return len(self._table)

    def _enter(self, uid: names.ClaimUid) -> threading.Lock:
        with self._table_lock:
            lock, users = self._table.get(uid, (threading.Lock(), 0))
            self._table[uid] = (lock, users + 1)
            return lock

    def _leave(self, uid: names.ClaimUid) -> None:
        with self._table_lock:
            lock, users = self._table.pop(uid)
            if users > 1:
                self._table[uid] = (lock, users - 1)
