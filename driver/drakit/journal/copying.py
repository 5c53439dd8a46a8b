"""A copy of a journal to look at: the journal itself, its folder and its locks stay as they are, whatever state they are in.

Where a driver has the journal open, SQLite copies it as of one moment. Where nobody has, the files are copied while openers wait, so that a
file which SQLite cannot read is copied too, to be examined and reported instead of being set aside. Where a driver died while it put another
file in the place of an unreadable one, the copy is what the next opening will find.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
from collections.abc import Iterator

from drakit.journal import connection, files, opening, schema, succession

DATABASE = files.DATABASE


def exists(directory: pathlib.Path) -> bool:
    """Whether there is a journal in the directory; raises JournalError where that cannot be seen."""
    with files.refused(directory):
        return any((directory / name).exists() for name in _names())


def copy(directory: pathlib.Path, into: pathlib.Path) -> None:
    """Copy the journal of a directory into an empty folder; raises JournalError."""
    files.own_directory(into)
    with files.gate(directory):
        for name in _names():
            files.check_regular(directory / name)
        if _is_open(directory):
            _back_up(directory / files.DATABASE, into / files.DATABASE)
            return
        for name in _names():
            with files.refused(directory / name), contextlib.suppress(FileNotFoundError):
                shutil.copyfile(directory / name, into / name)
                (into / name).chmod(files.FILE_MODE)
    with connection.refused(into):
        succession.settle(into / files.DATABASE)


def _names() -> Iterator[str]:
    return (f"{files.DATABASE}{suffix}" for suffix in ("", *files.SIDE_FILES, *succession.SUFFIXES))


def _is_open(directory: pathlib.Path) -> bool:
    """Whether some process has the journal open: it holds the lock on being in use."""
    path = directory / files.USE_LOCK
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise files.refusal(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _back_up(path: pathlib.Path, target: pathlib.Path) -> None:
    files.create(target)
    with (
        connection.refused(path),
        contextlib.closing(connection.connect_reader(path)) as source,
        contextlib.closing(connection.connect(target)) as copied,
    ):
        source.backup(copied)


def integrity(directory: pathlib.Path) -> str:
    """Say what a thorough check of a copy finds broken, page by page; empty for nothing. Raises JournalError where it cannot be checked."""
    path = directory / DATABASE
    with connection.refused(path), contextlib.closing(connection.connect_reader(path)) as database:
        found = [str(row[0]) for row in database.execute("PRAGMA integrity_check(20)")]
    return "" if found == ["ok"] else "; ".join(found)


def damage(directory: pathlib.Path) -> str:
    """Say why the journal of a directory cannot be used as it is; empty where it can. Raises JournalError."""
    path = directory / DATABASE
    with connection.refused(path):
        found = opening.examine(path, schema.LADDER)
    return found.reason if found is not None else ""
