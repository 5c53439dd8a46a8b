"""Rules of one device in a slice: attributes, capacities, counters, binding conditions, taints."""

import functools
import itertools
from collections.abc import Iterator

from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.quantity import Quantity
from drakit_cluster.objects.schema import devices, formats
from drakit_cluster.objects.validation import failure, fields, names, rules
from drakit_cluster.objects.validation.failure import Failure
from drakit_cluster.objects.validation.slices import taints
from drakit_cluster.objects.versions import Rule

MAX_NAMES = 32
"""Attributes and capacities of one device together."""
MAX_VALUES = 48
"""Attribute values of one device, where a list counts its length."""
MAX_BYTES = 64
MAX_COUNTERS = 32
MAX_GROUPS = 2
MAX_CONDITIONS = 4
MAX_VALID_VALUES = 10
LISTS = ("bools", "ints", "strings", "versions")
_CONDITIONS, _FAILING = "bindingConditions", "bindingFailureConditions"


def check(device: Json, old: Json, path: str, gates: FeatureGates) -> Iterator[Failure]:
    """Yield the failures of a device; ``old`` is the one of the same name in the stored slice, or None."""
    attributes, capacity = json_types.mapping(device, "attributes"), json_types.mapping(device, "capacity")
    yield from _check_counts(attributes, capacity, path)
    yield from _ALWAYS(device, path)
    yield from _sets("consumesCounters", "counterSet", gates.limits.consumed_sets, _compatibility_groups)(device, path)
    for field, entries in (("attributes", attributes), ("capacity", capacity)) if gates.follows(Rule.ONE_SLASH) else ():
        yield from (failed for name in entries for failed in names.one_slash(name, f"{path}.{field}"))
    shared = functools.partial(shared_capacity, fractional=gates.on(Gate.FRACTIONAL_CAPACITY_RANGE))
    rule = shared if json_types.at(device, "allowMultipleAllocations") is True else _exclusive_capacity
    yield from rules.entries("capacity", names.qualified, rule, shown=names.QUALIFIED_BYTES)(device, path)
    # Unchanged taints are not checked again: a newer server may have accepted them.
    if old is None or not fields.same(devices.TAINTS, json_types.items(device, "taints"), json_types.at(old, "taints")):
        check_taint = rules.all_of(taints.check, taints.effect(gates))
        yield from rules.items("taints", check_taint, limit=gates.limits.taints)(device, path)
    for resource, mapping in json_types.mapping(device, "nodeAllocatableResourceMappings").items():
        yield from _mapping(resource, json_types.mapping(mapping), capacity, f"{path}.nodeAllocatableResourceMappings[{resource}]")
    for resource, entry in json_types.mapping(device, "nodeAllocatableResources").items():
        yield from _node_resource(resource, entry, capacity, f"{path}.nodeAllocatableResources[{resource}]")


def _check_counts(attributes: Object, capacity: Object, path: str) -> Iterator[Failure]:
    if (total := len(attributes) + len(capacity)) > MAX_NAMES:
        yield failure.invalid(path, total, f"attributes and capacities together must not be more than {MAX_NAMES}")
    # The length of a list counts, everything else is one.
    values = sum(sum(len(json_types.items(attribute, field)) for field in LISTS) or 1 for attribute in attributes.values())
    if values > MAX_VALUES:
        yield failure.invalid(path, values, f"values of all attributes together must not be more than {MAX_VALUES}")


def _mapping(resource: str, mapping: Object, capacity: Object, path: str) -> Iterator[Failure]:
    """Check the mapping of a device to one of its node's own resources, as 1.36 has it."""
    yield from _own_resource(resource, path)
    if not mapping:
        yield failure.invalid(path, "", "at least one of allocationMultiplier and capacityKey must be set")
    factor, key = mapping.get("allocationMultiplier"), mapping.get("capacityKey")
    if factor is not None and quantity.parse(factor).nanos <= 0:
        yield failure.invalid(f"{path}.allocationMultiplier", factor, "must be greater than zero")
    if key == "":
        yield failure.invalid(f"{path}.capacityKey", "", "must not be empty")
    elif key is not None and key not in capacity:
        yield failure.not_found(f"{path}.capacityKey", key, "must name a capacity of the device")


