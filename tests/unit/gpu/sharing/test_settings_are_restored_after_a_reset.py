"""What a reset or an admin's change of MIG mode takes from prepared claims comes back while the driver runs, and reaches nobody else's GPU."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import cast

import pytest

from drakit.core import claim, errors
from drakit.core import driver as drivers
from drakit.testing import fake_context
from drakit_gpu import config as gpu_config
from drakit_gpu import driver as gpu_driver
from drakit_gpu import identity, port
from drakit_gpu.health import faults, monitor, signals
from drakit_gpu.mock import fault_injection
from drakit_gpu.sharing import restore
from drakit_gpu.sharing.mps import pod_daemons
from fakes import gpu_node, log_lines, mps_daemon, mps_pods, waits, watched_driver

MINE, FREE = 1, 0
FAST = faults.HealthPolicy(settle=0.0, hold=0.0, event_wait=0.05, poll=0.1)
LONG = gpu_config.GpuConfig(
    sharing=gpu_config.Sharing(
        strategy=gpu_config.Strategy.TIME_SLICING, time_slicing_config=gpu_config.TimeSlicing(interval=port.TimeSlice.LONG)
    )
)
MPS = gpu_config.GpuConfig(sharing=gpu_config.Sharing(strategy=gpu_config.Strategy.MPS))
Mishap = Callable[[gpu_node.GpuNode, port.GpuUuid], None]


@pytest.fixture
def node(tmp_path: pathlib.Path) -> gpu_node.GpuNode:
    made = gpu_node.GpuNode(tmp_path / "machine", "server-h100-pcie")
    made.prepare(f"gpu-{MINE}", config=LONG, config_source=claim.ConfigSource.CLAIM)
    return made


@pytest.fixture
def context(node: gpu_node.GpuNode, tmp_path: pathlib.Path) -> fake_context.FakeContext:
    return fake_context.FakeContext(tmp_path, boot_id=node.hardware.boot_id(), grants=[granted(node)])


def granted(node: gpu_node.GpuNode) -> drivers.Grant[object]:
    return cast("drivers.Grant[object]", node.journal["a"].grant)


def uuid(node: gpu_node.GpuNode, minor: int = MINE) -> port.GpuUuid:
    return node.hardware.gpus()[minor].uuid


@contextlib.contextmanager
def at_work(crew: restore.RestoreWorker) -> Iterator[None]:
    crew.start()
    try:
        yield
    finally:
        crew.stop()


def has_its_slice(node: gpu_node.GpuNode) -> bool:
    return node.hardware.time_slice(uuid(node)) is port.TimeSlice.LONG


def restorer(node: gpu_node.GpuNode, context: fake_context.FakeContext) -> restore.Restorer:
    return restore.Restorer(gpu_node.stepping(node.hardware, node.steps), context, pod_daemons.PodDaemons())


@contextlib.contextmanager
def running(node: gpu_node.GpuNode, context: fake_context.FakeContext, resources: gpu_driver.HostResources | None = None) -> Iterator[None]:
    """A driver that serves and watches."""
    with watched_driver.watching(gpu_driver.GpuDriver(node.hardware, intents=node.intents, health=FAST, resources=resources), context):
        yield


def listening(node: gpu_node.GpuNode, context: fake_context.FakeContext) -> None:
    """Strike the GPU that nobody uses until the watch hears it: events from before it began are not for it."""

    def is_heard() -> bool:
        node.hardware.report_xid(uuid(node, FREE), 48)
        return f"gpu-{FREE}" in context.taints()

    assert waits.eventually(is_heard)


def flip(node: gpu_node.GpuNode, gpu: port.GpuUuid) -> None:
    node.hardware.set_mig_mode(gpu, enabled=True)
    node.hardware.set_mig_mode(gpu, enabled=False)


def reset(node: gpu_node.GpuNode, gpu: port.GpuUuid) -> None:
    node.hardware.reset(gpu)


def reload(node: gpu_node.GpuNode, _: port.GpuUuid) -> None:
    node.hardware.reload()


@pytest.mark.parametrize("mishap", [flip, reset, reload], ids=["mig-mode", "reset", "reload"])
def test_a_running_driver_restores_a_time_slice_with_a_log_line(
    node: gpu_node.GpuNode, context: fake_context.FakeContext, mishap: Mishap, logged: log_lines.LogLines
) -> None:
    logged.show_info()
    with running(node, context):
        listening(node, context)
        logged.clear()
        mishap(node, uuid(node))
        assert waits.eventually(lambda: has_its_slice(node))
        assert waits.eventually(lambda: "claim settings restored" in logged.text)
    (line,) = (record for record in logged.lines if record["event"] == "claim settings restored")
    assert (line["gpu"], line["claim"]) == (uuid(node), "default/claim-a")
    assert "time slice Long and compute mode Default" in line["settings"]


def polled_once(node: gpu_node.GpuNode, context: fake_context.FakeContext) -> tuple[monitor.HealthMonitor, list[set[port.GpuUuid]]]:
    """A watch that has looked once, driven by hand, and what it says of lost settings."""
    reported: list[set[port.GpuUuid]] = []

    def note(gpus: Collection[port.GpuUuid]) -> None:
        reported.append(set(gpus))

    watch = monitor.HealthMonitor(node.hardware, context, prefix=gpu_driver.NAME, policy=FAST, lost_settings=note)
    watch.poll()
    return watch, reported


def event(gpu: port.GpuUuid, kind: signals.EventKind) -> signals.Event:
    return signals.Event(gpu=gpu, kind=kind)


@pytest.mark.parametrize("kind", [signals.EventKind.MIG, signals.EventKind.RECOVERY, signals.EventKind.UNAVAILABLE])
def test_an_event_that_may_clear_settings_is_reported_once_for_its_gpu(
    node: gpu_node.GpuNode, context: fake_context.FakeContext, kind: signals.EventKind
) -> None:
    watch, reported = polled_once(node, context)
    watch.handle_event(event(uuid(node), kind))
    watch.poll()
    watch.poll()
    assert reported == [{uuid(node)}]


def test_creating_and_deleting_instances_is_no_loss_of_settings(node: gpu_node.GpuNode, context: fake_context.FakeContext) -> None:
    node.hardware.set_mig_mode(uuid(node, FREE), enabled=True)
    watch, reported = polled_once(node, context)
    watch.handle_event(event(uuid(node, FREE), signals.EventKind.MIG))
    watch.poll()
    assert reported == []
    assert context.rediscoveries == 1, "they are news all the same"
    node.hardware.set_mig_mode(uuid(node, FREE), enabled=False)
    watch.poll()
    assert reported == [{uuid(node, FREE)}], "a change of the mode may be one"


def test_a_recovered_gpu_is_reported_once_it_answers(node: gpu_node.GpuNode, context: fake_context.FakeContext) -> None:
    watch, reported = polled_once(node, context)
    gpu = uuid(node)
    node.hardware.lose(gpu)
    watch.handle_event(event(gpu, signals.EventKind.UNAVAILABLE))
    watch.poll()
    assert reported == []
    node.hardware.reset(gpu)
    watch.poll()
    assert reported == [{gpu}]


def test_a_recovery_without_an_event_is_detected_by_polling(node: gpu_node.GpuNode, context: fake_context.FakeContext) -> None:
    watch, reported = polled_once(node, context)
    node.hardware.report_xid(uuid(node), 48, recovery=signals.RecoveryAction.RESET)
    watch.poll()
    assert reported == []
    node.hardware.reset(uuid(node))
    watch.poll()
    assert reported == [{uuid(node)}]


def test_healthy_hardware_reports_no_lost_settings(node: gpu_node.GpuNode, context: fake_context.FakeContext) -> None:
    watch, reported = polled_once(node, context)
    for _ in range(30):
        watch.poll()
    assert reported == []


def settings_calls(node: gpu_node.GpuNode) -> list[str]:
    return [name for name in node.steps.names if name.startswith("before set_")]


def test_applying_again_is_idempotent_and_touches_no_gpu_that_no_claim_uses(
    node: gpu_node.GpuNode, context: fake_context.FakeContext
) -> None:
    node.steps.names.clear()
    again = restorer(node, context)
    assert again.restore({uuid(node, FREE)}) == frozenset()
    assert settings_calls(node) == []
    node.hardware.reset(uuid(node))
    for _ in range(2):
        assert again.restore({uuid(node), uuid(node, FREE)}) == frozenset()
        assert has_its_slice(node)
    assert settings_calls(node) == ["before set_time_slice"] * 2
    assert set().union(*context.held) == set(granted(node).device.lock_names)


class Leaving(fake_context.FakeContext):
    """A claim is unprepared while its GPU's lock is waited for."""

    @contextlib.contextmanager
    def hold(self, lock_names: Iterable[str], wanted: Callable[[], bool] | None = None) -> Iterator[None]:
        for grant in self.grants():
            self.remove(grant)
        with super().hold(lock_names, wanted):
            yield


