"""A data directory that was deleted, or another than the one before, beside the CDI files of running pods: nothing is taken from them."""

import pathlib
import shutil

import pytest

from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import lifecycle, names, records
from drakit.node import engine, local_node
from fakes import author, claim_source, claim_statuses, crash_node

UID = names.ClaimUid("11111111-2222-4333-8444-555555555555")
REF = claims.ClaimRef(uid=UID, namespace="default", name="claim")
RESULT = claims.AllocationResult(request="r", driver=author.FakeDriver.name, pool=crash_node.POOL, device="chip-0")


class Recalling(author.FakeDriver):
    """A driver that can tell from a device what it must have planned."""

    def recall(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        return self.plan(grant)


class Machine:
    """Hardware, CDI directory and claims, which outlive the data directory of the driver; one claim is prepared."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.cdi = folder / "cdi"
        self.home = folder / "home"
        self.hardware = author.Hardware()
        self.claim = claims.Claim(ref=REF, results=(RESULT,))
        self.claims = claim_source.FakeClaimSource(self.claim)
        with self.open() as before:
            assert before.engine.prepare([REF], crash_node.Waiting())[UID].error == ""
        self.files = self.read()
        assert self.files

    def open(self, home: pathlib.Path | None = None) -> local_node.LocalNode:
        spec = local_node.DriverSpec(
            driver_name=author.FakeDriver.name,
            build=lambda _: Recalling(self.hardware),
            identity=engine.NodeIdentity(pool=crash_node.POOL, boot_id="boot-1"),
        )
        return local_node.LocalNode.open(spec, local_node.Folders(home=home or self.home, cdi=self.cdi), self.claims)

    def read(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.cdi.glob("*.json")}


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    return Machine(tmp_path)


def test_a_deleted_data_directory_takes_nothing_from_running_pods(machine: Machine) -> None:
    shutil.rmtree(machine.home)
    for _ in range(2):
        with machine.open() as opened:
            assert opened.journal.quarantine is not None
            assert "missing" in opened.journal.quarantine.reason
            assert (machine.read(), set(machine.hardware.made)) == (machine.files, {"chip-0"})


def test_claims_of_a_deleted_data_directory_are_restored(machine: Machine) -> None:
    shutil.rmtree(machine.home)
    with machine.open() as opened:
        assert opened.restore(claim_statuses.FakeClaimList(machine.claim)) == {}
        assert not opened.is_lost
    with machine.open() as opened:
        assert opened.journal.quarantine is None
        assert [(entry.claim, entry.state) for entry in opened.journal.entries()] == [(REF, lifecycle.State.PREPARED)]
        assert opened.engine.unprepare([REF], crash_node.Waiting()) == {UID: ""}
    assert (machine.read(), machine.hardware.made) == ({}, {})


def test_another_data_directory_takes_nothing_from_the_pods_of_the_first(machine: Machine, tmp_path: pathlib.Path) -> None:
    with machine.open(tmp_path / "other"):
        assert machine.read() == machine.files
    with machine.open() as opened:
        assert opened.journal.quarantine is not None, "the other journal may have had changes"
        assert opened.restore(claim_statuses.FakeClaimList(machine.claim)) == {}
        assert [entry.claim for entry in opened.journal.entries()] == [REF]
    assert (machine.read(), set(machine.hardware.made)) == (machine.files, {"chip-0"})


def test_a_node_on_which_nothing_was_prepared_has_lost_nothing(tmp_path: pathlib.Path, machine: Machine) -> None:
    shutil.rmtree(machine.cdi)
    with machine.open(tmp_path / "new") as opened:
        assert opened.journal.quarantine is None
