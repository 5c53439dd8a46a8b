"""Faults of GPUs become taints and health reports, and pass; what one GPU has no other gets. Time is told, nothing waits."""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Mapping

import pytest

from drakit import machines
from drakit.core import context as contexts
from drakit.core import device as devices
from drakit.core import errors
from drakit.testing import fake_context
from drakit_gpu import driver as gpu_driver
from drakit_gpu import host, nvml, nvml_errors, port
from drakit_gpu.health import faults, monitor, signals, xids
from drakit_gpu.mock import fault_injection, mock_gpus
from fakes import gpu_node, nvml_library

NO_SCHEDULE, NO_EXECUTE = devices.TaintEffect.NO_SCHEDULE, devices.TaintEffect.NO_EXECUTE
TERMS = faults.HealthPolicy(settle=5.0, hold=60.0)
RESET = signals.RecoveryAction.RESET
Shown = set[tuple[str, str, devices.TaintEffect]]


class MonitoredNode:
    """A node with two A100 in MIG mode whose watch is driven by hand; ``now`` is the time."""

    def __init__(self, directory: pathlib.Path, terms: faults.HealthPolicy = TERMS) -> None:
        self.node = gpu_node.GpuNode(directory / "machine", health=terms)
        self.context = fake_context.FakeContext(directory / "home")
        self.now = 1000.0
        self.terms = terms
        self.gpus = [gpu.uuid for gpu in self.node.hardware.gpus()]
        self.watch = self.restart()

    def restart(self) -> monitor.HealthMonitor:
        """The watch as a new process has it, and a driver that knows of the context but has no thread."""
        self.node.restart()
        self.node.driver._context = self.context
        self.watch = monitor.HealthMonitor(
            self.node.hardware, self.context, prefix=gpu_driver.NAME, policy=self.terms, now=lambda: self.now
        )
        self.watch.poll()
        return self.watch

    def report_xid(
        self, gpu: int, xid: int, *, instance_id: int | None = None, recovery: signals.RecoveryAction = signals.RecoveryAction.NONE
    ) -> None:
        uuid = self.gpus[gpu]
        self.node.hardware.report_xid(uuid, xid, instance_id=instance_id, recovery=recovery)
        self.watch.handle_event(signals.Event(gpu=uuid, kind=signals.EventKind.XID, xid=xid, instance_id=instance_id))

    def after(self, seconds: float) -> None:
        """Time passes, and the watch looks."""
        self.now += seconds
        self.watch.poll()

    def shown(self, device: str) -> Shown:
        """The taints with which a device is offered: key without domain, value, effect."""
        taints = self.node.device(device).taints
        return {(taint.key.removeprefix("gpu.drakit.dev/"), taint.value, taint.effect) for taint in taints}

    def kinds(self) -> set[str]:
        """The faults for which taints stand on the first GPU."""
        return {taint.key.removeprefix("gpu.drakit.dev/") for taint in self.context.taints().get("gpu-0", ())}

    def tainted(self) -> set[str]:
        return {device.name for device in self.node.driver.discover().devices if device.taints}

    def names(self, gpu: int) -> set[str]:
        return {device.name for device in self.node.driver.discover().devices if faults.affects(f"gpu-{gpu}", device.name)}


@pytest.fixture
def monitored(tmp_path: pathlib.Path) -> MonitoredNode:
    return MonitoredNode(tmp_path)


def numbers(gravity: xids.Gravity) -> list[int]:
    return [xid.number for xid in xids.known() if xid.gravity is gravity]


def test_a_fault_taints_every_device_of_its_gpu_and_of_no_other(monitored: MonitoredNode) -> None:
    monitored.report_xid(1, 48, recovery=RESET)
    monitored.after(0)
    assert monitored.tainted() == monitored.names(1)
    assert len(monitored.tainted()) == 26, "all partitions and the whole GPU"
    assert monitored.shown("gpu-1") == {("xid", "48", NO_SCHEDULE), ("recovery-action", "reset", NO_SCHEDULE)}
    assert monitored.context.rediscoveries


