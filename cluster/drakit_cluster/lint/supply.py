"""Mistakes in what drivers and admins publish: incomplete pools, wrong counters, policies that no request can satisfy, missing nodes, negative
amounts, and DeviceTaintRules that taint no device or too many.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from drakit.telemetry import plurals
from drakit_cluster.lint import catalogue, findings
from drakit_cluster.lint.catalogue import Catalogue, CounterSet, PublishedDevice, PublishedPool
from drakit_cluster.lint.findings import Finding
from drakit_cluster.manifests import Accepted, Document
from drakit_cluster.objects import json_types, nodes, quantity, versions
from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import table
from drakit_cluster.objects.schema.shape import Leaf, ListOf, MapOf, Shape, Struct, Type
from drakit_cluster.objects.versions import Rule
from drakit_cluster.scheduling import taint_rules

_OWN_IDS = frozenset({"uuid"})
_PARENT_IDS = frozenset({"parentuuid"})


def check_pools(published: Catalogue) -> Iterator[Finding]:
    """Yield mistakes in the pools."""
    for pool in published.pools.values():
        yield from _replaced(pool)
        yield from _names(pool)
        sets = {counter_set.name: counter_set for counter_set in pool.counter_sets}
        for device in pool.devices:
            yield from _defaults(device)
        if not pool.partial:
            yield from _incomplete(pool)
            for device in pool.devices:
                yield from _consumptions(device, sets)
            yield from _unused_counters(pool)
            yield from _overlaps(pool)


def _replaced(pool: PublishedPool) -> Iterator[Finding]:
    for older_slice in pool.older:
        newest = catalogue.generation(pool.slices[0])
        text = (
            f"generation {catalogue.generation(older_slice)} of pool {pool.id} is older than generation {newest}: its devices are ignored"
        )
        yield findings.warning(
            older_slice.document, "spec.pool.generation", text, f"delete the slice, or publish it as generation {newest}"
        )


def _incomplete(pool: PublishedPool) -> Iterator[Finding]:
    wrong_counts: dict[int, Document] = {}
    for published_slice in pool.slices:
        wrong_counts.setdefault(json_types.number(published_slice.object, "spec", "pool", "resourceSliceCount"), published_slice.document)
    slice_count, declared = len(pool.slices), sorted(wrong_counts)
    wrong_counts.pop(slice_count, None)
    for count, document in wrong_counts.items():
        if len(declared) > 1:
            others = ", ".join(str(other) for other in declared if other != count)
            text = f"is {count}, but other slices of pool {pool.id} say {others}: no device of such a pool is allocated"
        else:
            actual = f"these files have {plurals.counted(slice_count, 'slice')} of pool {pool.id}"
            text = f"is {count}, but {actual}: no device of an incomplete pool is allocated"
        yield findings.warning(document, "spec.pool.resourceSliceCount", text, f"write {slice_count}, or add the missing slices")


def _names(pool: PublishedPool) -> Iterator[Finding]:
    for listed, kind in ((pool.devices, "device"), (pool.counter_sets, "counter set")):
        first: dict[str, PublishedDevice | CounterSet] = {}
        for entry in listed:
            earlier = first.setdefault(entry.name, entry)
            if earlier is not entry:
                where = f"{earlier.document.place(earlier.path)}, {earlier.document.label}"
                text = f"{kind} {entry.name} is in pool {pool.id} twice, first in {where}: no device of the pool is allocated"
                yield findings.error(entry.document, f"{entry.path}.name", text, "give each a different name")


def _consumptions(device: PublishedDevice, sets: Mapping[str, CounterSet]) -> Iterator[Finding]:
    for place, consumption in enumerate(json_types.objects(device.spec, "consumesCounters")):
        name, path = json_types.text(consumption, "counterSet"), f"{device.path}.consumesCounters[{place}]"
        if name not in sets:
            text = f"pool {device.pool} has no counter set {name}: no device of the pool is allocated"
            yield findings.error(device.document, f"{path}.counterSet", text, findings.suggestion(name, sets))
            continue
        for counter, amount in json_types.mapping(consumption, "counters").items():
            yield from _consumption(device, f"{path}.counters[{counter}]", sets[name], counter, amount)


def _consumption(device: PublishedDevice, path: str, counter_set: CounterSet, counter: str, amount: Json) -> Iterator[Finding]:
    if counter not in counter_set.counters:
        text = f"counter set {counter_set.name} has no counter {counter}: no device of pool {device.pool} is allocated"
        yield findings.error(device.document, path, text, findings.suggestion(counter, counter_set.counters))
        return
    needed, total = _value(amount), _value(counter_set.counters[counter])
    if needed > total:
        text = f"consumes {needed} of a counter of {total}: the device can never be allocated"
        yield findings.error(
            device.document, f"{path}.value", text, f"write at most {total}, or raise {counter_set.path}.counters[{counter}]"
        )


def _defaults(device: PublishedDevice) -> Iterator[Finding]:
    for name, capacity in json_types.mapping(device.spec, "capacity").items():
        if json_types.at(capacity, "requestPolicy") == {}:
            text = f"is empty: a request without {name} takes all of it, as without a policy"
            fix = "write default: AMOUNT, with validRange or validValues for limits, or remove it"
            yield findings.error(device.document, f"{device.path}.capacity[{name}].requestPolicy", text, fix)
        default = json_types.at(capacity, "requestPolicy", "default")
        if default is not None and quantity.parse(default) > _value(capacity):
            text = f"the default {default} is above the value {_value(capacity)}: a request without {name} never fits"
            field = f"{device.path}.capacity[{name}].requestPolicy.default"
            yield findings.error(device.document, field, text, f"write at most {_value(capacity)}")


def _unused_counters(pool: PublishedPool) -> Iterator[Finding]:
    """Yield counters that no device consumes. An incomplete pool is skipped, because its devices may be elsewhere."""
    if len(pool.slices) != json_types.number(pool.slices[0].object, "spec", "pool", "resourceSliceCount"):
        return
    consumed = {
        (json_types.text(consumption, "counterSet"), counter)
        for device in pool.devices
        for consumption in json_types.objects(device.spec, "consumesCounters")
        for counter in json_types.mapping(consumption, "counters")
    }
    for counter_set in pool.counter_sets:
        unused = [counter for counter in counter_set.counters if (counter_set.name, counter) not in consumed]
        if unused:
            text = f"no device of pool {pool.id} consumes {', '.join(unused)}: it limits nothing"
            fix = "add it to consumesCounters of the devices that use it, or remove it"
            yield findings.warning(counter_set.document, f"{counter_set.path}.counters", text, fix)


def _overlaps(pool: PublishedPool) -> Iterator[Finding]:
    """Yield parts of a device, by their UUIDs, that have no counter in common with it."""
    devices_by_uuid = {uuid: device for device in pool.devices if (uuid := _text(device, _OWN_IDS)) and not device.shared}
    for device in pool.devices:
        parent = devices_by_uuid.get(_text(device, _PARENT_IDS))
        if parent is not None and parent is not device and not _counters(parent) & _counters(device):
            text = f"is a part of {parent.name} by its attributes, but consumes no counter of it: both can be allocated at the same time"
            fix = f"let {parent.name} and its parts consume from one counter set in consumesCounters"
            yield findings.warning(device.document, device.path, text, fix)


def _text(device: PublishedDevice, names: frozenset[str]) -> str:
    for name, value in json_types.mapping(device.spec, "attributes").items():
        if name.rpartition("/")[2].lower() in names:
            return json_types.text(value, "string")
    return ""


def _counters(device: PublishedDevice) -> set[tuple[str, str]]:
    return {
        (json_types.text(consumption, "counterSet"), counter)
        for consumption in json_types.objects(device.spec, "consumesCounters")
        for counter in json_types.mapping(consumption, "counters")
    }


def _value(entry: Json | Object) -> quantity.Quantity:
    return quantity.parse(json_types.at(entry, "value"))


def check_scale(published: Catalogue, gates: FeatureGates) -> Iterator[Finding]:
    """Yield more pools with counters than the scheduler of the version bears."""
    counted = [pool for pool in published.pools.values() if pool.counter_sets]
    if len(counted) < versions.COUNTED_POOLS_MAX or versions.within(versions.COUNTERS_SCALE, gates.version):
        return
    text = (
        f"{len(counted)} pools have sharedCounters, and kube-scheduler {gates.version} looks at each of them for every node: a claim takes seconds "
        "from about 100 pools on, and no pod with a claim is scheduled at 300"
    )
    fix = f"use Kubernetes {versions.since(versions.COUNTERS_SCALE)}, or devices without counters: for GPUs, gpu.mig_layouts"
    yield findings.warning(counted[0].counter_sets[0].document, "spec.sharedCounters", text, fix)


def check_nodes(slices: Sequence[Accepted], known_nodes: Sequence[Object]) -> Iterator[Finding]:
    """Yield slices and devices that select no node of ``known_nodes``, or nothing if there are no nodes."""
    if not known_nodes:
        return
    for published_slice in slices:
        spec = json_types.mapping(published_slice.object, "spec")
        yield from _node_selection(published_slice, spec, "spec", known_nodes)
        for number, device in enumerate(json_types.objects(spec, "devices")):
            yield from _node_selection(published_slice, device, f"spec.devices[{number}]", known_nodes)


def _node_selection(published_slice: Accepted, holder: Object, path: str, known_nodes: Sequence[Object]) -> Iterator[Finding]:
    name, names = json_types.text(holder, "nodeName"), [json_types.text(node, "metadata", "name") for node in known_nodes]
    if name and name not in names:
        text = f"Node {name} is not in these files: its devices are never allocated"
        yield findings.warning(published_slice.document, f"{path}.nodeName", text, findings.suggestion(name, names))
    selector = holder.get("nodeSelector")
    if selector is not None and not any(_selects(selector, node) for node in known_nodes):
        text = f"selects no node in these files ({len(known_nodes)} in all)"
        yield findings.warning(published_slice.document, f"{path}.nodeSelector", text, "compare it with the labels of the nodes")


def _selects(selector: json_types.Json, node: Object) -> bool:
    try:
        return nodes.selects(selector, node)
    except AllocationError:
        return True  # The server reports what is wrong with it.


def check_amounts(objects: Iterable[Accepted]) -> Iterator[Finding]:
    """Yield an error for each negative quantity."""
    for accepted in objects:
        if accepted.document.resource is None:
            continue
        for field, value in _quantities(table.shape_of(accepted.document.resource), accepted.object, ""):
            if quantity.parse(value).nanos < 0:
                text = f"{value} is negative: the API server stores it, and the scheduler then allocates more than exists"
                yield findings.error(accepted.document, field, text, "write an amount of zero or more")


def _quantities(shape: Shape, value: Json, path: str) -> Iterator[tuple[str, Json]]:
    """Yield path and value of each quantity in an object of a shape."""
    match shape, value:
        case Leaf(type=Type.QUANTITY), str() | int() | float():
            yield path, value
        case Struct(fields=fields), dict():
            for name, below in fields.items():
                if name in value:
                    yield from _quantities(below, value[name], f"{path}.{name}" if path else name)
        case ListOf(item=item), list():
            for place, entry in enumerate(value):
                yield from _quantities(item, entry, f"{path}[{place}]")
        case MapOf(value=below), dict():
            for name, entry in value.items():
                yield from _quantities(below, entry, f"{path}[{name}]")
        case _:
            return


_SELECTOR = "spec.deviceSelector"
_FIELDS = ("driver", "pool", "device")


def check_rules(rules: Iterable[Accepted], published: Catalogue, gates: FeatureGates) -> Iterator[Finding]:
    """Yield mistakes in the rules, given the published devices."""
    nothing = "is missing: the rule selects no device"
    if not gates.follows(Rule.SELECTOR_REQUIRED):
        nothing = "is missing: the API says that the rule selects no device, but schedulers before 1.38 taint every device"
    for rule in rules:
        selector = json_types.at(rule.object, "spec", "deviceSelector")
        if not isinstance(selector, dict):
            yield findings.warning(rule.document, _SELECTOR, nothing, "write driver, pool and device, or {} for every device")
        elif not any(json_types.text(selector, name) for name in _FIELDS):
            yield _selects_everything(rule)
        else:
            yield from _ambiguous_names(rule, selector)
            yield from _selects_nothing(rule, selector, published.devices)


def _selects_everything(rule: Accepted) -> Finding:
    effect = json_types.text(rule.object, "spec", "taint", "effect")
    consequences = {
        "NoExecute": "every pod that uses a device and does not tolerate it is evicted",
        "NoSchedule": "no device is allocated without a toleration",
    }
    text = f"selects every device of the cluster: {consequences.get(effect, 'this effect does nothing')}"
    return findings.warning(rule.document, _SELECTOR, text, "add driver, pool or device to the selector")


def _ambiguous_names(rule: Accepted, selector: Object) -> Iterator[Finding]:
    """Yield ambiguous names: a pool is unique only in its driver, a device only in its pool."""
    for name, holder in (("pool", "driver"), ("device", "pool")):
        value = json_types.text(selector, name)
        if value and not json_types.text(selector, holder):
            text = f"{value} is selected in every {holder}: the name of a {name} is unique only in its {holder}"
            yield findings.warning(rule.document, f"{_SELECTOR}.{name}", text, f"add {holder}: NAME")


def _selects_nothing(rule: Accepted, selector: Object, devices: list[PublishedDevice]) -> Iterator[Finding]:
    if not devices or any(taint_rules.selects(rule.object, device.id) for device in devices):
        return
    remaining = devices
    for name in _FIELDS:
        selected_value = json_types.text(selector, name)
        published_values = {getattr(device.id, name) for device in remaining}
        if selected_value and selected_value not in published_values:
            matching = " that match the other fields" if len(remaining) < len(devices) else ""
            text = f"none of the {len(remaining)} devices{matching} has {name} {selected_value}: the rule taints nothing"
            yield findings.warning(rule.document, f"{_SELECTOR}.{name}", text, findings.suggestion(selected_value, published_values))
            return
        remaining = [device for device in remaining if selected_value in ("", getattr(device.id, name))]
