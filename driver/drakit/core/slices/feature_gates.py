"""Find the feature gate that dropped fields of a slice, and reduce an inventory to what is correct without them.

A server whose gate is off drops the gate's fields silently. ``differing`` compares the sent and the stored page by views: each gate owns a view, and
a view that differs names its gate; fields of no gate are ``UNKNOWN``. Without its fields, overlapping partitions could be allocated together, and a
shared device would look exclusive. Each ``without_*`` returns the part of an inventory that is correct without the fields; it is idempotent.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from drakit import numa
from drakit.core import capacity as capacities
from drakit.core import device as devices
from drakit.core import inventory, node_resources
from drakit.core.slices import resource_slice

UNKNOWN: Final = "unknown"
_PARTITIONS: Final = "DRAPartitionableDevices"
_MIXINS: Final = "DRAResourceSliceMixins"

NODE_RESOURCES: Final = "DRANodeAllocatableResources"
NODE_RESOURCES_FIELD: Final = "nodeAllocatableResources"
"""The gate's field since Kubernetes 1.37. A server that lacks only this has ``nodeAllocatableResourceMappings``, the field of 1.36."""
FRACTIONS: Final = "DRAFractionalCapacityRange"
GROUPS: Final = "DRADeviceCompatibilityGroups"
PARTITION_TYPE: Final = "DRAPartitionableDevicesType"
NODE_OPERATIONS: Final = "DRAOptionalNodeOperations"

_Holder = TypeVar("_Holder", devices.Device, inventory.DeviceMixin)
_DeviceView = Callable[[devices.Device], object]


def _taints(device: devices.Device) -> object:
    return [(taint.key, taint.value, taint.effect) for taint in device.taints]


def _consumption(device: devices.Device) -> object:
    return [(part.counter_set, part.counters) for part in device.consumes], device.reach


def _groups(device: devices.Device) -> object:
    return [(part.counter_set, part.compatibility_groups) for part in device.consumes if part.compatibility_groups]


def _node_resources(device: devices.Device) -> object:
    return device.node_resources


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
    GROUPS: _groups,
    NODE_RESOURCES: _node_resources,
    UNKNOWN: _rest,
}


_ORDER = (*_VIEWS, PARTITION_TYPE, NODE_OPERATIONS, _MIXINS)

EFFECTS: Mapping[str, str] = {
    "DRADeviceTaints": "tainted devices are withdrawn",
    _PARTITIONS: "of devices that share counters only whole ones are offered",
    "DRAConsumableCapacity": "each shared device is offered to one claim at a time",
    "DRAListTypeAttributes": "devices are offered without their list attributes",
    FRACTIONS: "requests are rounded up to whole units, or every share takes the default",
    GROUPS: "compatibility groups are left out; Prepare refuses devices that exclude each other",
    PARTITION_TYPE: "slices do not name the type of partitions",
    NODE_OPERATIONS: "the kubelet calls the driver for devices that need nothing on the node",
    NODE_RESOURCES: "what devices take of the node's own resources is not counted",
    NODE_RESOURCES_FIELD: (
        "what a pod needs beside a device is counted once a claim, or not at all beside an amount of each unit; "
        "what each container needs is not counted"
    ),
    _MIXINS: "slices are written without mixins",
}
"""What is offered while a gate is off, by gate."""
HARMLESS: Final = frozenset({_MIXINS, "DRAListTypeAttributes", PARTITION_TYPE})
"""The gates without which every device is still offered and used in the same way."""


def differing(sent: resource_slice.Page, stored: resource_slice.Page) -> tuple[str, ...]:
    """Return the gates whose view of the page differs, in a fixed order."""
    if [sent_device.name for sent_device in sent.devices] != [stored_device.name for stored_device in stored.devices]:
        return (UNKNOWN,)
    pairs = list(zip(sent.devices, stored.devices, strict=True))
    gates = {gate for gate, view in _VIEWS.items() if any(view(before) != view(after) for before, after in pairs)}
    if _sets(sent) != _sets(stored):
        gates.add(_PARTITIONS)
    if sent.partition_type != stored.partition_type:
        gates.add(PARTITION_TYPE)
    if sent.skip_node_operations != stored.skip_node_operations:
        gates.add(NODE_OPERATIONS)
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


def used_by(offered: inventory.Inventory) -> frozenset[str]:
    """Return the gates whose fields the inventory has, without mixins and binding conditions."""
    shown = offered.flat()
    uses = {
        "DRADeviceTaints": any(device.taints for device in shown.devices),
        _PARTITIONS: bool(shown.counter_sets),
        "DRAConsumableCapacity": any(device.allow_multiple_allocations for device in shown.devices),
        "DRAListTypeAttributes": any(isinstance(value, tuple) for device in shown.devices for value in device.attributes.values()),
        GROUPS: any(part.compatibility_groups for device in shown.devices for part in device.consumes),
        NODE_RESOURCES: any(device.node_resources for device in shown.devices),
        NODE_RESOURCES_FIELD: any(
            taken.per_pod or taken.per_container for device in shown.devices for taken in device.node_resources.values()
        ),
        FRACTIONS: any(map(_has_fractions, shown.devices)),
        PARTITION_TYPE: bool(shown.partition_type),
        NODE_OPERATIONS: shown.skip_node_operations,
    }
    return frozenset(gate for gate, is_used in uses.items() if is_used)


