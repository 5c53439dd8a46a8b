"""NICs of the real kernel, from discovery to two prepared shares and back, leaving the kernel as it was.

The NICs are veth ends in a namespace of the test's own; engine, journal, locks and CDI directory are the real ones, only the API server is not.
"""

import contextlib
import dataclasses
import datetime
import json
import pathlib
import threading
from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from drakit.cdi import directory
from drakit.core import claim as claims
from drakit.core import driver, lifecycle, names, ports, quantity
from drakit.core.slices import resource_slice
from drakit.journal import journal, locks
from drakit.node import engine, inventory_cache
from drakit.node.publishing import publisher
from drakit_nic import driver as nic_driver
from drakit_nic import kernel_port
from drakit_nic import options as nic_options
from fakes import netns

pytestmark = pytest.mark.root

NODE = "node-1"
BITS = quantity.Quantity.of
OPTIONS = nic_options.NicOptions(
    exclude=("*-wire",),
    rules=(
        nic_options.NicRule(match="nic0", speed=BITS("25G"), reserve=BITS("1G")),
        nic_options.NicRule(match="nic1", speed=BITS("10G")),
        nic_options.NicRule(match="uplink0", speed=BITS("1G")),
    ),
)


class Waiting:
    """A kubelet that has all the time in the world."""

    def is_waiting(self) -> bool:
        return True

    def seconds_left(self) -> None:
        return None


class Claims:
    """Allocated claims, as the API server would give them."""

    def __init__(self) -> None:
        self.known: dict[names.ClaimUid, claims.Claim] = {}

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        return self.known[ref.uid]

    def allocate(self, number: int, *shares: tuple[str, str]) -> claims.ClaimRef:
        """A claim that was given a share of each (device, bandwidth)."""
        uid = names.ClaimUid(f"{netns.WORKER}-0000-4000-8000-{number:012}")
        ref = claims.ClaimRef(uid=uid, namespace="default", name=f"claim-{number}")
        results = tuple(
            claims.AllocationResult(
                request=f"net-{index}",
                driver=nic_driver.NAME,
                pool=NODE,
                device=device,
                share_id=names.ShareId(f"{number:08}-0000-4000-8000-{index:012}"),
                consumed_capacity={"bandwidth": BITS(bandwidth)},
            )
            for index, (device, bandwidth) in enumerate(shares)
        )
        self.known[uid] = claims.Claim(ref=ref, results=results)
        return ref


class Slices:
    """A server that stores slices as they are sent."""

    def __init__(self) -> None:
        self.stored: dict[str, resource_slice.Published] = {}

    def list(self) -> Sequence[resource_slice.Published]:
        return list(self.stored.values())

    def create(self, wanted: resource_slice.Create) -> resource_slice.Published:
        name = f"{wanted.prefix}{len(self.stored)}"
        self.stored[name] = resource_slice.Published(name=name, uid=name, version="1", spec=wanted.spec)
        return self.stored[name]

    def update(self, wanted: resource_slice.Update) -> resource_slice.Published:
        self.stored[wanted.published.name] = dataclasses.replace(wanted.published, spec=wanted.spec)
        return self.stored[wanted.published.name]

    def delete(self, published: resource_slice.Published) -> None:
        self.stored.pop(published.name, None)

    def server(self) -> ports.ApiServer:
        return ports.ApiServer(version="v1.36.2")

    def watch(self, stop: threading.Event) -> Iterator[None]:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Node:
    """One driver on one node, and the world around it."""

    space: netns.Namespace
    author: nic_driver.NicDriver
    offered: inventory_cache.InventoryCache
    engine: engine.Engine
    source: Claims
    memory: journal.Journal
    cdi: pathlib.Path

    def prepare(self, *refs: claims.ClaimRef) -> list[claims.Outcome]:
        return list(self.engine.prepare(refs, Waiting()).values())

    def unprepare(self, *refs: claims.ClaimRef) -> list[str]:
        return list(self.engine.unprepare(refs, Waiting()).values())

    def environments(self) -> list[dict[str, str]]:
        """What the containers of the prepared devices would see, one for each CDI file."""
        documents = [json.loads(file.read_text()) for file in sorted(self.cdi.glob("*.json"))]
        assert all(len(document["devices"]) == 1 for document in documents)
        return [dict(entry.split("=", 1) for entry in document["devices"][0]["containerEdits"]["env"]) for document in documents]


@contextlib.contextmanager
def started(space: netns.Namespace, folder: pathlib.Path, known: Claims) -> Iterator[Node]:
    author = nic_driver.NicDriver(kernel_port.KernelPort(space.name), node=NODE, options=OPTIONS)
    served = cast("driver.Driver[object]", author)
    offered = inventory_cache.InventoryCache(served)
    offered.refresh()
    with journal.Journal.open(folder / "journal", driver=author.name, boot_id="boot-1") as memory:
        worker = engine.Engine(
            served,
            identity=engine.NodeIdentity(pool=NODE, boot_id="boot-1"),
            offered=offered,
            claim_source=known,
            journal=memory,
            cdi=directory.Directory(folder / "cdi", driver=author.name),
            device_locks=locks.FileLocks(folder / "journal"),
            locks_of_claims=locks.FileLocks(folder / "journal", "claims", disposable=True),
        )
        yield Node(space=space, author=author, offered=offered, engine=worker, source=known, memory=memory, cdi=folder / "cdi")


@pytest.fixture
def space() -> Iterator[netns.Namespace]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as made:
        made.make_nic("uplink0", mac="02:00:00:00:00:10")
        made.ip("address", "add", "10.1.0.2/24", "dev", "uplink0")
        made.ip("route", "add", "default", "via", "10.1.0.1")
        made.make_nic("nic0", mac="02:00:00:00:00:20", mtu=9000)
        made.make_nic("nic1", mac="02:00:00:00:00:30")
        yield made