def test_a_claim_released_during_the_wait_for_its_lock_is_skipped(node: gpu_node.GpuNode, tmp_path: pathlib.Path) -> None:
    leaving = Leaving(tmp_path, boot_id=node.hardware.boot_id(), grants=[granted(node)])
    node.unprepare()
    node.steps.names.clear()
    assert restorer(node, leaving).restore({uuid(node)}) == frozenset()
    assert settings_calls(node) == []
    assert node.hardware.time_slice(uuid(node)) is port.TimeSlice.DEFAULT


def test_settings_wait_while_an_admin_has_the_gpu_in_mig_mode(
    node: gpu_node.GpuNode, context: fake_context.FakeContext, logged: log_lines.LogLines
) -> None:
    node.hardware.set_mig_mode(uuid(node), enabled=True)
    node.steps.names.clear()
    assert restorer(node, context).restore({uuid(node)}) == frozenset(), "the next change of the mode is waited for"
    assert settings_calls(node) == []
    assert "claim settings wait: MIG mode is on" in logged.text


def test_a_failed_restoration_is_logged_and_retried_until_it_succeeds(
    node: gpu_node.GpuNode, context: fake_context.FakeContext, logged: log_lines.LogLines
) -> None:
    node.hardware.reset(uuid(node))
    injector = fault_injection.Faults(node.choice.directory)
    injector.arm(
        fault_injection.Fault(call="set_time_slice", moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL, times=2)
    )
    crew = restore.RestoreWorker(restorer(node, context), pause=0.01)
    with at_work(crew):
        crew.enqueue([uuid(node)])
        assert waits.eventually(lambda: has_its_slice(node))
    failed = [record["claim"] for record in logged.lines if record["event"] == "restoring claim settings failed"]
    assert failed == ["default/claim-a"] * 2


