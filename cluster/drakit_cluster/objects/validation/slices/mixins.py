"""Rules of the mixins of a slice.

No released Kubernetes has them: the rules follow the text of KEP-4815, and so do the limits that it states.
"""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects import mixins as flattening
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.validation import failure, names, rules
from drakit_cluster.objects.validation.failure import Failure
from drakit_cluster.objects.validation.slices import devices
from drakit_cluster.objects.validation.slices.devices import MAX_COUNTERS, MAX_NAMES

MAX_TOGETHER = 127
"""Mixins and devices of one slice."""
MAX_INCLUDES = 8
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


def check(spec: Object) -> Iterator[Failure]:
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
