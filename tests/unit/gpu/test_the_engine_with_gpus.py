"""The real engine and recovery with the GPU driver: killed at any step of hardware, journal or CDI directory, nothing is lost or leaked."""

import dataclasses
import pathlib
from collections.abc import Sequence

import pytest

from drakit import machines
from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import lifecycle, names, records
from drakit.node import engine, inventory_cache, recovery
from drakit_gpu import cdi, port
from drakit_gpu import driver as gpu_driver
from drakit_gpu.mock import mock_driver_root, mock_gpus
from fakes import claim_source, crash_node, gpu_node

UID = names.ClaimUid("11111111-2222-3333-4444-555555555555")
DEVICES = ("gpu-0-mig-1g5gb-19-6", "gpu-1-mig-3g20gb-9-4")
EVERY = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.full)], ids=["sampled", "every"])


class GpuWorld:
    """What is left when the driver dies, and how it is started again."""

    def __init__(self, directory: pathlib.Path, devices: Sequence[str] = DEVICES) -> None:
        self.choice = machines.Choice(name="dgx-a100-40gb-2gpu", directory=directory, owner="node-1")
        self.hardware = mock_gpus.MockGpus
        self.resources: gpu_driver.HostResources | None = None
        self.steps = gpu_node.Steps()
        self.journal = crash_node.SteppingJournal(self._step)
        self.cdi = crash_node.SteppingCdi(gpu_driver.NAME, self._step)
        self.ref = claims.ClaimRef(uid=UID, namespace="default", name="two")
        results = tuple(
            claims.AllocationResult(request=f"r{index}", driver=gpu_driver.NAME, pool=crash_node.POOL, device=device)
            for index, device in enumerate(devices)
        )
        self.claims = claim_source.FakeClaimSource(claims.Claim(ref=self.ref, results=results))

    def _step(self, name: str) -> None:
        self.steps(name)

    def boot(self, crash_at: int | None = None) -> engine.Engine:
        """A new process, recovered as at every start; it dies at a step counted from when it begins to serve."""
        self.steps = gpu_node.Steps()
        hardware = gpu_node.stepping(self.hardware(self.choice), self._step)
        author = gpu_driver.GpuDriver(
            hardware,
            intents=self._intents,
            resources=self.resources,
        )
        offered = inventory_cache.InventoryCache(author)
        offered.refresh()
        started = engine.Engine(
            author,
            identity=engine.NodeIdentity(pool=crash_node.POOL, boot_id=machines.boot_id(self.choice.directory)),
            offered=offered,
            claim_source=self.claims,
            journal=self.journal,
            cdi=self.cdi,
            device_locks=crash_node.ThreadLocks(),
            locks_of_claims=crash_node.ThreadLocks(),
        )
        drivers.open_driver(author, started.resolver.planned)
        recovery.recover(started, self.journal, self.cdi)
        self.steps = gpu_node.Steps(crash_at)
        return started

    def _intents(self, claim: names.ClaimUid | None = None) -> list[records.Record]:
        entries = [entry for entry in self.journal.entries() if claim in {None, entry.claim.uid}]
        return [grant.intent for entry in entries for grant in entry.grants]

    def prepare(self, served: engine.Engine) -> claims.Outcome:
        return served.prepare([self.ref], crash_node.Waiting())[UID]

    def unprepare(self, served: engine.Engine) -> str:
        return served.unprepare([self.ref], crash_node.Waiting())[UID]

    def instances(self) -> list[int]:
        """The profiles of all GPU instances."""
        hardware = mock_gpus.MockGpus(self.choice)
        return [instance.profile_id for gpu in hardware.gpus() for instance in hardware.gpu_instances(gpu.uuid)]

    @property
    def is_clean(self) -> bool:
        return not (self.instances() or self.journal.entries() or self.cdi.files)


@pytest.fixture
def gpus(tmp_path: pathlib.Path) -> GpuWorld:
    return GpuWorld(tmp_path)


def test_a_claim_gets_its_devices_and_releases_them(gpus: GpuWorld) -> None:
    served = gpus.boot()
    answer = gpus.prepare(served)
    assert not answer.error
    assert [device.device for device in answer.devices] == list(DEVICES)
    assert gpus.instances() == [19, 9]
    assert len(gpus.cdi.files) == 2
    assert gpus.prepare(served) == gpus.prepare(gpus.boot()) == answer
    assert gpus.instances() == [19, 9]
    assert not gpus.unprepare(gpus.boot())
    assert gpus.is_clean


@EVERY
def test_the_next_process_completes_a_prepare_killed_at_any_step(gpus: GpuWorld, every: int) -> None:
    answer = gpus.prepare(gpus.boot())
    points = gpus.steps.passed
    assert not gpus.unprepare(gpus.boot())
    assert points > 40
    for step in range(0, points, every):
        with pytest.raises(gpu_node.CrashError):
            gpus.prepare(gpus.boot(crash_at=step))
        assert gpus.prepare(gpus.boot()) == answer, gpus.steps.last
        assert gpus.instances() == [19, 9]
        assert not gpus.unprepare(gpus.boot())
        assert gpus.is_clean