def _own_resource(resource: str, path: str) -> Iterator[Failure]:
    if "/" in resource and "kubernetes.io/" not in resource:
        yield failure.invalid(path, resource, "must be a resource that nodes have, such as cpu or memory")


def _node_resource(resource: str, entry: Json, capacity: Object, path: str) -> Iterator[Failure]:
    """Check what a device takes of one of its node's own resources, as 1.37 has it."""
    yield from _own_resource(resource, path)
    mapping, overhead = json_types.at(entry, "mapping"), json_types.at(entry, "overhead")
    if mapping is None and overhead is None:
        yield failure.required(path, "write at least one of mapping and overhead")
    if mapping is not None:
        yield from _node_mapping(json_types.mapping(mapping), capacity, f"{path}.mapping")
    if overhead is not None:
        amounts = {field: value for field in ("perPod", "perContainer") if (value := json_types.at(overhead, field)) is not None}
        if not amounts:
            yield failure.invalid(f"{path}.overhead", "", "at least one of perPod and perContainer must be set")
        for field, value in amounts.items():
            if quantity.parse(value).nanos < 0:
                yield failure.invalid(f"{path}.overhead.{field}", value, "must not be negative")


def _node_mapping(mapping: Object, capacity: Object, path: str) -> Iterator[Failure]:
    key, factor, per_device = (mapping.get(field) for field in ("capacityKey", "capacityMultiplier", "deviceMultiplier"))
    if key == "":
        yield failure.invalid(f"{path}.capacityKey", "", "must not be empty")
    elif key is not None and key not in capacity:
        yield failure.not_found(f"{path}.capacityKey", key, "must name a capacity of the device")
    if key is not None and factor is None:
        yield failure.required(f"{path}.capacityMultiplier", "must be set with capacityKey")
    if factor is not None and key is None:
        yield failure.required(f"{path}.capacityKey", "must be set with capacityMultiplier")
    if key is not None and per_device is not None:
        yield failure.invalid(f"{path}.deviceMultiplier", per_device, "must not be set with capacityKey")
    if key is None and factor is None and per_device is None:
        yield failure.required(path, "write either deviceMultiplier, or capacityKey and capacityMultiplier")
    for field, value in (("capacityMultiplier", factor if key is not None else None), ("deviceMultiplier", per_device)):
        if value is not None and quantity.parse(value).nanos <= 0:
            yield failure.invalid(f"{path}.{field}", value, "must be greater than zero")


def has_list(attribute: Json) -> bool:
    """Return whether an attribute is a list, an empty one included."""
    return any(json_types.at(attribute, field) is not None for field in LISTS)


def _attribute(attribute: Json, path: str) -> Iterator[Failure]:
    values = json_types.mapping(attribute)
    for field, rule in _ATTRIBUTE_VALUES.items():
        if (value := values.get(field)) is not None:
            yield from rule(value, f"{path}.{field}")
    for field in LISTS:
        if values.get(field) == []:
            yield failure.invalid(f"{path}.{field}", [], "must have at least one member, or be left out")
    if len(values) != 1:
        yield failure.invalid(path, {**values}, f"exactly one value must be specified, not {len(values)}")


def _string(value: str, path: str) -> Iterator[Failure]:
    if len(value.encode()) > MAX_BYTES:
        yield failure.too_long(path, MAX_BYTES)


def _version(value: str, path: str) -> Iterator[Failure]:
    if reason := formats.semver(value):
        yield failure.invalid(path, value, reason)
    yield from _string(value, path)


def _texts(rule: rules.NameRule) -> rules.Rule:
    return lambda values, path: rules.each(values if isinstance(values, list) else [], path, rules.of_text(rule))


