"""The driver dies before or after the effect of any call to the hardware; a new one brings the node to where it would have been."""

import pathlib

import pytest

from drakit.core import errors
from drakit_gpu import nvml_errors, port
from drakit_gpu.mock import fault_injection
from fakes import gpu_node

HOPPER = "gpu-0-mig-2g20gb-14-4"
PARTITION = "gpu-0-mig-2g10gb-14-4"
ADMIN = (1, 19, 0)
OTHER = (0, 9, 0)
ONE_HOPPER = """
name: lab
description: one H100
gpus:
  evidence: guessed
  driverVersion: 580.95.05
  cudaDriverVersion: "13.0"
  boards: [{model: h100-sxm5-80gb, pciBusID: "0000:07:00.0", migMode: false}]
"""
COMMON = {nvml_errors.Code.IN_USE, nvml_errors.Code.NOT_SUPPORTED}
CODES = [
    nvml_errors.Code.NOT_SUPPORTED,
    nvml_errors.Code.IN_USE,
    nvml_errors.Code.INSUFFICIENT_RESOURCES,
    nvml_errors.Code.GPU_IS_LOST,
    pytest.param(nvml_errors.Code.NOT_FOUND, marks=pytest.mark.full),
    pytest.param(nvml_errors.Code.UNKNOWN, marks=pytest.mark.full),
]
ALSO_NAMED = {"census": "gpus", "gpu": "gpus", "known_gpu": "gpus"}
"""Methods of the port whose faults have another name."""
EVERY = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.full)], ids=["sampled", "every"])


@pytest.fixture
def node(tmp_path: pathlib.Path) -> gpu_node.GpuNode:
    return shared_node(tmp_path / "node")


def shared_node(directory: pathlib.Path) -> gpu_node.GpuNode:
    """A node on which another claim and an admin have instances already."""
    made = gpu_node.GpuNode(directory)
    made.prepare("gpu-0-mig-3g20gb-9-0", uid="other")
    made.hardware.create_gpu_instance(made.hardware.gpus()[1].uuid, 19, port.Placement(start=0, size=1))
    return made


def others(node: gpu_node.GpuNode) -> bool:
    return {ADMIN, OTHER} <= set(node.instances()) and node.driver.prepare(node.journal["other"].grant).record == node.journal[
        "other"
    ].grant.record


def calls_of(node: gpu_node.GpuNode, *names: str) -> list[str]:
    """The calls to the hardware that a claim for each of these devices makes. A fault at another call cannot occur."""
    node.steps.names.clear()
    for name in names:
        node.prepare(name)
        node.unprepare()
    made = {ALSO_NAMED.get(call, call) for call in (step.partition(" ")[2] for step in node.steps.names)}
    assert made <= nvml_errors.CALLS.keys()
    return sorted(made)


def crash_points(directory: pathlib.Path, *, of_prepare: bool) -> int:
    counted = shared_node(directory)
    if not of_prepare:
        counted.prepare(PARTITION)
        counted.restart()
        counted.unprepare()
        return counted.steps.passed
    counted.restart()
    counted.prepare(PARTITION)
    return counted.steps.passed


@EVERY
def test_a_crash_at_any_step_of_prepare_leaves_nothing_behind(node: gpu_node.GpuNode, tmp_path: pathlib.Path, every: int) -> None:
    points = crash_points(tmp_path / "count", of_prepare=True)
    assert points > 30
    for step in [*range(0, points, every), points]:
        node.restart(crash_at=step)
        try:
            node.prepare(PARTITION)
        except gpu_node.CrashError:
            assert step < points
            node.restart()
            node.recover()
            assert sorted(node.instances()) == sorted([ADMIN, OTHER]), node.steps.last
            node.prepare(PARTITION)
        assert sorted(node.instances()) == sorted([ADMIN, OTHER, (0, 14, 4)])
        node.restart()
        assert others(node)
        node.unprepare()
        assert sorted(node.instances()) == sorted([ADMIN, OTHER])


@EVERY
def test_a_crash_at_any_step_of_unprepare_leaves_nothing_behind(node: gpu_node.GpuNode, tmp_path: pathlib.Path, every: int) -> None:
    points = crash_points(tmp_path / "count", of_prepare=False)
    assert points >= 10
    for step in [*range(0, points, every), points]:
        node.restart()
        node.prepare(PARTITION)
        node.restart(crash_at=step)
        try:
            node.unprepare()
        except gpu_node.CrashError:
            assert step < points
            node.restart()
            node.recover()
        assert sorted(node.instances()) == sorted([ADMIN, OTHER])
        node.restart()
        assert others(node)


@pytest.mark.parametrize("moment", list(fault_injection.Moment))
@pytest.mark.parametrize("code", CODES)
def test_any_error_of_any_call_is_reported_and_leaves_nothing_behind(
    node: gpu_node.GpuNode, code: nvml_errors.Code, moment: fault_injection.Moment
) -> None:
    injector = fault_injection.Faults(node.choice.directory)
    for call in calls_of(node, PARTITION):
        fault = fault_injection.Fault(call=call, moment=moment, action=fault_injection.Action.FAIL, code=code)
        injector.arm(fault)
        try:
            node.prepare(PARTITION)
        except errors.DrakitError:
            injector.disarm()
            node.recover()
            assert sorted(node.instances()) == sorted([ADMIN, OTHER]), call
            node.prepare(PARTITION)
        injector.disarm()
        injector.arm(fault)
        try:
            node.unprepare()
        except errors.DrakitError:
            injector.disarm()
            node.recover()
        injector.disarm()
        assert sorted(node.instances()) == sorted([ADMIN, OTHER]), call
    assert others(node)


@pytest.mark.parametrize("moment", list(fault_injection.Moment))
@pytest.mark.parametrize("code", [code if code in COMMON else pytest.param(code, marks=pytest.mark.full) for code in nvml_errors.Code])
def test_any_error_of_any_call_leaves_nothing_behind_where_the_mode_is_changed_too(
    tmp_path: pathlib.Path, code: nvml_errors.Code, moment: fault_injection.Moment
) -> None:
    (tmp_path / "lab.yaml").write_text(ONE_HOPPER)
    node = gpu_node.GpuNode(tmp_path / "machine", str(tmp_path / "lab.yaml"))
    injector = fault_injection.Faults(node.choice.directory)
    gpu = node.hardware.gpus()[0].uuid
    for name in (HOPPER, "gpu-0"):
        for call in calls_of(node, HOPPER, "gpu-0"):
            node.hardware.set_mig_mode(gpu, enabled=name == "gpu-0")
            injector.arm(fault_injection.Fault(call=call, moment=moment, action=fault_injection.Action.FAIL, code=code, times=6))
            try:
                node.prepare(name)
            except errors.DrakitError:
                injector.disarm()
                node.recover()
                assert not node.instances(), call
                node.prepare(name)
            injector.disarm()
            mode = node.hardware.mig_mode(gpu)
            assert mode is not None
            assert mode.current == (name == HOPPER), call
            node.unprepare()
            assert not node.instances(), call