def _has_fractions(device: devices.Device) -> bool:
    return any(capacity.policy is not None and capacity.policy.is_fractional for capacity in device.capacity.values())


def without_counters(offered: inventory.Inventory) -> inventory.Inventory:
    """Return the devices that can be offered where shared counters are dropped (gate DRAPartitionableDevices off).

    Devices that consume no counters stay. Of the devices that share a set only one stays, without its consumption: the last one that consumes every
    counter of its sets in full, which is the whole device. If no device consumes a set in full, all its devices are removed.
    """
    flat = offered.flat()
    sets = {counter_set.name: counter_set for counter_set in flat.counter_sets}
    whole = {part.counter_set: device.name for device in flat.devices if _is_whole_device(device, sets) for part in device.consumes}
    kept = (device for device in flat.devices if all(whole.get(part.counter_set) == device.name for part in device.consumes))
    devices_kept = tuple(dataclasses.replace(device, consumes=()) for device in kept)
    return dataclasses.replace(flat, devices=devices_kept, counter_sets=(), partition_type="")


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
    """Return the devices without list attributes, for servers that drop lists (gate DRAListTypeAttributes off) and then reject the whole slice.

    Of the standard attribute for NUMA nodes, which may be a list or a number, the first one stays: the node of the device itself.
    """
    return dataclasses.replace(
        offered,
        devices=tuple(map(_without_lists, offered.devices)),
        mixins=dataclasses.replace(offered.mixins, device=tuple(map(_without_lists, offered.mixins.device))),
    )


def _without_lists(holder: _Holder) -> _Holder:
    if not any(isinstance(value, tuple) for value in holder.attributes.values()):
        return holder
    kept = {name: value for name, value in holder.attributes.items() if not isinstance(value, tuple)}
    nodes = holder.attributes.get(numa.ATTRIBUTE)
    return dataclasses.replace(holder, attributes={**kept, numa.ATTRIBUTE: nodes[0]} if isinstance(nodes, tuple) else kept)


def without_groups(offered: inventory.Inventory) -> inventory.Inventory:
    """Return the devices without compatibility groups (gate DRADeviceCompatibilityGroups off).

    The scheduler may then allocate together what excludes each other. Prepare refuses the second device.
    """
    return dataclasses.replace(offered, devices=tuple(map(_without_groups, offered.devices)))


def _without_groups(device: devices.Device) -> devices.Device:
    if not any(part.compatibility_groups for part in device.consumes):
        return device
    return dataclasses.replace(device, consumes=tuple(dataclasses.replace(part, compatibility_groups=()) for part in device.consumes))


def without_partition_type(offered: inventory.Inventory) -> inventory.Inventory:
    """Return the inventory without the name of its partitions' type (gate DRAPartitionableDevicesType off)."""
    return dataclasses.replace(offered, partition_type="")


def without_skipped_operations(offered: inventory.Inventory) -> inventory.Inventory:
    """Return the inventory for servers whose kubelets always call the driver (gate DRAOptionalNodeOperations off)."""
    return dataclasses.replace(offered, skip_node_operations=False)


def without_node_resources(offered: inventory.Inventory) -> inventory.Inventory:
    """Return the devices without what they take of their node (gate DRANodeAllocatableResources off)."""
    return dataclasses.replace(offered, devices=tuple(dataclasses.replace(device, node_resources={}) for device in offered.devices))


def with_node_resource_mappings(offered: inventory.Inventory) -> inventory.Inventory:
    """Return the devices with what they take of their node in the form of Kubernetes 1.36."""

    def converted(device: devices.Device) -> devices.Device:
        mappings = {name: node_resources.as_mapping(resource) for name, resource in device.node_resources.items()}
        return dataclasses.replace(device, node_resources={name: mapping for name, mapping in mappings.items() if mapping is not None})

    return dataclasses.replace(offered, devices=tuple(map(converted, offered.devices)))


def without_fractions(offered: inventory.Inventory) -> inventory.Inventory:
    """Return the devices with request policies for servers that count in whole units (gate DRAFractionalCapacityRange off)."""
    flat = offered.flat()
    return dataclasses.replace(flat, devices=tuple(map(_without_fractions, flat.devices)))


def _without_fractions(device: devices.Device) -> devices.Device:
    if not _has_fractions(device):
        return device
    capacity = {
        name: entry if entry.policy is None else dataclasses.replace(entry, policy=entry.policy.in_whole_units())
        for name, entry in device.capacity.items()
    }
    return dataclasses.replace(device, capacity=capacity)


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
