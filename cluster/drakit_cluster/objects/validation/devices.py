"""Rules of one device in a slice. Which nodes it can be used from is in ``nodes``."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import devices
from drakit_cluster.objects.validation import attributes, binding, capacities, counters, each, equality, failure, names, taints
from drakit_cluster.objects.validation.failure import Failure

MAX_NAMES = 32
"""Attributes and capacities of one device together."""
MAX_VALUES = 48
"""Attribute values of one device, where a list counts its length."""
MAX_TAINTS = 16


def check(device: Json, old: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a device; ``old`` is the one of the same name in the stored slice, None where there is none."""
    described, capacity = json_types.mapping(device, "attributes"), json_types.mapping(device, "capacity")
    yield from names.label(json_types.text(device, "name"), f"{path}.name")
    if (total := len(described) + len(capacity)) > MAX_NAMES:
        yield failure.invalid(path, total, f"attributes and capacities together must not be more than {MAX_NAMES}")
    if (values := attributes.values(described)) > MAX_VALUES:
        yield failure.invalid(path, values, f"values of all attributes together must not be more than {MAX_VALUES}")
    yield from attributes.check(described, f"{path}.attributes")
    rule = capacities.shared if json_types.at(device, "allowMultipleAllocations") is True else capacities.exclusive
    yield from each.entry(capacity, f"{path}.capacity", names.qualified, rule, shown=names.QUALIFIED_BYTES)
    yield from _taints(json_types.items(device, "taints"), old, f"{path}.taints")
    yield from counters.consumption(json_types.items(device, "consumesCounters"), f"{path}.consumesCounters")
    yield from binding.conditions(device, path)
    mappings = json_types.mapping(device, "nodeAllocatableResourceMappings")
    yield from _mappings(mappings, capacity, f"{path}.nodeAllocatableResourceMappings")


def _taints(values: list[Json], old: Json, path: str) -> Iterator[Failure]:
    """Taints that did not change are not looked at again: a newer server may have let them in."""
    if old is None or not equality.same(devices.TAINTS, values, json_types.at(old, "taints")):
        yield from each.item(values, path, taints.taint, limit=MAX_TAINTS)


def _mappings(mappings: Object, capacity: Object, path: str) -> Iterator[Failure]:
    """Check which of a node's own resources the device stands for."""
    for resource, mapping in mappings.items():
        where = f"{path}[{resource}]"
        if "/" in resource and "kubernetes.io/" not in resource:
            yield failure.invalid(where, resource, "must be a resource that nodes have, such as cpu or memory")
        yield from _mapping(json_types.mapping(mapping), capacity, where)


def _mapping(mapping: Object, capacity: Object, path: str) -> Iterator[Failure]:
    if not mapping:
        yield failure.invalid(path, "", "at least one of allocationMultiplier and capacityKey must be set")
        return
    factor, key = mapping.get("allocationMultiplier"), mapping.get("capacityKey")
    if factor is not None and quantity.parse(factor).nanos <= 0:
        yield failure.invalid(f"{path}.allocationMultiplier", factor, "must be greater than zero")
    if key == "":
        yield failure.invalid(f"{path}.capacityKey", "", "must not be empty")
    elif key is not None and key not in capacity:
        yield failure.not_found(f"{path}.capacityKey", key, "must name a capacity of the device")
