"""The journal's SQLite database: connections, errors as an operator reads them, the tables and how they change, and the one writer.

**Tables.** A file says three things about itself: the application id (that it is a drakit journal), ``user_version`` (the newest migration
applied), and ``meta.readable_since`` (the oldest schema whose code may read and write it). Code of schema N opens a file of schema M > N,
unchanged, when ``readable_since`` <= N. Rules for a new migration:

- It only adds: tables, indexes, or columns that have a default. Then ``readable_since`` stays, and the previous version works on the file
  during a rolling update and after a roll-back.
- One that cannot only add waits until no supported version lacks it, and raises ``readable_since`` to its own number.
- A migration that has been released is never edited; ``tests/golden`` holds the schema and a file of every released version.

**The writer.** Changes that are asked for at the same time share one fsync, and the first caller writes for all. A caller hands over a change (a
function of the connection). If nobody is writing, it leads: it takes every waiting change, runs each in a savepoint of its own inside one
transaction, commits, and wakes the callers; then it hands the lead to the first that came meanwhile. A caller alone pays no thread switch. A change
that raised gives its error to its caller and leaves no trace; the others are committed. When SQLite itself fails, the whole batch fails, every
caller gets the error, and the next batch starts on a new connection.

The writer waits for the disk where a change of the batch asks for it. A change that does not is on the disk as soon as any later one is: the log is
written in order, so a power cut always leaves everything up to some commit.
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


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One write transaction: everything in the body, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


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


APPLICATION_ID = 0x44524B4A  # "DRKJ"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Migration:
    """One step of the ladder: what leads from schema ``version`` - 1 to ``version``."""

    version: int
    statements: tuple[str, ...]
    readable_since: int


LADDER: tuple[Migration, ...] = (
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


def foreign(connection: sqlite3.Connection, ladder: Sequence[Migration] = LADDER) -> str:
    """Why a database is not a journal that this code can use; empty when it is one, or is still empty."""
    application, version = _number(connection, "application_id"), _number(connection, "user_version")
    if application == version == 0 and not is_laid_out(connection):
        return ""
    if application != APPLICATION_ID:
        return f"it is the database of another program (application id {application:#x})"
    newest = ladder[-1].version
    if version <= newest:
        return ""
    oldest = int(value(connection, "readable_since") or version)
    return "" if oldest <= newest else f"it was written by a newer drakit (schema {version}, readable since schema {oldest}, not {newest})"


def is_laid_out(connection: sqlite3.Connection) -> bool:
    """Whether the database has any table; one without is new, or its maker died before the first commit."""
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def upgrade(connection: sqlite3.Connection, ladder: Sequence[Migration] = LADDER) -> None:
    """Apply the migrations that the file lacks, inside the caller's transaction."""
    for migration in ladder:
        if migration.version > _number(connection, "user_version"):
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {migration.version}")
            put(connection, "readable_since", str(migration.readable_since))


def value(connection: sqlite3.Connection, key: str) -> str | None:
    """A value of the table ``meta``."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def put(connection: sqlite3.Connection, key: str, text: str) -> None:
    """Set a value of the table ``meta``."""
    connection.execute("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, text))


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


Change = Callable[[sqlite3.Connection], None]


class _Waiting:
    """A change, and whoever waits for it: woken when it is done, or to lead."""

    def __init__(self, change: Change, *, synced: bool) -> None:
        self.change = change
        self.synced = synced
        self.error: BaseException | None = None
        self.is_done = False
        self.woken = threading.Lock()
        """Held until this one is to wake; let go once."""
        self.woken.acquire()


class Writer:
    """The only writer of a journal in this process."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._guard = threading.Lock()
        self._turn = threading.Condition(self._guard)
        self._is_awaited = False
        self._is_led = False
        self._closed = False
        self._relaxed = False
        self._is_synced = True

    def relax(self) -> None:
        """Let commits from now on return when the kernel has them; changes that wait already may still be synced."""
        with self._turn:
            self._wait_until_idle()
            self._relaxed = True

    def commit(self, change: Change, *, synced: bool = True) -> None:
        """Run a change and return when it outlives this process and, if ``synced``, a power cut too.

        Raises what the change raised, or JournalError when it could not be written.
        """
        waiting = _Waiting(change, synced=synced)
        with self._guard:
            if self._closed:
                raise errors.JournalError(f"{self._path} is closed; open the journal again")
            self._waiting.append(waiting)
            leads = not self._is_led
            self._is_led = True
        if not leads:
            waiting.woken.acquire()
        if not waiting.is_done:
            self._lead()
        if isinstance(waiting.error, sqlite3.Error):
            raise refusal(self._path, waiting.error) from waiting.error
        if waiting.error is not None:
            raise waiting.error

    def close(self) -> None:
        """Wait until what was handed over is written, then end; twice is fine."""
        with self._turn:
            self._closed = True
            self._wait_until_idle()
            self._disconnect()

    def _lead(self) -> None:
        """Write everything that waits, wake those it belongs to, and hand on."""
        with self._guard:
            batch = tuple(self._waiting)
            self._waiting.clear()
        try:
            self._write(batch)
        except BaseException as error:  # noqa: BLE001 - whatever it is, those who wait must be woken and told; the leader raises it again
            if isinstance(error, sqlite3.Error):
                self._disconnect()
            for waiting in batch:
                waiting.error = error
        self._hand_on()
        for waiting in batch:
            waiting.is_done = True
            waiting.woken.release()

    def _hand_on(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting[0].woken.release()
            else:
                self._is_led = False
                if self._is_awaited:
                    self._turn.notify_all()

    def _wait_until_idle(self) -> None:
        """With the guard held, wait until nobody writes."""
        self._is_awaited = True
        self._turn.wait_for(lambda: not self._is_led)

    def _write(self, batch: Sequence[_Waiting]) -> None:
        synced = not self._relaxed and any(waiting.synced for waiting in batch)
        if self._connection is None:
            self._connection, self._is_synced = connect_writer(self._path), True
        database = self._connection
        if self._is_synced is not synced:
            wait_for_disk(database, wait=synced)
            self._is_synced = synced
        with transaction(database):
            if len(batch) == 1:
                # The transaction itself takes the place of a savepoint: what fails takes nobody with it.
                batch[0].change(database)
                return
            for waiting in batch:
                waiting.error = _attempt(database, waiting.change)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _attempt(connection: sqlite3.Connection, change: Change) -> Exception | None:
    """Run a change in a savepoint; the error it raised, its effects undone. An error of SQLite is the whole batch's and is raised."""
    connection.execute("SAVEPOINT change")
    failure: Exception | None = None
    try:
        change(connection)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - it belongs to the caller that waits
        connection.execute("ROLLBACK TO change")
        failure = error
    connection.execute("RELEASE change")
    return failure
