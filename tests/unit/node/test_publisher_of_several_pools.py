"""The slices of a node with several pools: each pool for itself, and nobody else's."""

import dataclasses
import datetime
from collections.abc import Mapping

import pytest

from drakit.core import device, errors, inventory, quantity
from drakit.core.slices import resource_slice
from drakit.node.publishing import publisher
from fakes import real_clock, slice_store

TARGET = publisher.Target(driver="fake.example.com", node="node-1", pool="node-1")
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
HOT = device.Taint(key="example.com/hot", effect=device.TaintEffect.NO_EXECUTE)


def offered(**pools: str) -> inventory.Inventory:
    """Devices by name, each in the pool NODE/POOL, or in the node's own where that is empty."""
    return inventory.Inventory.of(device.Device(name=name, pool=pool or None) for name, pool in pools.items())


def start(store: slice_store.FakeSliceStore, what: inventory.Inventory, *, succeeded: bool = False) -> publisher.Publisher:
    made = publisher.Publisher(TARGET, store=store, clock=real_clock.RealClock(), is_succeeded=lambda: succeeded)
    made.offer(what)
    made.reconcile()
    return made


def published(store: slice_store.FakeSliceStore) -> Mapping[str, tuple[int, int, tuple[str, ...]]]:
    """Generation, number of slices and devices, by pool."""
    return {
        one.spec.pool.name: (
            one.spec.pool.generation,
            one.spec.pool.count,
            tuple(item.name for other in store.list() if other.spec.pool.name == one.spec.pool.name for item in other.spec.page.devices),
        )
        for one in store.list()
    }


def versions(store: slice_store.FakeSliceStore) -> Mapping[str, str]:
    return {one.spec.pool.name: one.version for one in store.list()}


def test_each_pool_is_published_with_its_devices_and_one_probe_asks_for_all() -> None:
    store = slice_store.FakeSliceStore()
    made = start(store, offered(a="", b="fast", c="slow", d="fast"))
    assert published(store) == {"node-1": (1, 1, ("a",)), "node-1/fast": (1, 1, ("b", "d")), "node-1/slow": (1, 1, ("c",))}
    assert store.writes == 4, "three slices, and one probe for mixins"
    assert {one.spec.node for one in store.list()} == {"node-1"}
    assert made.reconcile() == 0


def test_a_change_in_one_pool_writes_only_slices_of_that_pool() -> None:
    store = slice_store.FakeSliceStore()
    made = start(store, offered(d="fast", a="slow"))
    before = versions(store)
    many = {f"d{number}": "fast" for number in range(300)}
    made.offer(offered(**many, a="slow"))
    assert made.reconcile() == 3
    assert {pool: figures[:2] for pool, figures in published(store).items()} == {"node-1/fast": (2, 3), "node-1/slow": (1, 1)}
    assert versions(store)["node-1/slow"] == before["node-1/slow"]
    made.offer(offered(**many, a="slow", b="slow"))
    assert made.reconcile() == 1


def test_the_slices_of_a_pool_are_deleted_with_its_last_device() -> None:
    store = slice_store.FakeSliceStore()
    made = start(store, offered(a="", b="fast"))
    made.offer(offered(a=""))
    assert made.reconcile() == 1
    assert published(store) == {"node-1": (1, 1, ("a",))}


def test_without_devices_the_nodes_pool_is_published_empty() -> None:
    store = slice_store.FakeSliceStore()
    made = start(store, offered(a="fast", b="slow"))
    assert set(published(store)) == {"node-1/fast", "node-1/slow"}
    made.offer(inventory.Inventory())
    made.reconcile()
    assert published(store) == {"node-1": (1, 1, ())}


def test_a_device_that_changes_pools_is_never_offered_twice_and_keeps_its_taint() -> None:
    class Watched(slice_store.FakeSliceStore):
        most = 0

        def _tell(self) -> None:
            super()._tell()
            where = [one for one in self._slices.values() if any(item.name == "a" for item in one.spec.page.devices)]
            self.most = max(self.most, len(where))

    def tainted(pool: str, when: datetime.datetime | None) -> inventory.Inventory:
        moving = device.Device(name="a", pool=pool, taints=(dataclasses.replace(HOT, time_added=when),))
        others = (device.Device(name="x", pool="fast"), device.Device(name="y", pool="slow"))
        return inventory.Inventory(devices=(*others, moving))

    store = Watched()
    made = start(store, tainted("slow", NOON))
    made.offer(tainted("fast", None))
    made.reconcile()
    assert published(store) == {"node-1/slow": (1, 1, ("y",)), "node-1/fast": (1, 1, ("x", "a"))}
    made.offer(tainted("slow", None))
    made.reconcile()
    assert store.most == 1
    (taint,) = next(item for one in store.list() for item in one.spec.page.devices if item.name == "a").taints
    assert taint.time_added == NOON


def test_a_pool_that_the_server_refuses_does_not_stop_the_others() -> None:
    class Refusing(slice_store.FakeSliceStore):
        def create(self, wanted: resource_slice.Create) -> resource_slice.Published:
            if wanted.spec.pool.name == "node-1/fast":
                raise errors.ApiError("the API server answered 403: quota", status=403, reason="Forbidden")
            return super().create(wanted)

    store = Refusing()
    made = publisher.Publisher(TARGET, store=store, clock=real_clock.RealClock())
    made.offer(offered(a="fast", b="slow", c=""))
    with pytest.raises(errors.ApiError, match="quota"):
        made.reconcile()
    assert set(published(store)) == {"node-1/slow", "node-1"}
    assert not made.published.is_set()


def test_the_older_of_two_instances_keeps_pools_known_only_to_the_newer() -> None:
    store = slice_store.FakeSliceStore()
    elder = start(store, offered(a="", b=""), succeeded=True)
    start(store, offered(a="fast", b="slow"))
    younger = published(store)
    elder.wake()
    assert elder.reconcile() == 0
    assert published(store) == younger == {"node-1/fast": (1, 1, ("a",)), "node-1/slow": (1, 1, ("b",))}
    store.wipe()
    assert elder.reconcile() == 1, "slices that are gone are made again by either"


def test_a_dropped_field_is_found_once_for_all_pools() -> None:
    def without_counters(spec: resource_slice.SliceSpec) -> resource_slice.SliceSpec:
        page = spec.page
        plain = tuple(dataclasses.replace(item, consumes=()) for item in page.devices)
        return dataclasses.replace(spec, page=resource_slice.Page(devices=plain, mixins=page.mixins))

    store = slice_store.FakeSliceStore(without_counters)
    parts = [
        device.Device(name=f"{card}-{part}", pool=card, consumes=(device.CounterConsumption(counter_set=card, counters={"u": part}),))
        for card in ("one", "two")
        for part in (quantity.Quantity.of(2), quantity.ONE)
    ]
    sets = tuple(device.CounterSet(name=card, counters={"u": quantity.Quantity.of(2)}) for card in ("one", "two"))
    start(store, inventory.Inventory(devices=tuple(parts), counter_sets=sets))
    assert published(store) == {"node-1/one": (1, 1, ("one-2",)), "node-1/two": (1, 1, ("two-2",))}
