"""What is written to slices, by the rules of Kubernetes' slice controller."""

import dataclasses
import datetime
from typing import Any

import pytest

from drakit.core import capacity, device, inventory, node_resources, quantity
from drakit.core.slices import node_selection, reconcile, resource_slice
from drakit.core.slices.resource_slice import Page

WHO = {"driver": "gpu.example.com", "node": "node1", "pool": "node1"}
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)


def page(*names: str, **fields: Any) -> Page:
    return Page(devices=tuple(device.Device(name=name, **fields) for name in names))


def stored(
    index: int, content: Page, *, generation: int = 1, count: int = 1, suffix: str = "abcde", **changes: str
) -> resource_slice.Published:
    who = WHO | changes
    pool = resource_slice.Pool(name=who["pool"], generation=generation, count=count)
    name = f"{index:05x}-gpu.example.com-node1-{suffix}"
    return resource_slice.Published(
        name=name, uid=name, version="1", spec=resource_slice.SliceSpec(driver=who["driver"], node=who["node"], pool=pool, page=content)
    )


def plan(pages: list[Page], *published: resource_slice.Published) -> resource_slice.Changes:
    return reconcile.plan(pages, published, driver=WHO["driver"], node=WHO["node"], pool=WHO["pool"])


@pytest.mark.parametrize(
    "index, count, name",
    [(0, 1, "00000-d-n-"), (10, 11, "0000a-d-n-"), (0, 2**20, "00000-d-n-"), (1, 2**20 + 1, "000001-d-n-")],
)
def test_names_start_with_the_index_in_hex(index: int, count: int, name: str) -> None:
    width = reconcile.index_width(count)
    assert reconcile.generate_name(index, width, "d", "n") == name
    assert reconcile.index_of(f"{name}x7k2p", width) == index


@pytest.mark.parametrize("name", ["", "00000", "0000-a", "000000-a", "0000A-a", "0x000-a", "node1-gpu", "-00000-a", "+0000-a"])
def test_other_names_have_no_index(name: str) -> None:
    assert reconcile.index_of(name, 5) is None


def test_the_first_publication_creates_generation_one_in_order() -> None:
    changes = plan([page("a"), page("b")])
    assert [(one.index, one.prefix) for one in changes.creates] == [
        (0, "00000-gpu.example.com-node1-"),
        (1, "00001-gpu.example.com-node1-"),
    ]
    assert {one.spec.pool for one in changes.creates} == {resource_slice.Pool(name="node1", generation=1, count=2)}
    assert not changes.updates
    assert not changes.deletes


def test_nothing_changed_writes_nothing() -> None:
    assert not plan([page("a"), page("b")], stored(0, page("a"), count=2), stored(1, page("b"), count=2))


def test_one_changed_page_is_one_update_in_the_same_generation() -> None:
    changes = plan([page("a"), page("c")], stored(0, page("a"), count=2, generation=7), stored(1, page("b"), count=2, generation=7))
    assert [(one.index, one.spec.page, one.spec.pool.generation) for one in changes.updates] == [(1, page("c"), 7)]
    assert not changes.creates
    assert not changes.deletes


def test_two_changed_pages_rewrite_all_in_the_next_generation() -> None:
    published = [stored(n, page(name), count=3, generation=7) for n, name in enumerate("abc")]
    changes = plan([page("a"), page("x"), page("y")], *published)
    assert [(one.index, one.spec.pool.generation) for one in changes.updates] == [(0, 8), (1, 8), (2, 8)]


def test_a_new_page_rewrites_all_in_the_next_generation() -> None:
    changes = plan([page("a"), page("b")], stored(0, page("a"), generation=3))
    assert [(one.index, one.spec.pool) for one in changes.updates] == [(0, resource_slice.Pool(name="node1", generation=4, count=2))]
    assert [(one.index, one.spec.pool.generation) for one in changes.creates] == [(1, 4)]


def test_a_removed_page_deletes_its_slice_and_updates_the_count() -> None:
    last = stored(1, page("b"), count=2)
    changes = plan([page("a")], stored(0, page("a"), count=2), last)
    assert changes.deletes == (last,)
    assert [(one.index, one.spec.pool.count, one.spec.pool.generation) for one in changes.updates] == [(0, 1, 1)]


