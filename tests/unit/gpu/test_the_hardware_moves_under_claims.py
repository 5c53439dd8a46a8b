"""A serving node whose GPUs and libraries change while claims are prepared: slices, health, CDI files and other claims."""

import dataclasses
import math
import pathlib
import threading
from collections.abc import Iterator
from typing import cast

import pytest

from drakit import machines
from drakit.core import claim as claims
from drakit.core import context as contexts
from drakit.core import device as devices
from drakit.node import edits_refresh, engine, local_node, node, timing
from drakit_gpu import cdi, driver_root, port
from drakit_gpu import driver as gpu_driver
from drakit_gpu import options as gpu_options
from drakit_gpu.health import faults
from drakit_gpu.inventory import discovery
from drakit_gpu.mig import markers
from drakit_gpu.mock import mock_driver_root, mock_gpus
from fakes import claim_source, crash_node, slice_store, waits

HEALTH = faults.HealthPolicy(settle=0.2, hold=0.2, event_wait=0.05, poll=0.1)
PART, SMALL, OTHER = "gpu-0-mig-3g20gb-9-0", "gpu-0-mig-1g5gb-19-1", "gpu-0-mig-1g5gb-19-6"
OLD, NEW = "580.95.05", "580.126.09"


class Running:
    """One node on real sockets; ``start`` may be called again after ``stop``, as another process."""

    def __init__(self, folder: pathlib.Path, machine: str = "dgx-a100-40gb-2gpu") -> None:
        self._folder = folder
        self.layouts: tuple[gpu_options.MigLayout, ...] = ()
        (folder / "r").mkdir()
        self.hardware = mock_gpus.MockGpus(machines.Choice(name=machine, directory=folder / "machine", owner="node-a"))
        self.store, self.claims = slice_store.FakeSliceStore(), claim_source.FakeClaimSource()
        self.gpu = self.hardware.plugged()[0].uuid
        self.version = OLD
        mock_driver_root.create_driver_root(folder, OLD)
        self.node: node.Node | None = None
        self.events: list[str] = []

    def _driver(self, intents: local_node.Intents) -> gpu_driver.GpuDriver:
        hardware = cast("port.GpuPort", Versioned(self.hardware, self))
        resources = gpu_driver.HostResources(
            files=cdi.DriverFiles(driver_root.DriverRoot(path=self._folder / "driver-root"), use_toolkit=False),
            made=markers.MarkerStore(folder=self._folder / "instances"),
        )
        options = discovery.DiscoveryOptions(layouts=self.layouts)
        return gpu_driver.GpuDriver(hardware, intents=intents, options=options, health=HEALTH, resources=resources)

    def start(self) -> node.Node:
        spec = local_node.DriverSpec(
            driver_name=gpu_driver.NAME,
            build=self._driver,
            identity=engine.NodeIdentity(pool=crash_node.POOL, boot_id=self.hardware.boot_id()),
        )
        outside = node.NodeDependencies(
            claim_source=self.claims,
            slice_store=self.store,
            registry=self._folder / "r",
            clock=timing.SystemClock(),
            rescan_seconds=3600,
            registration_grace=math.inf,
        )
        self.node = node.Node(spec, local_node.Folders(home=self._folder / "d", cdi=self._folder / "c"), outside, node_name=crash_node.POOL)
        self.node.start()
        sinks = self.node.local.context.sinks
        self.node.local.context.sinks = dataclasses.replace(sinks, event=lambda _, event: self.events.append(event.message))
        return self.node

    def stop(self) -> None:
        if self.node is not None:
            self.node.stop()
        self.node = None

    def prepare(self, device: str) -> tuple[claims.ClaimRef, str]:
        assert self.node is not None
        world = crash_node.CrashNode()
        ref = world.claim(device, driver=gpu_driver.NAME, name=f"claim-{device}")
        self.claims.put(world.claims.fetch(ref))
        return ref, self.node.local.engine.prepare([ref], world.caller)[ref.uid].error

    def unprepare(self, ref: claims.ClaimRef) -> None:
        assert self.node is not None
        assert self.node.local.engine.unprepare([ref], crash_node.Waiting())[ref.uid] == ""

    def published(self) -> set[str]:
        return {device.name for one in self.store.list() for device in one.spec.page.devices}

    def devices(self, name: str) -> list[devices.Device]:
        return [device for one in self.store.list() for device in one.spec.page.devices if device.name == name]

    def health_of(self, device: str) -> tuple[contexts.Health, str]:
        assert self.node is not None
        return next((one.health, one.message) for one in self.node.health.snapshot() if one.device == device)

    def replace_instance(self, profile: int, size: int) -> None:
        """Delete all instances of the first GPU and create another one at slice 0."""
        for instance in self.hardware.gpu_instances(self.gpu):
            for compute in self.hardware.compute_instances(self.gpu, instance.id):
                self.hardware.destroy_compute_instance(self.gpu, instance.id, compute.id)
            self.hardware.destroy_gpu_instance(self.gpu, instance.id)
        created = self.hardware.create_gpu_instance(self.gpu, profile, port.Placement(start=0, size=size))
        self.hardware.create_compute_instance(self.gpu, created.id, self.hardware.compute_instance_profiles(self.gpu, created)[0].id)

    def libraries(self) -> set[str]:
        """The versions of libcuda that CDI files name."""
        texts = [file.read_text("utf-8") for file in (self._folder / "c").iterdir()]
        return {version for version in (OLD, NEW) for text in texts if f"libcuda.so.{version}" in text}

    def upgrade(self) -> None:
        """Install the new driver's files and remove the old ones."""
        mock_driver_root.create_driver_root(self._folder, NEW)
        for file in [*(self._folder / "driver-root").rglob(f"*.so.{OLD}")]:
            file.unlink()
        self.version = NEW


