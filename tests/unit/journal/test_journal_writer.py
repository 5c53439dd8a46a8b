"""The writer commits one change after the other, keeps nothing of a failed one, and reports what stops SQLite with a reason and a fix."""

import concurrent.futures
import contextlib
import pathlib
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from drakit.core import errors, lifecycle
from drakit.journal import journal, sqlite
from fakes import journal_samples as samples

DRIVER = "gpu.example.com"


@pytest.fixture
def memory(tmp_path: pathlib.Path) -> Iterator[journal.Journal]:
    with journal.Journal.open(tmp_path / "data", driver=DRIVER, boot_id=samples.BOOT) as opened:
        yield opened


@pytest.fixture
def commits(memory: journal.Journal) -> Iterator[sqlite.Writer]:
    own = sqlite.Writer(memory.path)
    yield own
    own.close()


def note(key: str) -> sqlite.Change:
    def change(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO meta (key, value) VALUES (?, '')", (key,))

    return change


def notes(memory: journal.Journal) -> set[str]:
    with contextlib.closing(sqlite3.connect(memory.path)) as database:
        return {row[0] for row in database.execute("SELECT key FROM meta WHERE key LIKE 'n%'")}


def test_a_failing_change_is_rolled_back_and_the_next_one_is_not(memory: journal.Journal, commits: sqlite.Writer) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        note("n-half")(connection)
        raise lifecycle.IllegalMoveError("no")

    with pytest.raises(lifecycle.IllegalMoveError):
        commits.commit(fail)
    commits.commit(note("n1"))
    assert notes(memory) == {"n1"}


def test_changes_of_many_threads_are_all_committed_one_after_the_other(memory: journal.Journal, commits: sqlite.Writer) -> None:
    running: list[int] = []
    overlaps: list[int] = []

    def change(number: int) -> sqlite.Change:
        def body(connection: sqlite3.Connection) -> None:
            running.append(number)
            note(f"n{number}")(connection)
            overlaps.extend(other for other in running if other != number)
            running.remove(number)

        return body

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        list(pool.map(commits.commit, [change(number) for number in range(24)]))
    assert notes(memory) == {f"n{number}" for number in range(24)}
    assert overlaps == []


def test_an_sqlite_error_rolls_back_and_the_next_change_is_committed(memory: journal.Journal, commits: sqlite.Writer) -> None:
    def break_down(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA max_page_count = 1")
        connection.execute("INSERT INTO meta (key, value) VALUES ('n-large', ?)", ("x" * 1_000_000,))

    with pytest.raises(sqlite3.OperationalError, match="database or disk is full"):
        commits.commit(break_down)
    assert notes(memory) == set()
    commits.commit(note("n3"))
    assert notes(memory) == {"n3"}


def test_an_exception_in_one_change_reaches_only_its_caller(memory: journal.Journal, commits: sqlite.Writer) -> None:
    def bug(_: sqlite3.Connection) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        commits.commit(bug)
    commits.commit(note("n1"))
    assert notes(memory) == {"n1"}


def test_closing_waits_for_the_change_under_way(memory: journal.Journal) -> None:
    own = sqlite.Writer(memory.path)
    busy, release = threading.Event(), threading.Event()

    def hold(connection: sqlite3.Connection) -> None:
        busy.set()
        release.wait()
        note("n1")(connection)

    changing, closing = threading.Thread(target=own.commit, args=(hold,)), threading.Thread(target=own.close)
    changing.start()
    busy.wait()
    closing.start()
    release.set()
    for thread in (changing, closing):
        thread.join()
    assert notes(memory) == {"n1"}
    with pytest.raises(errors.JournalError, match="closed"):
        own.commit(note("n2"))


def test_reads_do_not_wait_for_the_writer(memory: journal.Journal, commits: sqlite.Writer) -> None:
    memory.begin(samples.entry(1))
    busy, release = threading.Event(), threading.Event()

    def hold(connection: sqlite3.Connection) -> None:
        note("n1")(connection)
        busy.set()
        release.wait()

    thread = threading.Thread(target=commits.commit, args=(hold,))
    thread.start()
    busy.wait()
    assert memory.entry(samples.uid(1)) is not None
    assert memory.entries()
    assert memory.holdings("node-1", ["gpu-0"])
    release.set()
    thread.join()


ON_A_SMALL_DISK = """
import pathlib, subprocess, sys
from drakit.core import errors
from drakit.journal import journal
from fakes import journal_samples as samples
disk = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(disk)], check=True)
def opened():
    return journal.Journal.open(disk / "data", driver="gpu.example.com", boot_id="boot")
"""


@pytest.fixture
def on_a_small_disk(tmp_path: pathlib.Path) -> Callable[[str], str]:
    """Run a script whose data directory is on a file system of 512 KiB, seen by it alone; what it printed."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", str(tmp_path)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs unshare with mounts of its own: {error}")

    def run(script: str) -> str:
        command = [*unshare, sys.executable, "-c", ON_A_SMALL_DISK + script, str(tmp_path)]
        tests = str(pathlib.Path(__file__).parents[2])
        ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tests)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


def test_a_full_disk_is_reported_and_the_old_state_stays(on_a_small_disk: Callable[[str], str]) -> None:
    printed = on_a_small_disk("""
with opened() as memory:
    memory.begin(samples.entry(1))
    filler = disk / "filler"
    number = 1
    try:
        with filler.open("wb") as file:
            while True:
                file.write(bytes(4096)); file.flush()
    except OSError:
        pass
    try:
        while True:
            number += 1
            memory.begin(samples.entry(number, samples.rich_grant()))
    except errors.JournalError as error:
        print(error)
    print(len(memory.entries()) == number - 1, memory.entry(samples.uid(number)))
    filler.unlink()
    memory.begin(samples.entry(number))
with opened() as memory:
    print(len(memory.entries()) == number, memory.quarantine)
""")
    refusal, held, again = printed.splitlines()
    assert "journal.db: " in refusal
    assert "free space on its file system" in refusal or "check the disk, its space" in refusal
    assert (held, again) == ("True None", "True None")


def test_a_read_only_disk_is_reported_and_changes_nothing(on_a_small_disk: Callable[[str], str]) -> None:
    printed = on_a_small_disk("""
with opened() as memory:
    memory.begin(samples.entry(1))
subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
try:
    opened()
except errors.JournalError as error:
    print(error)
subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
with opened() as memory:
    print(len(memory.entries()), memory.quarantine)
""")
    refusal, again = printed.splitlines()
    assert "mount its file system read-write" in refusal
    assert again == "1 None"
