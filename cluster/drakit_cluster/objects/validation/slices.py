"""Rules of ResourceSlices: their nodes, their devices and their mixins. Rules of ResourcePoolStatusRequests, which ask about them.

No released Kubernetes has mixins: their rules follow KEP-4815's text, and its limits where it gives some.
"""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects import mixins as flattening
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import formats
from drakit_cluster.objects.schema.devices import POOL_REQUEST
from drakit_cluster.objects.validation import devices, failure, fields, metadata, names
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.devices import MAX_COUNTERS, MAX_NAMES
from drakit_cluster.objects.validation.failure import Failure

MAX_DEVICES = 128
MAX_DEVICES_ADVANCED = 64
"""Devices of a slice in which any has taints, counters or list attributes."""


def create(new: Object, context: Context) -> Iterator[Failure]:
    """Yield the failures of a new slice."""
    return _spec(json_types.mapping(new, "spec"), {}, context)


def update(new: Object, old: Object, context: Context) -> Iterator[Failure]:
    """Yield the failures of a changed slice. It stays with its driver, pool and node."""
    spec, before = json_types.mapping(new, "spec"), json_types.mapping(old, "spec")
    yield from _spec(spec, before, context)
    for path in (("pool", "name"), ("driver",), ("nodeName",)):
        yield from failure.unchanged(".".join(("spec", *path)), json_types.at(spec, *path), json_types.at(before, *path))


def _spec(spec: Object, old: Object, context: Context) -> Iterator[Failure]:
    yield from names.driver(json_types.text(spec, "driver"), "spec.driver")
    yield from _pool(json_types.mapping(spec, "pool"), "spec.pool")
    yield from of_slice(spec)
    if "devices" in spec and "sharedCounters" in spec and not context.gates.on(Gate.COUNTERS_BESIDE_DEVICES):
        yield failure.invalid("spec", "", "only one of devices and sharedCounters may be set: publish counters in a slice of their own")
    yield from _devices(spec, old)
    yield from devices.check_counter_sets(json_types.items(spec, "sharedCounters"), "spec.sharedCounters")
    yield from check_mixins(spec)


def _pool(pool: Object, path: str) -> Iterator[Failure]:
    yield from names.pool(json_types.text(pool, "name"), f"{path}.name")
    if (count := json_types.number(pool, "resourceSliceCount")) <= 0:
        yield failure.invalid(f"{path}.resourceSliceCount", count, "must be greater than zero: the number of slices in the pool")
    if (generation := json_types.number(pool, "generation")) < 0:
        yield failure.invalid(f"{path}.generation", generation, "must be greater than or equal to 0")


def _devices(spec: Object, old: Object) -> Iterator[Failure]:
    offered = json_types.items(spec, "devices")
    known = {json_types.text(device, "name"): device for device in reversed(json_types.items(old, "devices"))}
    chooses = spec.get("perDeviceNodeSelection") is True

    def one(device: Json, where: str) -> Iterator[Failure]:
        yield from devices.check(device, known.get(json_types.text(device, "name")), where)
        yield from of_device(device, where, chooses=chooses)

    limit = MAX_DEVICES_ADVANCED if any(map(_is_advanced, offered)) else MAX_DEVICES
    return failure.each_item(offered, "spec.devices", one, limit=limit, key=lambda device: json_types.text(device, "name"))


def _is_advanced(device: Json) -> bool:
    lists = any(map(devices.has_list, json_types.mapping(device, "attributes").values()))
    return bool(json_types.items(device, "taints") or json_types.items(device, "consumesCounters") or lists)


_FIELDS = ("nodeName", "nodeSelector", "allNodes")
_PER_DEVICE = "perDeviceNodeSelection"


def of_slice(spec: Json) -> Iterator[Failure]:
    """Yield the failures of a slice's choice: exactly one of the four fields."""
    yield from _choice(spec, (*_FIELDS, _PER_DEVICE), "spec")
    terms = json_types.items(spec, "nodeSelector", "nodeSelectorTerms")
    if json_types.at(spec, "nodeSelector") is not None and len(terms) != 1:
        field = "spec.nodeSelector.nodeSelectorTerms"
        yield failure.invalid(field, len(terms), "must have exactly one node selector term")


