"""Every NVML call of a claim fails once, before or after its effect: after the retry and the end of the claim no instance is left."""

import contextlib
import pathlib

import pytest

from drakit.core import errors
from drakit_gpu import driver as gpu_driver
from drakit_gpu import nvml_errors
from drakit_gpu.mig import markers
from drakit_gpu.mock import fault_injection
from fakes import gpu_node

PART = "gpu-0-mig-3g20gb-9-0"
FAIL, MOMENTS = fault_injection.Action.FAIL, tuple(fault_injection.Moment)
CALLS = (
    *("gpu_instances", "compute_instances", "compute_instance_profiles", "create_gpu_instance", "create_compute_instance"),
    *("destroy_gpu_instance", "destroy_compute_instance", "mig_mode", "capability_minors", "device_majors"),
)
CODES = (nvml_errors.Code.UNKNOWN, nvml_errors.Code.NOT_FOUND, nvml_errors.Code.GPU_IS_LOST)


def node_of(tmp_path: pathlib.Path) -> gpu_node.GpuNode:
    made = markers.MarkerStore(folder=tmp_path / "instances")
    return gpu_node.GpuNode(tmp_path / "gpus", resources=gpu_driver.HostResources(made=made))


def fail(node: gpu_node.GpuNode, call: str, moment: fault_injection.Moment, code: nvml_errors.Code, skip: int) -> None:
    faults = fault_injection.Faults(node.choice.directory)
    faults.disarm()
    faults.arm(fault_injection.Fault(call=call, moment=moment, action=FAIL, code=code, skip=skip))


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_once_leaves_no_instance(tmp_path: pathlib.Path, call: str, code: nvml_errors.Code) -> None:
    node = node_of(tmp_path)
    fresh = node.grant(PART)
    for moment in MOMENTS:
        for skip in range(4):
            fail(node, call, moment, code, skip)
            for _ in range(3):
                with contextlib.suppress(errors.DrakitError):
                    node.prepare_again(fresh)
                    break
            assert node.journal["a"].is_prepared
            for _ in range(3):
                with contextlib.suppress(errors.DrakitError):
                    node.unprepare()
                    break
            assert not node.journal
            is_pending = (node.choice.directory / "gpu-faults.json").exists()
            fault_injection.Faults(node.choice.directory).disarm()
            assert not node.instances(), f"{call} {moment.value} its effect, after {skip} others"
            if is_pending:  # The claim makes no more of these calls.
                break


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("call", ["gpu_instances", "mig_mode"])
def test_a_recall_that_fails_never_takes_an_own_instance_for_an_admins(tmp_path: pathlib.Path, call: str, code: nvml_errors.Code) -> None:
    node = node_of(tmp_path)
    node.prepare(PART)
    grant = node.journal["a"].grant
    for skip in range(3):
        fail(node, call, fault_injection.Moment.BEFORE, code, skip)
        with contextlib.suppress(errors.HardwareError):
            assert not node.driver.recall(grant).get("borrowed")
            assert node.driver.recall(grant).get("marked")