def test_an_exception_for_one_claim_stops_no_other_restoration(
    node: gpu_node.GpuNode, context: fake_context.FakeContext, logged: log_lines.LogLines
) -> None:
    left = [2]

    def step(name: str) -> None:
        if "set_time_slice" in name and left[0]:
            left[0] -= 1
            raise ValueError("a bug")

    node.hardware.reset(uuid(node))
    crew = restore.RestoreWorker(restore.Restorer(gpu_node.stepping(node.hardware, step), context, pod_daemons.PodDaemons()), pause=0.01)
    with at_work(crew):
        crew.enqueue([uuid(node)])
        assert waits.eventually(lambda: has_its_slice(node))
    assert logged.text.count("ValueError: a bug") == 2


class BuggySite(fake_context.FakeContext):
    """A context that cannot list its grants the first times it is asked, for a reason nobody thought of."""

    bugs = 2

    def grants(self) -> Sequence[drivers.Grant[object]]:
        if self.bugs:
            self.bugs -= 1
            raise ValueError("a bug")
        return super().grants()


def test_an_exception_in_listing_claims_does_not_end_the_thread(
    node: gpu_node.GpuNode, tmp_path: pathlib.Path, logged: log_lines.LogLines
) -> None:
    node.hardware.reset(uuid(node))
    context = BuggySite(tmp_path, boot_id=node.hardware.boot_id(), grants=[granted(node)])
    crew = restore.RestoreWorker(restorer(node, context), pause=0.01)
    with at_work(crew):
        crew.enqueue([uuid(node)])
        assert waits.eventually(lambda: has_its_slice(node))
    assert logged.text.count("listing prepared claims failed") == 2


def test_a_hanging_call_blocks_neither_the_watch_nor_the_stop(node: gpu_node.GpuNode, context: fake_context.FakeContext) -> None:
    injector = fault_injection.Faults(node.choice.directory)
    with running(node, context):
        listening(node, context)
        injector.arm(fault_injection.Fault(call="set_time_slice", moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.HANG))
        node.hardware.reset(uuid(node))
        assert waits.eventually(lambda: bool(injector.stalled()))
        node.hardware.lose(uuid(node, FREE))
        assert waits.eventually(lambda: any(taint.key.endswith("gpu-lost") for taint in context.taints().get(f"gpu-{FREE}", ())))
        changed = context.rediscoveries
        node.hardware.set_mig_mode(uuid(node), enabled=True)
        assert waits.eventually(lambda: context.rediscoveries > changed)
    injector.disarm()


