"""Rules of one device in a slice: attributes, capacities, counters, binding conditions, taints. Rules of tolerations and DeviceTaintRules."""

import itertools
from collections.abc import Iterator

from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.quantity import Quantity
from drakit_cluster.objects.schema import devices, formats
from drakit_cluster.objects.validation import failure, fields, metadata, names
from drakit_cluster.objects.validation.context import Context
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
    if (values := attribute_values(described)) > MAX_VALUES:
        yield failure.invalid(path, values, f"values of all attributes together must not be more than {MAX_VALUES}")
    yield from check_attributes(described, f"{path}.attributes")
    rule = check_shared_capacity if json_types.at(device, "allowMultipleAllocations") is True else check_exclusive_capacity
    yield from failure.each_entry(capacity, f"{path}.capacity", names.qualified, rule, shown=names.QUALIFIED_BYTES)
    yield from _taints(json_types.items(device, "taints"), old, f"{path}.taints")
    yield from check_consumption(json_types.items(device, "consumesCounters"), f"{path}.consumesCounters")
    yield from check_binding_conditions(device, path)
    mappings = json_types.mapping(device, "nodeAllocatableResourceMappings")
    yield from _mappings(mappings, capacity, f"{path}.nodeAllocatableResourceMappings")


def _taints(values: list[Json], old: Json, path: str) -> Iterator[Failure]:
    """Taints that did not change are not looked at again: a newer server may have let them in."""
    if old is None or not fields.same(devices.TAINTS, values, json_types.at(old, "taints")):
        yield from failure.each_item(values, path, taint, limit=MAX_TAINTS)


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


MAX_BYTES = 64
LISTS = ("bools", "ints", "strings", "versions")


def check_attributes(attributes: Object, path: str) -> Iterator[Failure]:
    """Yield the failures of a map of attributes."""
    return failure.each_entry(attributes, path, names.qualified, _attribute, shown=names.QUALIFIED_BYTES)


def attribute_values(attributes: Object) -> int:
    """Count the values of all attributes: a list has its length, everything else is one."""
    return sum(sum(len(json_types.items(one, field)) for field in LISTS) or 1 for one in attributes.values())


def has_list(attribute: Json) -> bool:
    """Say whether an attribute is a list, an empty one included."""
    return any(json_types.at(attribute, field) is not None for field in LISTS)


def _attribute(attribute: Json, path: str) -> Iterator[Failure]:
    fields = json_types.mapping(attribute)
    for field, rule in (("string", _string), ("version", _version)):
        if field in fields:
            yield from rule(json_types.text(fields, field), f"{path}.{field}")
    for field in LISTS:
        if fields.get(field) == []:
            yield failure.invalid(f"{path}.{field}", [], "must have at least one member, or be left out")
    yield from failure.each_name(json_types.items(fields, "strings"), f"{path}.strings", _string)
    yield from failure.each_name(json_types.items(fields, "versions"), f"{path}.versions", _version)
    if len(fields) != 1:
        yield failure.invalid(path, {**fields}, f"exactly one value must be specified, not {len(fields)}")


def _string(value: str, path: str) -> Iterator[Failure]:
    if len(value.encode()) > MAX_BYTES:
        yield failure.too_long(path, MAX_BYTES)


def _version(value: str, path: str) -> Iterator[Failure]:
    if wrong := formats.semver(value):
        yield failure.invalid(path, value, wrong)
    yield from _string(value, path)


MAX_SETS = 8
MAX_COUNTERS = 32
MAX_CONSUMED_SETS = 2


def check_counter_sets(values: list[Json], path: str) -> Iterator[Failure]:
    """Yield the failures of ``spec.sharedCounters``."""

    def one(value: Json, where: str) -> Iterator[Failure]:
        return _counters(value, "name", where)

    return failure.each_item(values, path, one, limit=MAX_SETS, key=lambda value: json_types.text(value, "name"))


