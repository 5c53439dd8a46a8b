"""MIG mode is changed only where that takes no reset; elsewhere the admin's choice decides what is offered."""

import dataclasses
import pathlib

import pytest

from drakit import machines
from drakit.core import errors
from drakit_gpu import driver as gpu_driver
from drakit_gpu import nvml_errors, port
from drakit_gpu.mig import instances
from drakit_gpu.mock import fault_injection, mock_gpus
from fakes import gpu_node

PARTITION, WHOLE = "gpu-1-mig-1g10gb-19-6", "gpu-1"


@pytest.fixture
def hopper(tmp_path: pathlib.Path) -> gpu_node.GpuNode:
    """Four H100 PCIe: MIG on for the first, off for the others."""
    return gpu_node.GpuNode(tmp_path, "server-h100-pcie")


def offered(directory: pathlib.Path, machine: str) -> dict[int, tuple[int, bool]]:
    """By minor number: how many partitions are offered, and whether the whole GPU is."""
    hardware = mock_gpus.MockGpus(machines.Choice(name=machine, directory=directory))
    names = {device.name for device in gpu_driver.GpuDriver(hardware).discover().devices}
    minors = [gpu.minor for gpu in hardware.gpus()]
    return {minor: (sum(name.startswith(f"gpu-{minor}-mig-") for name in names), f"gpu-{minor}" in names) for minor in minors}


def is_on(node: gpu_node.GpuNode, minor: int) -> bool:
    mode = node.hardware.mig_mode(node.hardware.gpus()[minor].uuid)
    assert mode is not None
    return mode.current


def test_ampere_is_offered_by_its_mode_and_hopper_both_ways_whatever_its_mode(tmp_path: pathlib.Path) -> None:
    both, partitions, whole = (25, True), (25, False), (0, True)
    assert offered(tmp_path / "a", "dgx-a100-80gb") == {minor: partitions if minor < 4 else whole for minor in range(8)}
    assert offered(tmp_path / "h", "server-h100-pcie") == dict.fromkeys(range(4), both)
    assert offered(tmp_path / "a30", "server-a30") == dict.fromkeys(range(4), (13, False))


def test_a_node_of_all_kinds_is_offered_kind_by_kind(tmp_path: pathlib.Path) -> None:
    ampere, quarter = {0: (25, False), 1: (0, True), 2: (25, False)}, {3: (13, False), 4: (0, True)}
    hopper, rtx, plain = dict.fromkeys(range(5, 12), (25, True)), dict.fromkeys((12, 13), (30, True)), dict.fromkeys((14, 15), (0, True))
    assert offered(tmp_path, "mixed-16gpu") == {**ampere, **quarter, **hopper, **rtx, **plain}


def test_a_partition_turns_the_mode_on_and_a_whole_gpu_turns_it_off(hopper: gpu_node.GpuNode) -> None:
    hopper.prepare(PARTITION, uid="a")
    assert is_on(hopper, 1)
    hopper.unprepare("a")
    hopper.prepare(WHOLE, uid="b")
    assert not is_on(hopper, 1)
    hopper.unprepare("b")
    assert not hopper.instances()


def test_mig_mode_that_an_admin_turned_on_is_turned_off_for_a_whole_gpu(hopper: gpu_node.GpuNode) -> None:
    prepared = hopper.prepare(WHOLE, uid="a")
    grant = hopper.journal["a"].grant
    assert hopper.driver.prepare(grant) == prepared
    hopper.hardware.set_mig_mode(hopper.hardware.gpus()[1].uuid, enabled=True)
    assert not hopper.driver.prepare(grant).record, "an empty record says that it is to be made ready again"
    assert hopper.driver.prepare(dataclasses.replace(grant, record={})) == prepared
    assert not is_on(hopper, 1)


def test_a_repair_keeps_an_admins_instance_on_the_whole_gpu_of_a_claim(hopper: gpu_node.GpuNode) -> None:
    hopper.prepare(WHOLE, uid="a")
    gpu = hopper.hardware.gpus()[1].uuid
    hopper.hardware.set_mig_mode(gpu, enabled=True)
    hopper.hardware.create_gpu_instance(gpu, 19, port.Placement(start=0, size=1))
    with pytest.raises(errors.DeviceBusyError, match="is in the way and was not made by this driver"):
        hopper.driver.prepare(dataclasses.replace(hopper.journal["a"].grant, record={}))
    assert len(hopper.hardware.gpu_instances(gpu)) == 1


def test_after_a_reboot_a_new_partition_turns_mig_mode_on_again(hopper: gpu_node.GpuNode) -> None:
    hopper.prepare(PARTITION, uid="a")
    machines.reboot(hopper.choice.directory)
    assert not is_on(hopper, 1)
    hopper.unprepare("a")
    hopper.prepare(PARTITION, uid="b")
    assert is_on(hopper, 1)


def test_a_mode_that_clients_hold_is_busy_with_their_pids(hopper: gpu_node.GpuNode) -> None:
    gpu = hopper.hardware.gpus()[1].uuid
    hopper.hardware.attach(gpu, 4711)
    with pytest.raises(errors.DeviceBusyError, match=r"is still in use by processes 4711: nvmlDeviceSetMigMode: IN_USE"):
        hopper.prepare(PARTITION, uid="a")
    hopper.hardware.detach(gpu, 4711)
    hopper.recover()
    hopper.prepare(PARTITION, uid="a")
    assert len(hopper.mig_devices()) == 1


