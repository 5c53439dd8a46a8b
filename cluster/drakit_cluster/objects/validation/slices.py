"""Rules of ResourceSlices: their nodes, their devices and their mixins. Rules of ResourcePoolStatusRequests.

No released Kubernetes has mixins: their rules follow the text of KEP-4815, and so do the limits that it states.
"""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects import mixins as flattening
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema.devices import POOL_REQUEST
from drakit_cluster.objects.validation import devices, failure, fields, metadata, names, rules
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.devices import MAX_COUNTERS, MAX_NAMES
from drakit_cluster.objects.validation.failure import Failure
from drakit_cluster.objects.versions import Rule

MAX_DEVICES = 128
MAX_TOGETHER = 127
"""Mixins and devices of one slice."""
MAX_INCLUDES = 8
MAX_POOLS = 1000
MAX_CONDITIONS = 10
MAX_ERROR_BYTES = 256


def create(new: Object, context: Context) -> Iterator[Failure]:
    """Yield the failures of a new slice."""
    return _spec(json_types.mapping(new, "spec"), {}, context)


def update(new: Object, old: Object, context: Context) -> Iterator[Failure]:
    """Yield the failures of a changed slice. It stays with its driver, pool and node."""
    spec, old_spec = json_types.mapping(new, "spec"), json_types.mapping(old, "spec")
    yield from _spec(spec, old_spec, context)
    for path in (("pool", "name"), ("driver",), ("nodeName",)):
        yield from failure.unchanged(".".join(("spec", *path)), json_types.at(spec, *path), json_types.at(old_spec, *path))


_pool = rules.all_of(
    rules.text(names.pool, "name"),
    rules.number(1, "must be greater than zero: the number of slices in the pool", "resourceSliceCount"),
    rules.number(0, "must be greater than or equal to 0", "generation"),
)


def _spec(spec: Object, old: Object, context: Context) -> Iterator[Failure]:
    yield from names.driver(json_types.text(spec, "driver"), "spec.driver")
    yield from _pool(spec.get("pool"), "spec.pool")
    yield from _nodes(spec)
    if "devices" in spec and "sharedCounters" in spec and context.gates.follows(Rule.SEPARATE_COUNTERS):
        yield failure.invalid("spec", "", "only one of devices and sharedCounters may be set: publish counters in a slice of their own")
    yield from _devices(spec, old, context.gates)
    yield from devices.counter_sets(spec, "spec", context.gates)
    yield from _partition_type(spec)
    yield from operations(spec, "spec")
    yield from _check_mixins(spec)


def _devices(spec: Object, old: Object, gates: FeatureGates) -> Iterator[Failure]:
    offered = json_types.items(spec, "devices")
    old_devices = {json_types.text(device, "name"): device for device in reversed(json_types.items(old, "devices"))}
    chooses = spec.get("perDeviceNodeSelection") is True

    def check(device: Json, where: str) -> Iterator[Failure]:
        old_device = old_devices.get(json_types.text(device, "name"))
        yield from devices.check(device, old_device, where, gates)
        yield from _nodes_of_device(device, where, chooses=chooses)
        if gates.follows(Rule.ONE_NODE_TERM) and json_types.at(device, "nodeSelector") != json_types.at(old_device, "nodeSelector"):
            yield from _one_term(device, where)
        if not gates.follows(Rule.SEPARATE_COUNTERS):
            yield from _own_counters(device, spec, where)

    limit = gates.limits.advanced_devices if any(map(_is_advanced, offered)) else MAX_DEVICES
    return rules.each(offered, "spec.devices", check, limit=limit, key=rules.by("name"))


def _is_advanced(device: Json) -> bool:
    lists = any(map(devices.has_list, json_types.mapping(device, "attributes").values()))
    return bool(json_types.items(device, "taints") or json_types.items(device, "consumesCounters") or lists)


_FIELDS = ("nodeName", "nodeSelector", "allNodes")
_PER_DEVICE = "perDeviceNodeSelection"


def _nodes(spec: Json) -> Iterator[Failure]:
    """Check the node selection of a slice: exactly one of the four fields."""
    yield from _choice(spec, (*_FIELDS, _PER_DEVICE), "spec")
    yield from _one_term(spec, "spec")