@pytest.mark.parametrize("number", [*numbers(xids.Gravity.NOTHING), *numbers(xids.Gravity.PROGRAM)])
def test_an_xid_caused_by_a_program_taints_no_gpu(monitored: MonitoredNode, number: int) -> None:
    monitored.report_xid(0, number)
    monitored.after(1)
    assert not monitored.context.taints()


@pytest.mark.parametrize("number", [*numbers(xids.Gravity.FATAL), 48, 74, 4711])
def test_only_a_fatal_fault_evicts_pods_and_only_after_a_delay(monitored: MonitoredNode, number: int) -> None:
    monitored.report_xid(0, number, recovery=RESET)
    first = ("xid", str(number), NO_SCHEDULE)
    monitored.after(4.9)
    assert first in monitored.shown("gpu-0")
    assert not any(effect is NO_EXECUTE for _, _, effect in monitored.shown("gpu-0"))
    monitored.after(0.1)
    fatal = number in numbers(xids.Gravity.FATAL)
    assert (("xid", str(number), NO_EXECUTE) in monitored.shown("gpu-0")) is fatal
    assert first in monitored.shown("gpu-0")


def test_settings_can_turn_evictions_off_and_ignore_more_xids(tmp_path: pathlib.Path) -> None:
    monitored = MonitoredNode(tmp_path, dataclasses.replace(TERMS, evicts=False, ignored=frozenset({74})))
    monitored.report_xid(0, 79)
    monitored.report_xid(1, 74)
    monitored.after(60)
    assert {taint.effect for taints in monitored.context.taints().values() for taint in taints} == {NO_SCHEDULE}
    assert set(monitored.context.taints()) == {"gpu-0"}


def test_a_benign_xid_never_hides_a_grave_one_and_a_storm_is_one_fault(monitored: MonitoredNode) -> None:
    monitored.report_xid(0, 79, recovery=RESET)
    for number in (13, 48, 31, 74, *[79] * 50):
        monitored.report_xid(0, number)
    changes = monitored.context.rediscoveries
    monitored.report_xid(0, 79)
    assert monitored.context.rediscoveries == changes
    monitored.after(5)
    assert {taint for taint in monitored.shown("gpu-0") if taint[0] == "xid"} == {("xid", "79", NO_SCHEDULE), ("xid", "79", NO_EXECUTE)}


def test_a_fault_clears_only_when_the_recovery_action_is_done(monitored: MonitoredNode) -> None:
    monitored.report_xid(0, 95, recovery=RESET)
    monitored.after(600)
    assert monitored.shown("gpu-0")
    monitored.node.hardware.reset(monitored.gpus[0])
    monitored.after(1)
    monitored.after(4.9)
    assert monitored.shown("gpu-0"), "it has been well for less than it takes to be believed"
    monitored.after(0.1)
    assert not monitored.tainted()
    assert not any(monitored.context.taints().values())


def test_a_gpu_that_is_healthy_only_briefly_stays_tainted(monitored: MonitoredNode) -> None:
    for _ in range(5):
        monitored.report_xid(0, 48, recovery=RESET)
        monitored.after(4)
        monitored.node.hardware.reset(monitored.gpus[0])
        monitored.after(4)
    assert monitored.shown("gpu-0")


def test_an_xid_without_a_recovery_action_lasts_a_minute(monitored: MonitoredNode) -> None:
    monitored.report_xid(0, 110)
    monitored.after(0)
    monitored.after(59)
    assert monitored.shown("gpu-0")
    monitored.after(1)
    assert not monitored.tainted()


class Mute:
    """A GPU that does not tell what it asks for."""

    def __init__(self, hardware: port.GpuPort) -> None:
        self._hardware = hardware

    def __getattr__(self, call: str) -> object:
        return getattr(self._hardware, call)

    def recovery_action(self, gpu: port.GpuUuid) -> signals.RecoveryAction | None:
        self._hardware.recovery_action(gpu)
        return None


