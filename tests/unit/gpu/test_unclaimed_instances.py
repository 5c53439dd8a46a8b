"""MIG instances that no claim has are found one by one: what cannot be read of one hides no other."""

import pathlib

import pytest

from drakit_gpu import driver as gpu_driver
from drakit_gpu import identity, nvml_errors, options, port, share_policy
from drakit_gpu.mig import markers
from drakit_gpu.mock import fault_injection
from fakes import gpu_node

BEFORE, FAIL = fault_injection.Moment.BEFORE, fault_injection.Action.FAIL


@pytest.fixture
def node(tmp_path: pathlib.Path) -> gpu_node.GpuNode:
    node = gpu_node.GpuNode(tmp_path)
    for start in (0, 1):
        gpu = node.hardware.gpus()[0].uuid
        node.hardware.create_gpu_instance(gpu, 19, port.Placement(start=start, size=1))
    return node


@pytest.mark.parametrize("call", ["compute_instances", "running_processes"])
def test_a_failing_call_hides_no_unclaimed_instance(node: gpu_node.GpuNode, call: str) -> None:
    named = [leftover.name for leftover in node.driver.unclaimed()]
    fault_injection.Faults(node.choice.directory).arm(fault_injection.Fault(call=call, moment=BEFORE, action=FAIL))
    unread, other = node.driver.unclaimed()
    assert [unread.name, other.name] == named
    assert "could not be listed" in unread.user, "nothing shows that it is unused, so it is not released by its mark alone"
    assert unread.needs_name
    assert not other.user


def test_an_instance_that_is_deleted_meanwhile_is_not_unclaimed(node: gpu_node.GpuNode) -> None:
    fault = fault_injection.Fault(call="compute_instances", moment=BEFORE, action=FAIL, code=nvml_errors.Code.NOT_FOUND)
    fault_injection.Faults(node.choice.directory).arm(fault)
    assert len(node.driver.unclaimed()) == 1


@pytest.mark.parametrize("form", ["counters", "layout", "shared"])
def test_an_unfinished_instance_is_released_under_every_lock_of_its_device(tmp_path: pathlib.Path, form: str) -> None:
    """Otherwise a prepare could complete it while it is released."""
    made = markers.MarkerStore(folder=tmp_path / "markers")
    node = gpu_node.GpuNode(
        tmp_path / "node",
        terms=share_policy.SharePolicy(number=2, partitions=True) if form == "shared" else share_policy.NOT_SHARED,
        layouts=(options.MigLayout(match="gpu-0", partitions={"1g.5gb": 7}),) if form == "layout" else (),
        resources=gpu_driver.HostResources(made=made),
    )
    gpu, place = node.hardware.gpus()[0].uuid, port.Placement(start=0, size=1)
    made.of_slot(identity.Slot(gpu=gpu, profile_id=19, placement=place), node.hardware.boot_id()).announce()
    node.hardware.create_gpu_instance(gpu, 19, place)
    (leftover,) = node.driver.unclaimed()
    assert leftover.is_marked
    names = ["gpu-0-mig-1g5gb-19-0", *(["gpu-0-mig-1g5gb-19-0-shared"] if form == "shared" else [])]
    assert all(set(node.device(name).lock_names) <= set(leftover.locks) for name in names)
    assert {"gpu-0", "gpu-0-counter-set"} <= set(leftover.locks)


def test_an_instance_whose_locks_cannot_be_read_is_not_released(node: gpu_node.GpuNode) -> None:
    fault_injection.Faults(node.choice.directory).arm(fault_injection.Fault(call="gpu_instance_profiles", moment=BEFORE, action=FAIL))
    assert len(node.driver.unclaimed()) == 1
