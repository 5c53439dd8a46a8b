"""NVML's session is replaced while threads wait for events of it: C memory that a thread uses is never freed."""

import pathlib
import threading
import time
from collections.abc import Mapping
from typing import ClassVar

import pytest

from drakit import machines
from drakit.testing import fake_context
from drakit_gpu import driver as gpu_driver
from drakit_gpu import host, nvml, nvml_errors, port
from drakit_gpu.health import faults, monitor, signals
from drakit_gpu.mock import mock_gpus
from drakit_gpu.nvml import session
from fakes import nvml_library, waits, watched_driver
from fakes.nvml_library import cells, happenings

UNINITIALIZED, GPU_IS_LOST = 1, 15


def wait_for_event(library: cells.Library, set_handle: object, pointer: object, milliseconds: object) -> int | None:
    assert isinstance(library, Guarded)
    with library.lock:
        library.waits += 1
    library.is_waiting.set()
    try:
        return happenings.wait_for_event(library, set_handle, pointer, milliseconds)
    finally:
        with library.lock:
            library.waits -= 1


def shutdown(library: cells.Library) -> None:
    """End the session with its sets."""
    assert isinstance(library, Guarded)
    with library.lock:
        library.crashes += ["a session was ended under a thread that waits"] if library.waits else []
    library.sessions += 1
    library.handles_end()


def free_set(library: cells.Library, set_handle: object) -> None:
    assert isinstance(library, Guarded)
    with library.lock:
        library.crashes += ["a set was freed under a thread that waits"] if library.waits else []
    try:
        library.meant(set_handle)
    except KeyError:
        library.crashes.append("a set was freed that went with its session")


class Guarded(nvml_library.NvmlLibrary):
    """The library, which notes what would be a use after free in C."""

    functions: ClassVar[Mapping[str, cells.Function]] = {
        **nvml_library.NvmlLibrary.functions,
        "nvmlEventSetWait_v2": wait_for_event,
        "nvmlShutdown": shutdown,
        "nvmlEventSetFree": free_set,
    }

    def __init__(self, hardware: mock_gpus.MockGpus) -> None:
        super().__init__(hardware)
        self.lock = threading.Lock()
        self.is_waiting = threading.Event()
        self.waits = self.sessions = 0
        self.crashes: list[str] = []


@pytest.fixture
def library(tmp_path: pathlib.Path) -> Guarded:
    return Guarded(mock_gpus.MockGpus(machines.Choice(name="dgx-a100-40gb-2gpu", directory=tmp_path / "machine", owner="node-a")))


@pytest.fixture
def gpus(library: Guarded, tmp_path: pathlib.Path) -> nvml.NvmlGpus:
    return nvml.NvmlGpus(library.load, system=host.Host(nvml_library.host_root(tmp_path / "root", library.hardware)))


def test_a_session_is_replaced_only_when_no_thread_waits_for_its_events(gpus: nvml.NvmlGpus, library: Guarded) -> None:
    waited: list[signals.Event | None] = []
    with gpus.events() as events:
        waiting = threading.Thread(target=lambda: waited.append(events.wait(1.0)))
        waiting.start()
        assert library.is_waiting.wait(waits.SECONDS)
        gpus.renew()
        waiting.join(waits.SECONDS)
        assert waited == [None]
        with pytest.raises(nvml_errors.CallError, match="UNINITIALIZED"):
            events.wait(0.0)
    assert library.sessions == 1
    assert not library.crashes
    with gpus.events() as events:
        assert events.wait(0.0) is None


def test_a_set_is_freed_only_when_no_thread_waits_for_it(gpus: nvml.NvmlGpus, library: Guarded) -> None:
    events = gpus.events()
    waiting = threading.Thread(target=lambda: events.wait(1.0))
    waiting.start()
    assert library.is_waiting.wait(waits.SECONDS)
    events.close()
    waiting.join(waits.SECONDS)
    assert not library.crashes
    with pytest.raises(nvml_errors.CallError, match="UNINITIALIZED"):
        events.wait(0.0)


