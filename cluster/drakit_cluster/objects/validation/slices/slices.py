"""Rules of ResourceSlices: their nodes and their devices."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.validation import failure, names, rules
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure
from drakit_cluster.objects.validation.slices import devices, node_selection
from drakit_cluster.objects.validation.slices import mixins as mixin_rules
from drakit_cluster.objects.versions import Rule

MAX_DEVICES = 128


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
    yield from mixin_rules.check(spec)


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
    yield from node_selection.choice(spec, (*_FIELDS, _PER_DEVICE), "spec")
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
        yield from node_selection.choice(device, _FIELDS, path)
    elif any(json_types.at(device, field) is not None for field in _FIELDS):
        detail = f"{', '.join(_FIELDS)} of a device may be set only if the slice has {_PER_DEVICE}: true"
        yield failure.invalid(path, None, detail)
