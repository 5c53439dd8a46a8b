"""Mistakes in what drivers and admins publish: incomplete pools, wrong counters, policies that no request can meet, missing nodes, negative
amounts, and DeviceTaintRules that taint no device or too many.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from drakit_cluster.lint import catalogue, findings
from drakit_cluster.lint.catalogue import Catalogue, CounterSet, PublishedDevice, PublishedPool
from drakit_cluster.lint.findings import Finding
from drakit_cluster.manifests import Accepted, Document
from drakit_cluster.objects import json_types, nodes, quantity
from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import table
from drakit_cluster.objects.schema.shape import Leaf, ListOf, MapOf, Shape, Struct, Type
from drakit_cluster.scheduling import taint_rules

_OWN_IDS = frozenset({"uuid"})
_PARENT_IDS = frozenset({"parentuuid"})


def check_pools(offered: Catalogue) -> Iterator[Finding]:
    """Yield mistakes in the pools."""
    for stock in offered.pools.values():
        yield from _replaced(stock)
        yield from _names(stock)
        sets = {one.name: one for one in stock.counter_sets}
        for device in stock.devices:
            yield from _defaults(device)
        if not stock.partial:
            yield from _whole(stock)
            for device in stock.devices:
                yield from _draws(device, sets)
            yield from _idle(stock)
            yield from _overlaps(stock)


def _replaced(stock: PublishedPool) -> Iterator[Finding]:
    for one in stock.older:
        newest = catalogue.generation(stock.slices[0])
        text = f"generation {catalogue.generation(one)} of pool {stock.id} is older than generation {newest}: its devices are ignored"
        yield findings.warning(one.document, "spec.pool.generation", text, f"delete the slice, or publish it as generation {newest}")


def _whole(stock: PublishedPool) -> Iterator[Finding]:
    wrong: dict[int, Document] = {}
    for one in stock.slices:
        wrong.setdefault(json_types.number(one.object, "spec", "pool", "resourceSliceCount"), one.document)
    found = len(stock.slices)
    wrong.pop(found, None)
    for count, document in wrong.items():
        here = f"these files have {found} slice{'' if found == 1 else 's'} of pool {stock.id}"
        text = f"is {count}, but {here}: no device of an incomplete pool is allocated"
        yield findings.warning(document, "spec.pool.resourceSliceCount", text, f"write {found}, or add the missing slices")


def _names(stock: PublishedPool) -> Iterator[Finding]:
    for listed, kind in ((stock.devices, "device"), (stock.counter_sets, "counter set")):
        first: dict[str, PublishedDevice | CounterSet] = {}
        for one in listed:
            before = first.setdefault(one.name, one)
            if before is not one:
                where = f"{before.document.place(before.path)}, {before.document.label}"
                text = f"{kind} {one.name} is in pool {stock.id} twice, first in {where}: no device of the pool is allocated"
                yield findings.error(one.document, f"{one.path}.name", text, "give each a different name")


def _draws(device: PublishedDevice, sets: Mapping[str, CounterSet]) -> Iterator[Finding]:
    for place, one in enumerate(json_types.objects(device.spec, "consumesCounters")):
        name, path = json_types.text(one, "counterSet"), f"{device.path}.consumesCounters[{place}]"
        if name not in sets:
            text = f"pool {device.pool} has no counter set {name}: no device of the pool is allocated"
            yield findings.error(device.document, f"{path}.counterSet", text, findings.suggestion(name, sets))
            continue
        for counter, drawn in json_types.mapping(one, "counters").items():
            yield from _draw(device, f"{path}.counters[{counter}]", sets[name], counter, drawn)


def _draw(device: PublishedDevice, path: str, counter_set: CounterSet, counter: str, drawn: Json) -> Iterator[Finding]:
    if counter not in counter_set.counters:
        text = f"counter set {counter_set.name} has no counter {counter}: no device of pool {device.pool} is allocated"
        yield findings.error(device.document, path, text, findings.suggestion(counter, counter_set.counters))
        return
    needed, total = _value(drawn), _value(counter_set.counters[counter])
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


def _idle(stock: PublishedPool) -> Iterator[Finding]:
    """Yield counters that no device consumes. An incomplete pool is skipped, because its devices may be elsewhere."""
    if len(stock.slices) != json_types.number(stock.slices[0].object, "spec", "pool", "resourceSliceCount"):
        return
    drawn = {
        (json_types.text(one, "counterSet"), counter)
        for device in stock.devices
        for one in json_types.objects(device.spec, "consumesCounters")
        for counter in json_types.mapping(one, "counters")
    }
    for counter_set in stock.counter_sets:
        idle = [counter for counter in counter_set.counters if (counter_set.name, counter) not in drawn]
        if idle:
            text = f"no device of pool {stock.id} consumes {', '.join(idle)}: it limits nothing"
            fix = "add it to consumesCounters of the devices that use it, or remove it"
            yield findings.warning(counter_set.document, f"{counter_set.path}.counters", text, fix)


def _overlaps(stock: PublishedPool) -> Iterator[Finding]:
    """Yield parts of a device, by their UUIDs, that have no counter in common with it."""
    whole = {uuid: device for device in stock.devices if (uuid := _text(device, _OWN_IDS)) and not device.shared}
    for device in stock.devices:
        parent = whole.get(_text(device, _PARENT_IDS))
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
        (json_types.text(one, "counterSet"), counter)
        for one in json_types.objects(device.spec, "consumesCounters")
        for counter in json_types.mapping(one, "counters")
    }


def _value(entry: Json | Object) -> quantity.Quantity:
    return quantity.parse(json_types.at(entry, "value"))


def check_nodes(slices: Sequence[Accepted], known: Sequence[Object]) -> Iterator[Finding]:
    """Yield slices and devices that select no node of ``known``; none without nodes."""
    if not known:
        return
    for one in slices:
        spec = json_types.mapping(one.object, "spec")
        yield from _place(one, spec, "spec", known)
        for number, device in enumerate(json_types.objects(spec, "devices")):
            yield from _place(one, device, f"spec.devices[{number}]", known)


def _place(one: Accepted, place: Object, path: str, known: Sequence[Object]) -> Iterator[Finding]:
    name, names = json_types.text(place, "nodeName"), [json_types.text(node, "metadata", "name") for node in known]
    if name and name not in names:
        text = f"Node {name} is not in these files: its devices are never allocated"
        yield findings.warning(one.document, f"{path}.nodeName", text, findings.suggestion(name, names))
    selector = place.get("nodeSelector")
    if selector is not None and not any(_selects(selector, node) for node in known):
        text = f"selects no node in these files ({len(known)} in all)"
        yield findings.warning(one.document, f"{path}.nodeSelector", text, "compare it with the labels of the nodes")


def _selects(selector: json_types.Json, node: Object) -> bool:
    try:
        return nodes.selects(selector, node)
    except AllocationError:
        return True  # The server reports what is wrong with it.


def check_amounts(objects: Iterable[Accepted]) -> Iterator[Finding]:
    """Yield an error for each negative quantity."""
    for one in objects:
        if one.document.resource is None:
            continue
        for field, value in _quantities(table.shape_of(one.document.resource), one.object, ""):
            if quantity.parse(value).nanos < 0:
                text = f"{value} is negative: the API server stores it, and the scheduler then allocates more than exists"
                yield findings.error(one.document, field, text, "write an amount of zero or more")


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


def check_rules(rules: Iterable[Accepted], offered: Catalogue) -> Iterator[Finding]:
    """Yield mistakes in the rules, given the published devices."""
    for rule in rules:
        selector = json_types.at(rule.object, "spec", "deviceSelector")
        if not isinstance(selector, dict):
            text = "is missing: the rule selects no device"
            yield findings.warning(rule.document, _SELECTOR, text, "write driver, pool and device, or {} for every device")
        elif not any(json_types.text(selector, name) for name in _FIELDS):
            yield _everything(rule)
        else:
            yield from _ambiguous(rule, selector)
            yield from _nothing(rule, selector, offered.devices)


def _everything(rule: Accepted) -> Finding:
    effect = json_types.text(rule.object, "spec", "taint", "effect")
    what = {
        "NoExecute": "every pod that uses a device and does not tolerate it is evicted",
        "NoSchedule": "no device is allocated without a toleration",
    }
    text = f"selects every device of the cluster: {what.get(effect, 'this effect does nothing')}"
    return findings.warning(rule.document, _SELECTOR, text, "add driver, pool or device to the selector")


def _ambiguous(rule: Accepted, selector: Object) -> Iterator[Finding]:
    """Yield ambiguous names: a pool is unique only in its driver, a device only in its pool."""
    for name, holder in (("pool", "driver"), ("device", "pool")):
        value = json_types.text(selector, name)
        if value and not json_types.text(selector, holder):
            text = f"{value} is selected in every {holder}: the name of a {name} is unique only in its {holder}"
            yield findings.warning(rule.document, f"{_SELECTOR}.{name}", text, f"add {holder}: NAME")


def _nothing(rule: Accepted, selector: Object, devices: list[PublishedDevice]) -> Iterator[Finding]:
    if not devices or any(taint_rules.selects(rule.object, device.id) for device in devices):
        return
    left = devices
    for name in _FIELDS:
        wanted = json_types.text(selector, name)
        known = {getattr(device.id, name) for device in left}
        if wanted and wanted not in known:
            matching = " that match the other fields" if len(left) < len(devices) else ""
            text = f"none of the {len(left)} devices{matching} has {name} {wanted}: the rule taints nothing"
            yield findings.warning(rule.document, f"{_SELECTOR}.{name}", text, findings.suggestion(wanted, known))
            return
        left = [device for device in left if wanted in ("", getattr(device.id, name))]