def test_without_recovery_actions_a_fault_lasts_until_the_gpu_returns(monitored: MonitoredNode) -> None:
    monitored.watch._hardware = Mute(monitored.node.hardware)  # type: ignore[assignment]
    monitored.report_xid(0, 48)
    monitored.after(100_000)
    assert monitored.shown("gpu-0")
    monitored.node.hardware.lose(monitored.gpus[0])
    monitored.after(1)
    monitored.node.hardware.reset(monitored.gpus[0])
    monitored.after(1)
    monitored.after(5)
    assert not monitored.tainted()


@pytest.mark.parametrize("order", list(itertools.permutations(("trouble", "events", "look", "reset"))), ids="-".join)
@pytest.mark.parametrize("trouble", ["recovery-action", "gpu-lost"])
def test_faults_last_until_the_reset_in_any_order_of_observations(monitored: MonitoredNode, trouble: str, order: tuple[str, ...]) -> None:
    uuid, hardware = monitored.gpus[0], monitored.node.hardware

    def events() -> None:
        monitored.watch.handle_event(signals.Event(gpu=uuid, kind=signals.EventKind.XID, xid=48))
        monitored.watch.handle_event(signals.Event(gpu=uuid, kind=signals.EventKind.DOUBLE_BIT_ECC))

    acts: Mapping[str, Callable[[], object]] = {
        "trouble": lambda: hardware.lose(uuid) if trouble == "gpu-lost" else hardware.report_xid(uuid, 154, recovery=RESET),
        "events": events,
        "look": monitored.watch.poll,
        "reset": lambda: hardware.reset(uuid),
    }
    expected: set[str] = set()
    is_seen = is_troubled = False
    for step in order:
        acts[step]()
        is_troubled = step == "trouble" or (is_troubled and step != "reset")
        if step == "look" and is_troubled:
            is_seen = True
            expected.add(trouble)
        if step == "events":
            expected |= {"xid", "ecc"}
        assert monitored.kinds() == expected, step
    if is_troubled:
        monitored.after(600)
        assert monitored.kinds() == {"xid", "ecc", trouble}
        hardware.reset(uuid)
        is_seen = True
    monitored.after(0)
    monitored.after(4.9)
    assert monitored.kinds() >= {"xid", "ecc"}, "the GPU has been well for less than settle"
    monitored.after(0.1)
    assert monitored.kinds() == (set() if is_seen else {"xid", "ecc"}), "events of a GPU that was never seen in trouble stand for hold"
    monitored.after(55)
    assert not monitored.kinds()


def test_an_xid_of_a_lost_gpu_clears_even_without_recovery_actions(monitored: MonitoredNode) -> None:
    monitored.watch._hardware = Mute(monitored.node.hardware)  # type: ignore[assignment]
    monitored.node.hardware.lose(monitored.gpus[0])
    monitored.after(1)
    monitored.report_xid(0, 79)
    monitored.node.hardware.reset(monitored.gpus[0])
    monitored.after(1)
    monitored.after(5)
    assert not monitored.tainted()


def test_an_xid_after_a_reset_is_a_new_fault(monitored: MonitoredNode) -> None:
    monitored.node.hardware.report_xid(monitored.gpus[0], 154, recovery=RESET)
    monitored.after(1)
    monitored.node.hardware.reset(monitored.gpus[0])
    monitored.after(1)
    monitored.report_xid(0, 48)
    monitored.report_xid(1, 48)
    monitored.after(0)
    monitored.after(59)
    assert monitored.shown("gpu-0") == {("xid", "48", NO_SCHEDULE)} == monitored.shown("gpu-1")
    monitored.after(1)
    assert not monitored.tainted()


def test_faults_survive_a_restart_and_are_compared_with_the_hardware(monitored: MonitoredNode) -> None:
    monitored.report_xid(0, 79, recovery=RESET)
    monitored.report_xid(1, 48, recovery=RESET)
    monitored.after(5)
    before = monitored.shown("gpu-0")
    monitored.node.hardware.reset(monitored.gpus[1])
    monitored.restart()
    assert monitored.shown("gpu-0") == before, "a fault that ended programs still does"
    monitored.after(5)
    assert monitored.tainted() == monitored.names(0)


