"""Feature gates that the API server has off: which gate dropped a field of a slice, and what may then be offered.

A server whose gate is off drops the gate's fields silently. ``differing`` compares what was sent with what is stored part by part: each gate owns a
view of the page, and a view that differs names its gate; what no gate owns is ``UNKNOWN``. Without the field, overlapping partitions would be
freely allocatable, and a shared device would look exclusive. ``without_*`` give the part of an inventory that is still true without the field; each
is idempotent.
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


def differing(sent: resource_slice.Page, stored: resource_slice.Page) -> tuple[str, ...]:
    """The gates whose part of the page differs, in a fixed order; empty when no part does."""
    if [item.name for item in sent.devices] != [item.name for item in stored.devices]:
        return (UNKNOWN,)
    pairs = list(zip(sent.devices, stored.devices, strict=True))
    found = {gate for gate, view in _VIEWS.items() if any(view(one) != view(other) for one, other in pairs)}
    if _sets(sent) != _sets(stored):
        found.add(_PARTITIONS)
    if sent.mixins != stored.mixins or _lost_includes(sent, stored):
        found.add(_MIXINS)
    return tuple(gate for gate in _ORDER if gate in found)


def _sets(page: resource_slice.Page) -> object:
    return [(item.name, item.counters) for item in page.counter_sets]


def _lost_includes(sent: resource_slice.Page, stored: resource_slice.Page) -> bool:
    """Whether anything that is still there includes other mixins than before."""
    before = _includes(sent)
    return any(before.get(holder) != names for holder, names in _includes(stored).items())


def _includes(page: resource_slice.Page) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """What every device, counter set and consumption of a page includes."""
    found: dict[tuple[str, ...], tuple[str, ...]] = {("sharedCounters", item.name): item.includes for item in page.counter_sets}
    for item in page.devices:
        found["devices", item.name] = item.includes
        found |= {("devices", item.name, part.counter_set): part.includes for part in item.consumes}
    return found


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
    return dataclasses.replace(flat, devices=tuple(map(as_exclusive, flat.devices)))


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


def _draws_everything(item: device.Device, sets: Mapping[str, device.CounterSet]) -> bool:
    return bool(item.consumes) and all(_draws_whole(part, sets[part.counter_set]) for part in item.consumes)


def _draws_whole(part: device.CounterConsumption, whole: device.CounterSet) -> bool:
    return all(not value or part.counters.get(name) == value for name, value in whole.counters.items())


def as_exclusive(item: device.Device) -> device.Device:
    """The exclusive form of one flat device: without shares and without the rules for what a share may ask for."""
    if not item.allow_multiple_allocations:
        return item
    capacity = {name: capacities.Capacity(value=entry.value) for name, entry in item.capacity.items()}
    return dataclasses.replace(item, allow_multiple_allocations=False, capacity=capacity)
