"""What a power cut may take: only commits that nothing on the hardware depends on, and only the last ones.

A power cut is played by what it leaves: the database as it was, and the write-ahead log up to some byte.
"""

import dataclasses
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping

import pytest

from drakit.core import lifecycle, names
from drakit.journal import files, journal
from fakes import journal_samples as samples

DRIVER = "gpu.example.com"
FULL, NORMAL = 2, 1
CLAIMS = 3

States = Mapping[names.ClaimUid, lifecycle.State]


@pytest.fixture
def memory(tmp_path: pathlib.Path) -> Iterator[journal.Journal]:
    with journal.Journal.open(tmp_path / "data", driver=DRIVER, boot_id=samples.BOOT) as opened:
        yield opened


def moves(memory: journal.Journal, number: int) -> list[tuple[Callable[[], None], int]]:
    """The life of a claim, and how SQLite is to wait for the disk at each move."""
    entry, uid = samples.entry(number), samples.uid(number)
    done = [dataclasses.replace(grant, record={"made": number}) for grant in entry.grants]
    return [
        (lambda: memory.begin(entry), FULL),
        (lambda: memory.complete(uid, done, samples.BOOT), NORMAL),
        (lambda: memory.refresh(uid, done), NORMAL),
        (lambda: memory.begin_unprepare(uid), NORMAL),
        (lambda: memory.finish_unprepare(uid), FULL),
    ]


def test_the_journal_syncs_a_begun_prepare_and_a_finished_unprepare(memory: journal.Journal) -> None:
    for number in range(CLAIMS):
        for move, wanted in moves(memory, number):
            move()
            database = memory._writer._connection
            assert database is not None
            assert database.execute("PRAGMA synchronous").fetchone() == (wanted,)


def test_a_relaxed_journal_waits_for_nothing(memory: journal.Journal) -> None:
    memory.relax()
    for move, _ in moves(memory, 1):
        move()
        database = memory._writer._connection
        assert database is not None
        assert database.execute("PRAGMA synchronous").fetchone() == (NORMAL,)


def test_a_power_cut_keeps_every_change_up_to_some_commit(memory: journal.Journal, tmp_path: pathlib.Path) -> None:
    log = memory.path.with_name(f"{files.DATABASE}-wal")
    history: list[tuple[int, States]] = [(0, {})]
    for step in range(len(moves(memory, 0)) - 1):
        for number in range(CLAIMS):
            moves(memory, number)[step][0]()
            history.append((log.stat().st_size, states(memory)))
    for place, (size, _) in enumerate(history):
        for cut in (size - 1, size, size + 1000):
            expected = [known for end, known in history if end <= cut]
            if expected:
                assert after_cut(memory.path, cut, tmp_path / f"{place}-{cut}") == expected[-1]


def states(memory: journal.Journal) -> States:
    return {entry.claim.uid: entry.state for entry in memory.entries()}


def after_cut(path: pathlib.Path, length: int, folder: pathlib.Path) -> States:
    """What is known in the boot after a power cut that left so many bytes of the log."""
    folder.mkdir(mode=0o700)
    shutil.copy(path, folder / path.name)
    log = path.with_name(f"{path.name}-wal").read_bytes()
    (folder / f"{path.name}-wal").write_bytes(log[:length])
    with journal.Journal.open(folder, driver=DRIVER, boot_id="another boot") as left:
        assert left.quarantine is None
        return states(left)