def test_a_reboot_clears_all_faults(monitored: MonitoredNode) -> None:
    monitored.report_xid(0, 79, recovery=RESET)
    monitored.after(5)
    monitored.context.reboot("boot-2")
    monitored.node.hardware.reset(monitored.gpus[0])
    monitored.restart()
    monitored.after(60)
    assert not monitored.tainted()


def test_taints_of_an_earlier_watch_are_removed_when_monitoring_is_off(monitored: MonitoredNode) -> None:
    monitored.report_xid(0, 79)
    monitored.context.taint("gpu-1", devices.Taint(key="example.com/mine"))
    monitored.node.health = None
    monitored.node.restart()
    monitored.node.driver.start(monitored.context)
    monitored.node.driver.stop()
    assert {device for device, taints in monitored.context.taints().items() if taints} == {"gpu-1"}


def test_a_lost_gpu_taints_only_itself_and_stays_offered_for_evictions(monitored: MonitoredNode) -> None:
    everything = monitored.names(0) | monitored.names(1)
    monitored.node.hardware.lose(monitored.gpus[0])
    monitored.after(1)
    monitored.after(5)
    assert monitored.names(0) | monitored.names(1) == everything
    assert monitored.tainted() == monitored.names(0)
    assert monitored.shown("gpu-0-mig-1g5gb-19-6") == {("gpu-lost", "", NO_SCHEDULE), ("gpu-lost", "", NO_EXECUTE)}
    with pytest.raises(errors.DrakitError):
        monitored.node.prepare("gpu-0-mig-1g5gb-19-6")
    monitored.node.hardware.reset(monitored.gpus[0])
    monitored.after(1)
    monitored.after(5)
    assert not monitored.tainted()


def test_one_error_unrelated_to_the_gpu_changes_nothing(monitored: MonitoredNode) -> None:
    injector = fault_injection.Faults(monitored.node.choice.directory)
    for code in set(nvml_errors.Code) - {nvml_errors.Code.GPU_IS_LOST, nvml_errors.Code.NOT_FOUND, nvml_errors.Code.RESET_REQUIRED}:
        injector.arm(
            fault_injection.Fault(
                call="recovery_action", moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL, code=code
            )
        )
        monitored.after(1)
        assert not monitored.context.taints()


def test_a_reset_required_error_taints_the_gpu_with_action_reset(monitored: MonitoredNode) -> None:
    injector = fault_injection.Faults(monitored.node.choice.directory)
    fault = fault_injection.Fault(
        call="mig_mode", moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL, code=nvml_errors.Code.RESET_REQUIRED
    )
    injector.arm(fault)
    monitored.watch.poll()
    assert monitored.shown("gpu-0") == {("recovery-action", "reset", NO_SCHEDULE)}


def test_an_xid_of_an_instance_taints_its_partition_alone_and_ends_with_it(monitored: MonitoredNode) -> None:
    name = "gpu-0-mig-2g10gb-14-4"
    monitored.node.prepare(name)
    (instance,) = monitored.node.hardware.gpu_instances(monitored.gpus[0])
    monitored.report_xid(0, 48, instance_id=instance.id, recovery=signals.RecoveryAction.NONE)
    monitored.after(30)
    assert monitored.tainted() == {name}
    monitored.restart()
    assert monitored.tainted() == {name}
    monitored.node.unprepare()
    monitored.after(1)
    monitored.after(5)
    assert not monitored.tainted()


def test_a_fault_of_the_whole_gpu_reaches_all_even_if_nvml_names_an_instance(monitored: MonitoredNode) -> None:
    monitored.node.prepare("gpu-0-mig-2g10gb-14-4")
    (instance,) = monitored.node.hardware.gpu_instances(monitored.gpus[0])
    monitored.report_xid(0, 79, instance_id=instance.id)
    assert monitored.tainted() == monitored.names(0)


