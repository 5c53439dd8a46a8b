"""Rules of ResourceSlices."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.validation import devices, each, failure, mixins, names, nodes
from drakit_cluster.objects.validation.context import Context
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
    yield from nodes.of_slice(spec)
    if "devices" in spec and "sharedCounters" in spec and not context.gates.on(Gate.COUNTERS_BESIDE_DEVICES):
        yield failure.invalid("spec", "", "only one of devices and sharedCounters may be set: publish counters in a slice of their own")
    yield from _devices(spec, old)
    yield from devices.check_counter_sets(json_types.items(spec, "sharedCounters"), "spec.sharedCounters")
    yield from mixins.check(spec)


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
        yield from nodes.of_device(device, where, chooses=chooses)

    limit = MAX_DEVICES_ADVANCED if any(map(_is_advanced, offered)) else MAX_DEVICES
    return each.item(offered, "spec.devices", one, limit=limit, key=lambda device: json_types.text(device, "name"))


def _is_advanced(device: Json) -> bool:
    lists = any(map(devices.has_list, json_types.mapping(device, "attributes").values()))
    return bool(json_types.items(device, "taints") or json_types.items(device, "consumesCounters") or lists)
