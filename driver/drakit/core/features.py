"""Which feature gate explains a field of a slice that the API server did not store.

A gate that is off drops its fields silently, so what comes back is compared part by part: each gate owns a view of the page, and a view that
differs names its gate. What no gate owns is the rest.
"""

from collections.abc import Callable, Mapping
from typing import Final

from drakit.core import attribute, device, slices

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


def _scalars(values: Mapping[str, attribute.AttributeValue]) -> object:
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


def differing(sent: slices.Page, stored: slices.Page) -> tuple[str, ...]:
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


def _sets(page: slices.Page) -> object:
    return [(item.name, item.counters) for item in page.counter_sets]


def _lost_includes(sent: slices.Page, stored: slices.Page) -> bool:
    """Whether anything that is still there includes other mixins than before."""
    before = _includes(sent)
    return any(before.get(holder) != names for holder, names in _includes(stored).items())


def _includes(page: slices.Page) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """What every device, counter set and consumption of a page includes."""
    found: dict[tuple[str, ...], tuple[str, ...]] = {("sharedCounters", item.name): item.includes for item in page.counter_sets}
    for item in page.devices:
        found["devices", item.name] = item.includes
        found |= {("devices", item.name, part.counter_set): part.includes for part in item.consumes}
    return found
