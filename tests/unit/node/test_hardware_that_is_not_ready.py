"""While discover() raises RetryError, a node offers no devices and still lets pods end; it recovers without a restart."""

import pathlib
import threading
from collections.abc import Iterator

import pytest

from drakit._proto import dra_v1_pb2 as wire
from drakit._proto import dra_v1_pb2_grpc as services
from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import errors, inventory, lifecycle, names
from drakit.node import deferred_releases, engine, local_node, metrics, node, recovery, timing
from drakit.serving import checks
from fakes import author, channels, claim_source, slice_store, waits

POOL = "node-1"
UID = names.ClaimUid("00000000-0000-4000-8000-000000000001")
RESCAN = 0.05
NOT_READY = errors.RetryError("the kernel driver is not loaded", after=0.01)


class Unready(author.FakeDriver):
    """A driver whose hardware comes and goes."""

    broken: Exception | None = None
    unreachable = False
    reason = "the kernel driver is not loaded"
    attempts = 0

    def discover(self) -> inventory.Inventory:
        if self.broken is not None:
            raise self.broken
        return super().discover()

    def unprepare(self, grant: drivers.Grant[author.Tuning]) -> None:
        self.attempts += 1
        if self.unreachable:
            raise errors.ReleaseDeferredError(self.reason)
        super().unprepare(grant)


class Running:
    """A started node on a folder that outlives it."""

    def __init__(self, folder: pathlib.Path, driver: Unready, store: slice_store.FakeSliceStore) -> None:
        self.driver, self.store = driver, store
        self.claims = claim_source.FakeClaimSource()
        registry = folder / "r"
        registry.mkdir(exist_ok=True)
        spec = local_node.DriverSpec(
            driver_name=author.FakeDriver.name, build=lambda _: driver, identity=engine.NodeIdentity(pool=POOL, boot_id="boot-1")
        )
        outside = node.NodeDependencies(
            claim_source=self.claims, slice_store=store, registry=registry, clock=timing.SystemClock(), rescan_seconds=RESCAN
        )
        self.socket = folder / "d" / "dra.sock"
        self.node = node.Node(spec, local_node.Folders(home=folder / "d", cdi=folder / "c"), outside, node_name=POOL)
        self.node.start()

    def prepare(self, device: str) -> str:
        result = claims.AllocationResult(request="r", driver=author.FakeDriver.name, pool=POOL, device=device)
        self.claims.put(claims.Claim(ref=claims.ClaimRef(uid=UID, namespace="default", name="claim"), results=(result,)))
        request = wire.NodePrepareResourcesRequest(claims=[wire.Claim(namespace="default", uid=UID, name="claim")])
        with channels.insecure(f"unix:{self.socket}") as channel:
            return str(services.DRAPluginStub(channel).NodePrepareResources(request, timeout=waits.SECONDS).claims[UID].error)

    def unprepare(self) -> str:
        request = wire.NodeUnprepareResourcesRequest(claims=[wire.Claim(namespace="default", uid=UID, name="claim")])
        with channels.insecure(f"unix:{self.socket}") as channel:
            return str(services.DRAPluginStub(channel).NodeUnprepareResources(request, timeout=waits.SECONDS).claims[UID].error)

    def offered(self) -> set[str]:
        return {device.name for stored in self.store.list() for device in stored.spec.page.devices}

    def readiness(self) -> list[str]:
        ready = checks.Checks()
        metrics.add_readiness("fake", self.node, ready)
        return [f"{name}: {reason}" for name, reason in ready.failures().items()]


@pytest.fixture
def driver() -> Unready:
    return Unready(author.Hardware())


@pytest.fixture
def running(tmp_path: pathlib.Path, driver: Unready) -> Iterator[Running]:
    started = Running(tmp_path, driver, slice_store.FakeSliceStore())
    yield started
    started.node.stop()


def test_a_node_that_cannot_read_an_intent_to_discover_still_lets_its_other_pods_end(tmp_path: pathlib.Path, driver: Unready) -> None:
    store = slice_store.FakeSliceStore()
    before = Running(tmp_path, driver, store)
    assert waits.eventually(lambda: "chip-0" in before.offered())
    assert before.prepare("chip-0") == ""
    before.node.stop()
    driver.broken = errors.JournalError("claim default/new: the journal's intent has version 2")
    after = Running(tmp_path, driver, store)
    try:
        assert "claim default/new: the journal's intent has version 2" in after.prepare("chip-1")
        assert after.unprepare() == ""
        assert driver.hardware.made == {}
        assert not after.node.failed.is_set()
    finally:
        after.node.stop()


