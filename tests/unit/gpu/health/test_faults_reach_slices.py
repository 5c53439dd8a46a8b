"""A fault on its whole way: from a mock GPU through the watch of a serving node into the slices, over a restart, and away."""

import math
import pathlib
from collections.abc import Iterator

import pytest

from drakit import machines
from drakit.core import device as devices
from drakit.node import engine, local_node, node, timing
from drakit_gpu import driver as gpu_driver
from drakit_gpu.health import faults, signals
from drakit_gpu.inventory import discovery
from drakit_gpu.mock import mock_gpus
from fakes import claim_source, crash_node, slice_store, waits

WATCHING = faults.HealthPolicy(settle=0.2, hold=0.2, event_wait=0.05, poll=0.1)
CHOICES = discovery.DiscoveryOptions(whole_beside_partitions=True)
Effects = set[tuple[str, devices.TaintEffect]]


class Running:
    """One node on real sockets; ``start`` may be called again after ``stop``, as another process."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        (folder / "r").mkdir()
        choice = machines.Choice(name="dgx-a100-40gb-2gpu", directory=folder / "machine", owner="node-a")
        self.hardware = mock_gpus.MockGpus(choice)
        self.store = slice_store.FakeSliceStore()
        self.node: node.Node | None = None

    def start(self) -> None:
        spec = local_node.DriverSpec(
            driver_name=gpu_driver.NAME,
            build=lambda intents: gpu_driver.GpuDriver(self.hardware, intents=intents, options=CHOICES, health=WATCHING),
            identity=engine.NodeIdentity(pool=crash_node.POOL, boot_id=self.hardware.boot_id()),
        )
        outside = node.NodeDependencies(
            claim_source=claim_source.FakeClaimSource(),
            slice_store=self.store,
            registry=self._folder / "r",
            clock=timing.SystemClock(),
            rescan_seconds=3600,
            registration_grace=math.inf,
        )
        self.node = node.Node(spec, local_node.Folders(home=self._folder / "d", cdi=self._folder / "c"), outside, node_name=crash_node.POOL)
        self.node.start()

    def stop(self) -> None:
        if self.node is not None:
            self.node.stop()
        self.node = None

    def effects(self, device: str) -> Effects | None:
        """The taints with which a device is in the slices; None where it is in none."""
        listings = [listed for resource_slice in self.store.list() for listed in resource_slice.spec.page.devices if listed.name == device]
        return {(taint.key, taint.effect) for taint in listings[0].taints} if listings else None


@pytest.fixture
def running(tmp_path: pathlib.Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.stop()


def test_a_fault_is_published_kept_over_a_restart_and_taken_back(running: Running) -> None:
    first, second = (gpu.uuid for gpu in running.hardware.gpus())
    whole, part, other = "gpu-0", "gpu-0-mig-1g5gb-19-6", "gpu-1"
    lost = {("gpu.drakit.dev/gpu-lost", effect) for effect in (devices.TaintEffect.NO_SCHEDULE, devices.TaintEffect.NO_EXECUTE)}
    asked = {("gpu.drakit.dev/recovery-action", devices.TaintEffect.NO_SCHEDULE)}
    running.start()
    assert waits.eventually(lambda: running.effects(part) == set())
    running.hardware.lose(first)
    assert waits.eventually(lambda: running.effects(part) == running.effects(whole) == lost)
    running.hardware.report_xid(second, 63, recovery=signals.RecoveryAction.DRAIN_AND_RESET)
    assert waits.eventually(lambda: running.effects(other) == asked)
    running.stop()
    running.start()
    running.hardware.reset(first)
    assert waits.eventually(lambda: running.effects(part) == running.effects(whole) == set())
    assert running.effects(other) == asked, "it still asks"
    running.hardware.reset(second)
    assert waits.eventually(lambda: running.effects(other) == set())


def test_hardware_that_changes_is_published_without_waiting_for_the_next_scan(running: Running) -> None:
    first, second = (gpu.uuid for gpu in running.hardware.gpus())
    running.start()
    assert waits.eventually(lambda: running.effects("gpu-1") == set())
    running.hardware.unplug(second)
    assert waits.eventually(lambda: running.effects("gpu-1") is None)
    running.hardware.plug(second)
    assert waits.eventually(lambda: running.effects("gpu-1") == set())
    running.hardware.set_mig_mode(first, enabled=False)
    assert waits.eventually(lambda: running.effects("gpu-0-mig-1g5gb-19-6") is None)