class Versioned:
    """The GPUs of a node, with the version of the driver that is loaded now."""

    def __init__(self, hardware: mock_gpus.MockGpus, running: Running) -> None:
        self._hardware = hardware
        self._running = running

    def versions(self) -> port.Versions:
        return dataclasses.replace(self._hardware.versions(), driver=self._running.version)

    def __getattr__(self, call: str) -> object:
        return getattr(self._hardware, call)


@pytest.fixture
def running(tmp_path: pathlib.Path) -> Iterator[Running]:
    made = Running(tmp_path)
    made.start()
    assert waits.eventually(lambda: PART in made.published())
    yield made
    made.stop()


def test_a_claimed_device_is_not_offered_after_an_admin_repartitions(running: Running) -> None:
    ref, error = running.prepare(PART)
    assert error == ""
    running.replace_instance(profile=19, size=1)
    assert waits.eventually(lambda: running.health_of(PART)[0] is contexts.Health.UNHEALTHY and SMALL not in running.published())
    assert {PART, OTHER} <= running.published(), "the claim's device stays, and so does the rest of the GPU"
    assert "gpu-0-mig-1g5gb-19-0" not in running.published(), "the admin's device fills slices that the claim holds"
    assert waits.eventually(lambda: any("was deleted" in message for message in running.events))
    _, error = running.prepare(SMALL)
    assert f"has hardware in common with {PART}" in error
    running.unprepare(ref)
    assert waits.eventually(lambda: {SMALL, "gpu-0-mig-1g5gb-19-0"} <= running.published() and PART not in running.published())
    assert len(running.hardware.gpu_instances(running.gpu)) == 1, "the admin's instance is kept"


def test_the_whole_gpu_is_not_offered_while_a_claim_holds_a_part_of_it(running: Running) -> None:
    ref, error = running.prepare(PART)
    assert error == ""
    instance = running.hardware.gpu_instances(running.gpu)[0]
    running.hardware.destroy_compute_instance(running.gpu, instance.id, 0)
    running.hardware.destroy_gpu_instance(running.gpu, instance.id)
    running.hardware.set_mig_mode(running.gpu, enabled=False)
    assert waits.eventually(lambda: running.published() >= {PART} and OTHER not in running.published())
    assert "gpu-0" not in running.published()
    assert waits.eventually(lambda: "MIG mode was turned off" in running.health_of(PART)[1])
    running.stop()
    running.start()
    assert waits.eventually(lambda: running.health_of(PART)[0] is contexts.Health.UNHEALTHY)
    assert "gpu-0" not in running.published()
    running.unprepare(ref)
    assert waits.eventually(lambda: "gpu-0" in running.published() and PART not in running.published())


def test_a_driver_upgrade_refreshes_cdi_files_at_start(running: Running) -> None:
    assert running.prepare(PART)[1] == ""
    assert running.libraries() == {OLD}
    running.stop()
    running.upgrade()
    made = running.hardware.gpu_instances(running.gpu)
    running.start()
    assert waits.eventually(lambda: running.libraries() == {NEW})
    assert running.hardware.gpu_instances(running.gpu) == made