def test_older_generations_foreign_names_and_duplicates_are_deleted() -> None:
    good = stored(0, page("a"), generation=2)
    old = stored(0, page("a"), generation=1, suffix="zzzzz")
    twin = stored(0, page("a"), generation=2, suffix="bbbbb")
    odd = dataclasses.replace(good, name="node1-gpu.example.com-x7k2p")
    changes = plan([page("a")], twin, odd, good, old)
    assert {one.name for one in changes.deletes} == {old.name, twin.name, odd.name}
    assert not changes.updates
    assert not changes.creates


def test_a_foreign_slice_of_a_higher_generation_causes_a_full_rewrite() -> None:
    foreign = dataclasses.replace(stored(0, page("x"), generation=9), name="someone-else")
    changes = plan([page("a")], stored(0, page("a")), foreign)
    assert len(changes.deletes) == 2
    assert [one.spec.pool.generation for one in changes.creates] == [10]


@pytest.mark.parametrize("who", [{"driver": "nic.example.com"}, {"node": "node2"}, {"pool": "other"}])
def test_slices_of_other_drivers_are_not_changed(who: dict[str, Any]) -> None:
    changes = plan([page("a")], stored(0, page("a")), stored(1, page("z"), generation=5, **who))
    assert not changes


def test_no_page_withdraws_the_pool() -> None:
    published = (stored(0, page("a"), count=2), stored(1, page("b"), count=2))
    assert plan([], *published) == resource_slice.Changes(deletes=published)


def test_devices_in_another_order_are_a_change() -> None:
    assert len(plan([page("a", "b")], stored(0, page("b", "a"))).updates) == 1


def test_quantities_are_equal_by_value_and_truth_is_not_one() -> None:
    gi, mi = ({"memory": capacity.Capacity.of(text)} for text in ("1Gi", "1024Mi"))
    assert not plan([page("a", capacity=gi)], stored(0, page("a", capacity=mi)))
    assert plan([page("a", attributes={"x": True})], stored(0, page("a", attributes={"x": 1})))
    assert plan([page("a", attributes={"x": (True,)})], stored(0, page("a", attributes={"x": (1,)})))


def taint(time: datetime.datetime | None = None, **changes: Any) -> device.Taint:
    return device.Taint(**{"key": "example.com/bad", "time_added": time} | changes)


def test_the_time_of_an_unchanged_taint_is_kept() -> None:
    tainted = stored(0, page("a", "b", taints=(taint(NOON),)))
    assert not plan([page("a", "b", taints=(taint(),))], tainted)
    changes = plan([page("a", "c", taints=(taint(),))], tainted)
    assert [item.taints[0].time_added for item in changes.updates[0].spec.page.devices] == [NOON, None]


def test_the_time_of_a_taint_survives_a_move_to_another_page() -> None:
    changes = plan([page("new"), page("a", taints=(taint(),))], stored(0, page("a", taints=(taint(NOON),))))
    assert changes.creates[0].spec.page.devices[0].taints[0].time_added == NOON


@pytest.mark.parametrize(
    "wanted, kept",
    [
        (taint(NOON + SECOND), NOON),
        (taint(NOON + 2 * SECOND), NOON + 2 * SECOND),
        (taint(value="worse"), None),
        (taint(effect=device.TaintEffect.NO_EXECUTE), None),
    ],
)
def test_only_the_same_taint_at_the_same_time_keeps_its_time(wanted: device.Taint, kept: datetime.datetime | None) -> None:
    adopted = reconcile.adopt(page("a", taints=(wanted,)), [page("a", taints=(taint(NOON),))])
    assert adopted.devices[0].taints[0].time_added == kept


RICH = device.Device(
    name="a",
    attributes={"model": "x", "list": ("p", "q"), "version": device.Version("1.2.3")},
    capacity={"bandwidth": capacity.Capacity(value=quantity.Quantity.of("10G"), policy=capacity.RequestPolicy(default=quantity.ONE))},
    consumes=(
        device.CounterConsumption(counter_set="set", counters={"units": quantity.ONE}, includes=("drawn",), compatibility_groups=("g",)),
    ),
    node_resources={"memory": node_resources.NodeResource(per_pod="1Gi")},
    allow_multiple_allocations=True,
    taints=(taint(NOON),),
    binds_to_node=True,
    binding_conditions=("ready",),
    binding_failure_conditions=("failed",),
    includes=("shared",),
)
SENT = Page(
    devices=(RICH,),
    counter_sets=(device.CounterSet(name="set", counters={"units": quantity.ONE}, includes=("held",)),),
    partition_type="example.com/model",
    skip_node_operations=True,
    mixins=inventory.Mixins(
        device=(inventory.DeviceMixin(name="shared", attributes={"y": 1}),),
        counter_set=(inventory.CounterSetMixin(name="held", counters={"more": quantity.ONE}),),
        consumption=(inventory.ConsumptionMixin(name="drawn", counters={"more": quantity.ONE}),),
    ),
)


