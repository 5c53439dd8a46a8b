"""Rules of a ResourceSlice. Sources: Kubernetes 1.36's validation; the mixins rules are ours, after KEP-4815's text."""

from collections.abc import Iterator

from drakit.cluster import json_types
from drakit.cluster.features import FeatureGates, Gate
from drakit.cluster.json_types import Json, Object
from drakit.cluster.schema import devices
from drakit.cluster.validation import failure, fields, request_policy
from drakit.cluster.validation.failure import Failure

MAX_NAMES = 32
"""Attributes and capacities of one device together."""
MAX_VALUES = 48
"""Attribute values of one device, where a list counts its length."""
MAX_DEVICES_ADVANCED = 64
"""Devices of a slice in which any has taints, counters or list attributes."""
MAX_MIXINS_AND_DEVICES = 127

_NODE_FIELDS = ("nodeName", "nodeSelector", "allNodes")
_LIST_VALUES = ("ints", "bools", "strings", "versions")
_MIXIN_LISTS = ("device", "counterSet", "deviceCounterConsumption")


def check(new: Object, old: Object | None, gates: FeatureGates) -> list[Failure]:
    """Return what is wrong with a slice, created (``old`` is None) or updated."""
    spec = json_types.mapping(new, "spec")
    return fields.chain(
        _numbers(spec),
        _node_selection(spec, (*_NODE_FIELDS, "perDeviceNodeSelection"), "spec"),
        _contents(spec, gates),
        _mixins(spec),
        *(_device(spec, device, f"spec.devices[{i}]") for i, device in enumerate(json_types.items(spec, "devices"))),
        *(_counter_set(one, f"spec.sharedCounters[{i}]") for i, one in enumerate(json_types.items(spec, "sharedCounters"))),
        [] if old is None else _immutable(spec, json_types.mapping(old, "spec")),
    )


def _immutable(spec: Object, old: Object) -> Iterator[Failure]:
    for path in (("driver",), ("pool", "name"), ("nodeName",)):
        field = ".".join(("spec", *path))
        yield from failure.unchanged(field, json_types.at(spec, *path), json_types.at(old, *path))


def _numbers(spec: Object) -> Iterator[Failure]:
    pool = json_types.mapping(spec, "pool")
    if (generation := json_types.number(pool, "generation")) < 0:
        yield failure.invalid("spec.pool.generation", generation, "must be greater than or equal to 0")
    if (count := json_types.number(pool, "resourceSliceCount")) <= 0:
        yield failure.invalid("spec.pool.resourceSliceCount", count, "must be greater than zero")


def _node_selection(holder: Json, names: tuple[str, ...], path: str) -> Iterator[Failure]:
    chosen = [name for name in names if json_types.at(holder, name) not in (None, "", False)]
    for name in names:
        if json_types.at(holder, name) is False:
            yield failure.invalid(f"{path}.{name}", False, "must be either unset or set to true")
    if json_types.at(holder, "nodeName") == "":
        yield failure.invalid(f"{path}.nodeName", "", "must be either unset or set to a non-empty string")
    wanted = f"exactly one of {', '.join(names)} is required"
    if not chosen:
        yield failure.required(path, wanted)
    elif len(chosen) > 1:
        yield failure.invalid(path, json_types.from_strings(chosen), wanted)
    terms = json_types.items(holder, "nodeSelector", "nodeSelectorTerms")
    if "nodeSelector" in chosen and len(terms) != 1:
        field = f"{path}.nodeSelector.nodeSelectorTerms"
        yield failure.invalid(field, len(terms), "must have exactly one node selector term")


def _contents(spec: Object, gates: FeatureGates) -> Iterator[Failure]:
    offered = json_types.items(spec, "devices")
    both = "devices" in spec and "sharedCounters" in spec
    if both and not gates.on(Gate.COUNTERS_BESIDE_DEVICES):
        held = json_types.from_strings(("devices", "sharedCounters"))
        yield failure.invalid("spec", held, "only one of devices and sharedCounters may be set in one slice")
    if MAX_DEVICES_ADVANCED < len(offered) <= devices.MAX_DEVICES and any(map(_advanced, offered)):
        yield failure.too_many("spec.devices", len(offered), MAX_DEVICES_ADVANCED)


def _advanced(device: Json) -> bool:
    attributes = json_types.mapping(device, "attributes").values()
    lists = any(json_types.at(attribute, name) is not None for attribute in attributes for name in _LIST_VALUES)
    return bool(json_types.items(device, "taints") or json_types.items(device, "consumesCounters") or lists)


