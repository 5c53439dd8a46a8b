"""A GPU that answers with an error while the machine has it: tainted, offered and counted until it answers again or is taken out."""

import pathlib

import pytest

from drakit import machines
from drakit.core import context as contexts
from drakit.core import device as devices
from drakit.core import errors
from drakit.testing import fake_context
from drakit_gpu import driver as gpu_driver
from drakit_gpu import host, nvml, nvml_errors
from drakit_gpu.health import faults, monitor
from drakit_gpu.mock import fault_injection, mock_gpus
from fakes import gpu_node, log_lines, nvml_library

NO_SCHEDULE, NO_EXECUTE = devices.TaintEffect.NO_SCHEDULE, devices.TaintEffect.NO_EXECUTE
TERMS = faults.HealthPolicy(settle=5.0, hold=60.0)
LOST = {("gpu.drakit.dev/gpu-lost", NO_SCHEDULE), ("gpu.drakit.dev/gpu-lost", NO_EXECUTE)}
GPU_IS_LOST, UNKNOWN = 15, 999
OF_A_GPU = [code for code in nvml_errors.Code if code not in nvml_errors.SESSION_ERRORS | {nvml_errors.Code.RESET_REQUIRED}]


class Watched:
    """A driver and its watch over two A100 behind a library; ``now`` is the time."""

    def __init__(self, directory: pathlib.Path, *, sysfs: bool = True) -> None:
        self.hardware = mock_gpus.MockGpus(machines.Choice(name="dgx-a100-40gb-2gpu", directory=directory / "machine", owner="node-a"))
        self.library = nvml_library.NvmlLibrary(self.hardware)
        self.root = nvml_library.host_root(directory / "root", self.hardware)
        if not sysfs:
            (self.root / "sys").rename(self.root / "gone")
        self.port = nvml.NvmlGpus(self.library.load, system=host.Host(self.root))
        self.context = fake_context.FakeContext(directory / "home")
        self.driver = gpu_driver.GpuDriver(self.port, health=TERMS)
        self.driver._context = self.context
        self.now = 1000.0
        self.watch = monitor.HealthMonitor(self.port, self.context, prefix=gpu_driver.NAME, policy=TERMS, now=lambda: self.now)
        self.watch.poll()
        self.driver.discover()

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.watch.poll()

    def offered(self) -> dict[str, set[tuple[str, devices.TaintEffect]]]:
        """The taints of the devices that are offered."""
        return {device.name: {(taint.key, taint.effect) for taint in device.taints} for device in self.driver.discover().devices}


@pytest.fixture
def watched(tmp_path: pathlib.Path) -> Watched:
    return Watched(tmp_path)


@pytest.mark.parametrize("code", [GPU_IS_LOST, UNKNOWN, 14])
def test_a_gpu_that_answers_only_cached_queries_is_lost(watched: Watched, code: int) -> None:
    """MIG mode and field values are answered from memory: nvml.h documents no GPU_IS_LOST for them."""
    watched.library.returns["nvmlDeviceGetMemoryInfo"] = code
    watched.after(1)
    watched.after(5)
    offered = watched.offered()
    assert len(offered) == 50
    assert all(taints == LOST for taints in offered.values())
    del watched.library.returns["nvmlDeviceGetMemoryInfo"]
    watched.after(1)
    watched.after(5)
    assert not any(watched.offered().values())


@pytest.mark.parametrize("sysfs", [True, False])
def test_a_lost_gpu_stays_offered_and_is_untainted_once_it_answers(tmp_path: pathlib.Path, *, sysfs: bool) -> None:
    watched = Watched(tmp_path, sysfs=sysfs)
    uuid = watched.hardware.gpus()[1].uuid
    watched.hardware.lose(uuid)
    for _ in range(50):
        watched.after(5)
        assert len(watched.offered()) == 50
    assert {name for name, taints in watched.offered().items() if taints == LOST} == {name for name in watched.offered() if "gpu-1" in name}
    watched.hardware.reset(uuid)
    watched.after(1)
    watched.after(5)
    assert not any(watched.offered().values())
    assert not any(watched.context.taints().values())


