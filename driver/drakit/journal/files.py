"""The journal's files: modes, durable names, the locks around opening, and setting aside an unreadable file.

Layout of a data directory (0700, everything in it 0600)::

    journal.db, journal.db-wal, journal.db-shm   the database
    journal.lock                                 held shared by every process that has the journal open
    journal.db.unreadable-20260102T030405Z       a file set aside, with its -wal and -shm; drakit never overwrites or deletes it
    journal.db.new                               the successor of an unreadable file, while it is written (drakit.journal.opening)
    locks/                                       one file per physical device (drakit.journal.locks); locked itself while a journal is opened

This module never opens the database file itself: when any descriptor of the file is closed, the kernel drops the POSIX record locks of the whole
process, which SQLite uses.
"""

import contextlib
import datetime
import errno
import fcntl
import os
import pathlib
import stat
from collections.abc import Iterator, Sequence

from drakit.core import errors
from drakit.inputs import file_locks
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
    errno.ELOOP: "give the real path: a symbolic link in it leads back to itself",
}
_log = logs.get_logger(__name__)


def journal_error(path: str | os.PathLike[str], error: OSError) -> errors.JournalError:
    """Return a JournalError for an OSError: path, reason and fix."""
    fix = _FIXES.get(error.errno or 0, "")
    return errors.JournalError(f"{os.fspath(path)}: {error.strerror or error}" + (f"; {fix}" if fix else ""))


@contextlib.contextmanager
def as_journal_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise an OSError of the body as a JournalError about path."""
    try:
        yield
    except OSError as error:
        raise journal_error(path, error) from error


def ensure_private_directory(path: pathlib.Path) -> None:
    """Create the directory durably, or restrict its mode to 0700 with a log line. Raises JournalError."""
    with as_journal_errors(path):
        if not path.is_dir():
            path.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            sync_directory(path.parent)
    restrict_mode(path, _DIRECTORY_MODE)


def restrict_mode(path: pathlib.Path, mode: int = FILE_MODE) -> None:
    """Remove the permissions beyond ``mode``, with a log line. A missing path is ignored. Raises JournalError."""
    with as_journal_errors(path), contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            raise errors.JournalError(f"{path} is a symbolic link; give the real path")
        if stat.S_IMODE(status.st_mode) & ~mode:
            path.chmod(stat.S_IMODE(status.st_mode) & mode)
            _log.warning("file mode restricted", path=str(path), was=f"{stat.S_IMODE(status.st_mode):04o}", allowed=f"{mode:04o}")


def check_data_directory(directory: pathlib.Path, more_suffixes: Sequence[str] = ()) -> None:
    """Raise JournalError where a file or folder of the journal is of another kind than drakit makes it. Nothing is changed before."""
    with as_journal_errors(directory), contextlib.suppress(FileNotFoundError):
        for folder in (directory, directory / _GATE):
            mode = folder.lstat().st_mode
            if stat.S_ISLNK(mode):
                raise errors.JournalError(f"{folder} is a symbolic link; give the real path")
            if not stat.S_ISDIR(mode):
                raise errors.JournalError(f"{folder} is not a directory; move it away")
    for name in (*(f"{DATABASE}{suffix}" for suffix in ("", *SIDE_FILES, *more_suffixes)), USE_LOCK):
        check_regular(directory / name)


def check_regular(path: pathlib.Path) -> None:
    """Raise JournalError for a journal file that is a link, a pipe or a device, because its target is not a journal. A missing path is ignored."""
    with as_journal_errors(path), contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise errors.JournalError(f"{path} is a symbolic link; give the real path")
        if not stat.S_ISREG(mode):
            raise errors.JournalError(f"{path} is not a regular file; move it away")


def create(path: pathlib.Path) -> None:
    """Create an empty file of mode 0600 with a durable name. Raises JournalError."""
    with as_journal_errors(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE))
        sync_directory(path.parent)


def sync_directory(path: pathlib.Path) -> None:
    """Make names in the directory durable. Raises OSError."""
    with _opened_directory(path) as descriptor:
        os.fsync(descriptor)


def make_gate(directory: pathlib.Path) -> None:
    """Create the folder that ``gate`` locks. Raises JournalError."""
    ensure_private_directory(directory / _GATE)


@contextlib.contextmanager
def gate(directory: pathlib.Path) -> Iterator[None]:
    """Exclude other processes while the journal's files are examined, set aside or created. Raises JournalError.

    The lock is on the folder ``locks``, because no other user could ever open it; the data directory may have been open until its mode was
    restricted. Without that folder no process opens a journal, so no lock is needed.
    """
    with contextlib.ExitStack() as stack:
        with as_journal_errors(directory), contextlib.suppress(FileNotFoundError):
            descriptor = stack.enter_context(_opened_directory(directory / _GATE))
            file_locks.take(descriptor)
        yield


class UseLock:
    """A process's shared lock on the journal, held while the journal is open; the kernel releases it when the process dies."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._path = directory / USE_LOCK
        with as_journal_errors(self._path):
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        self._share()
        restrict_mode(self._path)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[bool]:
        """Yield whether no other process has the journal open. If so, that stays true during the body."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._share()
            yield False
            return
        try:
            yield True
        finally:
            self._share()

    def close(self) -> None:
        """Release the lock. Safe to call twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _share(self) -> None:
        with as_journal_errors(self._path):
            file_locks.take(self._descriptor, shared=True)


def set_aside(path: pathlib.Path, target: pathlib.Path) -> None:
    """Rename a database and its existing side files. Raises JournalError.

    The database is renamed first. A crash in between leaves side files without a database, which the next opening sets aside too. The other order
    could leave a database without its -wal, which would read as an older state.
    """
    with as_journal_errors(path):
        for suffix in _existing_suffixes(path):
            with_suffix(path, suffix).rename(with_suffix(target, suffix))
        sync_directory(path.parent)


def new_aside_path(path: pathlib.Path) -> pathlib.Path | None:
    """Return an unused path to set the database aside, None if no file exists."""
    if not _existing_suffixes(path):
        return None
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    number, target = 1, path.with_name(f"{_ASIDE}{stamp}")
    while _existing_suffixes(target):
        number += 1
        target = path.with_name(f"{_ASIDE}{stamp}-{number}")
    return target


def move(path: pathlib.Path, target: pathlib.Path) -> None:
    """Rename a file within its directory durably. Raises JournalError."""
    with as_journal_errors(path):
        path.rename(target)
        sync_directory(target.parent)


def last_aside_path(path: pathlib.Path) -> pathlib.Path | None:
    """Return the newest database that was set aside beside ``path``, None if there is none."""
    return max((other for other in path.parent.glob(f"{_ASIDE}*") if not other.name.endswith(SIDE_FILES)), default=None)


def with_suffix(path: pathlib.Path, suffix: str) -> pathlib.Path:
    """Return the path with a suffix appended to its name."""
    return path.with_name(path.name + suffix)


@contextlib.contextmanager
def _opened_directory(path: pathlib.Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _existing_suffixes(path: pathlib.Path) -> list[str]:
    return [suffix for suffix in ("", *SIDE_FILES) if with_suffix(path, suffix).exists()]
