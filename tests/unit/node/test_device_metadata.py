"""Device metadata beside a driver's own work, through the engine of a station."""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import ClassVar

import pytest

import drakit
from drakit import testing
from drakit.core import claim as claims
from drakit.core import claim_status, edits, errors, names, records
from drakit.core import driver as drivers
from drakit.node import background, engine, local_node
from fakes import author, claim_source, claim_statuses

UID = names.ClaimUid("00000000-0000-4000-8000-000000000001")
REF = claims.ClaimRef(uid=UID, namespace="default", name="c")


class Waiting:
    def is_waiting(self) -> bool:
        return True

    def seconds_left(self) -> None:
        return None


class Describing(author.FakeDriver):
    device_metadata: ClassVar[bool] = True


class Site:
    """A station of a driver that describes its devices."""

    def __init__(self, folder: pathlib.Path, kind: type[Describing] = Describing) -> None:
        self.folder = folder
        self._kind = kind
        self.hardware = author.Hardware()
        self.claims = claim_source.FakeClaimSource()
        result = claims.AllocationResult(request="gpu/small", driver=author.FakeDriver.name, pool="node-1", device="chip-0")
        self.claims.put(claims.Claim(ref=REF, results=(result,), pod_claim_name="accelerator"))
        self.open()

    def open(self, boot_id: str = "boot-1") -> None:
        """A new process on the same node."""
        driver = self._kind(self.hardware)
        spec = local_node.DriverSpec(
            driver_name=driver.name, build=lambda _: driver, identity=engine.NodeIdentity(pool="node-1", boot_id=boot_id)
        )
        self.local = local_node.LocalNode.open(spec, local_node.Folders(home=self.folder / "d", cdi=self.folder / "c"), self.claims)
        self.local.offered.refresh()

    def prepare(self) -> claims.Outcome:
        return self.local.engine.prepare([REF], Waiting())[UID]

    def unprepare(self) -> str:
        return self.local.engine.unprepare([REF], Waiting())[UID]

    @property
    def mount(self) -> edits.Mount:
        """The one mount of the one claim, as the journal has it."""
        [entry] = self.local.journal.entries()
        assert entry.grants[0].edits is not None
        [mount] = entry.grants[0].edits.mounts
        return mount

    @property
    def file(self) -> pathlib.Path:
        return self.folder / "d" / local_node.METADATA_FOLDER / UID / "gpu" / "metadata.json"


