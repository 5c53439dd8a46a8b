"""An instance that an admin made in the very place that a crashed claim had planned is not taken for the claim's."""

import dataclasses
import pathlib

import pytest

from drakit.core import errors
from drakit_gpu import driver as gpu_driver
from drakit_gpu import identity, nvml_errors, port, share_policy
from drakit_gpu.mig import instances, markers
from drakit_gpu.mock import fault_injection
from fakes import gpu_node

NAME = "gpu-0-mig-2g10gb-14-4"
PROFILE, PLACE = 14, port.Placement(start=4, size=2)


@pytest.fixture
def made(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "made"


@pytest.fixture
def node(tmp_path: pathlib.Path, made: pathlib.Path) -> gpu_node.GpuNode:
    return gpu_node.GpuNode(tmp_path / "machine", resources=gpu_driver.HostResources(made=markers.MarkerStore(folder=made)))


def admin_makes(node: gpu_node.GpuNode, *, whole: bool = True) -> None:
    gpu = node.hardware.gpus()[0].uuid
    instance = node.hardware.create_gpu_instance(gpu, PROFILE, PLACE)
    if whole:
        profile = max(node.hardware.compute_instance_profiles(gpu, instance), key=lambda profile: profile.slices)
        node.hardware.create_compute_instance(gpu, instance.id, profile.id)


def planned(node: gpu_node.GpuNode, step: str) -> None:
    """A claim whose process died right at a step of its prepare."""
    node.restart()
    kept = node.grant(NAME)
    node.journal["a"] = gpu_node.JournalEntry(grant=dataclasses.replace(kept, intent=node.driver.plan(kept)))
    for crash_at in range(100):
        node.restart(crash_at=crash_at)
        with pytest.raises(gpu_node.CrashError) as died:
            node.driver.prepare(node.journal["a"].grant)
        if str(died.value) == step:
            return
    raise AssertionError(step)


def test_an_admins_instance_made_after_a_crash_is_kept_and_offered(node: gpu_node.GpuNode) -> None:
    planned(node, "before create_gpu_instance")
    admin_makes(node)
    before = node.mig_devices()
    node.restart()
    node.recover()
    assert not node.journal
    assert node.mig_devices() == before
    assert node.device(NAME).attributes["uuid"] == before[0]


def test_an_admins_instance_made_before_prepare_is_not_adopted(node: gpu_node.GpuNode) -> None:
    kept = node.grant(NAME)
    node.journal["a"] = gpu_node.JournalEntry(grant=dataclasses.replace(kept, intent=node.driver.plan(kept)))
    admin_makes(node)
    before = node.mig_devices()
    with pytest.raises(errors.DeviceBusyError, match="was not made by this driver"):
        node.driver.prepare(node.journal["a"].grant)
    node.recover()
    assert node.mig_devices() == before


@pytest.mark.parametrize(
    "step", ["after create_gpu_instance", "before create_compute_instance", "after create_compute_instance", "after capability_minors"]
)
def test_an_instance_of_a_crashed_prepare_is_deleted_with_its_marker(node: gpu_node.GpuNode, made: pathlib.Path, step: str) -> None:
    planned(node, step)
    assert node.instances()
    node.restart()
    node.recover()
    assert not node.instances()
    assert not list(made.glob("*"))


def test_a_marker_is_deleted_with_its_instance(node: gpu_node.GpuNode, made: pathlib.Path) -> None:
    node.prepare(NAME)
    (file,) = made.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert made.stat().st_mode & 0o777 == 0o700
    node.unprepare()
    assert not list(made.iterdir())


def test_a_truncated_or_foreign_marker_is_ignored(node: gpu_node.GpuNode, made: pathlib.Path) -> None:
    wanted = identity.Identity.from_record(node.driver.plan(node.grant(NAME)))
    mark = markers.MarkerStore(folder=made).of(wanted)
    instance = port.GpuInstance(id=3, profile_id=PROFILE, placement=PLACE)
    mark.write(instance)
    assert mark.matches(instance)
    assert not mark.matches(port.GpuInstance(id=4, profile_id=PROFILE, placement=PLACE))
    assert mark.file is not None
    mark.file.write_text(mark.file.read_text()[:-3])
    assert not mark.matches(instance)


def test_an_instance_whose_marker_cannot_be_written_is_deleted_at_once(node: gpu_node.GpuNode, made: pathlib.Path) -> None:
    made.write_text("in the way")
    with pytest.raises(nvml_errors.CallError, match="marker cannot be written"):
        node.prepare(NAME)
    assert not node.instances()


def test_a_marker_survives_an_attempt_that_finds_its_instance(node: gpu_node.GpuNode, made: pathlib.Path) -> None:
    node.prepare(NAME)
    (file,) = made.iterdir()
    before = file.read_text()
    planned = node.journal["a"].grant
    node.restart()
    node.driver.prepare(dataclasses.replace(planned, record={}))
    assert (file.read_text(), len(node.instances())) == (before, 1)


def test_an_intent_of_a_version_without_markers_is_undone_as_before(node: gpu_node.GpuNode) -> None:
    node.prepare(NAME)
    wanted = identity.Identity.from_record(node.journal["a"].grant.intent)
    assert wanted.marked
    assert wanted.slot is not None
    instances.remove(node.hardware, wanted.slot, None, lambda _: None)
    assert not node.instances()


def lost(node: gpu_node.GpuNode) -> gpu_node.Grant:
    """The grant of a device whose claim the journal has lost, as the present inventory describes it."""
    node.journal.clear()
    node.restart()
    found = node.grant(NAME)
    assert "uuid" in found.device.attributes
    return dataclasses.replace(found, intent=node.driver.recall(found))


def test_an_instance_with_its_marker_is_released_although_its_journal_was_lost(node: gpu_node.GpuNode) -> None:
    node.prepare(NAME)
    kept = lost(node)
    prepared = node.driver.prepare(kept)
    node.driver.unprepare(dataclasses.replace(kept, record=prepared.record))
    assert node.instances() == []


def test_an_instance_without_a_marker_is_kept_when_its_journal_was_lost(node: gpu_node.GpuNode) -> None:
    admin_makes(node)
    before = node.instances()
    kept = lost(node)
    prepared = node.driver.prepare(kept)
    node.driver.unprepare(dataclasses.replace(kept, record=prepared.record))
    assert node.instances() == before


def test_a_read_error_makes_no_instance_an_admins(node: gpu_node.GpuNode, tmp_path: pathlib.Path) -> None:
    node.prepare(NAME)
    lost(node)
    found = node.grant(NAME)
    failing = fault_injection.Fault(call="gpu_instances", moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL)
    fault_injection.Faults(tmp_path / "machine").arm(failing)
    with pytest.raises(errors.HardwareError):
        node.driver.recall(found)
    assert node.driver.recall(found)["marked"] is True


@pytest.mark.parametrize(
    "terms", [share_policy.NOT_SHARED, share_policy.SharePolicy(memory=True, partitions=True)], ids=["alone", "shared"]
)
@pytest.mark.parametrize("step", ["after create_gpu_instance", "before create_compute_instance"])
def test_the_next_claim_completes_an_instance_begun_by_a_lost_one(
    tmp_path: pathlib.Path, made: pathlib.Path, terms: share_policy.SharePolicy, step: str
) -> None:
    resources = gpu_driver.HostResources(made=markers.MarkerStore(folder=made))
    node = gpu_node.GpuNode(tmp_path / "machine", terms=terms, resources=resources)
    planned(node, step)
    node.journal.clear()
    node.restart()
    offered = node.driver.discover().flat().by_name()
    assert "uuid" not in offered[NAME].attributes
    overlapping = [name for name in offered if name.startswith("gpu-0-mig-1g5gb") and name.endswith(("-4", "-5"))]
    assert not overlapping, "the GPU's counters lack it"
    node.prepare(NAME)
    assert (len(node.instances()), len(node.mig_devices())) == (1, 1)
    node.unprepare()
    assert (node.instances(), list(made.iterdir())) == ([], [])


def test_an_unfinished_instance_of_others_is_not_offered(node: gpu_node.GpuNode) -> None:
    admin_makes(node, whole=False)
    node.restart()
    assert NAME not in node.driver.discover().flat().by_name()


def test_an_instance_of_a_lost_claim_in_use_goes_to_no_other_claim(node: gpu_node.GpuNode) -> None:
    node.prepare(NAME)
    node.journal.clear()
    node.restart()
    with pytest.raises(
        errors.DeviceBusyError, match="its journal lost; once no pod uses it, release it with: drakit unprepare --unclaimed --yes"
    ):
        node.driver.plan(node.grant(NAME))


def test_an_instance_begun_by_a_lost_claim_has_the_drivers_marker(node: gpu_node.GpuNode) -> None:
    planned(node, "after create_gpu_instance")
    node.journal.clear()
    node.restart()
    (left,) = node.driver.unclaimed()
    assert left.is_marked
    node.driver.reclaim(left)
    assert node.instances() == []


def test_an_instance_made_for_a_restored_intent_gets_a_marker(node: gpu_node.GpuNode, made: pathlib.Path) -> None:
    kept = node.grant(NAME)
    recalled = dataclasses.replace(kept, intent=node.driver.recall(kept))
    prepared = node.driver.prepare(recalled)
    assert len(list(made.iterdir())) == 1
    node.driver.unprepare(dataclasses.replace(recalled, record=prepared.record))
    assert (node.instances(), list(made.iterdir())) == ([], [])
