"""What is made, mended, set aside or refused when a journal is opened; nothing is ever overwritten or silently forgotten."""

import contextlib
import os
import pathlib
import sqlite3
import stat
import threading
from collections.abc import Callable, Collection, Iterator

import pytest

from drakit.core import errors, lifecycle, names
from drakit.journal import examination, files, journal, marks, schema
from fakes import journal_samples as samples
from fakes import other_user, waits

DRIVER = "gpu.example.com"


def opened(
    directory: pathlib.Path, boot_id: str = samples.BOOT, *, claims_with_files: Collection[names.ClaimUid] = (), checks_new: bool = False
) -> journal.Journal:
    """The journal of a data directory beside its CDI directory ``cdi``."""
    cdi = directory.with_name("cdi")
    with contextlib.suppress(OSError):
        cdi.mkdir(exist_ok=True, parents=True)
    mark = marks.Mark(marks.path(cdi, DRIVER), boot_id)
    evidence = examination.Evidence(claims=lambda: frozenset(claims_with_files), mark=mark, checks_new=checks_new)
    return journal.Journal.open(directory, driver=DRIVER, boot_id=boot_id, evidence=evidence)


def mode(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "data"


@pytest.fixture
def written(data: pathlib.Path) -> pathlib.Path:
    """The file of a closed journal with three claims."""
    with opened(data) as memory:
        for number in (1, 2, 3):
            memory.begin(samples.entry(number))
    return data / files.DATABASE


@contextlib.contextmanager
def tampering(path: pathlib.Path) -> Iterator[sqlite3.Connection]:
    """The database as someone with sqlite3 at hand changes it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        yield database


def test_a_new_journal_is_for_its_owner_alone(data: pathlib.Path) -> None:
    before = os.umask(0)
    try:
        with opened(data) as memory:
            memory.begin(samples.entry(1))
            modes = {path.name: mode(path) for path in data.iterdir()}
    finally:
        os.umask(before)
    assert mode(data) == 0o700
    assert modes == {**dict.fromkeys(["journal.db", "journal.db-wal", "journal.db-shm", "journal.lock"], 0o600), "locks": 0o700}


def test_an_flock_of_another_user_on_the_data_directory_delays_nobody(data: pathlib.Path) -> None:
    data.mkdir(mode=0o755)
    opening = threading.Thread(target=lambda: opened(data).close(), daemon=True)
    with other_user.locking(data):
        opening.start()
        opening.join(waits.SECONDS)
        assert not opening.is_alive()
    opening.join()


def test_too_open_file_modes_are_narrowed_and_logged(written: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    written.chmod(0o644)
    written.parent.chmod(0o755)
    with opened(written.parent):
        assert mode(written) == 0o600
        assert mode(written.parent) == 0o700
    assert capsys.readouterr().err.count("file mode restricted") == 2


def test_written_entries_are_there_after_reopening(written: pathlib.Path) -> None:
    with opened(written.parent) as memory:
        assert [entry.claim for entry in memory.entries()] == [samples.ref(1), samples.ref(2), samples.ref(3)]
        assert memory.quarantine is None


@pytest.mark.parametrize("blank", ["nothing", "an empty file"])
def test_a_journal_that_is_missing_where_claims_were_prepared_was_lost(data: pathlib.Path, blank: str) -> None:
    if blank != "nothing":
        data.mkdir(mode=0o700)
        (data / files.DATABASE).touch(mode=0o600)
    with opened(data, claims_with_files=(samples.uid(1),)) as memory:
        assert memory.quarantine is not None
        assert "missing" in memory.quarantine.reason
    with opened(data) as memory:
        assert memory.quarantine is not None
        memory.rebuilt()
    with opened(data) as memory:
        assert memory.quarantine is None


def test_the_last_boot_id_is_stored(data: pathlib.Path) -> None:
    found = []
    for boot in ("one", "one", "two"):
        with opened(data, boot) as memory:
            found.append(memory.last_boot_id)
    assert found == ["", "one", "one"]
    with opened(data, "three") as memory:
        assert memory.last_boot_id == "two"


def test_the_pool_of_the_node_is_stored(data: pathlib.Path) -> None:
    with opened(data) as memory:
        assert memory.pool() == ""
        memory.set_pool("node-1")
        memory.set_pool("node-2")
    with opened(data) as memory:
        assert memory.pool() == "node-2"


def test_another_drivers_journal_is_refused_and_unchanged(written: pathlib.Path) -> None:
    with pytest.raises(errors.JournalError, match=r"belongs to driver gpu\.example\.com, not nic\.example\.com"):
        journal.Journal.open(written.parent, driver="nic.example.com", boot_id=samples.BOOT)
    with opened(written.parent) as memory:
        assert len(memory.entries()) == 3


def garbage(path: pathlib.Path) -> None:
    path.write_bytes(b"not a database at all" * 300)


def truncated(path: pathlib.Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def scribbled(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)


def another_program(path: pathlib.Path) -> None:
    path.unlink()
    with tampering(path) as database:
        database.execute("PRAGMA application_id = 42")
        database.execute("CREATE TABLE songs (title)")


def no_program(path: pathlib.Path) -> None:
    path.unlink()
    with tampering(path) as database:
        database.execute("CREATE TABLE songs (title)")


def newer(path: pathlib.Path) -> None:
    with tampering(path) as database:
        database.execute("PRAGMA user_version = 99")
        database.execute("UPDATE meta SET value = '98' WHERE key = 'readable_since'")


def without_tables(path: pathlib.Path) -> None:
    with tampering(path) as database:
        database.execute("DROP TABLE grants")


UNREADABLE = [garbage, truncated, scribbled, another_program, no_program, newer, without_tables]


@pytest.mark.parametrize("damage", UNREADABLE, ids=lambda damage: damage.__name__)
def test_an_unreadable_file_is_set_aside_whole_and_reported_until_rebuilt(
    written: pathlib.Path, damage: Callable[[pathlib.Path], None]
) -> None:
    damage(written)
    content = written.read_bytes()
    with opened(written.parent) as memory:
        assert memory.quarantine is not None
        assert memory.quarantine.reason
        assert memory.quarantine.path.parent == written.parent
        assert memory.quarantine.path.read_bytes() == content
        assert memory.entries() == ()
        memory.begin(samples.entry(9))
        reported = memory.quarantine
    with opened(written.parent) as memory:
        assert memory.quarantine == reported
        memory.rebuilt()
    with opened(written.parent) as memory:
        assert memory.quarantine is None
        assert [entry.claim for entry in memory.entries()] == [samples.ref(9)]


def test_files_set_aside_never_replace_each_other(written: pathlib.Path) -> None:
    kept = set()
    for number in range(3):
        written.write_bytes(f"broken {number}".encode() * 200)
        with opened(written.parent) as memory:
            assert memory.quarantine is not None
            kept.add(memory.quarantine.path)
    assert len({path.read_bytes() for path in kept}) == 3


def test_the_write_ahead_log_is_set_aside_with_its_file(written: pathlib.Path) -> None:
    for suffix in files.SIDE_FILES:
        files.with_suffix(written, suffix).write_bytes(suffix.encode())
    aside = files.new_aside_path(written)
    assert aside is not None
    files.set_aside(written, aside)
    assert [files.with_suffix(aside, suffix).read_bytes() for suffix in files.SIDE_FILES] == [b"-wal", b"-shm"]
    assert sorted(path.name for path in written.parent.iterdir()) == sorted(
        [aside.name, f"{aside.name}-wal", f"{aside.name}-shm", "journal.lock", "locks"]
    )


@pytest.mark.parametrize(
    "statement, message",
    [
        ("UPDATE grants SET snapshot = '{}' WHERE claim = 2", "snapshot"),
        ("UPDATE claims SET state = 'paused' WHERE seq = 2", "paused"),
    ],
)
def test_one_unreadable_row_does_not_hide_the_others(written: pathlib.Path, statement: str, message: str) -> None:
    with tampering(written) as database:
        database.execute(statement)
    with opened(written.parent) as memory:
        assert memory.quarantine is not None
        assert message in memory.quarantine.reason
        assert (memory.quarantine.kept, memory.quarantine.lost) == (2, (samples.uid(2),))
        assert memory.entry(samples.uid(2)) is None
        assert [entry.claim for entry in memory.entries()] == [samples.ref(1), samples.ref(3)]
        memory.complete(samples.uid(3), samples.entry(3).grants, samples.BOOT)


def test_grants_of_no_claim_are_not_inherited_by_the_next_one(written: pathlib.Path) -> None:
    with tampering(written) as database:
        database.execute("DELETE FROM claims WHERE seq = 3")
    with opened(written.parent) as memory:
        assert memory.quarantine is not None
        assert memory.quarantine.reason == "a row of grants has no claim"
        memory.begin(samples.entry(4))
        assert [entry.claim for entry in memory.entries()] == [samples.ref(1), samples.ref(2), samples.ref(4)]


def test_a_row_damaged_while_open_is_an_error_that_names_it(written: pathlib.Path) -> None:
    with opened(written.parent) as memory:
        with tampering(written) as database:
            database.execute("UPDATE grants SET intent = '[]' WHERE claim = 1")
            database.execute("UPDATE claims SET state = 'paused' WHERE seq = 2")
        with pytest.raises(errors.JournalError, match=rf"{samples.uid(1)}: grants\[0\]\.intent: must be an object, not a list; restart"):
            memory.entry(samples.uid(1))
        with pytest.raises(errors.JournalError, match="paused"):
            memory.begin_unprepare(samples.uid(2))
        assert memory.entry(samples.uid(3)) is not None


def test_an_unreadable_file_in_use_by_another_process_is_not_moved(written: pathlib.Path) -> None:
    with opened(written.parent) as memory:
        with tampering(written) as database:
            database.execute("UPDATE claims SET state = 'paused' WHERE seq = 2")
        with pytest.raises(errors.JournalError, match=r"unreadable .* another process has it open; stop that one first"):
            opened(written.parent)
        memory.begin_unprepare(samples.uid(1))
    with opened(written.parent) as memory:
        found = memory.entry(samples.uid(1))
        assert found is not None
        assert found.state is lifecycle.State.UNPREPARING


def test_a_crash_between_setting_aside_and_recreating_is_reported(written: pathlib.Path) -> None:
    aside = files.new_aside_path(written)
    assert aside is not None
    files.set_aside(written, aside)
    with opened(written.parent) as memory:
        assert memory.quarantine is not None
        assert memory.quarantine.path == aside


def test_a_log_without_its_database_is_set_aside(written: pathlib.Path) -> None:
    written.rename(written.with_name("gone"))
    files.with_suffix(written, "-wal").write_bytes(b"committed")
    with opened(written.parent) as memory:
        assert memory.quarantine is not None
        assert files.with_suffix(memory.quarantine.path, "-wal").read_bytes() == b"committed"


def test_a_file_without_a_first_commit_counts_as_new(data: pathlib.Path) -> None:
    files.ensure_private_directory(data)
    files.create(data / files.DATABASE)
    with opened(data) as memory:
        assert memory.quarantine is None
        assert memory.entries() == ()


@pytest.mark.parametrize("name", [".", files.DATABASE])
def test_a_symbolic_link_in_place_of_the_journal_is_refused(tmp_path: pathlib.Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    data = tmp_path / "data"
    if name == ".":
        elsewhere.mkdir()
        data.symlink_to(elsewhere)
    else:
        data.mkdir()
        (data / name).symlink_to(elsewhere)
    with pytest.raises(errors.JournalError, match="symbolic link"):
        opened(data)
    assert not elsewhere.exists() or not any(elsewhere.iterdir())


def test_a_path_that_cannot_be_a_directory_names_the_fix(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.JournalError, match=f"{tmp_path}/file/data: Not a directory; give a path whose parents"):
        opened(tmp_path / "file" / "data")


def test_a_directory_in_place_of_the_file_is_refused(data: pathlib.Path) -> None:
    (data / files.DATABASE).mkdir(parents=True)
    with pytest.raises(errors.JournalError, match=r"journal\.db"):
        opened(data)


def test_concurrent_openings_create_one_journal(data: pathlib.Path) -> None:
    journals: list[journal.Journal] = []
    threads = [threading.Thread(target=lambda: journals.append(opened(data))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, memory in enumerate(journals):
        memory.begin(samples.entry(number))
    assert {len(memory.entries()) for memory in journals} == {6}
    for memory in journals:
        memory.close()


def test_using_a_closed_journal_is_an_error(data: pathlib.Path) -> None:
    memory = opened(data)
    memory.begin(samples.entry(1))
    memory.close()
    memory.close()
    with pytest.raises(errors.JournalError, match="is closed"):
        memory.entry(samples.uid(1))
    with pytest.raises(errors.JournalError, match="is closed"):
        memory.begin_unprepare(samples.uid(1))


def test_an_opening_that_fails_leaves_no_lock_behind(written: pathlib.Path) -> None:
    with pytest.raises(errors.JournalError):
        journal.Journal.open(written.parent, driver="nic.example.com", boot_id="")
    with tampering(written) as database:
        database.execute("UPDATE claims SET state = 'paused' WHERE seq = 2")
    with opened(written.parent) as memory:
        assert memory.quarantine is not None


def test_reads_by_identity_use_an_index(written: pathlib.Path) -> None:
    queries = {
        "SELECT seq, state FROM claims WHERE uid = 'x'": "USING INDEX",
        "SELECT 1 FROM grants AS g JOIN claims AS c ON c.seq = g.claim WHERE g.pool = 'p' AND g.device = 'd'": "USING INDEX grants_by_device",
    }
    with tampering(written) as database:
        for query, expected in queries.items():
            plan = " ".join(row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {query}"))
            assert expected in plan
            assert "SCAN" not in plan


def test_a_record_of_a_loss_that_cannot_be_read_is_damage(written: pathlib.Path) -> None:
    with tampering(written) as database:
        schema.set_meta(database, "quarantine", "{")
    with opened(written.parent) as memory:
        assert memory.quarantine is not None
        assert "meta.quarantine: not JSON" in memory.quarantine.reason
        assert len(memory.entries()) == 3
