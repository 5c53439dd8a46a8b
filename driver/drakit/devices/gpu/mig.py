"""MIG arithmetic: which partitions a GPU can have, what each takes of it, and in which order to offer them.

A partition is a profile at a placement. Two kinds of counters describe a GPU: one for each memory slice (value 1), which keep partitions from
lying on each other, and one for each kind of engine, multiprocessors and memory included, whose pool is the largest amount any profile has of it.
Together they accept exactly the sets of partitions that NVML's placements and instance counts allow; tests prove this by brute force for every
table that ships (A100 40GB: 5535 sets of disjoint placements, of which 2318 are accepted).
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

from drakit.core import quantity
from drakit.devices.gpu import port

Counters = Mapping[str, quantity.Quantity]

_ENGINES = ("multiprocessors", "copy_engines", "decoders", "encoders", "jpeg_engines", "ofa_engines")
_MIB = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partition:
    """A profile at one of its placements."""

    profile: port.GpuInstanceProfile
    placement: port.Placement


def partitions(profiles: Iterable[tuple[port.GpuInstanceProfile, Sequence[port.Placement]]]) -> tuple[Partition, ...]:
    """All partitions of a GPU in the order to offer them.

    The scheduler takes the first that fits, so the order decides how a GPU fills up: small before large, profiles without media engines before
    their siblings with them, and within a profile the placement that leaves most other partitions possible first, the rearmost on a tie.
    """
    found = [Partition(profile=profile, placement=placement) for profile, placements in profiles for placement in placements]
    freedom = {partition: _compatible(partition, found) for partition in found}
    return tuple(sorted(found, key=lambda item: (*_rank(item), -freedom[item], -item.placement.start)))


def _rank(partition: Partition) -> tuple[int, int, int, int]:
    profile = partition.profile
    engines = profile.decoders + profile.encoders + profile.jpeg_engines + profile.ofa_engines
    return (profile.slices, partition.placement.size, engines, profile.id)


def _compatible(partition: Partition, others: Iterable[Partition]) -> int:
    """How many other partitions an otherwise empty GPU can still have beside this one."""
    return sum(not partition.placement.overlaps(other.placement) for other in others)


def engines(profile: port.GpuInstanceProfile) -> Counters:
    """What an instance of a profile has, by counter name, wherever it lies; memory in bytes. Zeros are kept: they say that there is none."""
    amounts = {_counter_name(name): quantity.Quantity.of(getattr(profile, name)) for name in _ENGINES}
    return {**amounts, "memory": quantity.Quantity.binary(profile.memory_mib * _MIB)}


def slices(placement: port.Placement) -> Counters:
    """The memory slices of a placement, by counter name."""
    return {f"memory-slice-{index}": quantity.ONE for index in range(placement.start, placement.end)}


def draw(partition: Partition) -> Counters:
    """All a partition takes from its GPU."""
    return {**engines(partition.profile), **slices(partition.placement)}


def pool(found: Sequence[Partition]) -> Counters:
    """All a GPU has: every memory slice, and of each engine the largest amount any partition takes. Empty without partitions."""
    if not found:
        return {}
    largest = functools.reduce(_largest, (engines(item.profile) for item in found))
    return {**largest, **slices(port.Placement(start=0, size=max(item.placement.end for item in found)))}


def _largest(left: Counters, right: Counters) -> Counters:
    return {name: max(amount, right[name]) for name, amount in left.items()}


def remaining(whole: Counters, instances: Iterable[port.GpuInstance], found: Sequence[Partition]) -> Counters:
    """What is left of a GPU once these instances have taken their part; never below zero.

    An instance of a profile the table does not know takes its memory slices.
    """
    profiles = {partition.profile.id: partition.profile for partition in found}
    left = dict(whole)
    for instance in instances:
        profile = profiles.get(instance.profile_id)
        taken = {**(engines(profile) if profile else {}), **slices(instance.placement)}
        for name in left.keys() & taken.keys():
            left[name] = max(left[name] - taken[name], quantity.ZERO)
    return left


def fits(taken: Counters, left: Counters) -> bool:
    """Whether all that would be taken is there."""
    return all(amount <= left.get(name, quantity.ZERO) for name, amount in taken.items())


def _counter_name(field: str) -> str:
    return field.replace("_", "-")