def _one_term(holder: Json, path: str) -> Iterator[Failure]:
    terms = json_types.items(holder, "nodeSelector", "nodeSelectorTerms")
    if json_types.at(holder, "nodeSelector") is not None and len(terms) != 1:
        yield failure.invalid(f"{path}.nodeSelector.nodeSelectorTerms", len(terms), "must have exactly one node selector term")


def _own_counters(device: Json, spec: Object, path: str) -> Iterator[Failure]:
    """Check that a device consumes counters of its own slice, as Kubernetes before 1.35 requires."""
    own = {json_types.text(counter_set, "name") for counter_set in json_types.items(spec, "sharedCounters")}
    for index, consumed in enumerate(json_types.items(device, "consumesCounters")):
        if (name := json_types.text(consumed, "counterSet")) not in own:
            yield failure.invalid(f"{path}.consumesCounters[{index}].counterSet", name, "must name a counter set of the same slice")


def _partition_type(spec: Object) -> Iterator[Failure]:
    """Check that every device that consumes counters has the attribute that names its type, as a string (KEP-5677)."""
    name, path = json_types.text(spec, "partitionTypeAttribute"), "spec.partitionTypeAttribute"
    if "partitionTypeAttribute" not in spec:
        return
    malformed = [*names.fully_qualified(name, path)]
    yield from malformed
    partitions = [
        (index, device) for index, device in enumerate(json_types.items(spec, "devices")) if json_types.items(device, "consumesCounters")
    ]
    if not partitions:
        yield failure.invalid(path, name, "may be set only in a slice with devices that consume counters")
    bare = name.removeprefix(f"{json_types.text(spec, 'driver')}/")
    for index, device in partitions if not malformed else ():
        attributes, where = json_types.mapping(device, "attributes"), f"spec.devices[{index}].attributes[{name}]"
        attribute = attributes.get(name, attributes.get(bare))
        if attribute is None:
            yield failure.required(where, "must be set, because the device consumes counters and partitionTypeAttribute names it")
        elif json_types.at(attribute, "string") is None:
            yield failure.invalid(where, attribute, "must be a string, because partitionTypeAttribute names it")


_PREPARE, _UNPREPARE, _EVERY = "NodePrepareResources", "NodeUnprepareResources", "*"