@EVERY
def test_a_prepare_killed_at_any_step_is_undone_by_unprepare(gpus: GpuWorld, every: int) -> None:
    gpus.prepare(gpus.boot())
    points = gpus.steps.passed
    assert not gpus.unprepare(gpus.boot())
    for step in range(0, points, every):
        with pytest.raises(gpu_node.CrashError):
            gpus.prepare(gpus.boot(crash_at=step))
        assert not gpus.unprepare(gpus.boot())
        assert gpus.is_clean


@EVERY
def test_the_next_process_completes_an_unprepare_killed_at_any_step(gpus: GpuWorld, every: int) -> None:
    gpus.prepare(gpus.boot())
    gpus.unprepare(gpus.boot())
    points = gpus.steps.passed
    assert points > 20
    for step in range(0, points, every):
        assert not gpus.prepare(gpus.boot()).error
        with pytest.raises(gpu_node.CrashError):
            gpus.unprepare(gpus.boot(crash_at=step))
        assert not gpus.unprepare(gpus.boot())
        assert gpus.is_clean


def test_a_claim_of_an_earlier_boot_is_prepared_again(gpus: GpuWorld) -> None:
    answer = gpus.prepare(gpus.boot())
    machines.reboot(gpus.choice.directory)
    gpus.cdi.files.clear()
    assert not gpus.instances()
    assert gpus.prepare(gpus.boot()) == answer
    assert gpus.instances() == [19, 9]


def test_a_claim_whose_instance_an_admin_deleted_is_prepared_again(gpus: GpuWorld) -> None:
    answer = gpus.prepare(gpus.boot())
    hardware = mock_gpus.MockGpus(gpus.choice)
    gpu = hardware.gpus()[0].uuid
    hardware.destroy_compute_instance(gpu, 1, 0)
    hardware.destroy_gpu_instance(gpu, 1)
    assert gpus.prepare(gpus.boot()) == answer
    assert gpus.instances() == [19, 9]


class Upgraded(mock_gpus.MockGpus):
    """A machine whose kernel driver is another version, and gave its devices other numbers."""

    def versions(self) -> port.Versions:
        return dataclasses.replace(super().versions(), driver=NEWER)

    def device_majors(self) -> port.DeviceMajors:
        return port.DeviceMajors(nvidia=195, uvm=499, caps=498)


NEWER = "590.10.01"
CHANGES = {"create_gpu_instance", "create_compute_instance", "destroy_gpu_instance", "destroy_compute_instance", "set_mig_mode"}


def with_files(gpus: GpuWorld, folder: pathlib.Path) -> cdi.DriverFiles:
    """Let containers have the driver's files."""
    root = mock_driver_root.create_driver_root(folder, mock_gpus.MockGpus(gpus.choice).versions().driver)
    files = cdi.DriverFiles(root, use_toolkit=False)
    gpus.resources = gpu_driver.HostResources(files=files)
    return files


def prepared_edits(gpus: GpuWorld) -> str:
    """Everything in the CDI files."""
    return b"".join(gpus.cdi.files.values()).decode()


def test_a_library_added_later_reaches_new_containers_and_no_instance_changes(gpus: GpuWorld, tmp_path: pathlib.Path) -> None:
    with_files(gpus, tmp_path / "root")
    answer = gpus.prepare(gpus.boot())
    made = prepared_edits(gpus)
    (tmp_path / "root/driver-root/usr/lib64/libnvidia-late.so.580.95.05").write_bytes(b"")
    served = gpus.boot()
    names = gpus.steps.names
    assert gpus.prepare(served) == answer
    assert "libnvidia-late" in prepared_edits(gpus)
    assert "libnvidia-late" not in made
    assert not {step.split()[-1] for step in names} & CHANGES
    assert gpus.instances() == [19, 9]


def test_a_new_driver_version_refreshes_the_files_of_a_whole_gpu_and_nothing_else(tmp_path: pathlib.Path) -> None:
    gpus = GpuWorld(tmp_path, ("gpu-0",))
    mock_gpus.MockGpus(gpus.choice).set_mig_mode(mock_gpus.MockGpus(gpus.choice).gpus()[0].uuid, enabled=False)
    with_files(gpus, tmp_path / "root")
    answer = gpus.prepare(gpus.boot())
    gpus.hardware = Upgraded
    mock_driver_root.create_driver_root(tmp_path / "root", NEWER)
    mock_gpus.MockGpus(gpus.choice).reload()
    served = gpus.boot()
    names = gpus.steps.names
    assert gpus.prepare(served) == answer
    assert f"libcuda.so.{NEWER}" in prepared_edits(gpus)
    assert "580.95.05" not in prepared_edits(gpus)
    assert '"major":499' in prepared_edits(gpus).replace(" ", "")
    assert not {step.split()[-1] for step in names} & CHANGES


