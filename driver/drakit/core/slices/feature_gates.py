"""Find the feature gate that dropped fields of a slice, and reduce an inventory to what is correct without them.

A server whose gate is off drops the gate's fields silently. ``differing`` compares the sent and the stored page by views: each gate owns a view, and
a view that differs names its gate; fields of no gate are ``UNKNOWN``. Without its fields, overlapping partitions could be allocated together, and a
shared device would look exclusive. Each ``without_*`` returns the part of an inventory that is correct without the fields; it is idempotent.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final

from drakit.core import capacity as capacities
from drakit.core import device as devices
from drakit.core import inventory
from drakit.core.slices import resource_slice

UNKNOWN: Final = "unknown"
_PARTITIONS: Final = "DRAPartitionableDevices"
_MIXINS: Final = "DRAResourceSliceMixins"

_DeviceView = Callable[[devices.Device], object]


def _taints(device: devices.Device) -> object:
    return [(taint.key, taint.value, taint.effect) for taint in device.taints]


def _consumption(device: devices.Device) -> object:
    return [(part.counter_set, part.counters) for part in device.consumes], device.reach


def _binding(device: devices.Device) -> object:
    return device.binds_to_node, device.binding_conditions, device.binding_failure_conditions


def _sharing(device: devices.Device) -> object:
    return device.allow_multiple_allocations, {name: capacity.policy for name, capacity in device.capacity.items() if capacity.policy}


def _lists(device: devices.Device) -> object:
    return {name: [(type(element), element) for element in value] for name, value in device.attributes.items() if isinstance(value, tuple)}


def _rest(device: devices.Device) -> object:
    amounts = {name: capacity.value for name, capacity in device.capacity.items()}
    return device.name, _scalars(device.attributes), amounts


def _scalars(values: Mapping[str, devices.AttributeValue]) -> object:
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
    return [(counter_set.name, counter_set.counters) for counter_set in page.counter_sets]


def _lost_includes(sent: resource_slice.Page, stored: resource_slice.Page) -> bool:
    """Return whether any stored device, counter set or consumption includes other mixins than the sent one."""
    before = _includes(sent)
    return any(before.get(holder) != names for holder, names in _includes(stored).items())


def _includes(page: resource_slice.Page) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Return the includes of every device, counter set and consumption of a page, by path."""
    includes: dict[tuple[str, ...], tuple[str, ...]] = {
        ("sharedCounters", counter_set.name): counter_set.includes for counter_set in page.counter_sets
    }
    for device in page.devices:
        includes["devices", device.name] = device.includes
        includes |= {("devices", device.name, part.counter_set): part.includes for part in device.consumes}
    return includes


def without_counters(offered: inventory.Inventory) -> inventory.Inventory:
    """Return the devices that can be offered where shared counters are dropped (gate DRAPartitionableDevices off).

    Devices that consume no counters stay. Of the devices that share a set only one stays, without its consumption: the last one that consumes every
    counter of its sets in full, which is the whole device. If no device consumes a set in full, all its devices are removed.
    """
    flat = offered.flat()
    sets = {counter_set.name: counter_set for counter_set in flat.counter_sets}
    whole = {part.counter_set: device.name for device in flat.devices if _is_whole_device(device, sets) for part in device.consumes}
    kept = (device for device in flat.devices if all(whole.get(part.counter_set) == device.name for part in device.consumes))
    return inventory.Inventory.of(dataclasses.replace(device, consumes=()) for device in kept)


def without_sharing(offered: inventory.Inventory) -> inventory.Inventory:
    """Return the exclusive form of every device, for servers that drop allowMultipleAllocations (gate DRAConsumableCapacity off)."""
    flat = offered.flat()
    return dataclasses.replace(flat, devices=tuple(map(as_exclusive, flat.devices)))


def without_taints(offered: inventory.Inventory) -> inventory.Inventory:
    """Return only devices without a taint, for servers that drop taints (gate DRADeviceTaints off): a tainted device must not look healthy.

    Devices that share a counter set with a tainted device are removed too. The tainted device may be in use, and the scheduler does not count the
    consumption of a device that is in no slice, so it would allocate the same hardware again.
    """
    touched = {part.counter_set for device in offered.devices if device.taints for part in device.consumes}
    kept = (device for device in offered.devices if not device.taints and all(part.counter_set not in touched for part in device.consumes))
    return dataclasses.replace(offered, devices=tuple(kept))


def without_lists(offered: inventory.Inventory) -> inventory.Inventory:
    """Return the devices without list attributes, for servers that drop lists (gate DRAListTypeAttributes off) and then reject the whole slice."""
    flat = offered.flat()
    return dataclasses.replace(flat, devices=tuple(map(_without_lists, flat.devices)))


def _without_lists(device: devices.Device) -> devices.Device:
    kept = {name: value for name, value in device.attributes.items() if not isinstance(value, tuple)}
    return device if len(kept) == len(device.attributes) else dataclasses.replace(device, attributes=kept)


def _is_whole_device(device: devices.Device, sets: Mapping[str, devices.CounterSet]) -> bool:
    return bool(device.consumes) and all(_consumes_whole_set(part, sets[part.counter_set]) for part in device.consumes)


def _consumes_whole_set(part: devices.CounterConsumption, whole: devices.CounterSet) -> bool:
    return all(not value or part.counters.get(name) == value for name, value in whole.counters.items())


def as_exclusive(device: devices.Device) -> devices.Device:
    """Return the exclusive form of one flat device: without shares and without request policies."""
    if not device.allow_multiple_allocations:
        return device
    capacity = {name: capacities.Capacity(value=entry.value) for name, entry in device.capacity.items()}
    return dataclasses.replace(device, allow_multiple_allocations=False, capacity=capacity)