def check_consumption(values: list[Json], path: str) -> Iterator[Failure]:
    """Yield the failures of a device's ``consumesCounters``: one entry for each set."""

    def one(value: Json, where: str) -> Iterator[Failure]:
        return _counters(value, "counterSet", where)

    return failure.each_item(values, path, one, limit=MAX_CONSUMED_SETS, key=lambda value: json_types.text(value, "counterSet"))


def _counters(holder: Json, naming: str, path: str) -> Iterator[Failure]:
    """Check a name and its counters, which may all come from mixins (ours)."""
    if name := json_types.text(holder, naming):
        yield from names.label(name, f"{path}.{naming}")
    else:
        yield failure.required(f"{path}.{naming}", "name the counter set")
    counters = json_types.mapping(holder, "counters")
    if counters:
        shown = formats.LABEL_BYTES
        yield from failure.each_entry(counters, f"{path}.counters", names.label, failure.anything, limit=MAX_COUNTERS, shown=shown)
    elif not json_types.items(holder, "includes"):
        yield failure.required(f"{path}.counters", "write at least one counter")


MAX_CONDITIONS = 4
_WANTED, _FAILING = "bindingConditions", "bindingFailureConditions"


def check_binding_conditions(holder: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of ``holder``'s binding conditions: both lists or none, without repetition and without overlap."""
    wanted, failing = json_types.strings(holder, _WANTED), json_types.strings(holder, _FAILING)
    for field, values in ((_WANTED, wanted), (_FAILING, failing)):
        where = f"{path}.{field}"
        yield from failure.each_name(json_types.from_strings(values), where, names.label_key, limit=MAX_CONDITIONS)
        yield from failure.duplicates(values, where)
    for index, name in enumerate(failing):
        if name in wanted:
            yield failure.invalid(f"{path}.{_FAILING}[{index}]", name, "must not be a binding condition as well")
    if bool(wanted) != bool(failing):
        missing, present = (_FAILING, _WANTED) if wanted else (_WANTED, _FAILING)
        yield failure.invalid(f"{path}.{missing}", [], f"must be set because {present} is: use both or neither")


MAX_VALID_VALUES = 10


def check_shared_capacity(capacity: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a capacity of a device that may be allocated many times."""
    policy = json_types.at(capacity, "requestPolicy")
    if isinstance(policy, dict):
        yield from _policy(policy, quantity.parse(json_types.at(capacity, "value")), f"{path}.requestPolicy")


def check_exclusive_capacity(capacity: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a capacity of a device that is allocated once: it is taken whole."""
    if json_types.at(capacity, "requestPolicy") is not None:
        yield failure.forbidden(f"{path}.requestPolicy", "may be set only if the device has allowMultipleAllocations: true")


def _policy(policy: Object, total: Quantity, path: str) -> Iterator[Failure]:
    values, limits = json_types.items(policy, "validValues"), policy.get("validRange")
    if values and limits is not None:
        yield failure.forbidden(path, "validValues and validRange exclude each other: remove one")
    elif "default" not in policy:
        if values or limits is not None:
            yield failure.required(f"{path}.default", f"must be set with {'validValues' if values else 'validRange'}")
    elif values:
        yield from _values(values, quantity.parse(policy["default"]), total, f"{path}.validValues")
    elif isinstance(limits, dict):
        yield from _range(limits, quantity.parse(policy["default"]), total, f"{path}.validRange")


def _values(values: list[Json], default: Quantity, total: Quantity, path: str) -> Iterator[Failure]:
    """Values count as the same if they are so in whole units, rounded up; too many of them hide the default, as in Kubernetes."""
    amounts = [quantity.parse(value) for value in values]
    for index, (before, amount) in enumerate(itertools.pairwise(amounts), start=1):
        if amount < before:
            yield failure.invalid(f"{path}[{index}]", values[index], "values must be sorted in ascending order")

    def one(value: Json, where: str) -> Iterator[Failure]:
        if quantity.parse(value) > total:
            yield failure.invalid(where, value, f"must not exceed the capacity's value of {total}")

    yield from failure.each_item(values, path, one, limit=MAX_VALID_VALUES, key=_units)
    if default not in amounts or len(amounts) > MAX_VALID_VALUES:
        yield failure.invalid(path, str(default), "the default must be one of validValues")


def _units(value: Json) -> str:
    return str(quantity.parse(value).units)


def _range(limits: Object, default: Quantity, total: Quantity, path: str) -> Iterator[Failure]:
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
    if "step" in limits:
        ends = [default] if high is None else [default, high]
        yield from _step(quantity.parse(limits["step"]), low, ends, total, f"{path}.step")


def _step(step: Quantity, low: Quantity, ends: list[Quantity], total: Quantity, path: str) -> Iterator[Failure]:
    """Steps count in whole units, each amount rounded up. A step of zero is ours to refuse: Kubernetes 1.36 divides by it."""
    if step.units == 0:
        yield failure.invalid(path, str(step), "must not be zero")
        return
    if low + step > total:
        yield failure.invalid(path, str(step), f"one step above min must not exceed the capacity's value of {total}")
    for end in ends:
        if (end.units - low.units) % step.units:
            yield failure.invalid(path, str(step), f"{end} must be a whole number of steps above min, {low}")


MAX_RULE_CONDITIONS = 8

_EFFECTS = ("NoExecute", "NoSchedule", "None")
_OPERATORS = ("Equal", "Exists")


def taint(value: Json, path: str, old: Json = None) -> Iterator[Failure]:
    """Yield the failures of a taint. An effect that the ``old`` taint has stays allowed: a newer server may have let it in."""
    yield from names.label_key(json_types.text(value, "key"), f"{path}.key")
    yield from names.label_value(json_types.text(value, "value"), f"{path}.value")
    effect = json_types.text(value, "effect")
    if old is not None and json_types.text(old, "effect") == effect:
        return
    if not effect:
        yield failure.required(f"{path}.effect", f"one of {', '.join(_EFFECTS)}")
    elif effect not in _EFFECTS:
        yield failure.not_supported(f"{path}.effect", effect, _EFFECTS)


def toleration(value: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a toleration."""
    key, operator, effect = (json_types.text(value, field) for field in ("key", "operator", "effect"))
    if key:
        yield from names.label_key(key, f"{path}.key")
    yield from _operator(operator, json_types.text(value, "value"), path)
    if effect and effect not in _EFFECTS:
        yield failure.not_supported(f"{path}.effect", effect, _EFFECTS)


def _operator(operator: str, value: str, path: str) -> Iterator[Failure]:
    if operator == "Exists":
        if value:
            yield failure.invalid(f"{path}.value", value, "must be empty for operator Exists, which accepts every value")
    elif operator == "Equal":
        yield from names.label_value(value, f"{path}.value")
    elif not operator:
        yield failure.required(f"{path}.operator", f"one of {', '.join(_OPERATORS)}")
    else:
        yield failure.not_supported(f"{path}.operator", operator, _OPERATORS)


def create_rule(new: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a new DeviceTaintRule."""
    return _rule(new, None)


def update_rule(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a changed DeviceTaintRule."""
    return _rule(new, json_types.at(old, "spec", "taint"))


def update_rule_status(new: Object, _old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of what a DeviceTaintRule's controller reports."""
    return metadata.check_conditions(json_types.items(new, "status", "conditions"), "status.conditions", limit=MAX_RULE_CONDITIONS)


def _rule(new: Object, old: Json) -> Iterator[Failure]:
    chosen = json_types.mapping(new, "spec", "deviceSelector")
    for field, rule in (("driver", names.driver), ("pool", names.pool), ("device", names.label)):
        if field in chosen:
            yield from rule(json_types.text(chosen, field), f"spec.deviceSelector.{field}")
    yield from taint(json_types.mapping(new, "spec", "taint"), "spec.taint", old)
