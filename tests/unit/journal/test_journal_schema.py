"""The schema is frozen, old files open, and a file migrated by a newer version still serves the previous one."""

import contextlib
import datetime
import json
import pathlib
import shutil
import sqlite3

import pytest

from drakit.core import device, errors, lifecycle
from drakit.journal import codec, files, journal, opening, schema
from fakes import journal_samples as samples

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
DRIVER = "gpu.example.com"
SINCE = datetime.datetime(2026, 11, 22, 10, 0, tzinfo=datetime.UTC)
ADDITIVE = schema.Migration(
    version=4,
    readable_since=1,
    statements=(
        "ALTER TABLE grants ADD COLUMN children TEXT NOT NULL DEFAULT '[]'",
        "CREATE TABLE addresses (claim INTEGER NOT NULL, address TEXT NOT NULL) STRICT",
    ),
)
BREAKING = schema.Migration(version=5, readable_since=5, statements=("ALTER TABLE claims RENAME COLUMN boot_id TO boot",))


def described(path: pathlib.Path) -> dict[str, object]:
    """What a file says of its schema."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        sql = [row[0] for row in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")]
        version = database.execute("PRAGMA user_version").fetchone()[0]
        application = database.execute("PRAGMA application_id").fetchone()[0]
        mode = database.execute("PRAGMA journal_mode").fetchone()[0]
    return {"application_id": application, "user_version": version, "journal_mode": mode, "sql": [text.splitlines() for text in sql]}


def test_the_schema_is_the_frozen_one(tmp_path: pathlib.Path) -> None:
    with journal.Journal.open(tmp_path, driver=DRIVER, boot_id=samples.BOOT) as memory:
        found = described(memory.path)
    assert found == json.loads((GOLDEN / "journal-schema.json").read_text())


def test_columns_and_rows_agree() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        schema.upgrade(database)
        columns = {table: [row[1] for row in database.execute(f"PRAGMA table_info({table})")] for table in ("claims", "grants")}
    assert columns["claims"][1:] == [*codec.ClaimRow._fields, "begun_digest", "prepared_digest"]
    assert columns["grants"][1:] == [*codec.GrantRow._fields, "writes"]


@pytest.mark.parametrize("fixture", sorted(GOLDEN.glob("journal-v*.db")), ids=lambda path: path.stem)
def test_a_file_of_every_released_version_opens_and_works(fixture: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shutil.copy(fixture, tmp_path / files.DATABASE)
    with journal.Journal.open(tmp_path, driver=DRIVER, boot_id=samples.BOOT) as memory:
        assert memory.quarantine is None
        found = memory.entries()
        assert [(entry.claim, entry.state) for entry in found] == [
            (samples.ref(1), lifecycle.State.PREPARED),
            (samples.ref(2), lifecycle.State.PREPARING),
            (samples.ref(3), lifecycle.State.UNPREPARING),
        ]
        assert found[0].grants == (samples.frozen(samples.rich_grant()), samples.frozen(samples.grant("b", "gpu-1")))
        memory.begin_unprepare(samples.uid(1))
        memory.finish_unprepare(samples.uid(1))
        memory.begin(samples.entry(1))


def test_notes_and_taints_of_the_second_schema_are_read(tmp_path: pathlib.Path) -> None:
    shutil.copy(GOLDEN / "journal-v2.db", tmp_path / files.DATABASE)
    with journal.Journal.open(tmp_path, driver=DRIVER, boot_id=samples.BOOT) as memory:
        assert memory.state(samples.uid(1), samples.rich_grant().key) == {"address": {"mac": "02:00:00:00:00:01"}}
        (taint,) = memory.taints()["gpu-1"]
        assert (taint.key, taint.value, taint.effect, taint.time_added) == ("example.com/hot", "yes", device.TaintEffect.NO_EXECUTE, SINCE)


def test_schema_1_code_works_on_a_schema_2_file_and_removes_notes_with_their_claim(tmp_path: pathlib.Path) -> None:
    shutil.copy(GOLDEN / "journal-v2.db", tmp_path / files.DATABASE)
    opening.open_file(tmp_path, driver=DRIVER, boot_id=samples.BOOT, migrations=schema.MIGRATIONS[:1]).close()
    with contextlib.closing(sqlite3.connect(tmp_path / files.DATABASE, isolation_level=None)) as database:
        database.execute("PRAGMA foreign_keys = ON")
        database.execute("DELETE FROM grants WHERE claim = (SELECT seq FROM claims WHERE uid = ?)", (samples.uid(1),))
        database.execute("DELETE FROM claims WHERE uid = ?", (samples.uid(1),))
        assert database.execute("SELECT count(*) FROM notes").fetchone() == (0,)
        assert database.execute("PRAGMA user_version").fetchone() == (2,)
    with journal.Journal.open(tmp_path, driver=DRIVER, boot_id=samples.BOOT) as memory:
        assert memory.quarantine is None
        memory.begin(samples.entry(1, samples.rich_grant()))
        memory.complete(samples.uid(1), [samples.rich_grant()], samples.BOOT)
        assert memory.state(samples.uid(1), samples.rich_grant().key) == {}


def migrated(path: pathlib.Path, *more: schema.Migration) -> None:
    """The file as a newer drakit leaves it."""
    opening.open_file(path, driver=DRIVER, boot_id=samples.BOOT, migrations=(*schema.MIGRATIONS, *more)).close()


def test_the_previous_version_works_on_a_migrated_file_and_keeps_unknown_data(tmp_path: pathlib.Path) -> None:
    with journal.Journal.open(tmp_path, driver=DRIVER, boot_id=samples.BOOT) as old:
        old.begin(samples.entry(1))
        migrated(tmp_path, ADDITIVE)
        with contextlib.closing(sqlite3.connect(old.path, isolation_level=None)) as database:
            assert database.execute("PRAGMA user_version").fetchone()[0] == 4
            database.execute('UPDATE grants SET children = \'[7]\', intent = \'{"want":"gpu","new":1}\'')
        old.complete(samples.uid(1), samples.entry(1).grants, samples.BOOT)
        old.begin(samples.entry(2))
    with journal.Journal.open(tmp_path, driver=DRIVER, boot_id=samples.BOOT) as again:
        assert again.quarantine is None
        assert [entry.claim for entry in again.entries()] == [samples.ref(1), samples.ref(2)]
    with contextlib.closing(sqlite3.connect(tmp_path / files.DATABASE)) as database:
        kept = database.execute("SELECT children, intent FROM grants ORDER BY claim").fetchall()
    assert kept == [("[7]", '{"want":"gpu","new":1}'), ("[]", '{"want":"gpu"}')]


def test_migrations_apply_once_and_in_order(tmp_path: pathlib.Path) -> None:
    for _ in range(2):
        migrated(tmp_path, ADDITIVE, BREAKING)
    with contextlib.closing(sqlite3.connect(tmp_path / files.DATABASE)) as database:
        assert database.execute("PRAGMA user_version").fetchone()[0] == 5
        assert schema.meta(database, "readable_since") == "5"
        assert "boot" in [row[1] for row in database.execute("PRAGMA table_info(claims)")]


def test_a_file_that_only_newer_versions_can_read_is_set_aside(tmp_path: pathlib.Path) -> None:
    migrated(tmp_path, ADDITIVE, BREAKING)
    with journal.Journal.open(tmp_path, driver=DRIVER, boot_id=samples.BOOT) as memory:
        assert memory.quarantine is not None
        assert "newer drakit (schema 5, readable since schema 5, not 3)" in memory.quarantine.reason


def test_a_migration_that_fails_leaves_the_old_schema(tmp_path: pathlib.Path) -> None:
    with journal.Journal.open(tmp_path, driver=DRIVER, boot_id=samples.BOOT) as memory:
        before = described(memory.path)
    broken = schema.Migration(
        version=4, readable_since=1, statements=("CREATE TABLE extra (x INT) STRICT", "CREATE TABLE claims (x INT) STRICT")
    )
    with pytest.raises(errors.JournalError, match="table claims already exists"):
        migrated(tmp_path, broken)
    assert described(tmp_path / files.DATABASE) == before


def test_the_migrations_have_no_gap_and_never_demand_the_future() -> None:
    assert [step.version for step in schema.MIGRATIONS] == list(range(1, len(schema.MIGRATIONS) + 1))
    assert all(step.readable_since <= step.version for step in schema.MIGRATIONS)
