"""Two instances of a driver serve one node in a rolling update.

The kubelet hears of the younger one only if that can serve, and the younger one decides what is offered.
"""

import dataclasses
import pathlib
import tempfile
import threading
from collections.abc import Iterator

import pytest

from drakit._proto import dra_v1_pb2 as wire
from drakit._proto import dra_v1_pb2_grpc as services
from drakit.core import claim as claims
from drakit.core import device, driver, errors, inventory, names
from drakit.node import engine, local_node, node, timing
from drakit.node.publishing import publisher
from fakes import author, channels, claim_source, slice_store, waits

POOL = "node-1"
UID = names.ClaimUid("00000000-0000-4000-8000-000000000001")
ELDER, YOUNGER = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"


class Version(author.FakeDriver):
    """A version of the driver that offers a device of its own, and may be broken or slow."""

    def __init__(self, own: str = "", broken: Exception | None = None) -> None:
        super().__init__(author.Hardware())
        self.own, self.broken = own, broken
        self.entered, self.goes_on = threading.Event(), threading.Event()
        self.goes_on.set()

    def discover(self) -> inventory.Inventory:
        if self.broken is not None:
            raise self.broken
        found = super().discover()
        own = (device.Device(name=self.own),) if self.own else ()
        return dataclasses.replace(found, devices=(*found.devices, *own))

    def prepare(self, grant: driver.Grant[author.Tuning]) -> driver.Prepared:
        self.entered.set()
        assert self.goes_on.wait(waits.SECONDS)
        return super().prepare(grant)


class Machine:
    """What the two instances have in common."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.store = slice_store.FakeSliceStore()
        self.claims = claim_source.FakeClaimSource()
        self.registry = folder / "r"
        self.registry.mkdir()

    def instance(self, version: Version, uid: str) -> node.Node:
        spec = local_node.DriverSpec(
            driver_name=author.FakeDriver.name, build=lambda _: version, identity=engine.NodeIdentity(pool=POOL, boot_id="boot-1")
        )
        outside = node.NodeDependencies(
            claim_source=self.claims,
            slice_store=self.store,
            registry=self.registry,
            clock=timing.SystemClock(),
            rescan_seconds=0.05,
            instance=uid,
        )
        return node.Node(spec, local_node.Folders(home=self.folder / "d", cdi=self.folder / "c"), outside, node_name=POOL)

    def registered(self) -> list[str]:
        return sorted(path.name for path in self.registry.iterdir() if path.name.endswith("-reg.sock"))

    def offered(self) -> set[str]:
        return {found.name for one in self.store.list() for found in one.spec.page.devices}

    def prepare(self, uid: str) -> wire.NodePrepareResourceResponse:
        result = claims.AllocationResult(request="r", driver=author.FakeDriver.name, pool=POOL, device="chip-0")
        self.claims.put(claims.Claim(ref=claims.ClaimRef(uid=UID, namespace="default", name="claim"), results=(result,)))
        request = wire.NodePrepareResourcesRequest(claims=[wire.Claim(namespace="default", uid=UID, name="claim")])
        with channels.insecure(f"unix:{self.folder / 'd' / f'dra-{uid}.sock'}") as channel:
            return services.DRAPluginStub(channel).NodePrepareResources(request, timeout=waits.SECONDS).claims[UID]


@pytest.fixture
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="dk") as short:
        yield Machine(pathlib.Path(short))


@pytest.mark.parametrize("broken", [errors.HardwareError("nvmlInit", "broken"), KeyError("bug")], ids=["error", "bug"])
def test_a_version_that_fails_discovery_does_not_replace_a_working_one(machine: Machine, broken: Exception) -> None:
    elder = machine.instance(Version(), ELDER)
    elder.start()
    try:
        before = machine.registered()
        younger = machine.instance(Version(broken=broken), YOUNGER)
        with pytest.raises(errors.HardwareError):
            younger.start()
        assert machine.registered() == before
        assert waits.eventually(lambda: "chip-0" in machine.offered())
        assert machine.prepare(ELDER).error == ""
    finally:
        elder.stop()


def test_a_single_instance_registers_even_if_discovery_fails(machine: Machine) -> None:
    only = machine.instance(Version(broken=errors.HardwareError("nvmlInit", "broken")), ELDER)
    only.start()
    try:
        assert len(machine.registered()) == 1, "claims can still be unprepared"
    finally:
        only.stop()


def test_slices_of_the_newer_instance_win_and_are_restored_after_a_wipe(machine: Machine) -> None:
    elder, younger = machine.instance(Version("old"), ELDER), machine.instance(Version("new"), YOUNGER)
    elder.start()
    try:
        assert waits.eventually(lambda: "old" in machine.offered())
        younger.start()
        try:
            assert waits.eventually(lambda: "new" in machine.offered())
            writes = machine.store.writes
            for _ in range(5):
                elder.publisher.wake()
                threading.Event().wait(0.1)
            assert "old" not in machine.offered()
            assert machine.store.writes == writes, "the elder one mends nothing"
        finally:
            younger.stop()
        elder.publisher.wake()
        assert waits.eventually(lambda: "old" in machine.offered()), "the younger one has gone: the elder one decides again"
        assert "chip-0" in machine.offered()
    finally:
        elder.stop()


def test_deleted_slices_are_recreated_by_the_older_instance_too() -> None:
    store = slice_store.FakeSliceStore()
    target = publisher.Target(driver="fake.example.com", node=POOL, pool=POOL)
    made = publisher.Publisher(target, store=store, clock=timing.SystemClock(), is_succeeded=lambda: True)
    made.offer(inventory.Inventory.of([device.Device(name="chip-0")]))
    assert made.reconcile() == 1
    for one in list(store.list()):
        store.delete(one)
    assert made.reconcile() == 1
    made.offer(inventory.Inventory.of([device.Device(name="chip-1")]))
    assert made.reconcile() == 1, "what changes for the elder one itself is written"


def test_a_running_call_is_finished_before_the_kubelet_is_notified_of_the_end(machine: Machine) -> None:
    version = Version()
    elder = machine.instance(version, ELDER)
    elder.start()
    version.goes_on.clear()
    answers: list[wire.NodePrepareResourceResponse] = []
    calling = threading.Thread(target=lambda: answers.append(machine.prepare(ELDER)))
    calling.start()
    assert version.entered.wait(waits.SECONDS)
    stopping = threading.Thread(target=elder.stop)
    stopping.start()
    stopping.join(0.5)
    assert len(machine.registered()) == 1, "the kubelet closes its connection, with the call, when the registration ends"
    version.goes_on.set()
    calling.join(waits.SECONDS)
    stopping.join(waits.SECONDS)
    assert [answer.error for answer in answers] == [""]
    assert machine.registered() == []