@pytest.fixture
def context(tmp_path: pathlib.Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.local.close()


def test_the_file_exists_before_the_answer_until_unprepare(context: Site) -> None:
    answer = context.prepare()
    assert (answer.error, len(answer.devices)) == ("", 1)
    assert context.mount.host_path == str(context.file)
    assert "/resourceclaimtemplates/accelerator/gpu/" in context.mount.container_path
    assert '"name": "gpu/small"' in context.file.read_text()
    assert context.unprepare() == ""
    assert not context.file.parent.parent.exists()


def test_a_repeated_prepare_of_a_new_process_restores_only_lost_files(context: Site) -> None:
    answer = context.prepare()
    before = context.file.read_bytes()
    context.local.close()
    context.open()
    assert context.prepare() == answer
    context.file.unlink()
    assert context.prepare() == answer
    assert context.file.read_bytes() == before


def test_files_that_a_power_cut_brought_back_are_removed_in_the_next_boot(context: Site) -> None:
    context.prepare()
    other = context.file.parents[2] / "7c9e6679-7425-40de-944b-e07fc1f90ae7" / "gpu"
    other.mkdir(parents=True)
    for boot_id, stays in (("boot-1", True), ("boot-2", False)):
        context.local.close()
        context.open(boot_id)
        context.local.recover()
        assert (other.exists(), context.file.exists()) == (stays, True)


def test_the_folder_exists_before_the_first_claim_and_after_the_last(context: Site) -> None:
    folder = context.folder / "d" / local_node.METADATA_FOLDER
    assert (folder.is_dir(), list(folder.iterdir())) == (True, [])
    context.prepare()
    assert context.unprepare() == ""
    assert list(folder.iterdir()) == []


def test_a_claim_that_cannot_be_prepared_leaves_no_file(context: Site) -> None:
    context.hardware.step = _fail
    assert "no power" in context.prepare().error
    assert not context.file.exists()
    assert context.local.journal.entries() == ()


def _fail(step: str) -> None:
    if step.startswith("after make"):
        raise errors.HardwareError("make", "no power")


def test_a_file_that_cannot_be_written_fails_the_claim_and_leaves_nothing(context: Site) -> None:
    folder = context.folder / "d" / local_node.METADATA_FOLDER
    folder.rmdir()
    folder.write_text("in the way")
    assert local_node.METADATA_FOLDER in context.prepare().error
    folder.unlink()
    assert context.prepare().error == ""


def test_network_facts_that_a_driver_reports_reach_containers_too(context: Site) -> None:
    context.prepare()
    assert context.local.metadata is not None
    devices: list[str] = []
    carry = background.updating_metadata(context.local.metadata, lambda _, status: devices.append(status.device))
    carry(REF, claim_status.DeviceStatus(device="chip-0"))
    assert "networkData" not in context.file.read_text()
    carry(REF, claim_status.DeviceStatus(device="chip-0", network=claim_status.NetworkStatus(interface="net1")))
    assert '"interfaceName": "net1"' in context.file.read_text()
    context.file.chmod(0o400)
    context.file.write_text("{")
    carry(REF, claim_status.DeviceStatus(device="chip-0", network=claim_status.NetworkStatus(interface="net2")))
    assert devices == ["chip-0"] * 3


class Recalling(Describing):
    """Keeps what its claim's CDI file is said to hold."""

    recalled_from: ClassVar[list[edits.Edits | None]] = []

    def recall(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        self.recalled_from.append(grant.found)
        return self.plan(grant)


@pytest.mark.parametrize("is_spoilt", [False, True])
def test_restoring_passes_the_authors_own_edits_without_the_metadata_mount(tmp_path: pathlib.Path, *, is_spoilt: bool) -> None:
    context = Site(tmp_path, Recalling)
    assert context.prepare().error == ""
    context.local.close()
    shutil.rmtree(context.folder / "d")
    if is_spoilt:
        [cdi_file] = (context.folder / "c").glob("*.json")
        spec = json.loads(cdi_file.read_text())
        spec["devices"][0]["containerEdits"]["env"] = "spoilt"
        cdi_file.write_text(json.dumps(spec))
    Recalling.recalled_from.clear()
    context.open()
    assert context.local.restore(claim_statuses.FakeClaimList(context.claims.fetch(REF))) == {}
    assert Recalling.recalled_from == [None if is_spoilt else edits.Edits(env={"FAKE_CHIP_0": "chip-0"})]
    assert "/resourceclaimtemplates/accelerator/gpu/" in context.mount.container_path
    assert context.file.exists()
    context.local.close()


class Measuring(Describing):
    """Finds out something more of a device when it is prepared."""

    def prepare(self, grant: drakit.Grant[author.Tuning]) -> drakit.Prepared:
        return dataclasses.replace(super().prepare(grant), metadata={"port": 7, "kind": "measured"})


def test_attributes_of_one_prepare_are_beside_those_of_the_device_and_win() -> None:
    hardware = author.Hardware()
    with testing.Node(lambda: Measuring(hardware)) as node:
        claim = node.claim("chip-0")
        [(path, _)] = node.prepare(claim).mounts
        written, _ = json.JSONDecoder().raw_decode(pathlib.Path(path).read_text())
        assert written["requests"][0]["devices"][0]["attributes"] == {"kind": {"string": "measured"}, "port": {"int": 7}}
        assert node.entries[0].grants[0].device.attributes["kind"] == "whole", "the device itself is as it was published"
        node.restart()
        before = pathlib.Path(path).read_bytes()
        node.prepare(claim)
        assert pathlib.Path(path).read_bytes() == before
        node.unprepare(claim)
        assert not pathlib.Path(path).exists()


class Silent(Measuring):
    device_metadata: ClassVar[bool] = False


def test_attributes_that_no_container_would_find_are_an_error_with_the_fix() -> None:
    hardware = author.Hardware()
    with testing.Node(lambda: Silent(hardware)) as node:
        assert "write device_metadata = True in the driver's class" in node.try_prepare(node.claim("chip-0")).error
        assert (node.is_clean, hardware.made) == (True, {})
