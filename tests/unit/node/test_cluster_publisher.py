"""The pools of the cluster are as offered while this process leads, and untouched while it does not."""

import dataclasses
import functools

import pytest

from drakit.core import device, errors, inventory
from drakit.core.slices import node_selection, resource_slice
from drakit.node.publishing import cluster_publisher
from fakes import real_clock, slice_store
from tpu_driver import machine, offer

DRIVER = "tpu.drakit.dev"
GATE = "the API server answered 422: spec: exactly one of nodeName, nodeSelector, allNodes, perDeviceNodeSelection is required"


def plain(name: str, *devices: str, place: node_selection.PoolNodes | None = None) -> inventory.ClusterPool:
    offered = inventory.Inventory.of(device.Device(name=one) for one in devices)
    return inventory.ClusterPool(name=name, reach=place or node_selection.AllNodes(), inventory=offered)


class Lead:
    """Whether the process leads; ``left`` counts the answers until it does not."""

    def __init__(self) -> None:
        self.left = 1 << 30

    def __call__(self) -> bool:
        self.left -= 1
        return self.left >= 0


def start(
    store: slice_store.FakeSliceStore, *offered: inventory.ClusterPool, lead: Lead | None = None
) -> cluster_publisher.ClusterPublisher:
    made = cluster_publisher.ClusterPublisher(DRIVER, store=store, leads=lead or Lead(), clock=real_clock.RealClock())
    made.offer(offered)
    return made


def published(store: slice_store.FakeSliceStore) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in sorted(store.list(), key=lambda one: one.name):
        found.setdefault(one.spec.pool.name, []).extend(item.name for item in one.spec.page.devices)
    return found


def test_a_tpu_pool_belongs_to_no_node_and_its_devices_select_their_nodes() -> None:
    store = slice_store.FakeSliceStore()
    offered = offer.of(machine.load("tpu-v5e-8x8"))
    start(store, *offered).reconcile()
    assert published(store) == {"tpus": [item.name for item in offered[0].inventory.devices]}
    assert {(one.spec.node, one.spec.reach) for one in store.list()} == {("", node_selection.PerDevice())}
    assert all(one.name.startswith(("00000-tpu.drakit.dev-", "00001-tpu.drakit.dev-")) for one in store.list())


def test_idle_rounds_write_nothing() -> None:
    store = slice_store.FakeSliceStore()
    idle = start(store, *offer.of(machine.load("tpu-v5e-8x8")))
    idle.reconcile()
    before = store.writes
    assert sum(idle.reconcile() for _ in range(200)) == 0
    assert store.writes == before


def test_only_pools_that_are_no_longer_offered_are_deleted() -> None:
    store = slice_store.FakeSliceStore()
    made = start(store, plain("one", "a"), plain("two", "b"))
    made.reconcile()
    kept = [one for one in store.list() if one.spec.pool.name == "two"]
    made.offer([plain("two", "b"), plain("three", "c")])
    made.reconcile()
    assert published(store) == {"two": ["b"], "three": ["c"]}
    assert [one for one in store.list() if one.spec.pool.name == "two"] == kept


def test_nothing_is_written_without_leading() -> None:
    store, lead = slice_store.FakeSliceStore(), Lead()
    lead.left = 0
    assert start(store, plain("one", "a"), lead=lead).reconcile() == 0
    assert store.writes == 0


@functools.cache
def tpus() -> tuple[inventory.ClusterPool, ...]:
    return tuple(offer.of(machine.load("tpu-v5e-16x16")))


@pytest.mark.parametrize("answers", range(1, 12))
def test_losing_the_lease_stops_the_round_and_the_next_leader_finishes_it(answers: int) -> None:
    store, lead, offered = slice_store.FakeSliceStore(), Lead(), tpus()
    first = start(store, *offered, lead=lead)
    lead.left = answers
    try:
        first.reconcile()
    except errors.RetryError:
        before = store.writes
        assert first.reconcile() == 0
        assert store.writes == before
    start(store, *offered).reconcile()
    assert published(store) == {"tpus": [item.name for item in offered[0].inventory.devices]}
    assert len({one.spec.pool for one in store.list()}) == 1


def test_a_pool_that_moves_to_other_nodes_is_rewritten_in_place() -> None:
    store = slice_store.FakeSliceStore()
    made = start(store, plain("one", "a"))
    made.reconcile()
    [before] = store.list()
    place = node_selection.NodeSelector.by_label("zone", ["west"])
    made.offer([plain("one", "a", place=place)])
    made.reconcile()
    [after] = store.list()
    assert (after.name, after.spec.reach, after.spec.pool.generation) == (before.name, place, 1)


def test_one_pool_that_fails_does_not_stop_the_others() -> None:
    def stored(spec: resource_slice.SliceSpec) -> resource_slice.SliceSpec:
        if spec.pool.name.startswith("one"):
            raise errors.ApiError("the API server answered 500: no", status=500)
        return spec

    store = slice_store.FakeSliceStore(stored)
    made = start(store, plain("one", "a"), plain("two", "b"))
    with pytest.raises(errors.ApiError, match="500"):
        made.reconcile()
    assert published(store) == {"two": ["b"]}
    assert not made.published.is_set()


def test_a_server_without_the_gate_is_named_and_nothing_is_offered() -> None:
    def stored(spec: resource_slice.SliceSpec) -> resource_slice.SliceSpec:
        if isinstance(spec.reach, node_selection.PerDevice):
            raise errors.ApiError(GATE, status=422, reason="Invalid")
        return spec

    store = slice_store.FakeSliceStore(stored)
    with pytest.raises(errors.ApiError, match=r"pool tpus cannot be offered.*enable its feature gate DRAPartitionableDevices"):
        start(store, *offer.of(machine.load("tpu-v5e-8x8"))).reconcile()
    assert not list(store.list())


def test_nodes_are_selected_by_the_pool_or_by_its_devices_never_both() -> None:
    alone = device.Device(name="a")
    chosen = dataclasses.replace(alone, reach=node_selection.OneNode(name="n"))
    with pytest.raises(errors.InventoryError, match=r"pool\[p\]\.devices\[a\]\.reach: is required"):
        inventory.ClusterPool(name="p", reach=node_selection.PerDevice(), inventory=inventory.Inventory.of([alone]))
    with pytest.raises(errors.InventoryError, match=r"pool\[p\]\.devices\[a\]\.reach: may be given only"):
        inventory.ClusterPool(name="p", reach=node_selection.AllNodes(), inventory=inventory.Inventory.of([chosen]))
    with pytest.raises(errors.InventoryError, match=r"pools\[p\]: the name is used 2 times"):
        start(slice_store.FakeSliceStore(), plain("p", "a"), plain("p", "b"))