def operations(holder: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of ``holder.skipNodeOperations`` (KEP-5945)."""
    where, skipped = f"{path}.skipNodeOperations", json_types.strings(holder, "skipNodeOperations")
    for index, operation in enumerate(skipped):
        if operation not in (_EVERY, _PREPARE, _UNPREPARE):
            yield failure.not_supported(f"{where}[{index}]", operation, (_EVERY, _PREPARE, _UNPREPARE))
    yield from rules.duplicates(skipped, where)
    if _PREPARE in skipped and not {_UNPREPARE, _EVERY} & set(skipped):
        yield failure.invalid(where, json_types.from_strings(skipped), f"{_PREPARE} may be skipped only together with {_UNPREPARE}")


def _nodes_of_device(device: Json, path: str, *, chooses: bool) -> Iterator[Failure]:
    """Check the node selection of a device: exactly one of three fields if its slice has perDeviceNodeSelection, none otherwise."""
    if chooses:
        yield from _choice(device, _FIELDS, path)
    elif any(json_types.at(device, field) is not None for field in _FIELDS):
        detail = f"{', '.join(_FIELDS)} of a device may be set only if the slice has {_PER_DEVICE}: true"
        yield failure.invalid(path, None, detail)


def _choice(holder: Json, fields: tuple[str, ...], path: str) -> Iterator[Failure]:
    for field in fields:
        value, where = json_types.at(holder, field), f"{path}.{field}"
        if value is False:
            yield failure.invalid(where, False, "must be either unset or set to true")
        elif value == "":
            yield failure.invalid(where, "", "must be either unset or set to a non-empty string")
        elif isinstance(value, str):
            yield from names.subdomain(value, where)
        elif isinstance(value, dict):
            yield from node_selector(value, where)
    chosen = [field for field in fields if json_types.at(holder, field) not in (None, "", False)]
    if not chosen:
        yield failure.required(path, f"exactly one of {', '.join(fields)} is required")
    elif len(chosen) > 1:
        yield failure.invalid(path, json_types.from_strings(chosen), f"exactly one of {', '.join(fields)} may be set")


_LISTS = ("In", "NotIn")
_PRESENCE = ("Exists", "DoesNotExist")
_COMPARISONS = ("Gt", "Lt")


def _expression(requirement: Json, path: str) -> Iterator[Failure]:
    operator, values = json_types.text(requirement, "operator"), json_types.items(requirement, "values")
    if operator in _LISTS and not values:
        yield failure.required(f"{path}.values", f"operator {operator} needs values")
    elif operator in _PRESENCE and values:
        yield failure.forbidden(f"{path}.values", f"operator {operator} takes no values")
    elif operator in _COMPARISONS and len(values) != 1:
        yield failure.required(f"{path}.values", f"operator {operator} needs exactly one value")
    elif operator not in _LISTS + _PRESENCE + _COMPARISONS:
        yield failure.invalid(f"{path}.operator", operator, f"use one of {', '.join(_LISTS + _PRESENCE + _COMPARISONS)}")
    yield from names.label_key(json_types.text(requirement, "key"), f"{path}.key")
    yield from rules.texts("values", names.label_value)(requirement, path)


def _field(requirement: Json, path: str) -> Iterator[Failure]:
    operator, values = json_types.text(requirement, "operator"), json_types.items(requirement, "values")
    if operator not in _LISTS:
        yield failure.invalid(f"{path}.operator", operator, f"use one of {', '.join(_LISTS)} for a field")
    elif len(values) != 1:
        yield failure.required(f"{path}.values", f"operator {operator} needs exactly one value for a field")
    if json_types.text(requirement, "key") != "metadata.name":
        yield failure.invalid(f"{path}.key", json_types.at(requirement, "key"), "only metadata.name can be matched as a field")
    else:
        yield from rules.texts("values", names.subdomain)(requirement, path)


_term = rules.all_of(rules.items("matchExpressions", _expression), rules.items("matchFields", _field))


def node_selector(selector: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a node selector."""
    if not json_types.items(selector, "nodeSelectorTerms"):
        yield failure.required(f"{path}.nodeSelectorTerms", "write at least one term; none selects no node")
    yield from rules.items("nodeSelectorTerms", _term)(selector, path)


_KINDS = ("device", "counterSet", "deviceCounterConsumption")


def _name_count(holder: Json) -> int:
    return len(json_types.mapping(holder, "attributes")) + len(json_types.mapping(holder, "capacity"))


def _check_name_count(mixin: Json, path: str) -> Iterator[Failure]:
    if (total := _name_count(mixin)) > MAX_NAMES:
        yield failure.invalid(path, total, f"attributes and capacities together must not be more than {MAX_NAMES}")


_MIXIN = rules.all_of(
    rules.text(names.label, "name"),
    _check_name_count,
    devices.attributes,
    rules.entries("capacity", names.qualified, shown=names.QUALIFIED_BYTES),
    devices.counters,
)


def _check_mixins(spec: Object) -> Iterator[Failure]:
    """Check a slice's mixins, and every place that includes one: it must name one of the same slice."""
    mixins = json_types.mapping(spec, "mixins")
    total = len(json_types.items(spec, "devices")) + sum(len(json_types.items(mixins, kind)) for kind in _KINDS)
    if mixins and total > MAX_TOGETHER:
        yield failure.too_many("spec.mixins", total, MAX_TOGETHER)
    for kind in _KINDS:
        yield from rules.items(kind, _MIXIN, key=rules.by("name"))(mixins, "spec.mixins")
        for index, mixin in enumerate(json_types.items(mixins, kind)):
            if kind != "device" and not json_types.mapping(mixin, "counters"):
                yield failure.required(f"spec.mixins.{kind}[{index}].counters")
    if mixins:
        yield from _flat_limits(spec)
    sets, consumptions = _includes(mixins, "counterSet"), _includes(mixins, "deviceCounterConsumption")
    yield from rules.items("sharedCounters", sets)(spec, "spec")
    including = rules.all_of(_includes(mixins, "device"), rules.items("consumesCounters", consumptions))
    yield from rules.items("devices", including)(spec, "spec")


def _flat_limits(spec: Object) -> Iterator[Failure]:
    """Check the API's limits of devices and counter sets after mixins are applied."""
    try:
        flat = flattening.flatten(spec)
    except flattening.MixinError:
        return
    for index, counter_set in enumerate(json_types.items(flat, "sharedCounters")):
        count = len(json_types.mapping(counter_set, "counters"))
        yield from _limit(count, f"spec.sharedCounters[{index}].includes", "counters", MAX_COUNTERS)
    for index, device in enumerate(json_types.items(flat, "devices")):
        yield from _limit(_name_count(device), f"spec.devices[{index}].includes", "attributes and capacities", MAX_NAMES)
        for place, consumption in enumerate(json_types.items(device, "consumesCounters")):
            where = f"spec.devices[{index}].consumesCounters[{place}].includes"
            yield from _limit(len(json_types.mapping(consumption, "counters")), where, "counters", MAX_COUNTERS)


def _limit(count: int, path: str, noun: str, limit: int) -> Iterator[Failure]:
    if count > limit:
        yield failure.invalid(path, count, f"with what is included there must not be more than {limit} {noun}")


def _includes(mixins: Object, kind: str) -> rules.Rule:
    mixin_names = {json_types.text(mixin, "name") for mixin in json_types.items(mixins, kind)}

    def check(include: Json, where: str) -> Iterator[Failure]:
        if (name := json_types.text(include, "name")) not in mixin_names:
            yield failure.invalid(f"{where}.name", name, "must name a mixin of this slice")

    return rules.items("includes", check, limit=MAX_INCLUDES, key=rules.by("name"))


_REQUEST_SPEC, _REQUEST_STATUS = (POOL_REQUEST.fields[name] for name in ("spec", "status"))


def create_request(new: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a new ResourcePoolStatusRequest."""
    spec = json_types.mapping(new, "spec")
    yield from names.driver(json_types.text(spec, "driver"), "spec.driver")
    yield from rules.if_set(rules.of_text(names.pool), "poolName")(spec, "spec")
    yield from rules.if_set(rules.of_text(names.fully_qualified), "defaultPartitionTypeAttribute")(spec, "spec")
    limit = spec.get("limit")
    if isinstance(limit, int) and not 1 <= limit <= MAX_POOLS:
        yield failure.invalid("spec.limit", limit, f"must be from 1 to {MAX_POOLS}")


def update_request(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failure of a changed spec."""
    if not fields.same(_REQUEST_SPEC, new.get("spec"), old.get("spec")):
        yield failure.immutable("spec", new.get("spec"))


def _some_slices(count: Json, path: str) -> Iterator[Failure]:
    if isinstance(count, int) and count < 1:
        yield failure.invalid(path, count, "must be 1 or more")


_NOT_NEGATIVE = "must be 0 or more"
_COUNTED_POOL = rules.all_of(
    rules.text(names.driver, "driver"),
    rules.text(names.pool, "poolName"),
    rules.if_set(rules.of_text(names.subdomain), "nodeName"),
    rules.number(0, _NOT_NEGATIVE, "generation", "totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices"),
    rules.if_set(_some_slices, "resourceSliceCount"),
    rules.size(MAX_ERROR_BYTES, "validationError"),
)
_ANSWER = rules.all_of(rules.number(0, _NOT_NEGATIVE, "poolCount"), rules.items("pools", _COUNTED_POOL, limit=MAX_POOLS))


def update_request_status(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a status. It is written once: a second, different status fails."""
    status, old_status = new.get("status"), old.get("status")
    if old_status is not None:
        if not fields.same(_REQUEST_STATUS, status, old_status):
            yield failure.immutable("status", status)
    elif status is not None:
        yield from _ANSWER(status, "status")
        yield from metadata.check_conditions(status, "status", limit=MAX_CONDITIONS)