_ATTRIBUTE_VALUES = {
    "string": rules.of_text(_string),
    "version": rules.of_text(_version),
    "strings": _texts(_string),
    "versions": _texts(_version),
}
attributes = rules.entries("attributes", names.qualified, _attribute, shown=names.QUALIFIED_BYTES)
counters = rules.entries("counters", names.label, limit=MAX_COUNTERS, shown=formats.LABEL_BYTES)


def _set_name(name: str, path: str) -> Iterator[Failure]:
    yield from names.label(name, path) if name else [failure.required(path, "name the counter set")]


def _some_counters(holder: Json, path: str) -> Iterator[Failure]:
    """Counters may all come from mixins (ours)."""
    if not json_types.mapping(holder, "counters") and not json_types.items(holder, "includes"):
        yield failure.required(f"{path}.counters", "write at least one counter")


def _sets(field: str, naming: str, limit: int, *more: rules.Rule) -> rules.Rule:
    """Return the rule for a list of counter sets, each with a name and counters."""
    check_set = rules.all_of(rules.text(_set_name, naming), counters, _some_counters, *more)
    return rules.items(field, check_set, limit=limit, key=rules.by(naming))


_compatibility_groups = rules.texts("compatibilityGroups", rules.any_name, limit=MAX_GROUPS, unique=True)


def counter_sets(spec: Json, path: str, gates: FeatureGates) -> Iterator[Failure]:
    """Yield the failures of a slice's counter sets."""
    limits = gates.limits
    yield from _sets("sharedCounters", "name", limits.counter_sets)(spec, path)
    total = sum(len(json_types.mapping(counter_set, "counters")) for counter_set in json_types.items(spec, "sharedCounters"))
    if limits.counters_in_all_sets and total > limits.counters_in_all_sets:
        detail = f"all sets together must not have more than {limits.counters_in_all_sets} counters"
        yield failure.invalid(f"{path}.sharedCounters", total, detail)


