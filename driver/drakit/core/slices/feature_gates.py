"""Find the feature gate that dropped fields of a slice, and reduce an inventory to what is correct without them.

A server whose gate is off drops the gate's fields silently. ``differing`` compares the sent and the stored page by views: each gate owns a view, and
a view that differs names its gate; fields of no gate are ``UNKNOWN``. Without its fields, overlapping partitions could be allocated together, and a
shared device would look exclusive. Each ``without_*`` returns the part of an inventory that is correct without the fields; it is idempotent.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final

from drakit.core import capacity as capacities
from drakit.core import device, inventory
from drakit.core.slices import resource_slice

UNKNOWN: Final = "unknown"
_PARTITIONS: Final = "DRAPartitionableDevices"
_MIXINS: Final = "DRAMixins"

_DeviceView = Callable[[device.Device], object]


def _taints(item: device.Device) -> object:
    return [(taint.key, taint.value, taint.effect) for taint in item.taints]


def _consumption(item: device.Device) -> object:
    return [(part.counter_set, part.counters) for part in item.consumes], item.reach


def _binding(item: device.Device) -> object:
    return item.binds_to_node, item.binding_conditions, item.binding_failure_conditions


def _sharing(item: device.Device) -> object:
    return item.allow_multiple_allocations, {name: capacity.policy for name, capacity in item.capacity.items() if capacity.policy}


def _lists(item: device.Device) -> object:
    return {name: [(type(one), one) for one in value] for name, value in item.attributes.items() if isinstance(value, tuple)}


def _rest(item: device.Device) -> object:
    amounts = {name: capacity.value for name, capacity in item.capacity.items()}
    return item.name, _scalars(item.attributes), amounts


def _scalars(values: Mapping[str, device.AttributeValue]) -> object:
    return {name: (type(value), value) for name, value in values.items() if not isinstance(value, tuple)}


_VIEWS: Mapping[str, _DeviceView] = {
    "DRADeviceTaints": _taints,
    _PARTITIONS: _consumption,
    "DRADeviceBindingConditions": _binding,
    "DRAConsumableCapacity": _sharing,
    "DRAListTypeAttributes": _lists,
    UNKNOWN: _rest,
}


_ORDER = (*_VIEWS, _MIXINS)

EFFECTS: Mapping[str, str] = {
    "DRADeviceTaints": "tainted devices are withdrawn",
    _PARTITIONS: "of devices that share counters only whole ones are offered",
    "DRAConsumableCapacity": "each shared device is offered to one claim at a time",
    "DRAListTypeAttributes": "devices are offered without their list attributes",
    _MIXINS: "slices are written without mixins",
}
"""What is offered while a gate is off, by gate."""


def differing(sent: resource_slice.Page, stored: resource_slice.Page) -> tuple[str, ...]:
    """Return the gates whose view of the page differs, in a fixed order."""
    if [sent_device.name for sent_device in sent.devices] != [stored_device.name for stored_device in stored.devices]:
        return (UNKNOWN,)
    pairs = list(zip(sent.devices, stored.devices, strict=True))
    gates = {gate for gate, view in _VIEWS.items() if any(view(before) != view(after) for before, after in pairs)}
    if _sets(sent) != _sets(stored):
        gates.add(_PARTITIONS)
    if sent.mixins != stored.mixins or _lost_includes(sent, stored):
        gates.add(_MIXINS)
    return tuple(gate for gate in _ORDER if gate in gates)


def _sets(page: resource_slice.Page) -> object:
    return [(item.name, item.counters) for item in page.counter_sets]


def _lost_includes(sent: resource_slice.Page, stored: resource_slice.Page) -> bool:
    """Return whether any stored device, counter set or consumption includes other mixins than the sent one."""
    before = _includes(sent)
    return any(before.get(holder) != names for holder, names in _includes(stored).items())


def _includes(page: resource_slice.Page) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Return the includes of every device, counter set and consumption of a page, by path."""
    includes: dict[tuple[str, ...], tuple[str, ...]] = {("sharedCounters", item.name): item.includes for item in page.counter_sets}
    for item in page.devices:
        includes["devices", item.name] = item.includes
        includes |= {("devices", item.name, part.counter_set): part.includes for part in item.consumes}
    return includes


def without_counters(offered: inventory.Inventory) -> inventory.Inventory:
    """Return the devices that can be offered where shared counters are dropped (gate DRAPartitionableDevices off).

    Devices that consume no counters stay. Of the devices that share a set only one stays, without its consumption: the last one that consumes every
    counter of its sets in full, which is the whole device. If no device consumes a set in full, all its devices are removed.
    """
    flat = offered.flat()
    sets = {item.name: item for item in flat.counter_sets}
    whole = {part.counter_set: item.name for item in flat.devices if _is_whole_device(item, sets) for part in item.consumes}
    kept = (item for item in flat.devices if all(whole.get(part.counter_set) == item.name for part in item.consumes))
    return inventory.Inventory.of(dataclasses.replace(item, consumes=()) for item in kept)


def without_sharing(offered: inventory.Inventory) -> inventory.Inventory:
    """Return the exclusive form of every device, for servers that drop allowMultipleAllocations (gate DRAConsumableCapacity off)."""
    flat = offered.flat()
    return dataclasses.replace(flat, devices=tuple(map(as_exclusive, flat.devices)))


def without_taints(offered: inventory.Inventory) -> inventory.Inventory:
    """Return only devices without a taint, for servers that drop taints (gate DRADeviceTaints off): a tainted device must not look healthy.

    Devices that share a counter set with a tainted device are removed too. The tainted device may be in use, and the scheduler does not count the
    consumption of a device that is in no slice, so it would allocate the same hardware again.
    """
    touched = {part.counter_set for item in offered.devices if item.taints for part in item.consumes}
    kept = (item for item in offered.devices if not item.taints and all(part.counter_set not in touched for part in item.consumes))
    return dataclasses.replace(offered, devices=tuple(kept))


def without_lists(offered: inventory.Inventory) -> inventory.Inventory:
    """Return the devices without list attributes, for servers that drop lists (gate DRAListTypeAttributes off) and then reject the whole slice."""
    flat = offered.flat()
    return dataclasses.replace(flat, devices=tuple(map(_without_lists, flat.devices)))


def _without_lists(item: device.Device) -> device.Device:
    kept = {name: value for name, value in item.attributes.items() if not isinstance(value, tuple)}
    return item if len(kept) == len(item.attributes) else dataclasses.replace(item, attributes=kept)


def _is_whole_device(item: device.Device, sets: Mapping[str, device.CounterSet]) -> bool:
    return bool(item.consumes) and all(_consumes_whole_set(part, sets[part.counter_set]) for part in item.consumes)


def _consumes_whole_set(part: device.CounterConsumption, whole: device.CounterSet) -> bool:
    return all(not value or part.counters.get(name) == value for name, value in whole.counters.items())


def as_exclusive(item: device.Device) -> device.Device:
    """Return the exclusive form of one flat device: without shares and without request policies."""
    if not item.allow_multiple_allocations:
        return item
    capacity = {name: capacities.Capacity(value=entry.value) for name, entry in item.capacity.items()}
    return dataclasses.replace(item, allow_multiple_allocations=False, capacity=capacity)