def _device(spec: Object, device: Json, path: str) -> Iterator[Failure]:
    attributes, capacity = json_types.mapping(device, "attributes"), json_types.mapping(device, "capacity")
    if (names := len(attributes) + len(capacity)) > MAX_NAMES:
        yield failure.too_many(path, names, MAX_NAMES)
    values = sum(len(value) if isinstance(value, list) else 1 for one in attributes.values() for value in _values(one))
    if values > MAX_VALUES:
        yield failure.too_many(f"{path}.attributes", values, MAX_VALUES)
    for name, attribute in attributes.items():
        yield from _attribute(attribute, f"{path}.attributes[{name}]")
    shared = json_types.at(device, "allowMultipleAllocations") is True
    for name, one in capacity.items():
        yield from _capacity(one, f"{path}.capacity[{name}]", shared=shared)
    yield from _device_nodes(spec, device, path)
    yield from _consumption(device, path)
    yield from _binding(device, path)


def _values(attribute: Json) -> list[Json]:
    return list(json_types.mapping(attribute).values())


def _attribute(attribute: Json, path: str) -> Iterator[Failure]:
    values = _values(attribute)
    if not values:
        yield failure.required(path, "exactly one value must be specified")
    elif len(values) > 1:
        yield failure.invalid(path, attribute, "exactly one value must be specified")
    elif values[0] == []:
        yield failure.required(path, "the list must not be empty")


def _capacity(capacity: Json, path: str, *, shared: bool) -> Iterator[Failure]:
    policy = json_types.at(capacity, "requestPolicy")
    if not isinstance(policy, dict) or json_types.at(capacity, "value") is None:
        return
    if shared:
        yield from request_policy.check(policy, json_types.at(capacity, "value"), f"{path}.requestPolicy")
    else:
        detail = "may be set only if allowMultipleAllocations is true"
        yield failure.forbidden(f"{path}.requestPolicy", detail)


def _device_nodes(spec: Object, device: Json, path: str) -> Iterator[Failure]:
    if spec.get("perDeviceNodeSelection") is True:
        yield from _node_selection(device, _NODE_FIELDS, path)
        return
    for name in _NODE_FIELDS:
        if json_types.at(device, name) is not None:
            yield failure.forbidden(f"{path}.{name}", "may be set only if perDeviceNodeSelection is true")


def _consumption(device: Json, path: str) -> Iterator[Failure]:
    for index, one in enumerate(json_types.items(device, "consumesCounters")):
        if not json_types.mapping(one, "counters") and not json_types.items(one, "includes"):
            yield failure.required(f"{path}.consumesCounters[{index}].counters")


def _counter_set(counter_set: Json, path: str) -> Iterator[Failure]:
    if not json_types.mapping(counter_set, "counters") and not json_types.items(counter_set, "includes"):
        yield failure.required(f"{path}.counters")


def _binding(device: Json, path: str) -> Iterator[Failure]:
    wanted = json_types.strings(device, "bindingConditions")
    failing = json_types.strings(device, "bindingFailureConditions")
    if bool(wanted) != bool(failing):
        missing = "bindingFailureConditions" if wanted else "bindingConditions"
        yield failure.required(f"{path}.{missing}", "both kinds of binding conditions must be set, or neither")
    for index, name in enumerate(failing):
        if name in wanted:
            field = f"{path}.bindingFailureConditions[{index}]"
            yield failure.invalid(field, name, "must not be a binding condition as well")


def _mixins(spec: Object) -> Iterator[Failure]:
    """Includes must name mixins of their own slice, and devices and mixins share one limit."""
    mixins = json_types.mapping(spec, "mixins")
    total = len(json_types.items(spec, "devices")) + sum(len(json_types.items(mixins, name)) for name in _MIXIN_LISTS)
    if mixins and total > MAX_MIXINS_AND_DEVICES:
        yield failure.too_many("spec.mixins", total, MAX_MIXINS_AND_DEVICES)
    known = {name: {json_types.text(mixin, "name") for mixin in json_types.items(mixins, name)} for name in _MIXIN_LISTS}
    for index, counter_set in enumerate(json_types.items(spec, "sharedCounters")):
        yield from _includes(counter_set, known["counterSet"], f"spec.sharedCounters[{index}]")
    for index, device in enumerate(json_types.items(spec, "devices")):
        yield from _includes(device, known["device"], f"spec.devices[{index}]")
        for place, one in enumerate(json_types.items(device, "consumesCounters")):
            where = f"spec.devices[{index}].consumesCounters[{place}]"
            yield from _includes(one, known["deviceCounterConsumption"], where)
    for index, mixin in enumerate(json_types.items(mixins, "device")):
        for name, attribute in json_types.mapping(mixin, "attributes").items():
            yield from _attribute(attribute, f"spec.mixins.device[{index}].attributes[{name}]")


def _includes(holder: Json, known: set[str], path: str) -> Iterator[Failure]:
    for index, include in enumerate(json_types.items(holder, "includes")):
        name = json_types.text(include, "name")
        if name and name not in known:
            yield failure.invalid(f"{path}.includes[{index}].name", name, "must name a mixin of this slice")
