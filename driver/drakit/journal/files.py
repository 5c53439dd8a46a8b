"""The journal's files: modes, durability of names, the locks around opening, and setting an unreadable file aside.

Layout of a data directory (0700, everything in it 0600)::

    journal.db, journal.db-wal, journal.db-shm   the database
    journal.lock                                 held shared by every process that has the journal open
    journal.db.unreadable-20260102T030405Z       a file set aside, with its -wal and -shm; never overwritten, never deleted by us
    journal.db.new                               what takes an unreadable file's place, while it is written (drakit.journal.opening)
    locks/                                       one file per physical device (drakit.journal.locks); locked itself while a journal is opened

Nothing here opens the database file itself: POSIX record locks, which SQLite uses, are dropped for the whole process when any descriptor of
the file is closed.
"""

import contextlib
import datetime
import errno
import fcntl
import os
import pathlib
import stat
from collections.abc import Iterator

from drakit.core import errors
from drakit.telemetry import logs

DATABASE = "journal.db"
SIDE_FILES = ("-wal", "-shm")
USE_LOCK = "journal.lock"
_GATE = "locks"
_ASIDE = f"{DATABASE}.unreadable-"
_DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
_FIXES = {
    errno.ENOSPC: "free space on its file system",
    errno.EDQUOT: "raise the quota or free space",
    errno.EROFS: "mount its file system read-write",
    errno.EACCES: "let the driver's user own it",
    errno.EPERM: "let the driver's user own it",
    errno.ENOTDIR: "give a path whose parents are directories",
    errno.EIO: "check the disk",
}
_log = logs.get_logger(__name__)


def refusal(path: str | os.PathLike[str], error: OSError) -> errors.JournalError:
    """An OSError told to the operator: path, reason, fix."""
    fix = _FIXES.get(error.errno or 0, "")
    return errors.JournalError(f"{os.fspath(path)}: {error.strerror or error}" + (f"; {fix}" if fix else ""))


@contextlib.contextmanager
def refused(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError of the body into a JournalError about path."""
    try:
        yield
    except OSError as error:
        raise refusal(path, error) from error


def own_directory(path: pathlib.Path) -> None:
    """Make the directory, durably, or narrow its mode to 0700 and say so; raises JournalError."""
    with refused(path):
        if not path.is_dir():
            path.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            sync_directory(path.parent)
    narrow(path, _DIRECTORY_MODE)


def narrow(path: pathlib.Path, mode: int = FILE_MODE) -> None:
    """Take away what the mode grants beyond ``mode``, and say so; nothing at the path is fine. Raises JournalError."""
    with refused(path), contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            raise errors.JournalError(f"{path} is a symbolic link; give the real path")
        if stat.S_IMODE(found.st_mode) & ~mode:
            path.chmod(stat.S_IMODE(found.st_mode) & mode)
            _log.warning("mode narrowed", path=str(path), was=f"{stat.S_IMODE(found.st_mode):04o}", allowed=f"{mode:04o}")


def check_regular(path: pathlib.Path) -> None:
    """Raise JournalError for a journal file that is a link, a pipe or a device: what it leads to is not ours. Nothing at the path is fine."""
    with refused(path), contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise errors.JournalError(f"{path} is a symbolic link; give the real path")
        if not stat.S_ISREG(mode):
            raise errors.JournalError(f"{path} is no regular file; move it away")


def create(path: pathlib.Path) -> None:
    """Make an empty file of mode 0600 whose name is durable; raises JournalError."""
    with refused(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE))
        sync_directory(path.parent)


def sync_directory(path: pathlib.Path) -> None:
    """Make names in the directory durable; raises OSError."""
    with _opened_directory(path) as descriptor:
        os.fsync(descriptor)


def make_gate(directory: pathlib.Path) -> None:
    """Make the folder that ``gate`` locks; raises JournalError."""
    own_directory(directory / _GATE)


@contextlib.contextmanager
def gate(directory: pathlib.Path) -> Iterator[None]:
    """Let one process at a time look at the journal's files, set them aside or create them; raises JournalError.

    The lock is on the folder ``locks``, which was never open to others: the data directory may have been, until its mode was narrowed. Where there is
    no such folder, nobody opens a journal.
    """
    with contextlib.ExitStack() as stack:
        with refused(directory), contextlib.suppress(FileNotFoundError):
            descriptor = stack.enter_context(_opened_directory(directory / _GATE))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


class Use:
    """A process's share in the journal: held from opening to closing, also released by death."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._path = directory / USE_LOCK
        with refused(self._path):
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        self._lock(fcntl.LOCK_SH)
        narrow(self._path)

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether nobody else has the journal open, which stays so for the body."""
        try:
            self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock(fcntl.LOCK_SH)
            yield False
            return
        try:
            yield True
        finally:
            self._lock(fcntl.LOCK_SH)

    def close(self) -> None:
        """Give the share back; twice is fine."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _lock(self, operation: int) -> None:
        fcntl.flock(self._descriptor, operation)


def set_aside(path: pathlib.Path, target: pathlib.Path) -> None:
    """Rename a database and its side files, as far as they are there; raises JournalError.

    The database goes first: a crash in between leaves side files without a database, which the next opening sets aside too, while a database
    without its -wal would read as an older state.
    """
    with refused(path):
        for suffix in _present(path):
            with_suffix(path, suffix).rename(with_suffix(target, suffix))
        sync_directory(path.parent)


def free_aside(path: pathlib.Path) -> pathlib.Path | None:
    """A name under which nothing was set aside yet, None where there is nothing to set aside."""
    if not _present(path):
        return None
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    number, target = 1, path.with_name(f"{_ASIDE}{stamp}")
    while _present(target):
        number += 1
        target = path.with_name(f"{_ASIDE}{stamp}-{number}")
    return target


def move(path: pathlib.Path, target: pathlib.Path) -> None:
    """Rename a file within its directory, durably; raises JournalError."""
    with refused(path):
        path.rename(target)
        sync_directory(target.parent)


def last_aside(path: pathlib.Path) -> pathlib.Path | None:
    """The newest database set aside beside path, if any."""
    found = [other for other in path.parent.glob(f"{_ASIDE}*") if not other.name.endswith(SIDE_FILES)]
    return max(found, default=None)


def with_suffix(path: pathlib.Path, suffix: str) -> pathlib.Path:
    """The path with text appended to its name."""
    return path.with_name(path.name + suffix)


@contextlib.contextmanager
def _opened_directory(path: pathlib.Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _present(path: pathlib.Path) -> list[str]:
    return [suffix for suffix in ("", *SIDE_FILES) if with_suffix(path, suffix).exists()]
