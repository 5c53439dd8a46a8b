"""The journal's SQLite database: connections, errors for operators, and the writer.

Concurrent changes share one fsync, and the first caller writes for all. A caller queues a change (a function of the connection). If no other caller
writes, it becomes the leader: it takes every queued change, runs each in its own savepoint inside one transaction, commits, and wakes
the callers. Then it passes the lead to the first caller that queued a change meanwhile. A single caller pays no thread switch. A change that raises
is rolled back and its caller gets the error; the other changes are committed. When SQLite itself fails, the whole batch fails, every caller gets the
error, and the next batch starts on a new connection.

The writer waits for the disk if any change of the batch requires it. A change that does not require it is on the disk once a later one is, because
the log is written in order: a power cut always leaves everything up to some commit.
"""

import collections
import contextlib
import os
import pathlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence

from drakit.core import errors
from drakit.journal import schema

FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""The errors of SQLite; Python raises UnicodeDecodeError where the text of an error of a damaged file is not UTF-8."""
BUSY_SECONDS = 10.0
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


def connect(path: pathlib.Path) -> sqlite3.Connection:
    """Return a connection to an existing file, in autocommit mode, usable from any thread. Raises sqlite3.Error."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def connect_writer(path: pathlib.Path) -> sqlite3.Connection:
    """Return a connection whose commits survive a power cut (WAL, one fsync a commit). Raises sqlite3.Error or JournalError."""
    with _closing_on_error(connect(path)) as connection:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise errors.JournalError(f"{path}: its file system cannot hold a write-ahead log; use a local one")
        wait_for_disk(connection, wait=True)
        connection.execute("PRAGMA foreign_keys = ON")
        return connection


def wait_for_disk(connection: sqlite3.Connection, *, wait: bool) -> None:
    """Set whether commits return once the disk has them, or already once the kernel has. Not inside a transaction. Raises sqlite3.Error."""
    connection.execute(f"PRAGMA synchronous = {'FULL' if wait else 'NORMAL'}")


def connect_reader(path: pathlib.Path) -> sqlite3.Connection:
    """Return a connection that cannot write. Raises sqlite3.Error."""
    with _closing_on_error(connect(path)) as connection:
        connection.execute("PRAGMA query_only = ON")
        return connection


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


@contextlib.contextmanager
def _closing_on_error(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def _code(error: sqlite3.Error | UnicodeDecodeError) -> int:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None and isinstance(error, sqlite3.OperationalError | UnicodeDecodeError):
        # Python raises these itself, for text that is not UTF-8.
        return sqlite3.SQLITE_CORRUPT
    return (code or 0) & 0xFF


Change = Callable[[sqlite3.Connection], int | None]
"""A change of rows. It returns the difference of the sum of digests, or None for none."""
Committed = Callable[[int], None]


class _QueuedChange:
    """A queued change. Its caller wakes when the change is done, or to lead the next batch."""

    def __init__(self, change: Change, *, synced: bool) -> None:
        self.change = change
        self.synced = synced
        self.error: BaseException | None = None
        self.is_done = False
        self.may_wake = threading.Lock()
        """Held until the caller may wake; released once."""
        self.may_wake.acquire()


class Writer:
    """The single writer of a journal in this process. ``committed`` is called with the number of each committed batch, and never raises."""

    def __init__(self, path: pathlib.Path, committed: Committed = lambda _number: None) -> None:
        self._path = path
        self._committed = committed
        self._connection: sqlite3.Connection | None = None
        self._queue: collections.deque[_QueuedChange] = collections.deque()
        self._guard = threading.Lock()
        self._leader_done = threading.Condition(self._guard)
        self._has_waiter = False
        self._has_leader = False
        self._closed = False
        self._relaxed = False
        self._is_synced = True

    def relax(self) -> None:
        """Let commits return once the kernel has them, not the disk."""
        with self._leader_done:
            self._wait_until_idle()
            self._relaxed = True

    def commit(self, change: Change, *, synced: bool = True) -> None:
        """Run a change, and return when it survives the death of this process and, if ``synced``, a power cut.

        Raises the error of the change, or JournalError when it cannot be written.
        """
        queued = _QueuedChange(change, synced=synced)
        with self._guard:
            if self._closed:
                raise errors.JournalError(f"{self._path} is closed; open the journal again")
            self._queue.append(queued)
            leads = not self._has_leader
            self._has_leader = True
        if not leads:
            queued.may_wake.acquire()
        if not queued.is_done:
            self._lead()
        if isinstance(queued.error, FAILURES):
            raise journal_error(self._path, queued.error) from queued.error
        if queued.error is not None:
            raise queued.error

    def close(self) -> None:
        """Wait until all queued changes are written, then close. Safe to call twice."""
        with self._leader_done:
            self._closed = True
            self._wait_until_idle()
            self._disconnect()

    def _lead(self) -> None:
        """Write all queued changes, pass the lead on, and wake the callers."""
        with self._guard:
            batch = tuple(self._queue)
            self._queue.clear()
        try:
            self._write(batch)
        except BaseException as error:  # noqa: BLE001 - every waiting caller must get the error; ``commit`` raises it again
            if isinstance(error, FAILURES):
                self._disconnect()
            for queued in batch:
                queued.error = error
        with self._guard:
            if self._queue:
                self._queue[0].may_wake.release()
            else:
                self._has_leader = False
                if self._has_waiter:
                    self._leader_done.notify_all()
        for queued in batch:
            queued.is_done = True
            queued.may_wake.release()

    def _wait_until_idle(self) -> None:
        """Wait until no caller leads. The caller holds the guard."""
        self._has_waiter = True
        self._leader_done.wait_for(lambda: not self._has_leader)

    def _write(self, batch: Sequence[_QueuedChange]) -> None:
        synced = not self._relaxed and any(queued.synced for queued in batch)
        if self._connection is None:
            self._connection, self._is_synced = connect_writer(self._path), True
        database = self._connection
        if self._is_synced is not synced:
            wait_for_disk(database, wait=synced)
            self._is_synced = synced
        with transaction(database):
            # A single change needs no savepoint: a failure rolls back the transaction, which has nothing else.
            differences = [_run_in_savepoint(database, queued) for queued in batch] if len(batch) > 1 else [batch[0].change(database) or 0]
            number = schema.count_change(database, digest=sum(differences))
        self._committed(number)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _run_in_savepoint(connection: sqlite3.Connection, queued: _QueuedChange) -> int:
    """Run a change in a savepoint, and roll it back if it fails. Raises an error of SQLite, because it fails the whole batch."""
    connection.execute("SAVEPOINT change")
    digest = 0
    try:
        digest = queued.change(connection) or 0
    except FAILURES:
        raise
    except Exception as error:  # noqa: BLE001 - the caller of the change gets it
        connection.execute("ROLLBACK TO change")
        queued.error = error
    connection.execute("RELEASE change")
    return digest
