"""What every GpuPort must do about health: events, recovery actions, GPUs that come and go; run on the mock and on NVML's adapter."""

import pathlib

import pytest

from drakit import machines
from drakit_gpu import host, nvml, nvml_errors, port
from drakit_gpu.health import signals
from drakit_gpu.mock import mock_gpus
from fakes import nvml_library, waits


class Machine:
    """A mock machine, and the port that looks at it."""

    def __init__(self, hardware: mock_gpus.MockGpus, seen: port.GpuPort, root: pathlib.Path | None) -> None:
        self.hardware = hardware
        self.seen = seen
        self._root = root

    def unplug(self, gpu: port.Gpu) -> None:
        self.hardware.unplug(gpu.uuid)
        if self._root is not None:
            (self._root / "sys/bus/pci/devices" / gpu.pci_bus_id).unlink()
            (self._root / "sys/bus/pci/drivers/nvidia" / gpu.pci_bus_id).unlink()

    def reload(self) -> None:
        self.hardware.reload()
        if self._root is not None:
            module = self._root / "sys/module/nvidia"
            module.with_name("kept").mkdir()  # so that the number of the old entry is not given out again at once
            module.rename(module.with_name("old"))
            module.mkdir()


@pytest.fixture(params=["mock", "nvml"])
def machine(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Machine:
    made = mock_gpus.MockGpus(machines.Choice(name="dgx-a100-40gb-2gpu", directory=tmp_path / "machine", owner="node-a"))
    if request.param == "mock":
        return Machine(made, made, None)
    root = nvml_library.host_root(tmp_path / "root", made)
    return Machine(made, nvml.NvmlGpus(nvml_library.NvmlLibrary(made).load, system=host.Host(root)), root)


def test_an_event_names_its_gpu_instance_and_xid(machine: Machine) -> None:
    _, gpu = machine.seen.gpus()
    with machine.seen.events() as events:
        machine.hardware.report_xid(gpu.uuid, 31, instance_id=2)
        machine.hardware.report_xid(gpu.uuid, 79)
        assert events.wait(waits.SECONDS) == signals.Event(gpu=gpu.uuid, kind=signals.EventKind.XID, xid=31, instance_id=2)
        assert events.wait(waits.SECONDS) == signals.Event(gpu=gpu.uuid, kind=signals.EventKind.XID, xid=79)


def test_only_events_after_opening_are_delivered(machine: Machine) -> None:
    machine.hardware.report_xid(machine.seen.gpus()[0].uuid, 31)
    with machine.seen.events() as events:
        assert events.wait(0.0) is None


def test_changes_of_mig_are_events(machine: Machine) -> None:
    uuid = machine.seen.gpus()[0].uuid
    with machine.seen.events() as events:
        machine.hardware.create_gpu_instance(uuid, 19, port.Placement(start=6, size=1))
        assert events.wait(waits.SECONDS) == signals.Event(gpu=uuid, kind=signals.EventKind.MIG)


@pytest.mark.parametrize("action", list(signals.RecoveryAction))
def test_the_recovery_action_of_a_gpu_stays_until_it_is_reset(machine: Machine, action: signals.RecoveryAction) -> None:
    uuid = machine.seen.gpus()[0].uuid
    machine.hardware.report_xid(uuid, 48, recovery=action)
    assert machine.seen.recovery_action(uuid) is action
    machine.hardware.reset(uuid)
    assert machine.seen.recovery_action(uuid) is signals.RecoveryAction.NONE


def test_a_lost_gpu_fails_every_query_stays_plugged_and_affects_no_other(machine: Machine) -> None:
    first, second = machine.seen.gpus()
    machine.hardware.lose(first.uuid)
    with pytest.raises(nvml_errors.CallError) as caught:
        machine.seen.recovery_action(first.uuid)
    assert caught.value.code in {nvml_errors.Code.GPU_IS_LOST, nvml_errors.Code.NOT_FOUND}
    assert machine.seen.is_plugged(first)
    assert list(machine.seen.gpus()) == [second]
    assert machine.seen.recovery_action(second.uuid) is signals.RecoveryAction.NONE
    machine.hardware.reset(first.uuid)
    assert list(machine.seen.gpus()) == [first, second]


def test_removing_a_gpu_changes_the_set_of_gpus(machine: Machine) -> None:
    first, second = machine.seen.gpus()
    before = machine.seen.population()
    machine.unplug(first)
    assert machine.seen.population() != before
    machine.seen.renew()
    assert not machine.seen.is_plugged(first)
    assert list(machine.seen.gpus()) == [second]


def test_reloading_the_driver_changes_the_set_of_gpus(machine: Machine) -> None:
    before = machine.seen.population()
    assert machine.seen.population() == before
    machine.reload()
    assert machine.seen.population() != before
    machine.seen.renew()
    assert len(machine.seen.gpus()) == 2


def test_an_event_set_can_be_closed_twice(machine: Machine) -> None:
    events = machine.seen.events()
    events.close()
    events.close()
