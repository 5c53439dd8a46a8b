"""A journal that lacks changes or has changed bits is detected at its opening, and a previous version may use the file without an alarm."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import socket
import sqlite3
from collections.abc import Callable

import pytest

from drakit.core import errors, names
from drakit.journal import examination, files, journal, marks, quarantine
from fakes import journal_samples as samples

DRIVER = "gpu.example.com"


class Site:
    """A data directory and a CDI directory."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.data, self.cdi = folder / "data", folder / "cdi"
        self.cdi.mkdir()
        self.path = self.data / files.DATABASE
        self.mark = marks.path(self.cdi, DRIVER)
        self.with_files: frozenset[names.ClaimUid] = frozenset()

    def open(self, boot_id: str = samples.BOOT, *, checks_new: bool = False) -> journal.Journal:
        mark = marks.Mark(self.mark, boot_id)
        evidence = examination.Evidence(claims=lambda: self.with_files, mark=mark, checks_new=checks_new)
        return journal.Journal.open(self.data, driver=DRIVER, boot_id=boot_id, evidence=evidence)

    def changed(self, find: bytes, offset: int = 0, bit: int = 1) -> None:
        """Change one bit of the closed database."""
        content = bytearray(self.path.read_bytes())
        place = content.rfind(find)
        assert place >= 0
        content[place + offset] ^= bit
        self.path.write_bytes(content)

    def reopened(self, boot_id: str = samples.BOOT) -> tuple[str, tuple[str, ...], list[str]]:
        """Open again: the reason of the quarantine, the lost claims, and the names of the claims that are there."""
        with self.open(boot_id) as memory:
            record = memory.quarantine
            return record.reason if record else "", record.lost if record else (), [entry.claim.name for entry in memory.entries()]


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Site:
    """A closed journal with three prepared claims."""
    made = Site(tmp_path)
    with made.open() as memory:
        for number in (1, 2, 3):
            grant = samples.grant(f"request-{number}", f"gpu-{number}")
            memory.begin(samples.entry(number, grant))
            memory.complete(samples.uid(number), [grant], samples.BOOT)
    return made


ALL = ["claim-1", "claim-2", "claim-3"]


def test_an_intact_journal_is_opened_as_it_is(site: Site) -> None:
    assert site.reopened() == ("", (), ALL)


@pytest.mark.parametrize("bit", [0x80, 1], ids=["not UTF-8", "another letter"])
def test_a_changed_bit_in_a_text_costs_one_claim(site: Site, bit: int) -> None:
    site.changed(b'"want":"', offset=9, bit=bit)
    reason, lost, kept = site.reopened()
    assert samples.uid(1) in reason or samples.uid(2) in reason or samples.uid(3) in reason
    assert (len(lost), len(kept)) == (1, 2)
    assert site.reopened()[1:] == (lost, kept), "the next start finds the same"


@pytest.mark.parametrize("find", [b"uid TEXT NOT NULL UNIQUE", b"CREATE TRIGGER claim_deleted"])
@pytest.mark.parametrize("bit", [0x80, 1])
def test_a_changed_bit_in_the_definition_of_a_table_is_damage(site: Site, find: bytes, bit: int) -> None:
    site.changed(find, offset=5, bit=bit)
    assert site.reopened()[0]
    assert site.reopened()[0], "still lost, but opened"


@pytest.mark.parametrize("byte", [18, 19])
def test_a_format_that_sqlite_only_reads_is_damage_and_no_read_only_disk(site: Site, byte: int) -> None:
    content = bytearray(site.path.read_bytes())
    content[byte] = 7
    site.path.write_bytes(content)
    assert site.reopened()[0]


def test_a_version_below_that_of_the_tables_is_damage(site: Site) -> None:
    with contextlib.closing(sqlite3.connect(site.path, isolation_level=None)) as database:
        database.execute("PRAGMA user_version = 1")
    assert "not as in schema 1" in site.reopened()[0]


def test_a_changed_name_of_the_driver_is_damage_and_not_another_driver(site: Site) -> None:
    site.changed(b"gpu.example.com", bit=1)
    assert "driver's name was changed" in site.reopened()[0]


