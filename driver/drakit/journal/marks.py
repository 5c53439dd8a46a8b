"""The mark of a journal's last change: a small file outside of the data directory.

SQLite cannot know that its write-ahead log is gone, nor that an older copy was put in its place. So each commit raises a number in the database, and
the process then writes the number into the mark. A mark above the number of the database shows that the journal is behind. A mark below it is usual:
the process may die between both writes, and a previous version writes no mark.

The mark is in the CDI directory, whose content describes the present boot: a power cut may remove unsynced commits, so a mark counts in its own boot
only. It is written in place and never synced. Container runtimes ignore it, because its name does not end in ``.json`` or ``.yaml``.
"""

import os
import pathlib
import stat
import zlib

from drakit.telemetry import logs

_log = logs.get_logger(__name__)

_SIZE_MAX = 512
_MODE = 0o644
_OPEN = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_OR_CREATE = _OPEN | os.O_CREAT
_DIGITS = 20


def path(directory: pathlib.Path, driver: str) -> pathlib.Path:
    """Return the path of a driver's mark in the CDI directory."""
    return directory / f".{driver}-journal.mark"


class Mark:
    """The mark of one journal in one boot. Any number of processes may write it. No method raises."""

    def __init__(self, path: pathlib.Path, boot_id: str) -> None:
        self._path = path
        self._boot_id = boot_id
        self._name = str(path)
        self._is_checked = False
        self._has_failed = False

    def read(self) -> int | None:
        """Return the number of the last change; None if there is no mark of this boot."""
        try:
            descriptor = os.open(self._path, _OPEN)
            try:
                content = os.read(descriptor, _SIZE_MAX) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
            finally:
                os.close(descriptor)
            number = int(content.split()[-2])
        except (OSError, ValueError, IndexError):
            return None
        return number if content == self._content(number) else None

    def write(self, number: int) -> None:
        """Write the number of the last change, and create the file if needed. The first failure is logged."""
        content = self._content(number)
        try:
            # Not kept open: an open file keeps its file system from becoming read-only, and outlives a directory that is deleted.
            descriptor = os.open(self._name, _OPEN_OR_CREATE, _MODE)
            try:
                if not self._is_checked:
                    _make_size(descriptor, len(content))
                    self._is_checked = True
                os.pwrite(descriptor, content, 0)
            finally:
                os.close(descriptor)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                _log.error("journal mark not written", path=str(self._path), error=error.strerror or str(error))

    def _content(self, number: int) -> bytes:
        text = f"{self._boot_id} {number:0{_DIGITS}d}"
        return f"{text} {zlib.crc32(text.encode()):08x}\n".encode()


def _make_size(descriptor: int, size: int) -> None:
    """Empty a file of another size, which has other content. Raises OSError, also for another kind of file."""
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        raise OSError(None, "not a regular file; remove it")
    if state.st_size != size:
        os.ftruncate(descriptor, 0)
