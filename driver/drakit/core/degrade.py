"""What may be offered when the API server drops a field (a dropped field changes what is offered).

A server whose gate is off stores an object without the gate's fields, silently. Then overlapping partitions would be freely allocatable, and a
shared device would look exclusive. These functions give the part of an inventory that is still true without the field; each is idempotent.
"""

import dataclasses
from collections.abc import Mapping

from drakit.core import counters, device, inventory, policy


def without_counters(offered: inventory.Inventory) -> inventory.Inventory:
    """Devices that can be offered where shared counters are dropped (gate DRAPartitionableDevices off).

    Devices that draw from no set stay. Of those that share a set, only one stays, without its consumption: the last in order that draws every
    counter of every set it names in full, that is, the whole device. A set that nobody draws in full loses all its devices.
    """
    flat = offered.flat()
    sets = {item.name: item for item in flat.counter_sets}
    whole = {part.counter_set: item.name for item in flat.devices if _draws_everything(item, sets) for part in item.consumes}
    kept = (item for item in flat.devices if all(whole.get(part.counter_set) == item.name for part in item.consumes))
    return inventory.Inventory.of(dataclasses.replace(item, consumes=()) for item in kept)


def without_sharing(offered: inventory.Inventory) -> inventory.Inventory:
    """The exclusive form of every device, for servers that drop allowMultipleAllocations (gate DRAConsumableCapacity off)."""
    flat = offered.flat()
    return dataclasses.replace(flat, devices=tuple(map(exclusive, flat.devices)))


def without_taints(offered: inventory.Inventory) -> inventory.Inventory:
    """Only devices without a taint, for servers that drop taints (gate DRADeviceTaints off): a tainted device must not look healthy.

    What draws from a counter set that a tainted device draws from goes with it. The tainted device may be in use, and a scheduler does not count what
    a device draws that is in no slice: it would give the same hardware away once more.
    """
    touched = {part.counter_set for item in offered.devices if item.taints for part in item.consumes}
    kept = (item for item in offered.devices if not item.taints and all(part.counter_set not in touched for part in item.consumes))
    return dataclasses.replace(offered, devices=tuple(kept))


def without_lists(offered: inventory.Inventory) -> inventory.Inventory:
    """Devices without their list attributes, for servers that drop lists (gate DRAListTypeAttributes off) and then refuse the slice as a whole."""
    flat = offered.flat()
    return dataclasses.replace(flat, devices=tuple(map(_without_lists, flat.devices)))


def _without_lists(item: device.Device) -> device.Device:
    kept = {name: value for name, value in item.attributes.items() if not isinstance(value, tuple)}
    return item if len(kept) == len(item.attributes) else dataclasses.replace(item, attributes=kept)


def _draws_everything(item: device.Device, sets: Mapping[str, counters.CounterSet]) -> bool:
    return bool(item.consumes) and all(_draws_whole(part, sets[part.counter_set]) for part in item.consumes)


def _draws_whole(part: counters.CounterConsumption, whole: counters.CounterSet) -> bool:
    return all(not value or part.counters.get(name) == value for name, value in whole.counters.items())


def exclusive(item: device.Device) -> device.Device:
    """The exclusive form of one flat device: without shares and without the rules for what a share may ask for."""
    if not item.allow_multiple_allocations:
        return item
    capacity = {name: policy.Capacity(value=entry.value) for name, entry in item.capacity.items()}
    return dataclasses.replace(item, allow_multiple_allocations=False, capacity=capacity)
