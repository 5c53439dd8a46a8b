"""A driver without NVML serves, and uses the library and the kernel driver as soon as they are there, also after an upgrade."""

import ctypes
import dataclasses
import pathlib
import shutil
import threading

import pytest

from drakit import machines
from drakit.core import driver as drivers
from drakit.core import errors, records
from drakit.testing import fake_context
from drakit_gpu import driver as gpu_driver
from drakit_gpu import driver_root, host, nvml, nvml_errors, port
from drakit_gpu.health import faults
from drakit_gpu.mock import mock_gpus
from drakit_gpu.nvml import library as nvml_files
from fakes import gpu_node, nvml_library, waits, watched_driver

PARTITION = "gpu-1-mig-2g10gb-14-4"
DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH, UNINITIALIZED, NO_PERMISSION = 9, 18, 1, 4
GONE = {"nvmlInitWithFlags": DRIVER_NOT_LOADED, "nvmlDeviceGetCount_v2": DRIVER_NOT_LOADED, "nvmlDeviceGetGpuInstances": DRIVER_NOT_LOADED}
MISMATCH = dict.fromkeys(GONE, LIB_RM_VERSION_MISMATCH)
ENDED = {**dict.fromkeys(GONE, UNINITIALIZED), "nvmlInitWithFlags": DRIVER_NOT_LOADED}