@pytest.fixture
def short() -> Iterator[pathlib.Path]:
    """A folder with a short path, because MPS has a socket in it."""
    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        yield pathlib.Path(folder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MpsNode:
    """A node with one prepared claim that shares its GPU by MPS."""

    folder: pathlib.Path
    node: gpu_node.GpuNode
    context: fake_context.FakeContext
    around: gpu_driver.HostResources

    @property
    def kubelet(self) -> mps_pods.FakePods:
        return cast("mps_pods.FakePods", self.around.daemons.pods)

    def evict(self) -> None:
        """End the daemon's pod, which the kubelet does not start again."""
        (name,) = self.kubelet.pods
        self.kubelet.evict(name)
        assert not alive(self.folder)

    def is_served(self) -> bool:
        """Whether the claim's daemon answers."""
        try:
            self.around.daemons.check(identity.Identity.from_record(granted(self.node).intent).holder)
        except errors.HardwareError:
            return False
        return True


@pytest.fixture
def mps_claim(short: pathlib.Path) -> Iterator[MpsNode]:
    with mps_pods.daemons(short, mps_daemon.install(short / "root")) as daemons:
        around = gpu_driver.HostResources(daemons=daemons)
        node = gpu_node.GpuNode(short / "machine", "server-h100-pcie", resources=around)
        node.prepare(f"gpu-{MINE}", config=MPS, config_source=claim.ConfigSource.CLAIM)
        context = fake_context.FakeContext(short, boot_id=node.hardware.boot_id(), grants=[granted(node)])
        yield MpsNode(folder=short, node=node, context=context, around=around)
        node.unprepare()
        assert not alive(short)


def test_a_dead_mps_daemon_is_restarted_and_a_running_one_is_kept(mps_claim: MpsNode) -> None:
    node, folder = mps_claim.node, mps_claim.folder
    with running(node, mps_claim.context, mps_claim.around):
        listening(node, mps_claim.context)
        before = alive(folder)
        node.hardware.reset(uuid(node))
        assert waits.eventually(lambda: node.hardware.compute_mode(uuid(node)) is port.ComputeMode.EXCLUSIVE_PROCESS)
        assert alive(folder) == before, "it was not asked to end"
        mps_claim.evict()
        node.hardware.reset(uuid(node))
        assert waits.eventually(mps_claim.is_served)
        assert not alive(folder) & before


def test_a_repeated_prepare_and_a_start_of_the_driver_end_no_daemon_that_is_slow(mps_claim: MpsNode) -> None:
    node, before = mps_claim.node, alive(mps_claim.folder)
    for pid in before:
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(errors.HardwareError, match="is left running for its pods"):
        node.driver.prepare(node.journal["a"].grant)
    with running(node, mps_claim.context, mps_claim.around):
        assert alive(mps_claim.folder) == before
    assert alive(mps_claim.folder) == before
    for pid in before:
        os.kill(pid, signal.SIGCONT)
    assert node.driver.prepare(node.journal["a"].grant).record == node.journal["a"].grant.record


def test_a_daemon_missing_from_the_restored_intent_stops_with_its_claim(mps_claim: MpsNode) -> None:
    grant = mps_claim.node.journal["a"].grant
    mps_claim.node.driver.unprepare(dataclasses.replace(grant, intent=mps_claim.node.driver.recall(grant)))
    assert not alive(mps_claim.folder)


def test_a_daemon_whose_pod_cannot_be_created_when_the_driver_starts_is_tried_again(mps_claim: MpsNode, logged: log_lines.LogLines) -> None:
    kubelet = mps_claim.kubelet
    mps_claim.evict()
    kubelet.away = True
    with running(mps_claim.node, mps_claim.context, mps_claim.around):
        assert "the pod of the claim's MPS daemon cannot be created" in str([record.get("error") for record in logged.lines])
        kubelet.away = False
        assert waits.eventually(mps_claim.is_served)


def alive(folder: pathlib.Path) -> set[int]:
    return {process.pid for running in mps_pods.living(folder / "mps").values() for process in running}
