"""Implement core.ports.Locks: named locks between the threads and processes of a driver, by one flock file a name or one byte of a shared file.

Threads of this process wait on a lock in memory and wake at once. Processes exclude each other by file locks, which the kernel releases when a
process dies. Names are locked in sorted order, and a thread that holds some may not lock more of the same kind, so there is no deadlock. Waiting ends
when the caller has gone. Every hold opens its own descriptors, and unlocks them before it closes them: a process that a verb forked meanwhile has
copies of them, and a lock ends only with the last copy. If a program deletes a lock file, the lock is taken again on the file that replaces it.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator

from drakit.core import errors, names, ports
from drakit.journal import files

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_CHECK_INTERVAL = 0.25
_FIRST_POLL = 0.001
_LONGEST_POLL = 0.05
_WHOLE_FILE = -1
_FLOCK = "hhqqi4x"
"""A struct flock: type, whence, start, length and pid."""
_UNLOCK = struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)
SHARED_FILE = "shared.lock"

Wanted = Callable[[], bool]


class FileLocks:
    """The locks of one kind in a data directory, in its folder ``kind`` (0700, files 0600), created if missing. Raises JournalError.

    ``disposable`` locks are for names that never recur, such as claim UIDs. Each locks one byte, chosen by a digest of the name, of one shared file,
    because creating and removing a file for each would be the most expensive part of a lock. Names with the same byte wait for each other. ``meter``
    measures the wait for all locks of one hold as the phase ``lock``.
    """

    def __init__(self, directory: pathlib.Path, kind: str = "locks", *, disposable: bool = False, meter: ports.Meter | None = None) -> None:
        folder = directory / kind
        self._folder = os.fspath(folder)
        self._disposable = disposable
        self._meter = meter or ports.Unmeasured()
        self._held_by_thread = threading.local()
        self._guard = threading.Lock()
        # A lock is in the table while a thread holds it or waits for it.
        self._thread_locks: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()
        files.ensure_private_directory(directory)
        files.ensure_private_directory(folder)

    @contextlib.contextmanager
    def hold(self, lock_names: Iterable[str], wanted: Wanted) -> Iterator[None]:
        """Hold all locks for the body. Wait for them while ``wanted`` returns True, then raise LockedError.

        Raises InventoryError for a name that is not a DNS label, JournalError when a file cannot be opened, and RuntimeError when this thread
        already holds locks of this kind, because more would break the order.
        """
        ordered = sorted({names.check_label(name, "lock") for name in lock_names})
        if getattr(self._held_by_thread, "held", None):
            raise RuntimeError(f"this thread already holds the locks {', '.join(self._held_by_thread.held)}")
        held: dict[str, tuple[threading.Lock, int]] = {}
        try:
            with self._meter.phase("lock"):
                for name in ordered:
                    held[name] = self._take(name, wanted)
            self._held_by_thread.held = held
            yield
        finally:
            self._held_by_thread.held = None
            for lock, descriptor in reversed(held.values()):
                _unlock(descriptor, is_byte=self._disposable)
                lock.release()

    def _take(self, name: str, wanted: Wanted) -> tuple[threading.Lock, int]:
        """Take a lock from this process's threads, then from other processes; return both: the thread lock and the descriptor with the file lock."""
        with self._guard:
            lock = self._thread_locks.setdefault(name, threading.Lock())
        if not lock.acquire(blocking=False):
            _check_wanted(wanted, name, "call")
            while not lock.acquire(timeout=_CHECK_INTERVAL):
                _check_wanted(wanted, name, "call")
        try:
            if not self._disposable:
                return lock, _open_locked(f"{self._folder}/{name}.lock", _WHOLE_FILE, name, wanted)
            byte = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
            return lock, _open_locked(f"{self._folder}/{SHARED_FILE}", byte, name, wanted)
        except BaseException:
            lock.release()
            raise


def _check_wanted(wanted: Wanted, name: str, holder: str) -> None:
    if not wanted():
        raise errors.LockedError(f"{name} is locked by another {holder}, which did not release it in time", lock=name)


def _open_locked(path: str, byte: int, name: str, wanted: Wanted) -> int:
    """Return a descriptor that holds the lock on the file that is at this path now."""
    try:
        while True:
            descriptor = os.open(path, _FLAGS, 0o600)
            try:
                _lock(descriptor, byte, name, wanted)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.lstat(path), os.fstat(descriptor)):
                        return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
    except OSError as error:
        raise files.journal_error(path, error) from error


def _lock(descriptor: int, byte: int, name: str, wanted: Wanted) -> None:
    """Lock the whole file or one byte of it for this descriptor.

    A process that releases the lock cannot wake this one, so this polls with growing pauses.
    """
    pause = _FIRST_POLL
    while True:
        try:
            if byte == _WHOLE_FILE:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                # An open file description lock (fcntl(2)) belongs to the descriptor, as a flock does.
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
        except BlockingIOError:
            _check_wanted(wanted, name, "process")
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_POLL)
        else:
            return


def _unlock(descriptor: int, *, is_byte: bool) -> None:
    """Unlock what this descriptor locked, and close it."""
    try:
        if is_byte:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _UNLOCK)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
