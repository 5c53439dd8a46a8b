"""Connections to the journal's database, and SQLite's errors told to the operator."""

import contextlib
import pathlib
import sqlite3
import types
from collections.abc import Iterator

from drakit.core import errors

BUSY_SECONDS = 10.0
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR})
_FIXES = {
    sqlite3.SQLITE_FULL: "free space on its file system",
    sqlite3.SQLITE_READONLY: "mount its file system read-write and let the driver's user own it",
    sqlite3.SQLITE_CANTOPEN: "mount its file system read-write and let the driver's user own it",
    sqlite3.SQLITE_BUSY: f"another process held it for {BUSY_SECONDS:.0f} seconds; see who has it open",
    sqlite3.SQLITE_IOERR: "check the disk, its space and its quota",
    sqlite3.SQLITE_CORRUPT: "restart the driver: the file is then set aside and rebuilt",
    sqlite3.SQLITE_NOTADB: "restart the driver: the file is then set aside and rebuilt",
}


def connect(path: pathlib.Path) -> sqlite3.Connection:
    """A connection to an existing file, in autocommit mode, usable from any thread; changes nothing. Raises sqlite3.Error."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def connect_writer(path: pathlib.Path) -> sqlite3.Connection:
    """A connection whose commits survive a power cut (WAL, one fsync a commit), until told otherwise. Raises sqlite3.Error or JournalError."""
    with _kept(connect(path)) as connection:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise errors.JournalError(f"{path}: its file system cannot hold a write-ahead log; use a local one")
        wait_for_disk(connection, wait=True)
        connection.execute("PRAGMA foreign_keys = ON")
        return connection


def wait_for_disk(connection: sqlite3.Connection, *, wait: bool) -> None:
    """Whether commits from now on return once the disk has them, or once the kernel has. Not inside a transaction. Raises sqlite3.Error."""
    connection.execute(f"PRAGMA synchronous = {'FULL' if wait else 'NORMAL'}")


def connect_reader(path: pathlib.Path) -> sqlite3.Connection:
    """A connection that cannot write. Raises sqlite3.Error."""
    with _kept(connect(path)) as connection:
        connection.execute("PRAGMA query_only = ON")
        return connection


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error of reading says that the content is broken (or lacks a table), not that the file could not be reached."""
    return _code(error) in _DAMAGE


def refusal(path: pathlib.Path, error: sqlite3.Error) -> errors.JournalError:
    """An error of SQLite told to the operator: path, reason, fix."""
    fix = _FIXES.get(_code(error), "")
    return errors.JournalError(f"{path}: {error}" + (f"; {fix}" if fix else ""))


@contextlib.contextmanager
def refused(path: pathlib.Path) -> Iterator[None]:
    """Turn an error of SQLite in the body into a JournalError about path."""
    try:
        yield
    except sqlite3.Error as error:
        raise refusal(path, error) from error


class Transaction:
    """One write transaction: everything in the body, or nothing. A class, because generators cost more, and every claim has several."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        if error is None:
            self._connection.execute("COMMIT")
        elif self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


@contextlib.contextmanager
def _kept(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Close the connection only when the body fails."""
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def _code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
