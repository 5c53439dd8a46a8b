"""MIG instances that no claim has are found one by one: what cannot be read of one hides no other."""

import pathlib

import pytest

from drakit_gpu import nvml_errors, port
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