def test_hardware_that_is_not_ready_at_the_start_withdraws_and_serves(tmp_path: pathlib.Path, driver: Unready) -> None:
    store = slice_store.FakeSliceStore()
    before = Running(tmp_path, driver, store)
    assert waits.eventually(lambda: "chip-0" in before.offered())
    assert before.prepare("chip-0") == ""
    before.node.stop()
    assert "chip-0" in before.offered(), "slices stay when a driver stops"
    driver.broken = NOT_READY
    after = Running(tmp_path, driver, store)
    try:
        assert waits.eventually(lambda: not after.offered())
        assert any("fake hardware: the kernel driver is not loaded" in line for line in after.readiness())
        assert "the kernel driver is not loaded" in after.prepare("chip-1")
        assert after.unprepare() == ""
        assert driver.hardware.made == {}
        driver.broken = None
        assert waits.eventually(lambda: "chip-0" in after.offered())
        assert not any("hardware" in line for line in after.readiness())
        assert not after.node.failed.is_set()
    finally:
        after.node.stop()


@pytest.mark.parametrize("broken", [errors.HardwareError("ioctl", "EIO"), KeyError("bug"), NOT_READY])
def test_any_error_of_the_first_discovery_leaves_unprepare_served(tmp_path: pathlib.Path, driver: Unready, broken: Exception) -> None:
    store = slice_store.FakeSliceStore()
    before = Running(tmp_path, driver, store)
    assert before.prepare("chip-0") == ""
    before.node.stop()
    driver.broken = broken
    after = Running(tmp_path, driver, store)
    try:
        assert after.unprepare() == ""
        assert driver.hardware.made == {}
    finally:
        after.node.stop()


def test_devices_are_withdrawn_while_the_hardware_is_not_ready(running: Running, driver: Unready) -> None:
    assert waits.eventually(lambda: "chip-0" in running.offered())
    driver.broken = NOT_READY
    assert waits.eventually(lambda: not running.offered())
    driver.broken = None
    assert waits.eventually(lambda: "chip-0" in running.offered())


def test_a_claim_whose_hardware_cannot_be_reached_ends_and_is_released_later(running: Running, driver: Unready) -> None:
    assert running.prepare("chip-0") == ""
    driver.unreachable = True
    assert running.unprepare() == ""
    local = running.node.local
    assert running.node.claims()[lifecycle.State.UNPREPARING] == 1
    assert not local.cdi.claims()
    releases = deferred_releases.DeferredReleases(local.engine, local.journal, timing.SystemClock())
    assert releases.check(threading.Event()) == 0
    assert "not loaded" in running.prepare("chip-0"), "the claim's own device is still to be released"
    driver.unreachable = False
    assert releases.check(threading.Event()) == 1
    assert driver.hardware.made == {}
    assert not running.node.claims().get(lifecycle.State.UNPREPARING)
    attempts = driver.attempts
    assert releases.check(threading.Event()) == 0
    assert driver.attempts == attempts, "no unpreparing claim, no call"


def test_a_release_that_keeps_failing_is_logged_once_and_noted(
    running: Running, driver: Unready, capfd: pytest.CaptureFixture[str]
) -> None:
    assert running.prepare("chip-0") == ""
    driver.unreachable = True
    assert running.unprepare() == ""
    releases, message = running.node.background.releases, "claim not released yet"
    for _ in range(3):
        assert releases.check(threading.Event()) == 0
    assert running.node.note() == f"1 claim not released yet, retrying: {UID}"
    assert capfd.readouterr().err.count(message) == 1
    driver.reason = "the GPU fell off the bus"
    releases.check(threading.Event())
    assert capfd.readouterr().err.count(message) == 1, "another reason"
    driver.unreachable = False
    assert releases.check(threading.Event()) == 1
    assert running.node.note() == ""


def test_a_claim_unprepared_by_the_kubelet_is_no_longer_reported(running: Running, driver: Unready) -> None:
    assert running.prepare("chip-0") == ""
    driver.unreachable = True
    assert running.unprepare() == ""
    releases = running.node.background.releases
    releases.check(threading.Event())
    driver.unreachable = False
    assert running.unprepare() == ""
    releases.check(threading.Event())
    assert running.node.note() == ""


def test_a_deferred_claim_still_holds_its_device(running: Running, driver: Unready) -> None:
    assert running.prepare("chip-0") == ""
    driver.unreachable = True
    assert running.unprepare() == ""
    other = claims.ClaimRef(uid=names.ClaimUid("00000000-0000-4000-8000-000000000002"), namespace="default", name="other")
    result = claims.AllocationResult(request="r", driver=author.FakeDriver.name, pool=POOL, device="chip-0")
    running.claims.put(claims.Claim(ref=other, results=(result,)))
    answer = running.node.local.engine.prepare([other], recovery.Deadline())
    assert "chip-0 is still held by claim default/claim" in answer[other.uid].error


def test_a_claim_that_was_prepared_again_is_not_released(running: Running) -> None:
    assert running.prepare("chip-0") == ""
    assert not running.node.local.engine.release(UID, recovery.Deadline())
    assert running.driver.hardware.made


def test_without_a_loop_that_releases_it_a_deferred_release_is_an_error(running: Running, driver: Unready) -> None:
    assert running.prepare("chip-0") == ""
    driver.unreachable = True
    running.node.local.engine.defers_release = False
    assert "not loaded" in running.unprepare()
