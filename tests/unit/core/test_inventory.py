"""An inventory is consistent in itself, and flattening follows the law of includes."""

from typing import Any

import pytest

from drakit.core import device, errors, inventory, quantity
from drakit.core.slices import node_selection

Q = quantity.Quantity.of
TWO = {"memory": Q("2"), "slice-0": Q(1)}


def an_inventory(**fields: Any) -> inventory.Inventory:
    return inventory.Inventory(**fields)


def draws(counter_set: str, includes: tuple[str, ...] = (), **amounts: int) -> device.CounterConsumption:
    return device.CounterConsumption(counter_set=counter_set, counters={k: Q(v) for k, v in amounts.items()}, includes=includes)


A_SET = device.CounterSet(name="gpu-0", counters=TWO)


@pytest.mark.parametrize(
    "fields, where",
    [
        ({"devices": (device.Device(name="a"), device.Device(name="a"))}, "devices[a]"),
        ({"counter_sets": (A_SET, A_SET)}, "sharedCounters[gpu-0]"),
        ({"counter_sets": (device.CounterSet(name="gpu-0"),)}, "sharedCounters[gpu-0]"),
        ({"devices": (device.Device(name="a", consumes=(draws("gpu-1", memory=1),)),)}, "devices[a].consumesCounters[gpu-1]"),
        (
            {"counter_sets": (A_SET,), "devices": (device.Device(name="a", consumes=(draws("gpu-0"),)),)},
            "devices[a].consumesCounters[gpu-0]",
        ),
        (
            {"counter_sets": (A_SET,), "devices": (device.Device(name="a", consumes=(draws("gpu-0", copies=1),)),)},
            "devices[a].consumesCounters[gpu-0].counters[copies]",
        ),
        ({"devices": (device.Device(name="a", includes=("none",)),)}, "devices[a].includes"),
        ({"counter_sets": (device.CounterSet(name="gpu-0", includes=("none",)),)}, "sharedCounters[gpu-0].includes"),
        (
            {"counter_sets": (A_SET,), "devices": (device.Device(name="a", consumes=(draws("gpu-0", ("none",)),)),)},
            "devices[a].consumesCounters[gpu-0].includes",
        ),
        (
            {
                "devices": (device.Device(name="a", attributes={f"a{n}": n for n in range(20)}, includes=("more",)),),
                "mixins": inventory.Mixins(device=(inventory.DeviceMixin(name="more", attributes={f"b{n}": n for n in range(20)}),)),
            },
            "devices[a]",
        ),
    ],
)
def test_an_inconsistent_inventory_is_refused_by_field(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(errors.InventoryError) as caught:
        an_inventory(**fields)
    assert caught.value.field == where


def test_two_mixins_of_one_kind_may_not_share_a_name() -> None:
    mixin = inventory.CounterSetMixin(name="a", counters=TWO)
    with pytest.raises(errors.InventoryError, match="'a' is defined twice"):
        inventory.Mixins(counter_set=(mixin, mixin))
    assert len(inventory.Mixins(counter_set=(mixin,), consumption=(inventory.ConsumptionMixin(name="a", counters=TWO),))) == 2


def test_a_later_include_wins_and_own_values_win_over_all() -> None:
    first = inventory.DeviceMixin(name="first", attributes={"a": 1, "b": 1, "c": 1}, capacity={"memory": Q("1Gi"), "copies": Q(1)})
    second = inventory.DeviceMixin(name="second", attributes={"b": 2, "c": 2}, capacity={"memory": Q("2Gi")})
    made = an_inventory(
        devices=(device.Device(name="x", attributes={"c": 3}, includes=("first", "second")),),
        mixins=inventory.Mixins(device=(second, first)),
    ).flat()
    (flat,) = made.devices
    assert flat.attributes == {"a": 1, "b": 2, "c": 3}
    assert {name: str(entry.value) for name, entry in flat.capacity.items()} == {"memory": "2Gi", "copies": "1"}
    assert flat.includes == ()
    assert not made.mixins


def test_counters_flatten_by_the_same_law() -> None:
    made = an_inventory(
        devices=(device.Device(name="x", consumes=(draws("gpu-0", ("small", "large"), memory=4),)),),
        counter_sets=(device.CounterSet(name="gpu-0", counters={"memory": Q(8)}, includes=("base",)),),
        mixins=inventory.Mixins(
            counter_set=(inventory.CounterSetMixin(name="base", counters={"memory": Q(1), "copies": Q(7)}),),
            consumption=(
                inventory.ConsumptionMixin(name="small", counters={"memory": Q(1), "copies": Q(1)}),
                inventory.ConsumptionMixin(name="large", counters={"copies": Q(5)}),
            ),
        ),
    ).flat()
    assert made.counter_sets[0].counters == {"memory": Q(8), "copies": Q(7)}
    assert made.devices[0].consumes[0].counters == {"memory": Q(4), "copies": Q(5)}
    assert made.flat() is made


def test_the_flat_form_is_made_once_and_shares_what_includes_nothing() -> None:
    plain = device.Device(name="plain", consumes=(draws("gpu-0", memory=1),))
    made = an_inventory(
        devices=(plain, device.Device(name="x", includes=("base",))),
        counter_sets=(device.CounterSet(name="gpu-0", counters={"memory": Q(8)}),),
        mixins=inventory.Mixins(device=(inventory.DeviceMixin(name="base", attributes={"a": 1}),)),
    )
    assert made.flat() is made.flat()
    assert made.flat().devices[0] is plain
    assert made == an_inventory(devices=made.devices, counter_sets=made.counter_sets, mixins=made.mixins)


def test_devices_are_found_by_name() -> None:
    made = inventory.Inventory.of([device.Device(name="a"), device.Device(name="b")])
    assert list(made.by_name()) == ["a", "b"]
    assert made.is_flat


def a_part(name: str, memory: int, **attributes: Any) -> device.Device:
    return device.Device(name=name, attributes=attributes, consumes=(draws("gpu-0", memory=memory),))


def of_type(*parts: device.Device, name: str = "profile") -> inventory.Inventory:
    sets = (device.CounterSet(name="gpu-0", counters={"memory": Q(8)}),)
    return inventory.Inventory(devices=parts, counter_sets=sets, partition_type=name)


def test_partitions_of_one_type_consume_the_same_and_others_need_no_type() -> None:
    made = of_type(a_part("a", 2, profile="half"), a_part("b", 2, profile="half"), a_part("c", 4, profile="full"), device.Device(name="d"))
    assert made.partition_type == "profile"
    assert of_type(a_part("a", 2, profile="half"), name="gpu.example.com/profile").partition_type == "gpu.example.com/profile"


@pytest.mark.parametrize(
    "parts, reason",
    [
        ((a_part("a", 2, profile="half"), a_part("b", 3, profile="half")), "devices of one type consume the same"),
        ((a_part("a", 2),), "must be a text"),
        ((a_part("a", 2, profile=1),), "must be a text"),
    ],
)
def test_a_partition_type_that_the_server_could_not_count_is_refused(parts: tuple[device.Device, ...], reason: str) -> None:
    with pytest.raises(errors.InventoryError, match=reason):
        of_type(*parts)


def test_only_a_pool_of_the_cluster_can_skip_the_node() -> None:
    licences = inventory.Inventory(devices=(device.Device(name="a"),), skip_node_operations=True)
    inventory.ClusterPool(name="licences", reach=node_selection.AllNodes(), inventory=licences)
    with pytest.raises(errors.InventoryError, match="only in a ClusterPool"):
        inventory.check_node_selection(licences, None)