def without(**fields: Any) -> Page:
    return dataclasses.replace(SENT, devices=(dataclasses.replace(RICH, **fields),))


NO_POLICY = {"bandwidth": capacity.Capacity.of("10G")}
NO_LIST = {name: value for name, value in RICH.attributes.items() if name != "list"}


@pytest.mark.parametrize(
    "back, lost",
    [
        (SENT, ()),
        (without(taints=(taint(None),)), ()),
        (without(capacity={"bandwidth": dataclasses.replace(RICH.capacity["bandwidth"], value=quantity.Quantity.of("10000M"))}), ()),
        (without(taints=()), ("DRADeviceTaints",)),
        (without(allow_multiple_allocations=False, capacity=NO_POLICY), ("DRAConsumableCapacity",)),
        (without(binds_to_node=False, binding_conditions=(), binding_failure_conditions=()), ("DRADeviceBindingConditions",)),
        (without(attributes=NO_LIST), ("DRAListTypeAttributes",)),
        (dataclasses.replace(without(consumes=()), counter_sets=()), ("DRAPartitionableDevices", "DRADeviceCompatibilityGroups")),
        (
            dataclasses.replace(without(consumes=(), taints=()), counter_sets=()),
            ("DRADeviceTaints", "DRAPartitionableDevices", "DRADeviceCompatibilityGroups"),
        ),
        (dataclasses.replace(SENT, partition_type=""), ("DRAPartitionableDevicesType",)),
        (dataclasses.replace(SENT, skip_node_operations=False), ("DRAOptionalNodeOperations",)),
        (without(consumes=(dataclasses.replace(RICH.consumes[0], compatibility_groups=()),)), ("DRADeviceCompatibilityGroups",)),
        (without(node_resources={}), ("DRANodeAllocatableResources",)),
        (dataclasses.replace(SENT, mixins=inventory.Mixins()), ("DRAResourceSliceMixins",)),
        (without(includes=()), ("DRAResourceSliceMixins",)),
        (without(consumes=(dataclasses.replace(RICH.consumes[0], includes=()),)), ("DRAResourceSliceMixins",)),
        (dataclasses.replace(SENT, counter_sets=(dataclasses.replace(SENT.counter_sets[0], includes=()),)), ("DRAResourceSliceMixins",)),
        (without(attributes=dict(RICH.attributes) | {"model": "y"}), ("unknown",)),
        (without(name="b"), ("unknown",)),
        (without(taints=(taint(NOON + 5 * SECOND),)), ("unknown",)),
        (Page(), ("unknown",)),
    ],
)
def test_a_dropped_field_is_mapped_to_its_feature(back: Page, lost: tuple[str, ...]) -> None:
    assert reconcile.dropped(SENT, back) == lost


OTHERS: dict[str, Any] = {
    "name": "b",
    "attributes": {},
    "capacity": {},
    "consumes": (),
    "allow_multiple_allocations": False,
    "taints": (),
    "binds_to_node": False,
    "binding_conditions": ("other",),
    "binding_failure_conditions": ("other",),
    "includes": (),
    "reach": node_selection.AllNodes(),
    "node_resources": {"cpu": node_resources.NodeResource(per_device=1)},
    "pool": "slow",
}


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(device.Device)])
def test_every_field_of_a_device_is_compared(field: str) -> None:
    changes = {field: OTHERS[field]} | ({"capacity": {}} if field == "allow_multiple_allocations" else {})
    one = dataclasses.replace(RICH, capacity={}) if field == "allow_multiple_allocations" else RICH
    assert not reconcile.same(Page(devices=(one,)), Page(devices=(dataclasses.replace(one, **changes),)))