def crashed(site: Site, folder: pathlib.Path) -> pathlib.Path:
    """The files of a journal whose process was killed after it began one more claim."""
    with site.open() as memory:
        memory.begin(samples.entry(4))
        shutil.copytree(site.data, folder)
    return folder


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_lost_write_ahead_log_is_detected(site: Site, tmp_path: pathlib.Path, damage: str) -> None:
    killed = crashed(site, tmp_path / "killed")
    shutil.rmtree(site.data)
    killed.rename(site.data)
    wal = files.with_suffix(site.path, "-wal")
    if damage == "missing":
        wal.unlink()
    else:
        content = bytearray(wal.read_bytes())
        content[32 + 24 + 100] ^= 1
        wal.write_bytes(content)
    reason, _, kept = site.reopened()
    assert "it lacks the last" in reason
    assert kept == ALL


def test_an_older_copy_is_detected_in_the_same_boot_only(site: Site, tmp_path: pathlib.Path) -> None:
    shutil.copytree(site.data, tmp_path / "backup")
    with site.open() as memory:
        memory.begin_unprepare(samples.uid(1))
        memory.finish_unprepare(samples.uid(1))
    shutil.rmtree(site.data)
    shutil.copytree(tmp_path / "backup", site.data)
    assert site.reopened("another boot") == ("", (), ALL)
    shutil.rmtree(site.data)
    shutil.copytree(tmp_path / "backup", site.data)
    site.mark.write_bytes(marks.Mark(site.mark, samples.BOOT)._content(9999))
    assert "it lacks the last" in site.reopened()[0]


def test_a_process_that_died_before_it_wrote_the_mark_loses_nothing(site: Site) -> None:
    number = marks.Mark(site.mark, samples.BOOT).read()
    assert number is not None
    marks.Mark(site.mark, samples.BOOT).write(number - 1)
    assert site.reopened() == ("", (), ALL)


def test_a_missing_file_with_a_mark_of_this_boot_was_lost(site: Site) -> None:
    shutil.rmtree(site.data)
    assert "it is missing, but had" in site.reopened()[0]


def test_a_claim_with_files_that_the_journal_lacks_means_a_lost_journal(site: Site) -> None:
    site.with_files = frozenset({samples.uid(1), samples.uid(7)})
    reason, _, kept = site.reopened()
    assert samples.uid(7) in reason
    assert kept == ALL
    asides = len(list(site.data.glob("*.unreadable-*")))
    assert site.reopened()[2] == ALL
    assert len(list(site.data.glob("*.unreadable-*"))) == asides, "not set aside again while it is restored"


@pytest.mark.parametrize("mark", [b"", b"garbage", b"boot 5 00000000\n", None], ids=["empty", "garbage", "wrong", "missing"])
def test_a_journal_without_its_mark_stays_in_place_and_is_unverified(site: Site, mark: bytes | None) -> None:
    site.mark.unlink()
    if mark is not None:
        site.mark.write_bytes(mark)
    with site.open() as memory:
        assert memory.quarantine is not None
        assert (memory.quarantine.reason, memory.quarantine.is_doubt) == (quarantine.UNMARKED, True)
        memory.rebuilt()
    assert site.reopened() == ("", (), ALL)
    assert not list(site.data.glob("*.unreadable-*"))


def test_a_new_journal_of_a_serving_node_is_unverified(tmp_path: pathlib.Path) -> None:
    site = Site(tmp_path)
    for _ in range(2):
        with site.open(checks_new=True) as memory:
            assert memory.quarantine is not None
            assert (memory.quarantine.reason, memory.quarantine.is_doubt) == (quarantine.NEW, True)
    with site.open() as memory:
        memory.rebuilt()
    assert site.reopened() == ("", (), [])


