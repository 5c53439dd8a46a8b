"""The journal's SQLite database: connections, errors for operators, the tables and their migrations, and the writer.

**Tables.** A file has three version fields: the application id (it is a drakit journal), ``user_version`` (the newest applied migration) and
``meta.readable_since`` (the oldest schema whose code may read and write it). Code of schema N opens a file of schema M > N,
unchanged, when ``readable_since`` <= N. Rules for a new migration:

- It only adds: tables, indexes, or columns that have a default. Then ``readable_since`` stays, and the previous version works on the file
  during a rolling update and after a roll-back.
- A migration that must do more waits until every supported version has it, and raises ``readable_since`` to its own number.
- A released migration is never edited; ``tests/golden`` has the schema and a file of every released version.

**The writer.** Concurrent changes share one fsync, and the first caller writes for all. A caller queues a change (a function of the connection). If
no other caller writes, it becomes the leader: it takes every queued change, runs each in its own savepoint inside one transaction, commits, and wakes
the callers. Then it passes the lead to the first caller that queued a change meanwhile. A single caller pays no thread switch. A change that raises
is rolled back and its caller gets the error; the other changes are committed. When SQLite itself fails, the whole batch fails, every caller gets the
error, and the next batch starts on a new connection.

The writer waits for the disk if any change of the batch requires it. A change that does not require it is on the disk once a later one is, because
the log is written in order: a power cut always leaves everything up to some commit.
"""

import collections
import contextlib
import dataclasses
import pathlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence

from drakit.core import errors

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
    """Return a connection to an existing file, in autocommit mode, usable from any thread. Raise sqlite3.Error."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def connect_writer(path: pathlib.Path) -> sqlite3.Connection:
    """Return a connection whose commits survive a power cut (WAL, one fsync a commit). Raise sqlite3.Error or JournalError."""
    with _closing_on_error(connect(path)) as connection:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise errors.JournalError(f"{path}: its file system cannot hold a write-ahead log; use a local one")
        wait_for_disk(connection, wait=True)
        connection.execute("PRAGMA foreign_keys = ON")
        return connection


def wait_for_disk(connection: sqlite3.Connection, *, wait: bool) -> None:
    """Set whether commits return once the disk has them, or already once the kernel has. Not inside a transaction. Raise sqlite3.Error."""
    connection.execute(f"PRAGMA synchronous = {'FULL' if wait else 'NORMAL'}")


def connect_reader(path: pathlib.Path) -> sqlite3.Connection:
    """Return a connection that cannot write. Raise sqlite3.Error."""
    with _closing_on_error(connect(path)) as connection:
        connection.execute("PRAGMA query_only = ON")
        return connection


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether a read error means damaged content (or a missing table), not an inaccessible file."""
    return _code(error) in _DAMAGE


def journal_error(path: pathlib.Path, error: sqlite3.Error) -> errors.JournalError:
    """Return a JournalError for an error of SQLite: path, reason and fix."""
    fix = _FIXES.get(_code(error), "")
    return errors.JournalError(f"{path}: {error}" + (f"; {fix}" if fix else ""))


@contextlib.contextmanager
def as_journal_errors(path: pathlib.Path) -> Iterator[None]:
    """Raise an error of SQLite in the body as a JournalError about path."""
    try:
        yield
    except sqlite3.Error as error:
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
def _closing_on_error(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def _code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


APPLICATION_ID = 0x44524B4A  # "DRKJ"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Migration:
    """The statements that migrate schema ``version`` - 1 to ``version``."""

    version: int
    statements: tuple[str, ...]
    readable_since: int


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        version=1,
        readable_since=1,
        statements=(
            """CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT""",
            """CREATE TABLE claims (
    seq INTEGER PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    boot_id TEXT NOT NULL
) STRICT""",
            """CREATE TABLE grants (
    claim INTEGER NOT NULL REFERENCES claims (seq) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    request TEXT NOT NULL,
    pool TEXT NOT NULL,
    device TEXT NOT NULL,
    share_id TEXT NOT NULL,
    admin_access INTEGER NOT NULL,
    snapshot TEXT NOT NULL,
    consumed TEXT NOT NULL,
    parameters TEXT,
    config_source TEXT,
    intent TEXT NOT NULL,
    record TEXT NOT NULL,
    edits TEXT,
    PRIMARY KEY (claim, position)
) STRICT""",
            "CREATE INDEX grants_by_device ON grants (pool, device, share_id)",
        ),
    ),
    Migration(
        version=2,
        readable_since=1,
        statements=(
            """CREATE TABLE notes (
    claim INTEGER NOT NULL REFERENCES claims (seq) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    key TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (claim, position, key)
) STRICT""",
            """CREATE TABLE taints (
    device TEXT NOT NULL,
    key TEXT NOT NULL,
    effect TEXT NOT NULL,
    value TEXT NOT NULL,
    time_added TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    PRIMARY KEY (device, key, effect)
) STRICT""",
        ),
    ),
)


def incompatibility(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> str:
    """Return why this code cannot use a database, an empty string for a usable or still empty one."""
    application, version = _number(connection, "application_id"), _number(connection, "user_version")
    if application == version == 0 and not has_tables(connection):
        return ""
    if application != APPLICATION_ID:
        return f"it is the database of another program (application id {application:#x})"
    newest = migrations[-1].version
    if version <= newest:
        return ""
    oldest = int(meta(connection, "readable_since") or version)
    return "" if oldest <= newest else f"it was written by a newer drakit (schema {version}, readable since schema {oldest}, not {newest})"


def has_tables(connection: sqlite3.Connection) -> bool:
    """Return whether the database has any table; one without is new, or its creator died before the first commit."""
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def upgrade(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Apply the missing migrations. Inside the caller's transaction."""
    for migration in migrations:
        if migration.version > _number(connection, "user_version"):
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {migration.version}")
            set_meta(connection, "readable_since", str(migration.readable_since))


def meta(connection: sqlite3.Connection, key: str) -> str | None:
    """Return a value of the table ``meta``."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def set_meta(connection: sqlite3.Connection, key: str, text: str) -> None:
    """Set a value of the table ``meta``."""
    connection.execute("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, text))


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


Change = Callable[[sqlite3.Connection], None]


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
    """The single writer of a journal in this process."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
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

        Raise the error of the change, or JournalError when it cannot be written.
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
        if isinstance(queued.error, sqlite3.Error):
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
            if isinstance(error, sqlite3.Error):
                self._disconnect()
            for queued in batch:
                queued.error = error
        self._pass_lead()
        for queued in batch:
            queued.is_done = True
            queued.may_wake.release()

    def _pass_lead(self) -> None:
        with self._guard:
            if self._queue:
                self._queue[0].may_wake.release()
            else:
                self._has_leader = False
                if self._has_waiter:
                    self._leader_done.notify_all()

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
            if len(batch) == 1:
                # A single change needs no savepoint: a failure rolls back the transaction, which has nothing else.
                batch[0].change(database)
                return
            for queued in batch:
                queued.error = _run_in_savepoint(database, queued.change)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _run_in_savepoint(connection: sqlite3.Connection, change: Change) -> Exception | None:
    """Run a change in a savepoint, and return its error after a rollback. Raise an error of SQLite, because it fails the whole batch."""
    connection.execute("SAVEPOINT change")
    failure: Exception | None = None
    try:
        change(connection)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - the caller of the change gets it
        connection.execute("ROLLBACK TO change")
        failure = error
    connection.execute("RELEASE change")
    return failure
