"""A GPU that cannot send Xids is said to be so: in the log and in the metrics; what a look shows is seen of it all the same."""

import pathlib
from collections.abc import Iterator

import pytest

from drakit import machines
from drakit.testing import fake_context
from drakit_gpu import driver as gpu_driver
from drakit_gpu import host, nvml, port
from drakit_gpu.health import faults, signals
from drakit_gpu.mock import mock_gpus
from fakes import log_lines, nvml_library, waits, watched_driver

XID, ECC = 0x8, 0x2
WATCHING = faults.HealthPolicy(settle=0.0, hold=0.0, event_wait=0.05, poll=0.1)


@pytest.fixture
def hardware(tmp_path: pathlib.Path) -> mock_gpus.MockGpus:
    return mock_gpus.MockGpus(machines.Choice(name="dgx-a100-40gb-2gpu", directory=tmp_path / "machine", owner="node-a"))


@pytest.fixture
def library(hardware: mock_gpus.MockGpus) -> nvml_library.NvmlLibrary:
    return nvml_library.NvmlLibrary(hardware)


@pytest.fixture
def seen(library: nvml_library.NvmlLibrary, hardware: mock_gpus.MockGpus, tmp_path: pathlib.Path) -> nvml.NvmlGpus:
    return nvml.NvmlGpus(library.load, system=host.Host(nvml_library.host_root(tmp_path / "root", hardware)))


@pytest.fixture
def context(tmp_path: pathlib.Path) -> fake_context.FakeContext:
    return fake_context.FakeContext(tmp_path / "home")


def second(hardware: mock_gpus.MockGpus) -> port.GpuUuid:
    return hardware.gpus()[1].uuid


@pytest.fixture
def serving(
    library: nvml_library.NvmlLibrary, hardware: mock_gpus.MockGpus, seen: nvml.NvmlGpus, context: fake_context.FakeContext
) -> Iterator[gpu_driver.GpuDriver]:
    """A driver that watches two GPUs, the second of which cannot be registered for events."""
    library.event_kinds[second(hardware)] = None
    driver = gpu_driver.GpuDriver(seen, health=WATCHING)
    driver.discover()
    with watched_driver.watching(driver, context):
        yield driver


def monitored(driver: gpu_driver.GpuDriver) -> dict[str, float]:
    return {metric.labels["gpu"]: metric.value for metric in driver.metrics() if metric.name == "gpu_monitored"}


def eventually_monitored(driver: gpu_driver.GpuDriver) -> dict[str, float]:
    assert waits.eventually(lambda: monitored(driver))
    return monitored(driver)


@pytest.mark.parametrize(
    "kinds, words", [(None, "GPU sends no events"), (0, "GPU sends no Xids"), (ECC, "GPU sends no Xids"), (XID | ECC, "")]
)
def test_a_gpu_without_xid_events_is_named(
    library: nvml_library.NvmlLibrary,
    hardware: mock_gpus.MockGpus,
    seen: nvml.NvmlGpus,
    logged: log_lines.LogLines,
    kinds: int | None,
    words: str,
) -> None:
    library.event_kinds[second(hardware)] = kinds
    with seen.events() as events:
        assert events.unmonitored == ({second(hardware)} if words else frozenset())
    assert [words in record["event"] and record["gpu"] for record in logged.lines] == ([second(hardware)] if words else [])


def test_the_metrics_show_which_gpu_is_only_polled(serving: gpu_driver.GpuDriver) -> None:
    assert eventually_monitored(serving) == {"gpu-0": 1.0, "gpu-1": 0.0}


def test_a_polled_fault_is_a_taint_and_missing_events_are_none(
    serving: gpu_driver.GpuDriver, hardware: mock_gpus.MockGpus, context: fake_context.FakeContext
) -> None:
    assert eventually_monitored(serving)
    assert not context.taints()
    hardware.report_xid(second(hardware), 48, recovery=signals.RecoveryAction.RESET)
    with context.updated:
        assert context.updated.wait_for(lambda: context.taints().get("gpu-1"), waits.SECONDS)
    assert [taint.key for taint in context.taints()["gpu-1"]] == ["gpu.drakit.dev/recovery-action"]


def test_unwatched_gpus_are_not_reported(seen: nvml.NvmlGpus, context: fake_context.FakeContext) -> None:
    driver = gpu_driver.GpuDriver(seen)
    driver.discover()
    driver.start(context)
    assert monitored(driver) == {}
