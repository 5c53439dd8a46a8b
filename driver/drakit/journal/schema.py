"""The journal's tables and how they change.

A file says three things about itself: the application id (that it is a drakit journal), ``user_version`` (the newest migration applied), and
``meta.readable_since`` (the oldest schema whose code may read and write it). Code of schema N opens a file of schema M > N, unchanged, when
``readable_since`` <= N. Rules for a new migration:

- It only adds: tables, indexes, or columns that have a default. Then ``readable_since`` stays, and the previous version works on the file
  during a rolling update and after a roll-back.
- One that cannot only add waits until no supported version lacks it, and raises ``readable_since`` to its own number.
- A migration that has been released is never edited; ``tests/golden`` holds the schema and a file of every released version.
"""

import dataclasses
import sqlite3
from collections.abc import Sequence

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
