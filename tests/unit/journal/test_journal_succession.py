"""What could be saved of an unreadable journal outlives every death and every refusal of the disk while its successor takes its place."""

import pathlib
import sqlite3
from collections.abc import Callable

import pytest

from drakit.core import errors
from drakit.journal import examination, files, inspection, journal, opening, quarantine, schema
from fakes import journal_samples as samples

DRIVER = "gpu.example.com"
KEPT = [samples.ref(1), samples.ref(3)]
LOG = b"what was committed last"


def opened(directory: pathlib.Path) -> journal.Journal:
    return journal.Journal.open(directory, driver=DRIVER, boot_id=samples.BOOT)


@pytest.fixture
def unreadable(tmp_path: pathlib.Path) -> pathlib.Path:
    """A journal of three claims, of which the second was edited by hand."""
    data = tmp_path / "data"
    with opened(data) as memory:
        for number in (1, 2, 3):
            memory.begin(samples.entry(number))
    path = data / files.DATABASE
    with sqlite3.connect(path, isolation_level=None) as database:
        database.execute("UPDATE claims SET state = 'mended' WHERE seq = 2")
    database.close()
    return path


def beside(path: pathlib.Path) -> pathlib.Path:
    return files.with_suffix(path, ".new")


def written(path: pathlib.Path) -> pathlib.Path:
    """The successor committed, and the name that its note gives to the unreadable file."""
    damage = examination.examine(path, schema.MIGRATIONS)
    assert damage is not None
    target = path.with_name(f"{path.name}.unreadable-20260102T030405Z")
    note = quarantine.Quarantine(path=target, reason=damage.reason, kept=len(damage.readable), lost=damage.lost)
    opening._write_successor(path, note, damage, schema.MIGRATIONS, 0)
    return target


def before_the_commit(path: pathlib.Path) -> None:
    files.create(beside(path))
    files.with_suffix(beside(path), "-journal").write_bytes(b"begun")


def after_the_commit(path: pathlib.Path) -> None:
    written(path)


def after_the_database(path: pathlib.Path) -> None:
    path.rename(written(path))
    files.with_suffix(path, "-wal").write_bytes(LOG)


def after_the_log(path: pathlib.Path) -> None:
    target = written(path)
    files.with_suffix(path, "-wal").write_bytes(LOG)
    files.set_aside(path, target)


DEATHS = [before_the_commit, after_the_commit, after_the_database, after_the_log]


@pytest.mark.parametrize("die", DEATHS, ids=lambda die: die.__name__)
def test_a_crash_while_replacing_a_journal_loses_no_readable_claim(unreadable: pathlib.Path, die: Callable[[pathlib.Path], None]) -> None:
    content = unreadable.read_bytes()
    die(unreadable)
    for _ in range(2):
        with opened(unreadable.parent) as memory:
            assert [entry.claim for entry in memory.entries()] == KEPT
            assert memory.quarantine is not None
            assert (memory.quarantine.kept, memory.quarantine.lost) == (2, (samples.uid(2),))
            assert memory.quarantine.path.read_bytes() == content
            log = files.with_suffix(memory.quarantine.path, "-wal")
    assert not log.exists() or log.read_bytes() == LOG
    assert not list(unreadable.parent.glob("*.new*"))


@pytest.mark.parametrize("die", DEATHS[1:], ids=lambda die: die.__name__)
def test_reading_after_a_crash_shows_what_the_next_opening_will_have(
    unreadable: pathlib.Path, tmp_path: pathlib.Path, die: Callable[[pathlib.Path], None]
) -> None:
    die(unreadable)
    data, copy = unreadable.parent, tmp_path / "copy"
    before = {path.name: path.read_bytes() for path in data.iterdir() if path.is_file()}
    assert inspection.exists(data)
    inspection.copy(data, copy)
    with opened(copy) as memory:
        assert [entry.claim for entry in memory.entries()] == KEPT
        assert memory.quarantine is not None
    assert {path.name: path.read_bytes() for path in data.iterdir() if path.is_file()} == before


def test_a_replacement_is_completed_in_a_moved_folder(unreadable: pathlib.Path, tmp_path: pathlib.Path) -> None:
    after_the_database(unreadable)
    moved = unreadable.parent.rename(tmp_path / "moved")
    with opened(moved) as memory:
        assert [entry.claim for entry in memory.entries()] == KEPT
    assert not list(moved.glob("*.db-wal"))
    assert len(list(moved.glob("*.unreadable-*-wal"))) == 1


def test_a_successor_that_cannot_be_written_leaves_the_unreadable_file_where_it_was(unreadable: pathlib.Path) -> None:
    content = unreadable.read_bytes()
    beside(unreadable).mkdir()
    with pytest.raises(errors.JournalError, match=r"journal\.db\.new"):
        opened(unreadable.parent)
    assert unreadable.read_bytes() == content
    assert files.last_aside_path(unreadable) is None
    beside(unreadable).rmdir()
    with opened(unreadable.parent) as memory:
        assert [entry.claim for entry in memory.entries()] == KEPT


def test_a_successor_edited_by_hand_is_dropped(unreadable: pathlib.Path) -> None:
    after_the_log(unreadable)
    with sqlite3.connect(beside(unreadable), isolation_level=None) as database:
        schema.set_meta(database, "quarantine", "{")
    database.close()
    with opened(unreadable.parent) as memory:
        assert memory.quarantine is not None
        assert "missing beside one that was set aside" in memory.quarantine.reason
