"""The watch in a thread, as a node runs it: it receives events, survives errors without spinning, and ends within seconds."""

import io
import pathlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from drakit import machines
from drakit.node import background, timing
from drakit.telemetry import logs
from drakit.testing import fake_context
from drakit_gpu import driver as gpu_driver
from drakit_gpu import host, nvml, port
from drakit_gpu.health import faults, signals
from drakit_gpu.mock import fault_injection, mock_gpus
from fakes import gpu_node, nvml_library, waits, watched_driver

MACHINE = "dgx-a100-40gb-2gpu"
WATCHING = faults.HealthPolicy(settle=0.0, hold=0.0, event_wait=0.05, poll=0.1)


@pytest.fixture
def choice(tmp_path: pathlib.Path) -> machines.Choice:
    return machines.Choice(name=MACHINE, directory=tmp_path / "machine", owner="node-a")


@pytest.fixture
def hardware(choice: machines.Choice) -> mock_gpus.MockGpus:
    return mock_gpus.MockGpus(choice)


@pytest.fixture(params=["mock", "nvml"])
def seen(request: pytest.FixtureRequest, hardware: mock_gpus.MockGpus, tmp_path: pathlib.Path) -> port.GpuPort:
    if request.param == "mock":
        return hardware
    root = nvml_library.host_root(tmp_path / "root", hardware)
    return nvml.NvmlGpus(nvml_library.NvmlLibrary(hardware).load, system=host.Host(root))


@pytest.fixture
def context(tmp_path: pathlib.Path) -> fake_context.FakeContext:
    return fake_context.FakeContext(tmp_path / "home")


@pytest.fixture
def serving(seen: port.GpuPort, context: fake_context.FakeContext) -> Iterator[gpu_driver.GpuDriver]:
    with watched_driver.watching(gpu_driver.GpuDriver(seen, health=WATCHING), context) as driver:
        yield driver


def until(context: fake_context.FakeContext, holds: Callable[[], bool]) -> None:
    with context.updated:
        assert context.updated.wait_for(holds, waits.SECONDS)


def tainted(context: fake_context.FakeContext) -> set[str]:
    return {device for device, taints in context.taints().items() if taints}


def watch_threads() -> set[threading.Thread]:
    """Threads of watches that run in this process; those of earlier tests may be among them."""
    return {thread for thread in threading.enumerate() if thread.name == "watch"}


def listening(hardware: mock_gpus.MockGpus, context: fake_context.FakeContext) -> None:
    """Strike until the watch hears it: events from before it began are not for it."""
    uuid = hardware.gpus()[0].uuid
    deadline = time.monotonic() + waits.SECONDS
    while "gpu-0" not in tainted(context) and time.monotonic() < deadline:
        hardware.report_xid(uuid, 79, recovery=signals.RecoveryAction.RESET)
        with context.updated:
            context.updated.wait_for(lambda: "gpu-0" in context.taints(), 0.2)


def test_an_xid_becomes_a_taint_and_a_reset_removes_it(
    hardware: mock_gpus.MockGpus, context: fake_context.FakeContext, serving: gpu_driver.GpuDriver
) -> None:
    listening(hardware, context)
    assert tainted(context) == {"gpu-0"}
    assert all(device.taints for device in serving.discover().devices if faults.affects("gpu-0", device.name))
    hardware.reset(hardware.gpus()[0].uuid)
    until(context, lambda: not tainted(context))


def test_a_gpu_lost_during_the_watch_recovers(
    hardware: mock_gpus.MockGpus, context: fake_context.FakeContext, serving: gpu_driver.GpuDriver
) -> None:
    listening(hardware, context)
    second = hardware.gpus()[1].uuid
    hardware.lose(second)
    until(context, lambda: any(taint.key.endswith("gpu-lost") for taint in context.taints().get("gpu-1", ())))
    hardware.reset(second)
    until(context, lambda: "gpu-1" not in tainted(context))


@pytest.mark.parametrize("call", ["events", "population", "gpus", "mig_mode", "recovery_action"])
def test_an_error_that_lasts_neither_ends_the_watch_nor_makes_it_spin(
    choice: machines.Choice, hardware: mock_gpus.MockGpus, context: fake_context.FakeContext, call: str
) -> None:
    injector = fault_injection.Faults(choice.directory)
    injector.arm(fault_injection.Fault(call=call, moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL, times=1000))
    counted, earlier = Counting(hardware, call), watch_threads()
    with watched_driver.watching(gpu_driver.GpuDriver(counted.port, health=WATCHING), context):
        assert counted.called.wait(waits.SECONDS)
        before, began = counted.calls, time.monotonic()
        counted.stop.wait(1.0)
        rate = (counted.calls - before) / (time.monotonic() - began)
        assert rate < 50, "a beat is the least between two attempts"
        injector.disarm()
        listening(hardware, context)
        assert "gpu-0" in tainted(context)
    assert watch_threads() <= earlier


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """The log of this process from now on."""
    stream = io.StringIO()
    logs.setup(level=logs.Level.WARNING, stream=stream)
    yield stream
    logs.setup(level=logs.Level.WARNING, style=logs.Style.CONSOLE)


@pytest.mark.parametrize("call", ["events", "population", "mig_mode"])
def test_a_bug_does_not_end_the_watch(hardware: mock_gpus.MockGpus, context: fake_context.FakeContext, log: io.StringIO, call: str) -> None:
    left, met = [2], threading.Event()

    def step(name: str) -> None:
        if call in name and left[0]:
            left[0] -= 1
            if not left[0]:
                met.set()
            raise ValueError("a bug")

    with watched_driver.watching(gpu_driver.GpuDriver(gpu_node.stepping(hardware, step), health=WATCHING), context):
        # After the first bug the GPUs are polled, so a fault may be seen before the second bug.
        assert met.wait(waits.SECONDS)
        listening(hardware, context)
        assert "gpu-0" in tainted(context)
    assert "watch raised an unexpected error" in log.getvalue()
    assert log.getvalue().count("ValueError: a bug") == 2


class Counting:
    """Passes all calls on, and counts those of one."""

    def __init__(self, hardware: port.GpuPort, call: str) -> None:
        self._hardware = hardware
        self._call = call
        self.calls = 0
        self.called, self.stop = threading.Event(), threading.Event()

    @property
    def port(self) -> port.GpuPort:
        return self  # type: ignore[return-value]  # every call is the hardware's

    def __getattr__(self, call: str) -> object:
        if call == self._call:
            self.calls += 1
            self.called.set()
        return getattr(self._hardware, call)


def test_the_watch_ends_even_while_a_call_hangs(
    choice: machines.Choice, hardware: mock_gpus.MockGpus, context: fake_context.FakeContext
) -> None:
    injector = fault_injection.Faults(choice.directory)
    injector.arm(fault_injection.Fault(call="recovery_action", moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.HANG))
    with background.watching(gpu_driver.GpuDriver(hardware, health=WATCHING), context, timing.SYSTEM, seconds=1.0) as thread:
        deadline = time.monotonic() + waits.SECONDS
        while not injector.stalled() and time.monotonic() < deadline:
            threading.Event().wait(0.01)
    assert injector.stalled(), "the call hangs still"
    injector.disarm()
    thread.join(waits.SECONDS)
    assert not thread.is_alive()


def test_a_stopped_driver_ends_its_watch(seen: port.GpuPort, context: fake_context.FakeContext) -> None:
    earlier = watch_threads()
    with watched_driver.watching(gpu_driver.GpuDriver(seen, health=WATCHING), context):
        assert watch_threads() - earlier
    assert watch_threads() <= earlier
