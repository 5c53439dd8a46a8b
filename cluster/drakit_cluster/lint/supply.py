"""Mistakes in what drivers publish: pools that are not whole, counters that do not add up, policies that no one can meet."""

from collections.abc import Iterator, Mapping

from drakit_cluster.lint import catalogue, findings
from drakit_cluster.lint.catalogue import Catalogue, CounterSet, Offer, Stock
from drakit_cluster.lint.findings import Finding
from drakit_cluster.manifests import Document
from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.json_types import Json, Object

_OWN_IDS = frozenset({"uuid"})
_PARENT_IDS = frozenset({"parentuuid"})


def check(offered: Catalogue) -> Iterator[Finding]:
    """Yield what is wrong with the pools."""
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


def _replaced(stock: Stock) -> Iterator[Finding]:
    for one in stock.older:
        newest = catalogue.generation(stock.slices[0])
        text = f"generation {catalogue.generation(one)} of pool {stock.id} is replaced by generation {newest}: its devices do not count"
        yield findings.warning(one.document, "spec.pool.generation", text, f"delete the slice, or publish it as generation {newest}")


def _whole(stock: Stock) -> Iterator[Finding]:
    wrong: dict[int, Document] = {}
    for one in stock.slices:
        wrong.setdefault(json_types.number(one.object, "spec", "pool", "resourceSliceCount"), one.document)
    found = len(stock.slices)
    wrong.pop(found, None)
    for said, document in wrong.items():
        here = f"there {'is' if found == 1 else 'are'} {found} of pool {stock.id} in these files"
        text = f"says {said}, and {here}: no device of an incomplete pool is allocated"
        yield findings.warning(document, "spec.pool.resourceSliceCount", text, f"write {found}, or add the slices that are missing")


def _names(stock: Stock) -> Iterator[Finding]:
    for listed, kind in ((stock.devices, "device"), (stock.counter_sets, "counter set")):
        first: dict[str, Offer | CounterSet] = {}
        for one in listed:
            before = first.setdefault(one.name, one)
            if before is not one:
                where = f"{before.document.place(before.path)}, {before.document.label}"
                text = f"{kind} {one.name} is in pool {stock.id} twice, first in {where}: nothing of the pool is allocated"
                yield findings.error(one.document, f"{one.path}.name", text, "give each its own name")


def _draws(device: Offer, sets: Mapping[str, CounterSet]) -> Iterator[Finding]:
    for place, one in enumerate(json_types.objects(device.spec, "consumesCounters")):
        name, path = json_types.text(one, "counterSet"), f"{device.path}.consumesCounters[{place}]"
        if name not in sets:
            text = f"pool {device.pool} has no counter set {name}: nothing of the pool is allocated"
            yield findings.error(device.document, f"{path}.counterSet", text, findings.suggestion(name, sets))
            continue
        for counter, drawn in json_types.mapping(one, "counters").items():
            yield from _draw(device, f"{path}.counters[{counter}]", sets[name], counter, drawn)


def _draw(device: Offer, path: str, counter_set: CounterSet, counter: str, drawn: Json) -> Iterator[Finding]:
    if counter not in counter_set.counters:
        text = f"counter set {counter_set.name} has no counter {counter}: nothing of pool {device.pool} is allocated"
        yield findings.error(device.document, path, text, findings.suggestion(counter, counter_set.counters))
        return
    needed, total = _value(drawn), _value(counter_set.counters[counter])
    if needed > total:
        text = f"draws {needed} of a counter of {total}: the device can never be allocated"
        yield findings.error(
            device.document, f"{path}.value", text, f"write at most {total}, or raise {counter_set.path}.counters[{counter}]"
        )


def _defaults(device: Offer) -> Iterator[Finding]:
    for name, capacity in json_types.mapping(device.spec, "capacity").items():
        if json_types.at(capacity, "requestPolicy") == {}:
            text = f"says nothing: a request that names no {name} takes all of it, as without a policy"
            fix = "write default: AMOUNT, with validRange or validValues where there are bounds, or remove it"
            yield findings.error(device.document, f"{device.path}.capacity[{name}].requestPolicy", text, fix)
        default = json_types.at(capacity, "requestPolicy", "default")
        if default is not None and quantity.parse(default) > _value(capacity):
            text = f"the default {default} is above the value {_value(capacity)}: a request that names no {name} never fits"
            field = f"{device.path}.capacity[{name}].requestPolicy.default"
            yield findings.error(device.document, field, text, f"write at most {_value(capacity)}")


def _idle(stock: Stock) -> Iterator[Finding]:
    """Counters that nothing draws; of an incomplete pool, the devices may be elsewhere."""
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
            text = f"no device of pool {stock.id} draws {', '.join(idle)}: it limits nothing"
            fix = "let the devices that use it draw it in consumesCounters, or remove it"
            yield findings.warning(counter_set.document, f"{counter_set.path}.counters", text, fix)


def _overlaps(stock: Stock) -> Iterator[Finding]:
    """A device and its parts, told by their UUIDs, that no counter connects."""
    whole = {uuid: device for device in stock.devices if (uuid := _text(device, _OWN_IDS)) and not device.shared}
    for device in stock.devices:
        parent = whole.get(_text(device, _PARENT_IDS))
        if parent is not None and parent is not device and not _counters(parent) & _counters(device):
            text = f"is a part of {parent.name} by its attributes, and no counter is drawn by both: they can be allocated at the same time"
            fix = f"let {parent.name} and its parts draw from one counter set in consumesCounters"
            yield findings.warning(device.document, device.path, text, fix)


def _text(device: Offer, names: frozenset[str]) -> str:
    for name, value in json_types.mapping(device.spec, "attributes").items():
        if name.rpartition("/")[2].lower() in names:
            return json_types.text(value, "string")
    return ""


def _counters(device: Offer) -> set[tuple[str, str]]:
    return {
        (json_types.text(one, "counterSet"), counter)
        for one in json_types.objects(device.spec, "consumesCounters")
        for counter in json_types.mapping(one, "counters")
    }


def _value(entry: Json | Object) -> quantity.Quantity:
    return quantity.parse(json_types.at(entry, "value"))