class Silenced:
    """A watch over two mock A100, driven by hand, whose calls can be made to fail; ``now`` is the time."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.node = gpu_node.GpuNode(directory / "machine")
        self.context = fake_context.FakeContext(directory / "home")
        self.now = 1000.0
        self.watch = monitor.HealthMonitor(self.node.hardware, self.context, prefix=gpu_driver.NAME, policy=TERMS, now=lambda: self.now)
        self.watch.poll()

    def after(self, seconds: float, *, code: nvml_errors.Code | None = None, call: str = "ping") -> set[devices.TaintEffect]:
        """The effects of the taints of gpu-0 after a look at which the first of the calls fails with the code."""
        self.now += seconds
        if code is not None:
            fault = fault_injection.Fault(call=call, moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL, code=code)
            fault_injection.Faults(self.node.choice.directory).arm(fault)
        self.watch.poll()
        return {taint.effect for taint in self.context.taints().get("gpu-0", ()) if taint.key == "gpu.drakit.dev/gpu-lost"}


@pytest.fixture
def silenced(tmp_path: pathlib.Path) -> Silenced:
    return Silenced(tmp_path)


@pytest.mark.parametrize("code", OF_A_GPU)
def test_any_error_of_a_plugged_gpu_is_its_loss(silenced: Silenced, code: nvml_errors.Code) -> None:
    assert silenced.after(5, code=code) == {NO_SCHEDULE}
    assert set(silenced.context.taints()) == {"gpu-0"}


def test_one_failed_poll_evicts_no_pod_however_late_the_next_poll_is(silenced: Silenced) -> None:
    """The watch looks every 5 s and a fault settles in 5 s: a second of silence spans that by itself."""
    assert silenced.after(5, code=nvml_errors.Code.UNKNOWN) == {NO_SCHEDULE}
    assert silenced.after(5.9) == {NO_SCHEDULE}
    assert silenced.after(4) == {NO_SCHEDULE}
    assert silenced.after(1) == set()


def test_a_lost_gpu_ends_pods_only_while_it_does_not_answer(silenced: Silenced) -> None:
    assert silenced.after(5, code=nvml_errors.Code.GPU_IS_LOST) == {NO_SCHEDULE}
    assert silenced.after(5, code=nvml_errors.Code.GPU_IS_LOST) == {NO_SCHEDULE, NO_EXECUTE}
    assert silenced.after(1) == {NO_SCHEDULE}, "it answers"


def test_two_separate_silences_do_not_add_up_to_an_eviction(silenced: Silenced) -> None:
    assert silenced.after(5, code=nvml_errors.Code.GPU_IS_LOST) == {NO_SCHEDULE}
    assert silenced.after(1) == {NO_SCHEDULE}
    assert silenced.after(4.5, code=nvml_errors.Code.GPU_IS_LOST) == {NO_SCHEDULE}
    assert silenced.after(4.9, code=nvml_errors.Code.GPU_IS_LOST) == {NO_SCHEDULE}
    assert silenced.after(0.2, code=nvml_errors.Code.GPU_IS_LOST) == {NO_SCHEDULE, NO_EXECUTE}


@pytest.mark.parametrize("code", ["TIMEOUT", "IN_USE", "NOT_READY", "INVALID_STATE", "INSUFFICIENT_RESOURCES"])
def test_a_gpu_that_is_only_busy_never_ends_pods(silenced: Silenced, code: str) -> None:
    for _ in range(10):
        assert silenced.after(5, code=nvml_errors.Code[code]) == {NO_SCHEDULE}
    assert silenced.after(5, code=nvml_errors.Code.GPU_IS_LOST) == {NO_SCHEDULE}, "lost only now"
    assert silenced.after(5, code=nvml_errors.Code.GPU_IS_LOST) == {NO_SCHEDULE, NO_EXECUTE}


@pytest.mark.parametrize(
    "code", [code for code in nvml_errors.Code if code not in {nvml_errors.Code.GPU_IS_LOST, nvml_errors.Code.NOT_FOUND}]
)
@pytest.mark.parametrize("call", ["mig_mode", "fabric", "recovery_action"])
def test_one_failing_query_does_not_make_an_answering_gpu_lost(silenced: Silenced, code: nvml_errors.Code, call: str) -> None:
    for _ in range(3):
        assert silenced.after(5, code=code, call=call) == set()


def test_a_gpu_whose_health_is_incomplete_is_found_again(silenced: Silenced) -> None:
    for _ in range(2):
        silenced.after(5, code=nvml_errors.Code.GPU_IS_LOST)
    assert silenced.after(1, code=nvml_errors.Code.UNKNOWN, call="mig_mode") == {NO_SCHEDULE}


@pytest.mark.parametrize("code", [code for code in nvml_errors.Code if code in nvml_errors.SESSION_ERRORS])
def test_a_session_error_of_one_gpu_alone_taints_that_gpu(silenced: Silenced, code: nvml_errors.Code) -> None:
    for _ in range(3):
        assert silenced.after(5, code=code) == {NO_SCHEDULE}
    assert set(silenced.context.taints()) == {"gpu-0"}


@pytest.mark.parametrize("code", [code for code in nvml_errors.Code if code in nvml_errors.SESSION_ERRORS])
def test_an_error_of_library_or_kernel_driver_taints_no_gpu(tmp_path: pathlib.Path, code: nvml_errors.Code) -> None:
    node = gpu_node.GpuNode(tmp_path / "machine")
    context = fake_context.FakeContext(tmp_path / "home")
    watch = monitor.HealthMonitor(node.hardware, context, prefix=gpu_driver.NAME, policy=TERMS)
    fault_injection.Faults(node.choice.directory).arm(
        fault_injection.Fault(call="ping", moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL, code=code, times=2)
    )
    watch.poll()
    assert not context.taints()


def test_one_error_stops_new_pods_and_evicts_none(watched: Watched) -> None:
    watched.library.returns["nvmlDeviceGetMemoryInfo"] = UNKNOWN
    watched.after(1)
    del watched.library.returns["nvmlDeviceGetMemoryInfo"]
    for _ in range(3):
        watched.after(2)
        assert NO_EXECUTE not in {effect for taints in watched.offered().values() for _, effect in taints}
    watched.after(5)
    assert not any(watched.offered().values())


def test_kubelet_and_pods_get_the_reason_and_the_recovery(tmp_path: pathlib.Path) -> None:
    node = gpu_node.GpuNode(tmp_path / "machine")
    context = fake_context.FakeContext(tmp_path / "home")
    now = [1000.0]
    watch = monitor.HealthMonitor(node.hardware, context, prefix=gpu_driver.NAME, policy=TERMS, now=lambda: now[0])
    watch.poll()
    name = "gpu-0-mig-2g10gb-14-4"
    node.prepare(name)
    context.put(node.journal["a"].grant)  # type: ignore[arg-type]  # a grant of this driver's is one
    node.hardware.lose(node.hardware.gpus()[0].uuid)
    watch.poll()
    result = context.health_of(name)
    assert result is not None
    assert result.health is contexts.Health.UNHEALTHY
    assert "nvmlDeviceGetMemoryInfo: GPU_IS_LOST" in result.message
    assert ["GPU_IS_LOST" in event.message for _, event in context.events] == [True]
    node.hardware.reset(node.hardware.plugged()[0].uuid)
    for _ in range(2):
        now[0] += 5
        watch.poll()
    assert context.health_of(name) == contexts.HealthReport(device=name, health=contexts.Health.HEALTHY)


def test_a_search_by_uuid_that_meets_a_lost_gpu_taints_no_other(watched: Watched) -> None:
    first, second = watched.hardware.gpus()
    watched.hardware.lose(first.uuid)
    watched.library.handles_end()
    watched.port.ping(second)
    with pytest.raises(nvml_errors.CallError, match="GPU_IS_LOST"):
        watched.port.ping(first)


def test_a_gpu_missing_in_sysfs_and_in_the_library_is_gone(tmp_path: pathlib.Path) -> None:
    watched = Watched(tmp_path, sysfs=False)
    first, second = watched.hardware.gpus()
    watched.hardware.lose(first.uuid)
    watched.hardware.unplug(second.uuid)
    assert watched.port.is_plugged(first)
    assert not watched.port.is_plugged(second)


def test_every_gpu_that_the_library_counts_is_accounted_for(watched: Watched, logged: log_lines.LogLines) -> None:
    first, second = watched.hardware.gpus()
    watched.hardware.lose(first.uuid)
    for _ in range(3):
        census = watched.port.census()
    assert [gpu.uuid for gpu in census.gpus] == [second.uuid]
    assert [(silent_gpu.index, silent_gpu.error) for silent_gpu in census.silent] == [
        (0, "nvmlDeviceGetHandleByIndex: GPU_IS_LOST (GPU is lost)")
    ]
    assert len([record for record in logged.lines if "GPU does not answer" in record["event"]]) == 1, "said once, not at every look"


def test_a_start_with_lost_gpus_names_them_and_offers_the_others(tmp_path: pathlib.Path) -> None:
    node = gpu_node.GpuNode(tmp_path / "machine")
    first, second = node.hardware.gpus()
    node.hardware.lose(first.uuid)
    assert {device.name.partition("-mig")[0] for device in node.driver.discover().devices} == {"gpu-1"}
    (left_out,) = node.driver.not_offered()
    assert (left_out.name, left_out.reason, left_out.is_faulty) == ("index 0", "nvmlDeviceGetHandleByIndex: GPU_IS_LOST", True)
    node.hardware.lose(second.uuid)
    with pytest.raises(errors.HardwareError, match=r"no GPU answers \(2 found\): index 0, index 1: .*GPU_IS_LOST"):
        node.restart().discover()


def test_a_gpu_that_was_lost_at_the_start_is_offered_once_it_answers(tmp_path: pathlib.Path) -> None:
    node = gpu_node.GpuNode(tmp_path / "machine")
    context = fake_context.FakeContext(tmp_path / "home")
    uuid = node.hardware.gpus()[1].uuid
    node.hardware.lose(uuid)
    watch = monitor.HealthMonitor(node.hardware, context, prefix=gpu_driver.NAME, policy=TERMS)
    watch.poll()
    before = context.rediscoveries
    node.hardware.reset(uuid)
    for _ in range(monitor._POLLS_BETWEEN_REFRESHES):
        watch.poll()
    assert context.rediscoveries > before


def test_partitions_of_a_gpu_that_answers_can_be_made_while_another_gpu_is_lost(watched: Watched) -> None:
    """NVML finds no GPU by UUID while one is lost, and a change of MIG mode ends the handle of the GPU."""
    first, second = watched.hardware.gpus()
    watched.hardware.lose(first.uuid)
    watched.library.handles_end()
    assert watched.port.mig_mode(second.uuid) is not None
    assert watched.port.gpu(second.uuid) is not None
    with pytest.raises(nvml_errors.CallError, match="GPU_IS_LOST"):
        watched.port.mig_mode(first.uuid)


def test_a_restart_keeps_the_claimed_devices_of_a_lost_gpu_with_their_taint(tmp_path: pathlib.Path) -> None:
    node = gpu_node.GpuNode(tmp_path / "machine", health=TERMS)
    context = fake_context.FakeContext(tmp_path / "home")
    lost = node.hardware.gpus()[1].uuid
    name = "gpu-1-mig-2g10gb-14-4"
    node.prepare(name)
    context.put(node.journal["a"].grant)  # type: ignore[arg-type]  # a grant of this driver's is one
    node.hardware.lose(lost)
    now = 1000.0
    watch = monitor.HealthMonitor(node.hardware, context, prefix=gpu_driver.NAME, policy=TERMS, now=lambda: now)
    node.restart()._context = context
    for _ in range(2):
        watch.poll()
        now += 5
    effects = {
        device.name: {taint.effect for taint in device.taints} for device in node.driver.discover().devices if "gpu-1" in device.name
    }
    assert effects == {name: {NO_SCHEDULE, NO_EXECUTE}}
    node.hardware.unplug(lost)
    watch.poll()
    assert not [device for device in node.driver.discover().devices if "gpu-1" in device.name]
    assert not any(context.taints().values())


def test_a_gpu_that_fails_discovery_with_the_same_error_is_logged_once(watched: Watched, logged: log_lines.LogLines) -> None:
    watched.library.returns["nvmlDeviceGetMigMode"] = UNKNOWN
    for _ in range(3):
        watched.driver.discover()
    assert len([record for record in logged.lines if record["event"] == "GPU does not answer"]) == 2, "one line for each GPU"