def test_a_mark_that_cannot_be_written_is_logged_and_stops_nothing(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site(tmp_path)
    site.mark.mkdir()
    with site.open() as memory:
        memory.begin(samples.entry(1))
        memory.begin(samples.entry(2))
    assert capsys.readouterr().err.count("journal mark not written") == 1


def test_a_second_process_opens_a_journal_that_is_written_to(site: Site) -> None:
    with site.open() as elder:
        elder.begin(samples.entry(4))
        site.mark.unlink()
        with site.open() as younger:
            assert younger.quarantine is None
            elder.begin(samples.entry(5))
            younger.begin_unprepare(samples.uid(4))
    assert site.reopened() == ("", (), [*ALL, "claim-4", "claim-5"])


def test_changes_of_the_previous_version_are_no_damage(site: Site) -> None:
    with contextlib.closing(sqlite3.connect(site.path, isolation_level=None)) as database:
        database.execute("PRAGMA foreign_keys = ON")
        database.execute("UPDATE grants SET record = '{\"a\":1}' WHERE claim = 1")
        database.execute("UPDATE claims SET state = 'preparing', boot_id = 'b' WHERE seq = 1")
        database.execute("DELETE FROM grants WHERE claim = 2")
        database.execute("DELETE FROM claims WHERE seq = 2")
        database.execute(
            "INSERT INTO claims (uid, namespace, name, state, boot_id) VALUES (?, 'n', 'claim-9', 'preparing', 'b')", (samples.uid(9),)
        )
    assert site.reopened() == ("", (), ["claim-1", "claim-3", "claim-9"])
    with contextlib.closing(sqlite3.connect(site.path)) as database:
        assert database.execute("SELECT count(*) FROM claims WHERE begun_digest = 0 OR prepared_digest = 0").fetchone() == (0,)
    stored, total = sums(site.path)
    assert stored == total


def sums(path: pathlib.Path) -> tuple[int, int]:
    """The sum of all digests, and the stored one."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        stored, total = database.execute("SELECT sum(begun_digest + prepared_digest), (SELECT digest FROM progress) FROM claims").fetchone()
    return stored, total


def test_every_move_keeps_the_sum_of_digests(site: Site) -> None:
    grant = samples.grant("request-4", "gpu-4")
    with site.open() as memory:
        moves: list[Callable[[], object]] = [
            lambda: memory.begin(samples.entry(4, grant)),
            lambda: memory.refresh(samples.uid(4), [grant]),
            lambda: memory.complete(samples.uid(4), [grant], "another boot"),
            lambda: memory.refresh(samples.uid(4), [dataclasses.replace(grant, record={"a": 1})]),
            lambda: memory.refresh(samples.uid(4), [dataclasses.replace(grant, record={"a": 1})]),
            lambda: memory.begin_unprepare(samples.uid(4)),
            lambda: memory.finish_unprepare(samples.uid(4)),
            lambda: memory.begin(samples.entry(5, samples.grant("request-5", "gpu-5"))),
            lambda: memory.forget(samples.uid(5)),
            memory.rebuilt,
        ]
        seen = set()
        for move in moves:
            move()
            stored, total = sums(site.path)
            assert stored == total
            seen.add(total)
    assert len(seen) == 5, "after each begin, complete, refresh, and finish_unprepare or forget"
    assert site.reopened() == ("", (), ALL)


def test_a_change_of_the_previous_version_that_is_changed_back_is_no_damage(site: Site) -> None:
    grant = samples.grant("request-1", "gpu-1")
    with contextlib.closing(sqlite3.connect(site.path, isolation_level=None)) as database:
        [record] = database.execute("SELECT record FROM grants WHERE claim = 1").fetchone()
        for reopens in (False, True):
            database.execute("UPDATE grants SET record = '{\"a\":1}' WHERE claim = 1")
            if reopens:
                assert site.reopened() == ("", (), ALL)
            with site.open() as memory:
                memory.refresh(samples.uid(1), [grant])
            kept = database.execute("SELECT record, prepared_digest > 0 FROM grants JOIN claims ON claim = seq WHERE seq = 1").fetchone()
            assert kept == (record, 1)
            assert len(set(sums(site.path))) == 1
    assert site.reopened() == ("", (), ALL)


def _socket(path: pathlib.Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


KINDS: dict[str, Callable[[pathlib.Path], object]] = {
    "directory": pathlib.Path.mkdir,
    "pipe": os.mkfifo,
    "socket": _socket,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal", "journal.db-shm", "journal.lock", "locks"])
def test_something_else_in_place_of_a_file_is_refused_and_left_alone(tmp_path: pathlib.Path, name: str, kind: str) -> None:
    if (name, kind) == ("locks", "directory"):
        return
    site = Site(tmp_path)
    site.data.mkdir(mode=0o755)
    KINDS[kind](site.data / name)
    (site.data / name).chmod(0o766)
    with pytest.raises(errors.JournalError, match=rf"{name} is not a (regular file|directory); move it away"):
        site.open()
    assert (site.data / name).stat().st_mode & 0o777 == 0o766
    assert [path.name for path in site.data.iterdir()] == [name]
    assert site.data.stat().st_mode & 0o777 == 0o755
