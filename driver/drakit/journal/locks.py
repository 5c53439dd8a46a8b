"""Locks on physical devices: core.ports.DeviceLocks with one flock file a name.

Every hold opens descriptors of its own, and flock belongs to the open file description, so threads exclude each other as processes do; death
releases. Names are taken in sorted order and a thread that holds some may not take more, so holders never wait in a circle. A file is never
deleted by us; should someone else delete one, the lock is taken again on the file that is there now.
"""

import contextlib
import fcntl
import os
import pathlib
import threading
from collections.abc import Iterable, Iterator

from drakit.core import names
from drakit.journal import files

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class FileLocks:
    """Locks of one data directory, in its folder ``locks`` (0700, files 0600), made where missing; raises JournalError."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory / "locks"
        self._mine = threading.local()
        files.own_directory(directory)
        files.own_directory(self._directory)

    @contextlib.contextmanager
    def hold(self, lock_names: Iterable[str]) -> Iterator[None]:
        """Hold all of them for the body; waits as long as it takes.

        Raises InventoryError for a name that is not a DNS label, JournalError when a file cannot be opened, and RuntimeError when this thread
        already holds locks: taking more would break the order.
        """
        ordered = sorted({names.check_label(name, "lock") for name in lock_names})
        if getattr(self._mine, "held", ()):
            raise RuntimeError(f"this thread already holds the locks {', '.join(self._mine.held)}")
        with contextlib.ExitStack() as stack:
            for name in ordered:
                stack.callback(os.close, _locked(self._directory / f"{name}.lock"))
            self._mine.held = ordered
            stack.callback(setattr, self._mine, "held", ())
            yield


def _locked(path: pathlib.Path) -> int:
    """A descriptor that holds the lock on the file which has this name now."""
    with files.refused(path):
        while True:
            descriptor = os.open(path, _FLAGS, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if _is_file_at(path, descriptor):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)


def _is_file_at(path: pathlib.Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