def binding_conditions(holder: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of ``holder``'s binding conditions: both lists or none, without repetition and without overlap."""
    required, failing = json_types.strings(holder, _CONDITIONS), json_types.strings(holder, _FAILING)
    for field, values in ((_CONDITIONS, required), (_FAILING, failing)):
        yield from rules.texts(field, names.label_key, limit=MAX_CONDITIONS)(holder, path)
        yield from rules.duplicates(values, f"{path}.{field}")
    for index, name in enumerate(failing):
        if name in required:
            yield failure.invalid(f"{path}.{_FAILING}[{index}]", name, "must not be a binding condition as well")
    if bool(required) != bool(failing):
        missing, present = (_FAILING, _CONDITIONS) if required else (_CONDITIONS, _FAILING)
        yield failure.invalid(f"{path}.{missing}", [], f"must be set because {present} is: use both or neither")


_ALWAYS = rules.all_of(rules.text(names.label, "name"), attributes, binding_conditions)


def shared_capacity(capacity: Json, path: str, *, fractional: bool = False) -> Iterator[Failure]:
    """Yield the failures of a capacity of a device that may be allocated many times."""
    policy = json_types.at(capacity, "requestPolicy")
    if isinstance(policy, dict):
        yield from _policy(policy, quantity.parse(json_types.at(capacity, "value")), f"{path}.requestPolicy", fractional=fractional)


def _exclusive_capacity(capacity: Json, path: str) -> Iterator[Failure]:
    """Check a capacity of a device that is allocated once, so that a claim takes all of it."""
    if json_types.at(capacity, "requestPolicy") is not None:
        yield failure.forbidden(f"{path}.requestPolicy", "may be set only if the device has allowMultipleAllocations: true")


def _policy(policy: Object, total: Quantity, path: str, *, fractional: bool) -> Iterator[Failure]:
    values, limits = json_types.items(policy, "validValues"), policy.get("validRange")
    if values and limits is not None:
        yield failure.forbidden(path, "validValues and validRange exclude each other: remove one")
    elif "default" not in policy:
        if values or limits is not None:
            yield failure.required(f"{path}.default", f"must be set with {'validValues' if values else 'validRange'}")
    elif values:
        yield from _values(values, quantity.parse(policy["default"]), total, f"{path}.validValues", fractional=fractional)
    elif isinstance(limits, dict):
        yield from _range(limits, quantity.parse(policy["default"]), total, f"{path}.validRange", fractional=fractional)


def _values(values: list[Json], default: Quantity, total: Quantity, path: str, *, fractional: bool) -> Iterator[Failure]:
    """Values are duplicates if they are equal; without ``fractional``, if they are equal in whole units, rounded up.

    With too many values the default fails too, as in Kubernetes.
    """
    amounts = [quantity.parse(value) for value in values]
    for index, (previous, amount) in enumerate(itertools.pairwise(amounts), start=1):
        if amount < previous:
            yield failure.invalid(f"{path}[{index}]", values[index], "values must be sorted in ascending order")

    def check_value(value: Json, where: str) -> Iterator[Failure]:
        if quantity.parse(value) > total:
            yield failure.invalid(where, value, f"must not exceed the capacity's value of {total}")

    def key(value: Json) -> str:
        amount = quantity.parse(value)
        return str(amount.nanos if fractional else amount.units)

    yield from rules.each(values, path, check_value, limit=MAX_VALID_VALUES, key=key)
    if default not in amounts or len(amounts) > MAX_VALID_VALUES:
        yield failure.invalid(path, str(default), "the default must be one of validValues")


def _range(limits: Object, default: Quantity, total: Quantity, path: str, *, fractional: bool) -> Iterator[Failure]:
    """A default outside the range is a failure of the bound that it breaks."""
    if "min" not in limits:
        yield failure.required(f"{path}.min", "must be set in a validRange")
        return
    low, high = quantity.parse(limits["min"]), quantity.parse(limits["max"]) if "max" in limits else None
    if low > total:
        yield failure.invalid(f"{path}.min", limits["min"], f"must not exceed the capacity's value of {total}")
    if default < low:
        yield failure.invalid(f"{path}.min", limits["min"], f"must not exceed the default of {default}")
    if high is not None and not max(low, default) <= high <= total:
        bounds = f"at least {max(low, default)}, the greater of min and default, and at most {total}, the capacity's value"
        yield failure.invalid(f"{path}.max", limits["max"], f"must be {bounds}")
    step = quantity.parse(limits["step"]) if "step" in limits else None
    written = {"default": default, "min": low} | {name: amount for name, amount in (("max", high), ("step", step)) if amount is not None}
    in_milli = fractional and any(amount.is_fraction for amount in written.values())
    unfit = [name for name, amount in written.items() if in_milli and not amount.is_milli]
    for name in unfit:
        yield failure.invalid(f"{path}.{name}", str(written[name]), "must be a whole number of thousandths that 64 bits hold, such as 250m")
    if step is not None and not unfit:
        ends = [default] if high is None else [default, high]
        yield from _step(step, low, ends, total, f"{path}.step", in_milli=in_milli)


def _step(step: Quantity, low: Quantity, ends: list[Quantity], total: Quantity, path: str, *, in_milli: bool) -> Iterator[Failure]:
    """Steps count in whole units, each amount rounded up, or in thousandths.

    A step of zero is ours to refuse: Kubernetes 1.36 divides by it.
    """

    def count(amount: Quantity) -> int:
        return amount.nanos // quantity.MILLI_NANOS if in_milli else amount.units

    if step.units == 0:
        yield failure.invalid(path, str(step), "must not be zero")
        return
    if low + step > total:
        yield failure.invalid(path, str(step), f"one step above min must not exceed the capacity's value of {total}")
    for end in ends:
        if (count(end) - count(low)) % count(step):
            yield failure.invalid(path, str(step), f"{end} must be a whole number of steps above min, {low}")
