"""A serving node on real sockets: what it does when something around it goes wrong."""

import pathlib
import threading
from collections.abc import Iterator

import pytest

from drakit._proto import dra_v1_pb2 as wire
from drakit._proto import dra_v1_pb2_grpc as services
from drakit.core import claim as claims
from drakit.core import errors, inventory, names
from drakit.node import engine, local_node, node, timing
from fakes import author, channels, claim_source, slice_store, waits

POOL = "node-1"
UID = names.ClaimUid("00000000-0000-4000-8000-000000000001")


class Fickle(author.FakeDriver):
    """A driver whose discovery can be broken."""

    broken: Exception | None = None

    def discover(self) -> inventory.Inventory:
        if self.broken is not None:
            raise self.broken
        return super().discover()


class Running:
    """A started node and what it stands on."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.driver = Fickle(author.Hardware())
        self.failure_reported = threading.Event()
        self.store = slice_store.FakeSliceStore()
        self.claims = claim_source.FakeClaimSource()
        registry = folder / "r"
        registry.mkdir()
        spec = local_node.DriverSpec(
            driver_name=author.FakeDriver.name, build=lambda _: self.driver, identity=engine.NodeIdentity(pool=POOL, boot_id="boot-1")
        )
        outside = node.NodeDependencies(
            claim_source=self.claims,
            slice_store=self.store,
            registry=registry,
            clock=timing.SystemClock(),
            rescan_seconds=0.05,
            failed=self.failure_reported.set,
        )
        self.socket = folder / "d" / "dra.sock"
        self.node = node.Node(spec, local_node.Folders(home=folder / "d", cdi=folder / "c"), outside, node_name=POOL)
        self.node.start()

    def prepare(self, device: str) -> wire.NodePrepareResourceResponse:
        result = claims.AllocationResult(request="r", driver=author.FakeDriver.name, pool=POOL, device=device)
        self.claims.put(claims.Claim(ref=claims.ClaimRef(uid=UID, namespace="default", name="claim"), results=(result,)))
        request = wire.NodePrepareResourcesRequest(claims=[wire.Claim(namespace="default", uid=UID, name="claim")])
        with channels.insecure(f"unix:{self.socket}") as channel:
            return services.DRAPluginStub(channel).NodePrepareResources(request, timeout=waits.SECONDS).claims[UID]

    def offered(self) -> set[str]:
        return {device.name for one in self.store.list() for device in one.spec.page.devices}


@pytest.fixture
def running(tmp_path: pathlib.Path) -> Iterator[Running]:
    started = Running(tmp_path)
    yield started
    started.node.stop()


def test_devices_are_published_and_prepared(running: Running) -> None:
    assert waits.eventually(lambda: "chip-0" in running.offered())
    answer = running.prepare("chip-0")
    assert answer.error == ""
    assert [device.device_name for device in answer.devices] == ["chip-0"]


def test_a_device_that_is_unplugged_is_withdrawn_also_when_a_claim_finds_out_first(running: Running) -> None:
    assert waits.eventually(lambda: "chip-1" in running.offered())
    running.driver.hardware.present.discard("chip-1")
    assert running.prepare("chip-9").error
    assert waits.eventually(lambda: "chip-1" not in running.offered())


def test_an_exception_in_discover_keeps_the_offer_and_unprepare(running: Running) -> None:
    assert waits.eventually(lambda: "chip-0" in running.offered())
    assert running.prepare("chip-0").error == ""
    running.driver.broken = KeyError("bug")
    assert not running.node.failed.wait(0.3)
    assert "chip-0" in running.offered()
    request = wire.NodeUnprepareResourcesRequest(claims=[wire.Claim(namespace="default", uid=UID, name="claim")])
    with channels.insecure(f"unix:{running.socket}") as channel:
        answer = services.DRAPluginStub(channel).NodeUnprepareResources(request, timeout=waits.SECONDS)
    assert answer.claims[UID].error == ""
    assert running.driver.hardware.made == {}


def test_a_deleted_service_socket_is_made_again(running: Running) -> None:
    running.socket.unlink()
    assert waits.eventually(running.socket.exists)
    assert running.prepare("chip-0").error == ""
    assert not running.node.failed.is_set()


def test_a_foreign_file_at_the_service_socket_is_kept_reported_and_waited_for(running: Running) -> None:
    running.socket.unlink()
    running.socket.mkdir()
    assert waits.eventually(lambda: f"{running.socket} exists and is not a socket; remove it" in running.node.registration())
    assert running.socket.is_dir()
    assert not running.node.failed.is_set()
    running.socket.rmdir()
    assert waits.eventually(running.socket.exists)
    assert running.prepare("chip-0").error == ""


def test_a_service_socket_whose_folder_was_emptied_ends_the_process(running: Running) -> None:
    for path in (running.socket, running.socket.with_name(f".{running.socket.name}.lock")):
        path.unlink()
    assert running.failure_reported.wait(waits.SECONDS), "whoever runs the node learns of it"
    assert running.node.failed.is_set()


def test_stopping_leaves_slices_and_no_socket(running: Running) -> None:
    assert waits.eventually(lambda: "chip-0" in running.offered())
    running.node.stop()
    assert not running.socket.exists()
    assert "chip-0" in running.offered()


def test_a_failed_registration_leaves_no_socket_and_the_next_start_works(tmp_path: pathlib.Path) -> None:
    def made(registry: pathlib.Path) -> node.Node:
        spec = local_node.DriverSpec(
            driver_name=author.FakeDriver.name,
            build=lambda _: author.FakeDriver(author.Hardware()),
            identity=engine.NodeIdentity(pool=POOL, boot_id="boot-1"),
        )
        store = slice_store.FakeSliceStore()
        outside = node.NodeDependencies(
            claim_source=claim_source.FakeClaimSource(), slice_store=store, registry=registry, clock=timing.SystemClock()
        )
        return node.Node(spec, local_node.Folders(home=tmp_path / "d", cdi=tmp_path / "c"), outside, node_name=POOL)

    with pytest.raises(errors.SettingsError, match="check that the kubelet runs"):
        made(tmp_path / "missing").start()
    assert list((tmp_path / "d").glob("*.sock")) == []
    (tmp_path / "r").mkdir()
    second = made(tmp_path / "r")
    second.start()
    assert (tmp_path / "d" / "dra.sock").is_socket()
    second.stop()


def test_two_nodes_cannot_serve_one_folder(running: Running, tmp_path: pathlib.Path) -> None:
    other = tmp_path / "again"
    other.mkdir()
    assert running.socket.exists()
    with pytest.raises(Exception, match=r"dra\.sock"):
        _second(running, other)


def _second(running: Running, folder: pathlib.Path) -> None:
    registry = folder / "r"
    registry.mkdir()
    spec = local_node.DriverSpec(
        driver_name=author.FakeDriver.name, build=lambda _: running.driver, identity=engine.NodeIdentity(pool=POOL, boot_id="boot-1")
    )
    outside = node.NodeDependencies(claim_source=running.claims, slice_store=running.store, registry=registry, clock=timing.SystemClock())
    folders = local_node.Folders(home=running.socket.parent, cdi=folder / "c")
    node.Node(spec, folders, outside, node_name=POOL).start()
