"""What keeps a prepare cheap beside thousands of claims and on a busy disk; that it does is measured in tests/bench."""

import pathlib
import subprocess
import sys

from drakit.core import claim as claims
from drakit.core import lifecycle
from drakit.journal import codec, journal, sqlite, store
from drakit.node import engine, local_node
from fakes import author
from fakes import journal_samples as samples

DRIVER = "gpu.example.com"
KILLED = """
import os, pathlib, sys
from drakit.journal import journal
from fakes import journal_samples as samples
memory = journal.Journal.open(pathlib.Path(sys.argv[1]), driver="gpu.example.com", boot_id=samples.BOOT)
memory.relax()
for number in range(50):
    memory.begin(samples.entry(number))
os._exit(9)
"""


def test_queries_for_a_device_or_claim_use_an_index(tmp_path: pathlib.Path) -> None:
    with journal.Journal.open(tmp_path, driver=DRIVER, boot_id=samples.BOOT) as memory:
        database = sqlite.connect_reader(memory.path)
        of_devices = {"pool": "p", "devices": "[]", "shares": "[]"}
        questions = (
            *((store._SELECT_ONE, ("",)), (store._SELECT_HOLDERS, of_devices), (store._NEXT_DEVICE, ("p", "d"))),
            (store._SELECT_INTENTS_OF, {"pool": "p", "devices": "[]"}),
        )
        for question, given in questions:
            plan = [str(row[3]) for row in database.execute(f"EXPLAIN QUERY PLAN {question}", given)]
            scanned = [step for step in plan if step.startswith("SCAN ")]
            assert set(scanned) <= {"SCAN d VIRTUAL TABLE INDEX 1:", "SCAN s VIRTUAL TABLE INDEX 1:", "SCAN h"}, plan
            assert any("INDEX" in step for step in plan)
        database.close()


def test_the_first_share_of_a_device_is_held_once(tmp_path: pathlib.Path) -> None:
    held = samples.grant(share_id=samples.share(1))
    with journal.Journal.open(tmp_path, driver=DRIVER, boot_id=samples.BOOT) as memory:
        memory.begin(samples.entry(1, held))
        found = memory.holdings(held.pool, [held.device.name], [samples.share(1)])
    assert [holding.share_id for holding in found] == [samples.share(1)]


def test_a_device_written_twice_is_the_same_text_and_another_is_not() -> None:
    one, other = samples.rich_grant(), samples.grant()
    assert codec.grant_row(0, one).snapshot == codec.grant_row(1, one).snapshot
    assert codec.grant_row(0, one).snapshot != codec.grant_row(0, other).snapshot


def test_commits_of_a_relaxed_journal_survive_its_process(tmp_path: pathlib.Path) -> None:
    tests = pathlib.Path(__file__).parents[2]
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=tests, check=False)
    assert killed.returncode == 9
    with journal.Journal.open(tmp_path, driver=DRIVER, boot_id=samples.BOOT) as memory:
        assert memory.quarantine is None
        assert memory.counts() == {lifecycle.State.PREPARING: 50}


def test_only_a_volatile_driver_does_not_wait_for_the_disk(tmp_path: pathlib.Path) -> None:
    class Volatile(author.FakeDriver):
        volatile = True

    assert synchronous(tmp_path / "a", author.FakeDriver(author.Hardware())) == 2
    assert synchronous(tmp_path / "b", Volatile(author.Hardware())) == 1


def synchronous(folder: pathlib.Path, driver: author.FakeDriver) -> int:
    """How the journal of this driver's station waits for the disk, in SQLite's numbers: 2 at every commit (FULL), 1 hardly ever (NORMAL)."""
    spec = local_node.DriverSpec(
        driver_name=driver.name, build=lambda _: driver, identity=engine.NodeIdentity(pool="p", boot_id=samples.BOOT)
    )
    with local_node.LocalNode(spec, local_node.Folders(home=folder, cdi=folder / "cdi"), Nothing()) as opened:
        opened.journal.begin(samples.entry(1))
        database = opened.journal._writer._connection
        assert database is not None
        return int(database.execute("PRAGMA synchronous").fetchone()[0])


class Nothing:
    """A source without claims."""

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        raise LookupError(ref)
