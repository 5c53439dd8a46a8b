"""A GPU that does not answer is not offered; all others are."""

import pathlib

import pytest

from drakit.core import errors
from drakit_gpu import nvml_errors
from drakit_gpu.mock import fault_injection
from fakes import gpu_node, log_lines

CALLS = ["mig_mode", "gpu_instance_profiles", "possible_placements", "gpu_instances"]


@pytest.fixture
def node(tmp_path: pathlib.Path) -> gpu_node.GpuNode:
    return gpu_node.GpuNode(tmp_path)


def fail(node: gpu_node.GpuNode, call: str, code: nvml_errors.Code = nvml_errors.Code.GPU_IS_LOST, times: int = 1) -> None:
    fault = fault_injection.Fault(
        call=call, moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL, code=code, times=times
    )
    fault_injection.Faults(node.choice.directory).arm(fault)


@pytest.mark.parametrize("code", [nvml_errors.Code.GPU_IS_LOST, nvml_errors.Code.RESET_REQUIRED, nvml_errors.Code.UNKNOWN])
@pytest.mark.parametrize("call", CALLS)
def test_other_gpus_stay_offered(node: gpu_node.GpuNode, call: str, code: nvml_errors.Code, logged: log_lines.LogLines) -> None:
    fail(node, call, code)
    names = {device.name for device in node.driver.discover().devices}
    assert len(names) == 26
    assert all(name.startswith("gpu-1") for name in names)
    result = {(record.get("gpu"), str(record.get("error")).partition(" (")[0]) for record in logged.lines}
    assert (node.hardware.gpus()[0].uuid, f"{nvml_errors.CALLS[call]}: {code.name}") in result
    assert len(node.driver.discover().devices) == 52


def test_claims_on_other_gpus_are_prepared(node: gpu_node.GpuNode) -> None:
    fail(node, "mig_mode")
    node.prepare("gpu-1-mig-1g5gb-19-6")
    assert node.instances() == [(1, 19, 6)]


def test_if_every_gpu_fails_discovery_is_an_error_and_the_offer_stays(node: gpu_node.GpuNode) -> None:
    fail(node, "mig_mode", times=2)
    with pytest.raises(errors.HardwareError, match=r"no GPU answers \(2 found\)"):
        node.driver.discover()


def test_a_claim_on_a_lost_gpu_unprepares_because_recovery_destroys_its_instance(node: gpu_node.GpuNode) -> None:
    gpu = node.hardware.gpus()[1].uuid
    node.prepare("gpu-1-mig-1g5gb-19-6")
    node.hardware.lose(gpu)
    node.unprepare()
    node.hardware.reset(gpu)
    assert not node.instances()


def test_one_lost_error_is_ignored_while_the_gpu_answers(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-1-mig-1g5gb-19-6")
    fail(node, "gpu_instances")
    with pytest.raises(nvml_errors.CallError, match="GPU_IS_LOST"):
        node.unprepare()
    assert node.instances() == [(1, 19, 6)]
    node.unprepare()
    assert not node.instances()
