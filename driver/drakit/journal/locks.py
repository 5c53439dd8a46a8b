"""Locks by name, shared by the threads and processes of a driver: core.ports.Locks with one flock file a name, or one byte of a file that all share.

Threads of this process queue on a lock in memory and wake at once; processes exclude each other by file locks, which death releases. Names are
taken in sorted order and a thread that holds some may not take more of the same kind, so holders never wait in a circle. Waiting ends when nobody
wants the result any more. Every hold opens descriptors of its own; should someone delete a file, the lock is taken again on the file there now.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from drakit.core import errors, names
from drakit.journal import files

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK_AGAIN = 0.25
_FIRST_POLL = 0.001
_LONGEST_POLL = 0.05
_WHOLE = -1
SHARED_FILE = "shared.lock"

Wanted = Callable[[], bool]


def _always() -> bool:
    return True


class FileLocks:
    """The locks of one kind in a data directory, in its folder ``kind`` (0700, files 0600), made where missing; raises JournalError.

    ``disposable`` locks are for names that never come again, such as claim UIDs: each is a byte, chosen by a digest of the name, of one file that
    all of them share. No file is made or removed for them, which would cost more than all else here. Names that fall on one byte wait for each other.
    """

    def __init__(self, directory: pathlib.Path, kind: str = "locks", *, disposable: bool = False) -> None:
        folder = directory / kind
        self._folder = os.fspath(folder)
        self._disposable = disposable
        self._mine = threading.local()
        self._turns = _Turns()
        files.own_directory(directory)
        files.own_directory(folder)

    @contextlib.contextmanager
    def hold(self, lock_names: Iterable[str], wanted: Wanted = _always) -> Iterator[None]:
        """Hold all of them for the body; waits for as long as ``wanted`` says so, then raises CallerGoneError.

        Raises InventoryError for a name that is not a DNS label, JournalError when a file cannot be opened, and RuntimeError when this thread
        already holds locks of this kind: taking more would break the order.
        """
        ordered = sorted({names.check_label(name, "lock") for name in lock_names})
        if getattr(self._mine, "held", None):
            raise RuntimeError(f"this thread already holds the locks {', '.join(self._mine.held)}")
        taken: dict[str, int] = {}
        try:
            for name in ordered:
                self._turns.take(name, wanted)
                try:
                    if self._disposable:
                        byte = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
                        taken[name] = _open_locked(f"{self._folder}/{SHARED_FILE}", byte, wanted)
                    else:
                        taken[name] = _open_locked(f"{self._folder}/{name}.lock", _WHOLE, wanted)
                except BaseException:
                    self._turns.leave(name)
                    raise
            self._mine.held = taken
            yield
        finally:
            self._mine.held = None
            for name in reversed(taken):
                os.close(taken[name])
                self._turns.leave(name)


class _Turns:
    """Locks within this process; the table holds only names that somebody holds or waits for."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._table: dict[str, tuple[threading.Lock, int]] = {}

    def take(self, name: str, wanted: Wanted) -> None:
        with self._guard:
            lock, users = self._table.get(name) or (threading.Lock(), 0)
            self._table[name] = (lock, users + 1)
        try:
            while not lock.acquire(timeout=_LOOK_AGAIN):
                _check(wanted, name)
        except BaseException:
            self._forget(name)
            raise

    def leave(self, name: str) -> None:
        self._forget(name).release()

    def _forget(self, name: str) -> threading.Lock:
        with self._guard:
            lock, users = self._table.pop(name)
            if users > 1:
                self._table[name] = (lock, users - 1)
            return lock


def _check(wanted: Wanted, name: str) -> None:
    if not wanted():
        raise errors.CallerGoneError(f"{name} is locked by another call and nobody waits for this one any more")


def _open_locked(path: str, byte: int, wanted: Wanted) -> int:
    """A descriptor that holds the lock on the file which has this path now."""
    try:
        while True:
            descriptor = os.open(path, _FLAGS, 0o600)
            try:
                _lock(descriptor, byte, path, wanted)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.lstat(path), os.fstat(descriptor)):
                        return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
    except OSError as error:
        raise files.refusal(path, error) from error


def _lock(descriptor: int, byte: int, path: str, wanted: Wanted) -> None:
    """Lock the whole file or one byte of it for this descriptor alone.

    Another process may hold the lock; it cannot wake us, so it is asked for again with growing pauses.
    """
    pause = _FIRST_POLL
    while True:
        try:
            if byte == _WHOLE:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                # An open file description lock (fcntl(2)), which belongs to the descriptor as a flock does. Its struct flock: type, whence, start,
                # length, pid.
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
        except BlockingIOError:
            _check(wanted, pathlib.Path(path).stem)
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_POLL)
        else:
            return