def test_threads_that_find_the_session_ended_replace_it_once(gpus: nvml.NvmlGpus, library: Guarded) -> None:
    first, second = (gpu.uuid for gpu in gpus.gpus())
    at_once = threading.Barrier(2)

    def ask(uuid: port.GpuUuid) -> None:
        at_once.wait(waits.SECONDS)
        gpus.mig_mode(uuid)

    library.handles_end()
    library.returns["nvmlDeviceGetMigMode"] = UNINITIALIZED
    threads = [threading.Thread(target=ask, args=(uuid,)) for uuid in (first, second)]
    with lifetime_of(gpus).using(lifetime_of(gpus).number):
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + waits.SECONDS
        while library.calls.count("nvmlDeviceGetMigMode") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        del library.returns["nvmlDeviceGetMigMode"]
    for thread in threads:
        thread.join(waits.SECONDS)
    assert library.sessions == 1


def lifetime_of(gpus: nvml.NvmlGpus) -> session.SessionCounter:
    return gpus._sessions


def test_a_session_on_which_a_thread_hangs_is_kept() -> None:
    sessions = session.SessionCounter(patience=0.05)
    with sessions.using(0):
        with pytest.raises(nvml_errors.CallError, match="TIMEOUT"), sessions.replacing(0):
            pytest.fail("the session was ended under a thread that uses it")
        with sessions.using(0):
            pass
    with sessions.replacing(0) as is_ours:
        assert is_ours
    assert sessions.number == 1


def test_the_watch_continues_in_a_new_session(gpus: nvml.NvmlGpus, library: Guarded, tmp_path: pathlib.Path) -> None:
    context = fake_context.FakeContext(tmp_path / "home")
    health = faults.HealthPolicy(settle=0.0, hold=0.0, event_wait=0.05, poll=0.1)
    with watched_driver.watching(gpu_driver.GpuDriver(gpus, health=health), context):
        assert library.is_waiting.wait(waits.SECONDS)
        for _ in range(5):
            gpus.renew()
        deadline = time.monotonic() + waits.SECONDS
        while "gpu-0" not in context.taints() and time.monotonic() < deadline:
            library.hardware.report_xid(library.hardware.gpus()[0].uuid, 79, recovery=signals.RecoveryAction.RESET)
            with context.updated:
                context.updated.wait_for(lambda: "gpu-0" in context.taints(), 0.2)
    assert "gpu-0" in context.taints()
    assert not library.crashes


def test_an_xid_of_a_gpu_lost_during_its_handling_is_attributed_to_it(gpus: nvml.NvmlGpus, library: Guarded) -> None:
    first, _ = gpus.gpus()
    library.hardware.lose(first.uuid)
    with gpus.events() as events:
        library.registered[first.uuid] = happenings.EVENT_TYPES
        library.hardware.report_xid(first.uuid, 79)
        assert events.wait(waits.SECONDS) == signals.Event(gpu=first.uuid, kind=signals.EventKind.XID, xid=79)


def test_an_event_of_a_gpu_without_a_uuid_is_ignored(gpus: nvml.NvmlGpus, library: Guarded) -> None:
    first, second = library.hardware.gpus()
    library.hardware.lose(first.uuid)
    with gpus.events() as events:
        library.registered[first.uuid] = happenings.EVENT_TYPES
        library.hardware.report_xid(first.uuid, 79)
        library.returns["nvmlDeviceGetUUID"] = GPU_IS_LOST
        assert events.wait(waits.SECONDS) is None
        library.hardware.report_xid(second.uuid, 31)
        assert events.wait(waits.SECONDS) == signals.Event(gpu=second.uuid, kind=signals.EventKind.XID, xid=31)


def test_an_event_with_instance_0_of_a_gpu_without_mig_is_about_the_gpu(tmp_path: pathlib.Path) -> None:
    hardware = mock_gpus.MockGpus(machines.Choice(name="server-h100-pcie", directory=tmp_path / "machine", owner="node-a"))
    context = fake_context.FakeContext(tmp_path / "home")
    watch = monitor.HealthMonitor(hardware, context, prefix=gpu_driver.NAME, policy=faults.HealthPolicy())
    watch.poll()
    watch.handle_event(signals.Event(gpu=hardware.gpus()[0].uuid, kind=signals.EventKind.XID, xid=48, instance_id=0))
    assert [taint.value for taint in context.taints()["gpu-0"]] == ["48"]