def test_a_driver_upgrade_refreshes_cdi_files_at_runtime(running: Running) -> None:
    assert running.prepare(PART)[1] == ""
    assert running.node is not None
    local = running.node.local
    refresher = edits_refresh.EditsRefresher(local.engine, local.journal, local.author, timing.SystemClock())
    refresher.check(threading.Event())
    running.upgrade()
    refresher.check(threading.Event())
    assert running.libraries() == {NEW}


@pytest.fixture
def hopper(tmp_path: pathlib.Path) -> Iterator[Running]:
    made = Running(tmp_path, machine="dgx-h100")
    made.start()
    assert waits.eventually(lambda: "gpu-0" in made.published())
    yield made
    made.stop()


def restart_with(running: Running, *layouts: gpu_options.MigLayout) -> None:
    running.stop()
    running.layouts = layouts
    running.start()


def first_gpu(running: Running) -> set[str]:
    return {name for name in running.published() if name.startswith("gpu-0")}


def test_a_claim_outside_a_new_layout_keeps_its_partition_which_nobody_else_gets(running: Running) -> None:
    ref, error = running.prepare(PART)
    assert error == ""
    restart_with(running, gpu_options.MigLayout(match="gpu-0", partitions={"2g.10gb": 3}))
    assert waits.eventually(lambda: first_gpu(running) == {PART, "gpu-0-mig-2g10gb-14-4"})
    assert [key for device in running.devices(PART) for key in (len(device.consumes), device.taints[0].key)] == [
        0,
        "gpu.drakit.dev/changed",
    ]
    assert running.health_of(PART)[0] is not contexts.Health.UNHEALTHY
    assert running.node is not None
    assert running.node.local.offered.current.displaced[PART].event.message == (
        f"{PART}: gpu.mig_layouts does not name it; new claims do not get it, and the pods that have it keep it"
    )
    _, error = running.prepare("gpu-0-mig-2g10gb-14-0")
    assert f"has hardware in common with {PART}" in error
    running.unprepare(ref)
    assert waits.eventually(lambda: first_gpu(running) == {f"gpu-0-mig-2g10gb-14-{start}" for start in (0, 2, 4)})
    assert not any(device.consumes for name in first_gpu(running) for device in running.devices(name))


def test_a_claim_for_a_partition_that_no_layout_names_any_more_is_refused(running: Running) -> None:
    restart_with(running, gpu_options.MigLayout(match="gpu-0", partitions={"2g.10gb": 3}))
    _, error = running.prepare(SMALL)
    assert error.endswith(f"this node does not offer '{SMALL}': gpu.mig_layouts does not name it")
    assert not running.hardware.gpu_instances(running.gpu)


def test_a_claim_of_a_layout_keeps_its_partition_when_the_layout_is_removed(running: Running) -> None:
    restart_with(running, gpu_options.MigLayout(match="gpu-0", partitions={"2g.10gb": 3}))
    held = "gpu-0-mig-2g10gb-14-4"
    ref, error = running.prepare(held)
    assert error == ""
    restart_with(running)
    assert waits.eventually(lambda: PART in running.published())
    assert [len(device.consumes) for device in running.devices(held)] == [1], "the scheduler counts what the claim holds"
    assert not any(device.taints for device in running.devices(held))
    running.unprepare(ref)
    assert not running.hardware.gpu_instances(running.gpu)


def test_a_claim_with_the_whole_gpu_keeps_it_when_a_layout_parts_the_gpu(hopper: Running) -> None:
    ref, error = hopper.prepare("gpu-0")
    assert error == ""
    restart_with(hopper, gpu_options.MigLayout(match="*", partitions={"3g.40gb": 2}))
    assert waits.eventually(lambda: first_gpu(hopper) == {"gpu-0"} and "gpu-1-mig-3g40gb-9-0" in hopper.published())
    assert not any(device.consumes for device in hopper.devices("gpu-0"))
    hopper.unprepare(ref)
    assert waits.eventually(lambda: first_gpu(hopper) == {"gpu-0-mig-3g40gb-9-0", "gpu-0-mig-3g40gb-9-4"})
    _, error = hopper.prepare("gpu-0-mig-3g40gb-9-4")
    assert error == ""
