"""The changes of a policy to the slices of a node: the order of devices, the MIG placements, and the step of bandwidth.

A driver's author or a cluster's admin could publish each of these slices; the allocator is the same.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.json_types import Object
from drakit_cluster.simulation.workload.templates import WorkloadError

_PROFILE = ("attributes", "profile", "string")


class DeviceOrder(enum.StrEnum):
    """The order of the devices of a node. The scheduler takes the first device that fits."""

    PUBLISHED = "published"
    LARGEST_FIRST = "largest-first"
    ROUND_ROBIN = "round-robin"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Changes of the slices. ``layout`` are the fixed MIG profiles of every GPU; none means partitions on demand."""

    order: DeviceOrder = DeviceOrder.PUBLISHED
    layout: tuple[str, ...] = ()
    step: str = ""
    """The minimum and the step of the bandwidth of shares, as a quantity; empty for the published policy."""

    def applied(self, slices: Sequence[Object]) -> list[Object]:
        """Return the slices of one node as they would be published. Raises WorkloadError for a layout that no GPU has."""
        devices = [device for entry in slices for device in json_types.objects(entry, "spec", "devices")]
        changed_slices = list(slices)
        if self.layout:
            kept_ids = _static(devices, self.layout)
            changed_slices = _mapped(changed_slices, lambda listed: [device for device in listed if id(device) in kept_ids])
        if self.step:
            changed_slices = _mapped(changed_slices, lambda listed: [_stepped(device, self.step) for device in listed])
        if self.order is not DeviceOrder.PUBLISHED:
            changed_slices = reordered(changed_slices, _ORDERS[self.order])
        return changed_slices


def reordered(slices: Sequence[Object], order: Callable[[list[Object]], list[Object]]) -> list[Object]:
    """Return slices whose devices are reordered across the slices of each pool; the number of devices of a slice stays."""
    pools: dict[tuple[str, str], list[Object]] = {}
    for entry in sorted(slices, key=lambda item: json_types.text(item, "metadata", "name")):
        pools.setdefault(_pool(entry), []).extend(json_types.objects(entry, "spec", "devices"))
    remaining = {key: iter(order(devices)) for key, devices in pools.items()}
    reordered_slices = []
    for entry in sorted(slices, key=lambda item: json_types.text(item, "metadata", "name")):
        count = len(json_types.objects(entry, "spec", "devices"))
        reordered_slices.append(_with_devices(entry, [next(remaining[_pool(entry)]) for _ in range(count)]) if count else entry)
    return reordered_slices


def counter_set(device: Object) -> str:
    """Return the first counter set that the device draws from, or its own name if it draws from none."""
    return json_types.text(device, "consumesCounters", 0, "counterSet") or json_types.text(device, "name")


def first_of(preferred: str) -> Callable[[list[Object]], list[Object]]:
    """Return the order in which devices of one counter set come first."""
    return lambda devices: sorted(devices, key=lambda device: counter_set(device) != preferred)


def _round_robin(devices: list[Object]) -> list[Object]:
    """Return one device of every GPU, then the second of every GPU, and so on."""
    counts: dict[str, int] = {}
    numbered = []
    for device in devices:
        key = counter_set(device)
        counts[key] = counts.get(key, 0) + 1
        numbered.append((counts[key], device))
    return [device for _, device in sorted(numbered, key=lambda entry: entry[0])]


_ORDERS: dict[DeviceOrder, Callable[[list[Object]], list[Object]]] = {
    DeviceOrder.LARGEST_FIRST: lambda devices: devices[::-1],
    DeviceOrder.ROUND_ROBIN: _round_robin,
}


def _static(devices: Sequence[Object], layout: Sequence[str]) -> set[int]:
    """Return the ids of the devices to keep: those of the layout on GPUs that have all its profiles, and all other devices."""
    sets: dict[str, list[Object]] = {}
    for device in devices:
        sets.setdefault(counter_set(device), []).append(device)
    kept_ids: set[int] = set()
    for partitions in sets.values():
        profiles = {json_types.text(device, *_PROFILE) for device in partitions}
        selected = partitions
        if set(layout) <= profiles:
            fitting = _fitting(partitions, layout)
            if fitting is None:
                raise WorkloadError(f"layout {'+'.join(layout)}: these profiles do not fit together on one GPU")
            selected = fitting
        kept_ids |= {id(device) for device in selected}
    return kept_ids


def _fitting(partitions: Sequence[Object], layout: Sequence[str]) -> list[Object] | None:
    """Return devices of the profiles that fit together, or None. The search tries placements in order, the largest profile first."""
    total: dict[str, int] = {}
    for device in partitions:
        for name, amount in _draws(device).items():
            total[name] = max(total.get(name, 0), amount)

    def fill(profiles: Sequence[str], used: dict[str, int]) -> list[Object] | None:
        if not profiles:
            return []
        for device in partitions:
            if json_types.text(device, *_PROFILE) != profiles[0]:
                continue
            consumed = used | {name: used.get(name, 0) + amount for name, amount in _draws(device).items()}
            if any(amount > total[name] for name, amount in consumed.items()):
                continue
            if (rest_fitting := fill(profiles[1:], consumed)) is not None:
                return [device, *rest_fitting]
        return None

    return fill(sorted(layout, reverse=True), {})


def _draws(device: Object) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for consumption in json_types.objects(device, "consumesCounters"):
        for name, counter in json_types.mapping(consumption, "counters").items():
            amounts[name] = quantity.parse(json_types.at(counter, "value")).nanos
    return amounts


def _stepped(device: Object, step: str) -> Object:
    capacity = json_types.mapping(device, "capacity")
    bandwidth = json_types.mapping(capacity, "bandwidth")
    policy = json_types.mapping(bandwidth, "requestPolicy")
    if device.get("allowMultipleAllocations") is not True or not policy:
        return device
    limits = json_types.mapping(policy, "validRange") | {"min": step, "step": step}
    return device | {"capacity": capacity | {"bandwidth": bandwidth | {"requestPolicy": policy | {"default": step, "validRange": limits}}}}


def _mapped(slices: Sequence[Object], change: Callable[[list[Object]], list[Object]]) -> list[Object]:
    return [
        _with_devices(entry, change(devices)) if (devices := json_types.objects(entry, "spec", "devices")) else entry for entry in slices
    ]


def _with_devices(entry: Object, devices: Sequence[Object]) -> Object:
    return entry | {"spec": json_types.mapping(entry, "spec") | {"devices": json_types.from_objects(devices)}}


def _pool(entry: Object) -> tuple[str, str]:
    return json_types.text(entry, "spec", "driver"), json_types.text(entry, "spec", "pool", "name")
