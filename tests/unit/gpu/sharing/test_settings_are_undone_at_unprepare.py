"""What a time slice leaves behind: nothing, also where the hardware says for a moment that it is gone, or never could have done it."""

import dataclasses
import pathlib
from typing import cast

import pytest

from drakit.core import claim
from drakit.core import driver as drivers
from drakit.testing import fake_context
from drakit_gpu import config as gpu_config
from drakit_gpu import nvml_errors, port
from drakit_gpu.mock import fault_injection
from fakes import gpu_node

LONG = gpu_config.GpuConfig(
    sharing=gpu_config.Sharing(
        strategy=gpu_config.Strategy.TIME_SLICING, time_slicing_config=gpu_config.TimeSlicing(interval=port.TimeSlice.LONG)
    )
)
GPU = 1


@pytest.fixture
def node(tmp_path: pathlib.Path) -> gpu_node.GpuNode:
    return gpu_node.GpuNode(tmp_path / "machine", "server-h100-pcie")


def uuid(node: gpu_node.GpuNode) -> port.GpuUuid:
    return node.hardware.gpus()[GPU].uuid


def fail(node: gpu_node.GpuNode, call: str, code: nvml_errors.Code) -> None:
    fault = fault_injection.Fault(call=call, moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL, code=code)
    fault_injection.Faults(node.choice.directory).arm(fault)


@pytest.mark.parametrize("call", ["compute_mode", "set_time_slice"])
@pytest.mark.parametrize("code", [nvml_errors.Code.NOT_FOUND, nvml_errors.Code.GPU_IS_LOST])
def test_one_error_does_not_say_that_a_gpu_with_a_time_slice_is_gone(node: gpu_node.GpuNode, call: str, code: nvml_errors.Code) -> None:
    node.prepare(f"gpu-{GPU}", config=LONG, config_source=claim.ConfigSource.CLAIM)
    fail(node, call, code)
    with pytest.raises(nvml_errors.CallError, match="injected"):
        node.unprepare()
    node.unprepare()
    assert node.hardware.time_slice(uuid(node)) is port.TimeSlice.DEFAULT


def test_a_lost_gpu_needs_no_undo(node: gpu_node.GpuNode) -> None:
    node.prepare(f"gpu-{GPU}", config=LONG, config_source=claim.ConfigSource.CLAIM)
    node.hardware.lose(uuid(node))
    node.unprepare()
    assert node.journal == {}


def test_a_claim_whose_time_slice_was_never_possible_can_be_unprepared(node: gpu_node.GpuNode) -> None:
    """As where the GPU is in MIG mode still because the driver died before it turned that off, or where nvidia-smi is missing."""
    node.hardware.set_mig_mode(uuid(node), enabled=True)
    fresh = node.grant(f"gpu-{GPU}", config=LONG, config_source=claim.ConfigSource.CLAIM)
    node.journal["a"] = gpu_node.JournalEntry(grant=dataclasses.replace(fresh, intent=node.driver.plan(fresh)))
    node.restart().unprepare(node.journal["a"].grant)
    assert node.hardware.time_slice(uuid(node)) is port.TimeSlice.DEFAULT


def test_a_time_slice_that_was_set_is_not_given_up_because_the_tool_is_missing(node: gpu_node.GpuNode) -> None:
    node.prepare(f"gpu-{GPU}", config=LONG, config_source=claim.ConfigSource.CLAIM)
    fail(node, "set_time_slice", nvml_errors.Code.NOT_SUPPORTED)
    with pytest.raises(nvml_errors.CallError, match="injected"):
        node.unprepare()
    node.unprepare()
    assert node.hardware.time_slice(uuid(node)) is port.TimeSlice.DEFAULT


def test_a_time_slice_is_gone_with_the_mode_that_an_admin_changed(node: gpu_node.GpuNode) -> None:
    node.prepare(f"gpu-{GPU}", config=LONG, config_source=claim.ConfigSource.CLAIM)
    node.hardware.set_mig_mode(uuid(node), enabled=True)
    node.unprepare()
    assert node.journal == {}


def test_a_starting_driver_restores_settings_cleared_by_a_reset(node: gpu_node.GpuNode, tmp_path: pathlib.Path) -> None:
    node.prepare(f"gpu-{GPU}", config=LONG, config_source=claim.ConfigSource.CLAIM)
    node.hardware.reset(uuid(node))
    assert node.hardware.time_slice(uuid(node)) is port.TimeSlice.DEFAULT
    context = fake_context.FakeContext(
        tmp_path, boot_id=node.hardware.boot_id(), grants=[cast("drivers.Grant[object]", node.journal["a"].grant)]
    )
    node.restart().start(context)
    assert node.hardware.time_slice(uuid(node)) is port.TimeSlice.LONG