@pytest.fixture
def node(space: netns.Namespace, tmp_path: pathlib.Path) -> Iterator[Node]:
    with started(space, tmp_path, Claims()) as running:
        yield running


def test_nics_are_discovered_and_published_with_the_admin_s_speeds(node: Node) -> None:
    server = Slices()
    before = node.space.state()
    publishing = publisher.Publisher(publisher.Target(driver=node.author.name, node=NODE, pool=NODE), store=server, clock=StoppedClock())
    publishing.offer(node.offered.current.authored)
    publishing.reconcile()
    (stored,) = server.list()
    assert {item.name: str(item.capacity["bandwidth"].value) for item in stored.spec.page.devices} == {"nic0": "24G", "nic1": "10G"}
    assert all(item.allow_multiple_allocations for item in stored.spec.page.devices)
    assert {item.name: item.reason for item in node.author.survey().withheld} == {
        "lo": "is the loopback interface",
        "nic0-wire": "matches nic.exclude",
        "nic1-wire": "matches nic.exclude",
        "uplink0": "carries the host's default route",
        "uplink0-wire": "matches nic.exclude",
    }
    assert node.space.state() == before


class StoppedClock:
    """Time that does not pass."""

    def now(self) -> datetime.datetime:
        return datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def monotonic(self) -> float:
        return 0.0

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.is_set()


def test_preparing_and_unpreparing_two_shares_of_one_nic_restores_the_kernel(node: Node) -> None:
    before = node.space.state()
    first, second = node.source.allocate(1, ("nic0", "10G")), node.source.allocate(2, ("nic0", "5G"))
    prepared = node.prepare(first, second)
    assert [answer.error for answer in prepared] == ["", ""]
    shares = [device for answer in prepared for device in answer.devices]
    assert [share.device for share in shares] == ["nic0", "nic0"]
    assert len({share.share_id for share in shares}) == 2
    assert len({share.cdi_ids for share in shares}) == 2

    result = node.environments()
    assert sorted(value for seen in result for name, value in seen.items() if name.endswith("_BANDWIDTH")) == ["10000000000", "5000000000"]
    assert len({value for seen in result for name, value in seen.items() if name.endswith("_MAC")}) == 2
    assert [entry.state for entry in node.memory.entries()] == [lifecycle.State.PREPARED] * 2

    assert node.prepare(first, second) == prepared, "asked again, the kubelet gets the same answer"
    assert node.unprepare(first, second, first) == ["", ""]
    assert not list(node.memory.entries())
    assert not list(node.cdi.glob("*.json"))
    assert node.space.state() == before


def test_one_claim_may_hold_shares_of_two_nics_and_two_of_one(node: Node) -> None:
    before = node.space.state()
    ref = node.source.allocate(3, ("nic0", "1G"), ("nic0", "2G"), ("nic1", "3G"))
    (answer,) = node.prepare(ref)
    assert answer.error == ""
    assert [share.device for share in answer.devices] == ["nic0", "nic0", "nic1"]
    seen = node.environments()
    merged = {name: value for one in seen for name, value in one.items()}
    assert len(merged) == sum(map(len, seen)), "no share overwrites another's variables"
    assert node.unprepare(ref) == [""]
    assert node.space.state() == before


def test_after_a_restart_another_process_unprepares_also_when_the_nic_is_gone(space: netns.Namespace, tmp_path: pathlib.Path) -> None:
    known = Claims()
    ref = known.allocate(4, ("nic1", "1G"))
    links = space.links().keys()
    with started(space, tmp_path, known) as before:
        assert before.prepare(ref)[0].error == ""
    space.ip("link", "delete", "nic1")
    with started(space, tmp_path, known) as after:
        assert after.unprepare(ref) == [""]
        assert not list(after.memory.entries())
        assert not list(after.cdi.glob("*.json"))
    assert space.links().keys() == links - {"nic1", "nic1-wire"}


def test_what_cannot_be_prepared_is_refused_with_its_reason_and_leaves_nothing(node: Node) -> None:
    before = set(node.space.links())
    refused = {
        node.source.allocate(5, ("uplink0", "1G")): "this node does not offer 'uplink0': uplink0 carries the host's default route",
        node.source.allocate(6, ("nic1", "11G")): "results[0].consumedCapacity[bandwidth]: nic1 has 10G, the claim says 11G",
    }
    for ref, reason in refused.items():
        (answer,) = node.prepare(ref)
        assert reason in answer.error
        assert answer.devices == ()
    node.space.ip("link", "delete", "nic0")
    (answer,) = node.prepare(node.source.allocate(7, ("nic0", "1G")))
    assert answer.error.startswith("nic0: the interface nic0 is no longer there; plug the NIC in")
    assert not list(node.memory.entries())
    assert not list(node.cdi.glob("*.json"))
    node.space.make_nic("nic0", mac="02:00:00:00:00:20", mtu=9000)
    assert set(node.space.links()) == before


def test_a_nic_that_was_replaced_is_prepared_anew(node: Node) -> None:
    ref = node.source.allocate(8, ("nic1", "1G"))
    (first,) = node.prepare(ref)
    (entry,) = node.memory.entries()
    node.space.ip("link", "delete", "nic1")
    node.space.make_nic("nic1", mac="02:00:00:00:00:30")
    (second,) = node.prepare(ref)
    (anew,) = node.memory.entries()
    assert first == second
    assert entry.grants[0].record["ifIndex"] != anew.grants[0].record["ifIndex"]
    assert node.unprepare(ref) == [""]