def test_a_mode_that_another_process_changed_meanwhile_is_not_set_again(hopper: gpu_node.GpuNode) -> None:
    """Its first instance keeps the GPU in use, so that the second change would fail for ever."""
    gpu, pauses = hopper.hardware.gpus()[1], list[float]()

    def other_process(step: str) -> None:
        if step == "before set_mig_mode" and not is_on(hopper, 1):
            hopper.hardware.set_mig_mode(gpu.uuid, enabled=True)
            hopper.hardware.create_gpu_instance(gpu.uuid, 19, port.Placement(start=0, size=1))
            in_use = fault_injection.Fault(
                call="set_mig_mode",
                moment=fault_injection.Moment.BEFORE,
                action=fault_injection.Action.FAIL,
                code=nvml_errors.Code.IN_USE,
                times=99,
            )
            fault_injection.Faults(hopper.choice.directory).arm(in_use)

    instances.set_mode(gpu_node.stepping(hopper.hardware, other_process), gpu, enabled=True, pause=pauses.append)
    assert pauses == [instances.PAUSES[0]]
    assert len(hopper.hardware.gpu_instances(gpu.uuid)) == 1


def test_a_mode_that_would_take_a_reset_is_an_error_and_makes_nothing(hopper: gpu_node.GpuNode) -> None:
    injector = fault_injection.Faults(hopper.choice.directory)
    fault = fault_injection.Fault(
        call="set_mig_mode", moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL, code=nvml_errors.Code.RESET_REQUIRED
    )
    injector.arm(fault)
    with pytest.raises(errors.HardwareError, match="RESET_REQUIRED"):
        hopper.prepare(PARTITION, uid="a")
    hopper.recover()
    assert not hopper.instances()


def test_the_mode_of_an_ampere_gpu_is_never_touched(tmp_path: pathlib.Path) -> None:
    node = gpu_node.GpuNode(tmp_path, "dgx-a100-80gb")
    fault = fault_injection.Fault(call="set_mig_mode", moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL, times=99)
    fault_injection.Faults(tmp_path).arm(fault)
    for name, uid in (("gpu-0-mig-7g80gb-0-0", "a"), ("gpu-7", "b")):
        node.prepare(name, uid=uid)
        node.unprepare(uid)
    assert [is_on(node, minor) for minor in range(8)] == [True] * 4 + [False] * 4


def test_a_pending_change_of_an_ampere_gpu_changes_the_offer_once_it_is_reset(tmp_path: pathlib.Path) -> None:
    hardware = mock_gpus.MockGpus(machines.Choice(name="dgx-a100-80gb", directory=tmp_path))
    gpu = hardware.gpus()[7].uuid
    hardware.attach(gpu, 4711)
    with pytest.raises(nvml_errors.CallError, match="IN_USE"):
        hardware.set_mig_mode(gpu, enabled=True)
    assert hardware.mig_mode(gpu) == port.MigMode(current=False, pending=True)
    assert offered(tmp_path, "dgx-a100-80gb")[7] == (0, True)
    hardware.detach(gpu, 4711)
    hardware.reset(gpu)
    assert offered(tmp_path, "dgx-a100-80gb")[7] == (25, False)


def test_a_whole_ampere_gpu_now_in_mig_mode_is_refused_for_new_claims(tmp_path: pathlib.Path) -> None:
    node = gpu_node.GpuNode(tmp_path, "dgx-a100-80gb")
    late = node.grant("gpu-6")
    node.prepare("gpu-7", uid="a")
    for gpu in node.hardware.gpus()[6:]:
        node.hardware.set_mig_mode(gpu.uuid, enabled=True)
    with pytest.raises(errors.DeviceGoneError, match="gpu-6 is in MIG mode, so it cannot be used whole"):
        node.driver.prepare(dataclasses.replace(late, intent=node.driver.plan(late)))
    assert not node.driver.prepare(node.journal["a"].grant).record, "so the engine looks what is offered now"
    node.unprepare("a")
    assert is_on(node, 7)


GUEST = """
name: guest
description: a virtual machine with a vGPU
gpus:
  evidence: guessed
  driverVersion: 580.95.05
  cudaDriverVersion: "13.0"
  boards: [{model: h100-sxm5-80gb, pciBusID: "0000:07:00.0", migMode: true, vgpu: true}]
"""


def test_a_vgpu_is_offered_whole_in_any_mode_of_its_host(tmp_path: pathlib.Path) -> None:
    (tmp_path / "guest.yaml").write_text(GUEST)
    assert offered(tmp_path / "state", str(tmp_path / "guest.yaml")) == {0: (0, True)}


def test_a_vgpu_that_its_host_made_of_a_mig_device_is_prepared_and_its_mode_is_left(tmp_path: pathlib.Path) -> None:
    (tmp_path / "guest.yaml").write_text(GUEST)
    node = gpu_node.GpuNode(tmp_path / "state", str(tmp_path / "guest.yaml"))
    (gpu,) = node.hardware.gpus()
    node.hardware.create_gpu_instance(gpu.uuid, 0, port.Placement(start=0, size=8))
    prepared = node.prepare("gpu-0")
    assert prepared.record == {"uuid": gpu.uuid}
    assert node.driver.prepare(node.journal["a"].grant) == prepared
    node.unprepare()
    assert is_on(node, 0)
    assert node.instances() == [(0, 0, 0)]
