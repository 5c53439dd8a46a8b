"""The journal's tables and their migrations.

A file has three version fields: the application id (it is a drakit journal), ``user_version`` (the newest applied migration) and
``meta.readable_since`` (the oldest schema whose code may read and write it). Code of schema N opens a file of schema M > N,
unchanged, when ``readable_since`` <= N. Rules for a new migration:

- It only adds: tables, indexes, or columns that have a default. Then ``readable_since`` stays, and the previous version works on the file
  during a rolling update and after a roll-back.
- A migration that must do more waits until every supported version has it, and raises ``readable_since`` to its own number.
- A released migration is never edited; ``tests/golden`` has the schema and a file of every released version.
"""

import contextlib
import dataclasses
import functools
import sqlite3
from collections.abc import Iterator, Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Migration:
    """The statements that migrate schema ``version`` - 1 to ``version``."""

    version: int
    statements: tuple[str, ...]
    readable_since: int


APPLICATION_ID = 0x44524B4A  # "DRKJ"
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
    # Digests of content (``digests``) and their sum. A digest is 0 where it is unknown: the triggers reset it, and keep the sum, when a previous
    # version, or somebody with sqlite3, changes the row without it. They do nothing when this version changes a row: it writes the digests and
    # the sum itself, and raises ``writes`` of a grant. Only ``claim_deleted`` keeps the sum for every version.
    Migration(
        version=3,
        readable_since=1,
        statements=(
            "ALTER TABLE claims ADD COLUMN begun_digest INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE claims ADD COLUMN prepared_digest INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE grants ADD COLUMN writes INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE notes ADD COLUMN digest INTEGER NOT NULL DEFAULT 0",
            """CREATE TABLE progress (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    changes INTEGER NOT NULL,
    digest INTEGER NOT NULL
) STRICT""",
            "INSERT INTO progress (id, changes, digest) VALUES (1, 1, 0)",
            """CREATE TRIGGER claim_deleted AFTER DELETE ON claims BEGIN
    UPDATE progress SET digest = digest - OLD.begun_digest - OLD.prepared_digest WHERE id = 1;
END""",
            """CREATE TRIGGER claim_renamed AFTER UPDATE OF uid, namespace, name ON claims BEGIN
    UPDATE progress SET digest = digest - NEW.begun_digest;
    UPDATE claims SET begun_digest = 0 WHERE seq = NEW.seq;
END""",
            """CREATE TRIGGER claim_prepared AFTER UPDATE OF boot_id ON claims
WHEN NEW.boot_id <> OLD.boot_id AND NEW.prepared_digest = OLD.prepared_digest BEGIN
    UPDATE progress SET digest = digest - NEW.prepared_digest;
    UPDATE claims SET prepared_digest = 0 WHERE seq = NEW.seq;
END""",
            """CREATE TRIGGER grant_changed AFTER UPDATE OF position, request, pool, device, share_id, admin_access, snapshot, consumed, parameters,
    config_source, intent ON grants BEGIN
    UPDATE progress SET digest = digest - (SELECT begun_digest FROM claims WHERE seq = NEW.claim);
    UPDATE claims SET begun_digest = 0 WHERE seq = NEW.claim;
END""",
            """CREATE TRIGGER grant_prepared AFTER UPDATE OF record, edits ON grants WHEN NEW.writes = OLD.writes BEGIN
    UPDATE progress SET digest = digest - (SELECT prepared_digest FROM claims WHERE seq = NEW.claim);
    UPDATE claims SET prepared_digest = 0 WHERE seq = NEW.claim;
END""",
            """CREATE TRIGGER note_changed AFTER UPDATE OF key, record ON notes WHEN NEW.digest = OLD.digest BEGIN
    UPDATE notes SET digest = 0 WHERE claim = NEW.claim AND position = NEW.position AND key = NEW.key;
END""",
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
    since = meta(connection, "readable_since") or ""
    oldest = int(since) if since.isdecimal() else version
    return "" if oldest <= newest else f"it was written by a newer drakit (schema {version}, readable since schema {oldest}, not {newest})"


def difference(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> str:
    """Return how the tables differ from those of the file's version; empty for equal ones, and for a newer version or an empty file."""
    version = _number(connection, "user_version")
    if version > migrations[-1].version or not has_tables(connection):
        return ""
    expected = _expected(tuple(migration for migration in migrations if migration.version <= version))
    differing = sorted({name for name, _ in expected ^ _objects(connection)})
    return f"{', '.join(differing)} is not as in schema {version}" if differing else ""


@functools.cache
def _expected(migrations: tuple[Migration, ...]) -> frozenset[tuple[str, str]]:
    with _model(migrations) as model:
        return _objects(model)


@functools.cache
def _creation(migrations: tuple[Migration, ...]) -> tuple[str, ...]:
    """Return the statements that create at once what migrations of an empty file make, without its beginning and end of a transaction."""
    with _model(migrations) as model:
        return tuple(model.iterdump())[1:-1]


@contextlib.contextmanager
def _model(migrations: tuple[Migration, ...]) -> Iterator[sqlite3.Connection]:
    """Yield a database in memory that was migrated step by step."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        for migration in migrations:
            _apply(model, migration)
        yield model


def _objects(connection: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    return frozenset((str(name), str(sql)) for name, sql in connection.execute("SELECT name, sql FROM sqlite_master"))


def has_tables(connection: sqlite3.Connection) -> bool:
    """Return whether the database has any table; one without is new, or its creator died before the first commit."""
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def upgrade(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Apply the missing migrations. Inside the caller's transaction."""
    version = _number(connection, "user_version")
    if version == 0:
        for statement in _creation(tuple(migrations)):
            connection.execute(statement)
        _set_version(connection, migrations[-1])
        return
    for migration in migrations:
        if migration.version > version:
            _apply(connection, migration)


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    for statement in migration.statements:
        connection.execute(statement)
    _set_version(connection, migration)
    set_meta(connection, "readable_since", str(migration.readable_since))


def _set_version(connection: sqlite3.Connection, migration: Migration) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {migration.version}")


def has_progress(connection: sqlite3.Connection) -> bool:
    """Return whether the file has the table ``progress``: a previous version's code opens a file of its own version without it."""
    return bool(connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'progress'").fetchone()[0])


def changes(connection: sqlite3.Connection) -> int:
    """Return the number of the last change; 0 in a file of a previous version."""
    row = connection.execute("SELECT changes FROM progress").fetchone() if has_progress(connection) else None
    return integer(*row or (None,))


def integer(value: object) -> int:
    """Return a value of a column of integers; 0 for any other, which a damaged file may have."""
    return value if isinstance(value, int) else 0


def meta(connection: sqlite3.Connection, key: str) -> str | None:
    """Return a value of the table ``meta``."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def set_meta(connection: sqlite3.Connection, key: str, text: str) -> None:
    """Set a value of the table ``meta``."""
    connection.execute("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, text))


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