def of_device(device: Json, path: str, *, chooses: bool) -> Iterator[Failure]:
    """Yield the failures of a device's choice: exactly one of three fields if its slice leaves it to devices, none otherwise."""
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
            yield from check_selector(value, where)
    chosen = [field for field in fields if json_types.at(holder, field) not in (None, "", False)]
    if not chosen:
        yield failure.required(path, f"exactly one of {', '.join(fields)} is required")
    elif len(chosen) > 1:
        yield failure.invalid(path, json_types.from_strings(chosen), f"exactly one of {', '.join(fields)} may be set")


_LISTS = ("In", "NotIn")
_PRESENCE = ("Exists", "DoesNotExist")
_COMPARISONS = ("Gt", "Lt")


def check_selector(selector: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a node selector."""
    terms = json_types.items(selector, "nodeSelectorTerms")
    if not terms:
        yield failure.required(f"{path}.nodeSelectorTerms", "write at least one term; none selects no node")
    yield from failure.each_item(terms, f"{path}.nodeSelectorTerms", _term)


def _term(term: Json, path: str) -> Iterator[Failure]:
    yield from failure.each_item(json_types.items(term, "matchExpressions"), f"{path}.matchExpressions", _expression)
    yield from failure.each_item(json_types.items(term, "matchFields"), f"{path}.matchFields", _field)


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
    yield from failure.each_name(values, f"{path}.values", names.label_value)


def _field(requirement: Json, path: str) -> Iterator[Failure]:
    operator, values = json_types.text(requirement, "operator"), json_types.items(requirement, "values")
    if operator not in _LISTS:
        yield failure.invalid(f"{path}.operator", operator, f"use one of {', '.join(_LISTS)} for a field")
    elif len(values) != 1:
        yield failure.required(f"{path}.values", f"operator {operator} needs exactly one value for a field")
    if json_types.text(requirement, "key") != "metadata.name":
        yield failure.invalid(f"{path}.key", json_types.at(requirement, "key"), "only metadata.name can be matched as a field")
    else:
        yield from failure.each_name(values, f"{path}.values", names.subdomain)


MAX_TOGETHER = 127
"""Mixins and devices of one slice."""
MAX_INCLUDES = 8

_KINDS = ("device", "counterSet", "deviceCounterConsumption")


def check_mixins(spec: Object) -> Iterator[Failure]:
    """Yield the failures of a slice's mixins, and of every place that includes one: it must name one of the same slice."""
    mixins = json_types.mapping(spec, "mixins")
    total = len(json_types.items(spec, "devices")) + sum(len(json_types.items(mixins, kind)) for kind in _KINDS)
    if mixins and total > MAX_TOGETHER:
        yield failure.too_many("spec.mixins", total, MAX_TOGETHER)
    for kind in _KINDS:
        yield from failure.each_item(json_types.items(mixins, kind), f"spec.mixins.{kind}", _mixin, key=_name_of)
        if kind != "device":
            yield from _filled(json_types.items(mixins, kind), f"spec.mixins.{kind}")
    if mixins:
        yield from _flat_limits(spec)
    yield from _all_includes(spec, {kind: {_name_of(mixin) for mixin in json_types.items(mixins, kind)} for kind in _KINDS})


def _filled(mixins: list[Json], path: str) -> Iterator[Failure]:
    for index, mixin in enumerate(mixins):
        if not json_types.mapping(mixin, "counters"):
            yield failure.required(f"{path}[{index}].counters")


def _flat_limits(spec: Object) -> Iterator[Failure]:
    """What the API limits is what a device and a counter set come to once mixins are applied, however little is written on them."""
    try:
        flat = flattening.flatten(spec)
    except flattening.MixinError:
        return
    for index, counter_set in enumerate(json_types.items(flat, "sharedCounters")):
        count = len(json_types.mapping(counter_set, "counters"))
        yield from _few(count, f"spec.sharedCounters[{index}].includes", "counters", MAX_COUNTERS)
    for index, device in enumerate(json_types.items(flat, "devices")):
        yield from _few(_described(device), f"spec.devices[{index}].includes", "attributes and capacities", MAX_NAMES)
        for place, one in enumerate(json_types.items(device, "consumesCounters")):
            where = f"spec.devices[{index}].consumesCounters[{place}].includes"
            yield from _few(len(json_types.mapping(one, "counters")), where, "counters", MAX_COUNTERS)


def _described(holder: Json) -> int:
    """Return how many attributes and capacities there are together."""
    return len(json_types.mapping(holder, "attributes")) + len(json_types.mapping(holder, "capacity"))


def _few(count: int, path: str, what: str, limit: int) -> Iterator[Failure]:
    if count > limit:
        yield failure.invalid(path, count, f"with what is included there must not be more than {limit} {what}")


def _name_of(holder: Json) -> str:
    return json_types.text(holder, "name")


def _mixin(mixin: Json, path: str) -> Iterator[Failure]:
    yield from names.label(_name_of(mixin), f"{path}.name")
    if (total := _described(mixin)) > MAX_NAMES:
        yield failure.invalid(path, total, f"attributes and capacities together must not be more than {MAX_NAMES}")
    yield from devices.check_attributes(json_types.mapping(mixin, "attributes"), f"{path}.attributes")
    capacity, counters = json_types.mapping(mixin, "capacity"), json_types.mapping(mixin, "counters")
    yield from failure.each_entry(capacity, f"{path}.capacity", names.qualified, failure.anything, shown=names.QUALIFIED_BYTES)
    yield from failure.each_entry(
        counters, f"{path}.counters", names.label, failure.anything, limit=MAX_COUNTERS, shown=formats.LABEL_BYTES
    )


def _all_includes(spec: Object, known: dict[str, set[str]]) -> Iterator[Failure]:
    for index, counter_set in enumerate(json_types.items(spec, "sharedCounters")):
        yield from _includes(counter_set, known["counterSet"], f"spec.sharedCounters[{index}]")
    for index, device in enumerate(json_types.items(spec, "devices")):
        yield from _includes(device, known["device"], f"spec.devices[{index}]")
        for place, one in enumerate(json_types.items(device, "consumesCounters")):
            where = f"spec.devices[{index}].consumesCounters[{place}]"
            yield from _includes(one, known["deviceCounterConsumption"], where)


def _includes(holder: Json, known: set[str], path: str) -> Iterator[Failure]:
    def one(include: Json, where: str) -> Iterator[Failure]:
        if (name := _name_of(include)) not in known:
            yield failure.invalid(f"{where}.name", name, "must name a mixin of this slice")

    return failure.each_item(json_types.items(holder, "includes"), f"{path}.includes", one, limit=MAX_INCLUDES, key=_name_of)


MAX_POOLS = 1000
MAX_CONDITIONS = 10
MAX_ERROR_BYTES = 256

_COUNTS = ("totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices")
_SPEC, _STATUS = (POOL_REQUEST.fields[name] for name in ("spec", "status"))


def create_request(new: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a new request."""
    spec = json_types.mapping(new, "spec")
    yield from names.driver(json_types.text(spec, "driver"), "spec.driver")
    if "poolName" in spec:
        yield from names.pool(json_types.text(spec, "poolName"), "spec.poolName")
    limit = spec.get("limit")
    if isinstance(limit, int) and not 1 <= limit <= MAX_POOLS:
        yield failure.invalid("spec.limit", limit, f"must be from 1 to {MAX_POOLS}")


def update_request(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failure of a changed spec."""
    if not fields.same(_SPEC, new.get("spec"), old.get("spec")):
        yield failure.immutable("spec", new.get("spec"))


def update_request_status(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of an answer, or of a second one."""
    status, before = new.get("status"), old.get("status")
    if before is not None:
        if not fields.same(_STATUS, status, before):
            yield failure.immutable("status", status)
    elif status is not None:
        yield from _not_negative(status, "poolCount", "status")
        yield from failure.each_item(json_types.items(status, "pools"), "status.pools", _counted_pool, limit=MAX_POOLS)
        yield from metadata.check_conditions(json_types.items(status, "conditions"), "status.conditions", limit=MAX_CONDITIONS)


def _counted_pool(pool: Json, path: str) -> Iterator[Failure]:
    yield from names.driver(json_types.text(pool, "driver"), f"{path}.driver")
    yield from names.pool(json_types.text(pool, "poolName"), f"{path}.poolName")
    if (node := json_types.at(pool, "nodeName")) is not None:
        yield from names.subdomain(str(node), f"{path}.nodeName")
    for field in ("generation", *_COUNTS):
        yield from _not_negative(pool, field, path)
    slices = json_types.at(pool, "resourceSliceCount")
    if isinstance(slices, int) and slices < 1:
        yield failure.invalid(f"{path}.resourceSliceCount", slices, "must be 1 or more")
    if len(json_types.text(pool, "validationError").encode()) > MAX_ERROR_BYTES:
        yield failure.too_long(f"{path}.validationError", MAX_ERROR_BYTES)


def _not_negative(holder: Json, field: str, path: str) -> Iterator[Failure]:
    if (number := json_types.number(holder, field)) < 0:
        yield failure.invalid(f"{path}.{field}", number, "must be 0 or more")
