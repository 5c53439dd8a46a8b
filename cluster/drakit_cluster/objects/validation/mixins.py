"""Rules of mixins. No released Kubernetes has them: these follow KEP-4815's text, and its limits where it gives some."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects import mixins as flattening
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import formats
from drakit_cluster.objects.validation import devices, each, failure, names
from drakit_cluster.objects.validation.devices import MAX_COUNTERS, MAX_NAMES
from drakit_cluster.objects.validation.failure import Failure

MAX_TOGETHER = 127
"""Mixins and devices of one slice."""
MAX_INCLUDES = 8

_KINDS = ("device", "counterSet", "deviceCounterConsumption")


def check(spec: Object) -> Iterator[Failure]:
    """Yield the failures of a slice's mixins, and of every place that includes one: it must name one of the same slice."""
    mixins = json_types.mapping(spec, "mixins")
    total = len(json_types.items(spec, "devices")) + sum(len(json_types.items(mixins, kind)) for kind in _KINDS)
    if mixins and total > MAX_TOGETHER:
        yield failure.too_many("spec.mixins", total, MAX_TOGETHER)
    for kind in _KINDS:
        yield from each.item(json_types.items(mixins, kind), f"spec.mixins.{kind}", _mixin, key=_name)
        if kind != "device":
            yield from _filled(json_types.items(mixins, kind), f"spec.mixins.{kind}")
    if mixins:
        yield from _flat_limits(spec)
    yield from _all_includes(spec, {kind: {_name(mixin) for mixin in json_types.items(mixins, kind)} for kind in _KINDS})


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


def _name(holder: Json) -> str:
    return json_types.text(holder, "name")


def _mixin(mixin: Json, path: str) -> Iterator[Failure]:
    yield from names.label(_name(mixin), f"{path}.name")
    if (total := _described(mixin)) > MAX_NAMES:
        yield failure.invalid(path, total, f"attributes and capacities together must not be more than {MAX_NAMES}")
    yield from devices.check_attributes(json_types.mapping(mixin, "attributes"), f"{path}.attributes")
    capacity, counters = json_types.mapping(mixin, "capacity"), json_types.mapping(mixin, "counters")
    yield from each.entry(capacity, f"{path}.capacity", names.qualified, each.anything, shown=names.QUALIFIED_BYTES)
    yield from each.entry(counters, f"{path}.counters", names.label, each.anything, limit=MAX_COUNTERS, shown=formats.LABEL_BYTES)


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
        if (name := _name(include)) not in known:
            yield failure.invalid(f"{where}.name", name, "must name a mixin of this slice")

    return each.item(json_types.items(holder, "includes"), f"{path}.includes", one, limit=MAX_INCLUDES, key=_name)
