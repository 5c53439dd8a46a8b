"""The journal's SQLite database: connections, errors for operators, and the writer.

The writer waits for the disk if the change requires it. A change that does not require it is on the disk once a later one is, because the log is
written in order: a power cut always leaves everything up to some commit.
"""

import contextlib
import os
import pathlib
import sqlite3
import threading
from collections.abc import Callable, Iterator

from drakit.core import errors

FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""The errors of SQLite; Python raises UnicodeDecodeError where the text of an error of a damaged file is not UTF-8."""
BUSY_SECONDS = 10.0
# RETURNING takes twice as long as a query.
_COUNT_CHANGE = "UPDATE progress SET changes = max(changes, ?) + 1, digest = digest + ? WHERE id = 1"
_CHANGES = "SELECT changes FROM progress WHERE id = 1"
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR})
_FIXES = {
    sqlite3.SQLITE_FULL: "free space on its file system",
    sqlite3.SQLITE_READONLY: "mount its file system read-write and let the driver's user own it",
    sqlite3.SQLITE_CANTOPEN: "mount its file system read-write and let the driver's user own it",
    sqlite3.SQLITE_BUSY: f"another process held it for {BUSY_SECONDS:.0f} seconds; check which process has it open",
    sqlite3.SQLITE_IOERR: "check the disk, its space and its quota",
    sqlite3.SQLITE_CORRUPT: "restart the driver: the file is then set aside and rebuilt",
    sqlite3.SQLITE_NOTADB: "restart the driver: the file is then set aside and rebuilt",
}


def connect(path: pathlib.Path, pragma: str = "") -> sqlite3.Connection:
    """Return a connection to an existing file, in autocommit mode, usable from any thread, after a PRAGMA. Raises sqlite3.Error."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_writer(path: pathlib.Path) -> sqlite3.Connection:
    """Return a connection whose commits survive a power cut (WAL, one fsync a commit). Raises sqlite3.Error or JournalError."""
    with contextlib.ExitStack() as on_error:
        connection = on_error.enter_context(contextlib.closing(connect(path)))
        become_writer(connection, path)
        on_error.pop_all()
        return connection


def become_writer(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """Make a connection of any kind one as ``connect_writer`` returns. Not inside a transaction. Raises as ``connect_writer`` does."""
    connection.text_factory = str
    connection.execute("PRAGMA foreign_keys = ON")
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise errors.JournalError(f"{path}: its file system cannot hold a write-ahead log; use a local one")
    wait_for_disk(connection, wait=True)


def wait_for_disk(connection: sqlite3.Connection, *, wait: bool) -> None:
    """Set whether commits return once the disk has them, or already once the kernel has. Not inside a transaction. Raises sqlite3.Error."""
    connection.execute(f"PRAGMA synchronous = {'FULL' if wait else 'NORMAL'}")


def connect_reader(path: pathlib.Path) -> sqlite3.Connection:
    """Return a connection that cannot write. Raises sqlite3.Error."""
    return connect(path, "PRAGMA query_only = ON")


def connect_examiner(path: pathlib.Path) -> sqlite3.Connection:
    """Return a connection that also reads text that is not UTF-8; such text cannot be encoded again. Raises sqlite3.Error."""
    connection = connect(path)
    connection.text_factory = _decode_text
    return connection


def _decode_text(content: bytes) -> str:
    return content.decode(errors="surrogateescape")


def is_damage(error: sqlite3.Error | UnicodeDecodeError) -> bool:
    """Return whether a read error means damaged content (or a missing table), not an inaccessible file."""
    return _code(error) in _DAMAGE


def is_format_read_only(path: pathlib.Path, error: sqlite3.Error | UnicodeDecodeError) -> bool:
    """Return whether SQLite refuses to write to a file that could be written to: its header has a format that SQLite can only read."""
    is_plain = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY
    return is_plain and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def check_writable(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.Error where SQLite cannot write to the file. Nothing is changed."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # The beginning of a transaction does not show it.
        connection.execute("PRAGMA user_version = 0")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def journal_error(path: pathlib.Path, error: sqlite3.Error | UnicodeDecodeError) -> errors.JournalError:
    """Return a JournalError for an error of SQLite: path, reason and fix."""
    fix = _FIXES.get(_code(error), "")
    return errors.JournalError(f"{path}: {error}" + (f"; {fix}" if fix else ""))


@contextlib.contextmanager
def as_journal_errors(path: pathlib.Path) -> Iterator[None]:
    """Raise an error of SQLite in the body as a JournalError about path."""
    try:
        yield
    except FAILURES as error:
        raise journal_error(path, error) from error


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the body in one write transaction, and roll it back on any error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextlib.contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the reads of the body in one transaction, so that they see the same state. Raises sqlite3.Error."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _code(error: sqlite3.Error | UnicodeDecodeError) -> int:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None and isinstance(error, sqlite3.OperationalError | UnicodeDecodeError):
        # Python raises these itself, for text that is not UTF-8.
        return sqlite3.SQLITE_CORRUPT
    return (code or 0) & 0xFF


def count_change(connection: sqlite3.Connection, *, digest: int = 0, at_least: int = 0) -> int:
    """Raise the number of the last change, and return it; add ``digest`` to the sum of digests. Inside the caller's transaction."""
    connection.execute(_COUNT_CHANGE, (at_least, digest))
    [number] = connection.execute(_CHANGES).fetchone()
    return int(number)


Change = Callable[[sqlite3.Connection], int | None]
"""A change of rows. It returns the difference of the sum of digests, or None for none."""
Committed = Callable[[int], None]


class Writer:
    """The single writer of a journal in this process. ``committed`` is called with the number of each change, in order, and never raises.

    ``connection`` is one that ``connect_writer`` could have returned. Without it, the first change opens one.
    """

    def __init__(self, path: pathlib.Path, committed: Committed | None = None, connection: sqlite3.Connection | None = None) -> None:
        self._path = path
        self._committed = committed
        self._connection = connection
        self._lock = threading.Lock()
        self._closed = False
        self._relaxed = False
        self._is_synced = True

    def relax(self) -> None:
        """Let commits return once the kernel has them, not the disk."""
        with self._lock:
            self._relaxed = True

    def commit(self, change: Change, *, synced: bool = True) -> None:
        """Run a change in a transaction, and return when it survives the death of this process and, if ``synced``, a power cut.

        Raises the error of the change and sqlite3.Error, and JournalError when the writer is closed; then nothing is changed.
        """
        with self._lock:
            if self._closed:
                raise errors.JournalError(f"{self._path} is closed; open the journal again")
            try:
                database = self._connected(synced=synced and not self._relaxed)
                with transaction(database):
                    number = count_change(database, digest=change(database) or 0)
            except FAILURES:
                self._disconnect()
                raise
            if self._committed is not None:
                self._committed(number)

    def close(self) -> None:
        """Wait for the change under way, then close. Safe to call twice."""
        with self._lock:
            self._closed = True
            self._disconnect()

    def _connected(self, *, synced: bool) -> sqlite3.Connection:
        """Return the connection, whose next commit waits for the disk if ``synced``; a new one after a failure of SQLite."""
        if self._connection is None:
            self._connection, self._is_synced = connect_writer(self._path), True
        if self._is_synced is not synced:
            wait_for_disk(self._connection, wait=synced)
            self._is_synced = synced
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