def test_instances_are_created_again_after_a_driver_update(gpus: GpuWorld, tmp_path: pathlib.Path) -> None:
    with_files(gpus, tmp_path / "root")
    answer = gpus.prepare(gpus.boot())
    gpus.hardware = Upgraded
    mock_driver_root.create_driver_root(tmp_path / "root", NEWER)
    mock_gpus.MockGpus(gpus.choice).reload()
    assert not gpus.instances()
    assert gpus.prepare(gpus.boot()) == answer
    assert gpus.instances() == [19, 9]
    assert f"libcuda.so.{NEWER}" in prepared_edits(gpus)
    assert '"major":498' in prepared_edits(gpus).replace(" ", "")


def test_new_capability_numbers_after_a_reboot_reach_the_cdi_files(gpus: GpuWorld) -> None:
    gpus.prepare(gpus.boot())
    machines.reboot(gpus.choice.directory)
    gpus.hardware = Upgraded
    gpus.prepare(gpus.boot())
    assert '"major":498' in prepared_edits(gpus).replace(" ", "")
    assert '"major":510' not in prepared_edits(gpus).replace(" ", "")


def test_nothing_of_the_family_outlives_the_kernel_so_no_claim_waits_for_the_disk() -> None:
    assert gpu_driver.GpuDriver.volatile


def destroy(gpus: GpuWorld, number: int) -> None:
    """An admin destroys the only MIG device of a GPU."""
    hardware = mock_gpus.MockGpus(gpus.choice)
    gpu = hardware.gpus()[number].uuid
    (instance,) = hardware.gpu_instances(gpu)
    for compute in hardware.compute_instances(gpu, instance.id):
        hardware.destroy_compute_instance(gpu, instance.id, compute.id)
    hardware.destroy_gpu_instance(gpu, instance.id)


TAKEN = ("destroy_gpu_instance", "destroy_compute_instance", "begin_unprepare", "finish_unprepare", "remove")


def test_a_destroyed_instance_is_recreated_and_the_other_device_is_unchanged(gpus: GpuWorld) -> None:
    answer = gpus.prepare(gpus.boot())
    before = gpus.journal.entry(UID)
    destroy(gpus, 0)
    served = gpus.boot()
    assert gpus.prepare(served) == answer
    assert not [step for step in gpus.steps.names if step.split()[-1] in TAKEN], "a running pod lost something"
    assert gpus.instances() == [19, 9]
    after = gpus.journal.entry(UID)
    assert before is not None
    assert after is not None
    assert after.grants[1] == before.grants[1]
    assert not gpus.unprepare(gpus.boot())
    assert gpus.is_clean


@EVERY
def test_a_kill_at_any_step_of_recreating_an_instance_is_repaired_on_restart(gpus: GpuWorld, every: int) -> None:
    answer = gpus.prepare(gpus.boot())
    destroy(gpus, 0)
    assert gpus.prepare(gpus.boot()) == answer
    points = gpus.steps.passed
    for step in range(0, points, every):
        destroy(gpus, 0)
        with pytest.raises(gpu_node.CrashError):
            gpus.prepare(gpus.boot(crash_at=step))
        assert gpus.prepare(gpus.boot()) == answer, gpus.steps.last
        assert gpus.instances() == [19, 9]
    assert not gpus.unprepare(gpus.boot())
    assert gpus.is_clean


def test_an_admins_instance_in_the_claims_place_is_refused_and_the_claim_remains(gpus: GpuWorld) -> None:
    gpus.prepare(gpus.boot())
    files = dict(gpus.cdi.files)
    hardware = mock_gpus.MockGpus(gpus.choice)
    gpu = hardware.gpus()[0].uuid
    (ours,) = hardware.gpu_instances(gpu)
    destroy(gpus, 0)
    # Another one first, so that the admin's gets another id than ours had.
    other = hardware.create_gpu_instance(gpu, 19, port.Placement(start=0, size=1))
    theirs = hardware.create_gpu_instance(gpu, ours.profile_id, ours.placement)
    hardware.create_compute_instance(gpu, theirs.id, hardware.compute_instance_profiles(gpu, theirs)[0].id)
    hardware.destroy_gpu_instance(gpu, other.id)
    error = gpus.prepare(gpus.boot()).error
    assert "which this driver did not create" in error
    assert "the claim stays prepared and nothing was torn down" in error
    entry = gpus.journal.entry(UID)
    assert entry is not None
    assert entry.state is lifecycle.State.PREPARED
    assert gpus.cdi.files == files
    assert not gpus.unprepare(gpus.boot())
    assert gpus.instances() == [19], "the admin's is left alone"