def test_partitions_that_are_offered_later_are_tainted_from_the_beginning(tmp_path: pathlib.Path) -> None:
    node = gpu_node.GpuNode(tmp_path / "machine", "dgx-a100-80gb")
    context = fake_context.FakeContext(tmp_path / "home")
    node.driver._context = context
    watch = monitor.HealthMonitor(node.hardware, context, prefix=gpu_driver.NAME, policy=TERMS)
    watch.poll()
    uuid = node.hardware.gpus()[0].uuid
    watch.handle_event(signals.Event(gpu=uuid, kind=signals.EventKind.XID, xid=48))
    for enabled in (False, True):
        node.hardware.set_mig_mode(uuid, enabled=enabled)
        offered = [device for device in node.driver.discover().devices if faults.affects("gpu-0", device.name)]
        assert offered
        assert all(device.taints for device in offered)
        before = context.rediscoveries
        watch.poll()
        assert context.rediscoveries > before, "a mode that an admin changed is news"


def test_devices_in_use_are_reported_to_the_kubelet_and_in_events(monitored: MonitoredNode) -> None:
    name = "gpu-0-mig-2g10gb-14-4"
    monitored.node.prepare(name)
    monitored.context.put(monitored.node.journal["a"].grant)  # type: ignore[arg-type]  # a grant of this driver's is one
    monitored.report_xid(0, 31)
    assert monitored.context.health_of(name) is None
    assert [event.message for _, event in monitored.context.events] == [f"{name}: Xid 31: a memory page fault."]
    monitored.report_xid(0, 79, recovery=RESET)
    monitored.report_xid(1, 48)
    monitored.after(1)
    result = monitored.context.health_of(name)
    assert result is not None
    assert result.health is contexts.Health.UNHEALTHY
    assert "Xid 79: the GPU has fallen off the bus" in result.message
    monitored.node.hardware.reset(monitored.gpus[0])
    monitored.after(1)
    monitored.after(5)
    assert monitored.context.health_of(name) == contexts.HealthReport(device=name, health=contexts.Health.HEALTHY)
    assert {report.device for report in monitored.context.reports} == {name}
    assert len(monitored.context.events) == 2


def test_added_and_removed_gpus_and_a_driver_reload_are_published(monitored: MonitoredNode) -> None:
    second = monitored.gpus[1]
    mishaps: list[Callable[[], None]] = [
        lambda: monitored.node.hardware.unplug(second),
        lambda: monitored.node.hardware.plug(second),
        monitored.node.hardware.reload,
    ]
    for act in mishaps:
        before = monitored.context.rediscoveries
        act()
        assert monitored.watch.poll(), "events have to be opened anew"
        assert monitored.context.rediscoveries > before
        assert not monitored.watch.poll()


def test_removing_a_gpu_removes_its_faults(monitored: MonitoredNode) -> None:
    monitored.report_xid(1, 79, recovery=RESET)
    monitored.after(5)
    monitored.node.hardware.unplug(monitored.gpus[1])
    monitored.after(5)
    assert not any(monitored.context.taints().values())
    assert not monitored.names(1)


def test_a_gpu_that_cannot_use_the_fabric_is_tainted_until_it_can(tmp_path: pathlib.Path) -> None:
    hardware = mock_gpus.MockGpus(machines.Choice(name="dgx-h100", directory=tmp_path / "machine", owner="node-a"))
    library = nvml_library.NvmlLibrary(hardware)
    seen = nvml.NvmlGpus(library.load, system=host.Host(nvml_library.host_root(tmp_path / "root", hardware)))
    context, now = fake_context.FakeContext(tmp_path / "home"), [1000.0]
    watch = monitor.HealthMonitor(seen, context, prefix=gpu_driver.NAME, policy=TERMS, now=lambda: now[0])
    watch.poll()
    assert not context.taints()
    library.fabric_masks[hardware.gpus()[3].uuid] = 0x4AA
    for _ in range(3):
        now[0] += 5
        watch.poll()
        result = {device: [(taint.key, taint.value, taint.effect) for taint in taints] for device, taints in context.taints().items()}
        assert result == {"gpu-3": [("gpu.drakit.dev/fabric", "no-partition", NO_SCHEDULE)]}
    again = monitor.HealthMonitor(seen, context, prefix=gpu_driver.NAME, policy=TERMS, now=lambda: now[0])
    library.fabric_masks.clear()
    for _ in range(2):
        now[0] += 5
        again.poll()
    assert not any(context.taints().values())
