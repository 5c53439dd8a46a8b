"""What may still be offered when the API server drops a field."""

import dataclasses

from drakit.core import device, inventory, quantity
from drakit.core.slices import feature_gates
from fakes import author


def offered() -> inventory.Inventory:
    return author.FakeDriver(author.Hardware()).discover()


def names(what: inventory.Inventory) -> list[str]:
    return [item.name for item in what.devices]


def test_without_counters_the_whole_devices_and_the_independent_ones_stay() -> None:
    reduced = feature_gates.without_counters(offered())
    assert names(reduced) == ["chip-0", "chip-1", "pipe"]
    assert reduced.counter_sets == ()
    assert all(item.consumes == () for item in reduced.devices)


def test_without_counters_a_set_nobody_draws_in_full_loses_all_its_devices() -> None:
    halves = inventory.Inventory(
        devices=tuple(item for item in offered().devices if item.attributes["kind"] == "half"), counter_sets=offered().counter_sets
    )
    assert names(feature_gates.without_counters(halves)) == []


def test_without_counters_the_last_of_two_whole_devices_stays() -> None:
    whole = offered()
    twin = dataclasses.replace(next(item for item in whole.devices if item.name == "chip-0"), name="chip-0-again")
    both = dataclasses.replace(whole, devices=(*whole.devices, twin))
    assert names(feature_gates.without_counters(both)) == ["chip-1", "pipe", "chip-0-again"]


def test_a_counter_of_zero_need_not_be_drawn_to_be_whole() -> None:
    pool = device.CounterSet(name="set", counters={"memory": quantity.ONE, "encoders": quantity.ZERO})
    drawn = device.CounterConsumption(counter_set="set", counters={"memory": quantity.ONE})
    one = inventory.Inventory(devices=(device.Device(name="whole", consumes=(drawn,)),), counter_sets=(pool,))
    assert names(feature_gates.without_counters(one)) == ["whole"]


def test_without_sharing_devices_are_exclusive_and_have_no_policies() -> None:
    pipe = feature_gates.without_sharing(offered()).by_name()["pipe"]
    assert not pipe.allow_multiple_allocations
    assert pipe.capacity["bandwidth"].policy is None
    assert pipe.capacity["bandwidth"].value == quantity.Quantity.parse("10G")


def test_without_taints_a_tainted_device_is_withdrawn() -> None:
    whole = offered()
    tainted = dataclasses.replace(whole.by_name()["pipe"], taints=(device.Taint(key="example.com/hot"),))
    reduced = feature_gates.without_taints(dataclasses.replace(whole, devices=(*whole.devices[:-1], tainted)))
    assert names(reduced) == names(whole)[:-1]


def test_devices_that_share_counters_with_a_tainted_device_are_withdrawn_with_it() -> None:
    whole = offered()
    tainted = dataclasses.replace(whole.devices[0], taints=(device.Taint(key="example.com/hot"),))
    reduced = feature_gates.without_taints(dataclasses.replace(whole, devices=(tainted, *whole.devices[1:])))
    assert names(reduced) == ["chip-1-left", "chip-1-right", "chip-1", "pipe"]


def test_every_reduction_is_idempotent() -> None:
    for reduce in (
        feature_gates.without_counters,
        feature_gates.without_sharing,
        feature_gates.without_taints,
        feature_gates.without_groups,
        feature_gates.without_fractions,
        feature_gates.without_node_resources,
        feature_gates.with_node_resource_mappings,
    ):
        once = reduce(offered())
        assert reduce(once) == once