class Node(gpu_node.GpuNode):
    """A node whose driver reads its mock GPUs through NVML."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.health = None
        hardware = mock_gpus.MockGpus(machines.Choice(name="dgx-a100-40gb-2gpu", directory=folder / "machine", owner="node-a"))
        self.library = nvml_library.NvmlLibrary(hardware)
        self.root = nvml_library.host_root(folder / "root", hardware)
        super().__init__(folder / "machine")

    def restart(self, *, crash_at: int | None = None) -> gpu_driver.GpuDriver:
        """A driver as a new process has it."""
        del crash_at
        self.gpus = nvml.NvmlGpus(self.library.load, system=host.Host(self.root))
        self.driver = gpu_driver.GpuDriver(self.gpus, intents=self.intents, health=self.health, pause=self.pauses.append)
        drivers.open_driver(self.driver, self.planned)
        return self.driver

    def prepare_partition(self) -> None:
        """Prepare a partition in claim ``a``."""
        nvml_library.show_capabilities(self.root, self.library.hardware)
        fresh = self.grant(PARTITION)
        grant = dataclasses.replace(fresh, intent=self.driver.plan(fresh))
        self.journal["a"] = gpu_node.JournalEntry(grant=grant)
        slot = self.library.hardware
        made = slot.create_gpu_instance(port.GpuUuid(str(grant.intent["gpu"])), 14, port.Placement(start=4, size=2))
        slot.create_compute_instance(port.GpuUuid(str(grant.intent["gpu"])), made.id, 1)
        nvml_library.show_capabilities(self.root, self.library.hardware)
        prepared = self.driver.prepare(grant)
        self.journal["a"] = gpu_node.JournalEntry(grant=dataclasses.replace(grant, record=prepared.record), is_prepared=True)


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def offered(node: Node) -> set[str]:
    return {device.name for device in node.driver.discover().flat().devices}


def test_a_driver_starts_without_the_library_and_offers_when_it_appears(node: Node) -> None:
    node.library.is_installed = False
    node.restart()
    for _ in range(2):
        with pytest.raises(errors.RetryError, match=r"no working NVIDIA driver: .*LIBRARY_NOT_FOUND"):
            node.driver.discover()
    node.library.is_installed = True
    assert PARTITION in offered(node)


@pytest.mark.parametrize("returns", [GONE, MISMATCH, ENDED], ids=["not loaded", "mismatch", "session ended"])
def test_unloading_and_loading_the_kernel_driver_needs_no_restart(node: Node, returns: dict[str, int]) -> None:
    assert PARTITION in offered(node)
    loads = node.library.loads
    node.library.handles_end()
    node.library.returns |= returns
    for _ in range(2):
        with pytest.raises(errors.RetryError, match=r"no working NVIDIA driver: .*(DRIVER_NOT_LOADED|LIB_RM_VERSION_MISMATCH)"):
            node.driver.discover()
    node.library.returns.clear()
    assert PARTITION in offered(node)
    assert node.library.loads > loads, "each session loads the library that is installed then"


def test_a_library_that_may_not_be_used_is_an_error_and_withdraws_nothing(node: Node) -> None:
    node.library.returns["nvmlInitWithFlags"] = NO_PERMISSION
    with pytest.raises(errors.HardwareError, match=r"NO_PERMISSION .*run as root"):
        node.driver.discover()


def test_plan_and_prepare_without_the_library_fail_with_that_reason(node: Node) -> None:
    grant = node.grant(PARTITION)
    node.library.is_installed = False
    node.restart()
    with pytest.raises(errors.RetryError, match=r"no working NVIDIA driver: .*LIBRARY_NOT_FOUND"):
        node.driver.plan(grant)
    intent: records.Record = {
        "boot": node.gpus.boot_id(),
        "gpu": str(grant.device.attributes["parentUUID"]),
        "profile": 14,
        "start": 4,
        "size": 2,
    }
    with pytest.raises(errors.RetryError, match=r"no working NVIDIA driver: .*LIBRARY_NOT_FOUND"):
        node.driver.prepare(dataclasses.replace(grant, intent=intent))


@pytest.mark.parametrize("state", ["no library", "not loaded", "mismatch"])
def test_a_partition_of_this_boot_is_released_when_nvml_is_back(node: Node, state: str) -> None:
    node.prepare_partition()
    if state == "no library":
        node.library.is_installed = False
    else:
        node.library.returns |= GONE if state == "not loaded" else MISMATCH
    node.restart()
    for _ in range(2):
        with pytest.raises(errors.ReleaseDeferredError, match=f"{PARTITION} is released when the NVIDIA driver works again"):
            node.driver.unprepare(node.journal["a"].grant)
    assert node.instances()
    node.library.is_installed = True
    node.library.returns.clear()
    node.driver.unprepare(node.journal["a"].grant)
    assert not node.instances()


def test_hardware_of_an_earlier_boot_needs_no_library(node: Node) -> None:
    node.prepare_partition()
    grant = node.journal["a"].grant
    node.library.is_installed = False
    calls = len(node.library.calls)
    node.restart().unprepare(dataclasses.replace(grant, intent={**grant.intent, "boot": "an earlier boot"}))
    assert len(node.library.calls) == calls


def test_a_whole_gpu_without_settings_needs_no_library(node: Node) -> None:
    grant = node.grant("gpu-0") if "gpu-0" in offered(node) else node.grant(PARTITION)
    intent = {"boot": node.gpus.boot_id(), "gpu": "GPU-1"}
    node.library.is_installed = False
    node.restart().unprepare(dataclasses.replace(grant, intent=intent))


def test_a_time_slice_of_this_boot_is_restored_when_nvml_is_back(node: Node) -> None:
    grant = node.grant(PARTITION)
    uuid = node.library.hardware.gpus()[0].uuid
    settings: records.Record = {"timeSlice": "Long", "computeMode": "Default", "before": "Default"}
    intent: records.Record = {"boot": node.gpus.boot_id(), "gpu": uuid, "settings": settings}
    node.library.is_installed = False
    with pytest.raises(errors.ReleaseDeferredError, match="LIBRARY_NOT_FOUND"):
        node.restart().unprepare(dataclasses.replace(grant, intent=intent, record={"uuid": uuid}))


def test_an_error_of_a_working_library_is_reported_as_before(node: Node) -> None:
    node.prepare_partition()
    node.library.returns["nvmlGpuInstanceDestroy"] = 999
    with pytest.raises(errors.HardwareError, match="nvmlGpuInstanceDestroy: UNKNOWN"):
        node.driver.unprepare(node.journal["a"].grant)


def test_start_watch_and_metrics_go_on_without_the_library(node: Node, tmp_path: pathlib.Path) -> None:
    node.library.is_installed = False
    node.health = faults.HealthPolicy(event_wait=0.05, poll=0.1)
    driver = node.restart()
    context = fake_context.FakeContext(tmp_path / "home")
    with watched_driver.watching(driver, context):
        with context.updated:
            assert context.updated.wait_for(lambda: context.rediscoveries > 0, waits.SECONDS)
        assert not driver.metrics()


def test_an_upgraded_library_is_loaded_beside_the_old_one(tmp_path: pathlib.Path) -> None:
    source = pathlib.Path(next(line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "/libz.so" in line))
    link, root = tmp_path / "usr/lib64" / nvml_files.NAME, driver_root.DriverRoot(path=tmp_path)
    link.parent.mkdir(parents=True)
    handles = []
    for version in ("570.133.20", "580.95.05"):
        shutil.copy(source, link.with_name(f"libnvidia-ml.so.{version}"))
        link.unlink(missing_ok=True)
        link.symlink_to(f"libnvidia-ml.so.{version}")
        loaded = nvml_files.load(None, root)
        assert isinstance(loaded, ctypes.CDLL)
        handles.append(loaded._handle)
    assert handles[0] != handles[1]
    assert isinstance(nvml_files.load(link, root), ctypes.CDLL)


def test_concurrent_threads_without_a_library_all_get_the_reason(node: Node) -> None:
    node.library.is_installed = False
    node.restart()
    codes: list[nvml_errors.Code | None] = []
    at_once = threading.Barrier(4)

    def ask() -> None:
        for _ in range(50):
            at_once.wait(waits.SECONDS)
            error = node.gpus.session_error()
            codes.append(None if error is None else error.code)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(waits.SECONDS)
    assert codes == [nvml_errors.Code.LIBRARY_NOT_FOUND] * 200


def test_concurrent_threads_open_one_session(node: Node) -> None:
    node.restart()
    loads, at_once = node.library.loads, threading.Barrier(4)

    def ask() -> None:
        at_once.wait(waits.SECONDS)
        node.gpus.versions()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(waits.SECONDS)
    assert node.library.loads == loads + 1
