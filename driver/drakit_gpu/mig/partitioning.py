"""MIG arithmetic: which partitions a GPU can have, in which order they are offered, and what each takes.

A partition is a profile at a placement. ``counters`` has the counters that describe partitions.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

import drakit
from drakit_gpu import port

Counters = Mapping[str, drakit.Quantity]

_ENGINES = ("multiprocessors", "copy_engines", "decoders", "encoders", "jpeg_engines", "ofa_engines")
_MIB = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partition:
    """A profile at one of its placements."""

    profile: port.GpuInstanceProfile
    placement: port.Placement


def partitions(profiles: Iterable[tuple[port.GpuInstanceProfile, Sequence[port.Placement]]]) -> tuple[Partition, ...]:
    """Return all partitions of a GPU in the order in which they are offered.

    The scheduler takes the first that fits, so this order chooses the placement: small before large, profiles without media engines before their
    variants with them, and within a profile the placement that leaves most other partitions possible first, the last one on a tie.
    """
    return _ordered(tuple((profile, tuple(placements)) for profile, placements in profiles))


@functools.lru_cache(maxsize=64)
def _ordered(profiles: tuple[tuple[port.GpuInstanceProfile, tuple[port.Placement, ...]], ...]) -> tuple[Partition, ...]:
    """Return all partitions in their order. Cached, because GPUs of one model have equal tables."""
    unsorted = [Partition(profile=profile, placement=placement) for profile, placements in profiles for placement in placements]
    freedom = {partition: _compatible(partition, unsorted) for partition in unsorted}
    return tuple(sorted(unsorted, key=lambda partition: (*_rank(partition), -freedom[partition], -partition.placement.start)))


def _rank(partition: Partition) -> tuple[int, int, int, int]:
    profile = partition.profile
    engines = profile.decoders + profile.encoders + profile.jpeg_engines + profile.ofa_engines
    return (profile.slices, partition.placement.size, engines, profile.id)


def _compatible(partition: Partition, others: Iterable[Partition]) -> int:
    """Return how many other partitions an otherwise empty GPU can have beside this one."""
    return sum(not partition.placement.overlaps(other.placement) for other in others)


def profile_counters(profile: port.GpuInstanceProfile) -> Counters:
    """Return the amounts of a profile by counter name, memory in bytes. Zeros are kept: they state that there is none."""
    amounts = {_counter_name(name): drakit.Quantity.of(getattr(profile, name)) for name in _ENGINES}
    return {**amounts, "memory": drakit.Quantity.binary(profile.memory_mib * _MIB)}


def slice_counters(placement: port.Placement) -> Counters:
    """Return the memory slices of a placement, by counter name."""
    return {f"memory-slice-{index}": drakit.ONE for index in range(placement.start, placement.end)}


def profile_slug(profile: port.GpuInstanceProfile) -> str:
    """Return a profile's name and hardware id as part of a DNS label: ``1g.5gb+me`` gives ``1g5gb-me-20``."""
    return f"{profile.name.lower().replace('.', '').replace('+', '-')}-{profile.id}"


def largest_amounts(possible: Sequence[Partition]) -> Counters:
    """Return the largest amount of each engine that any partition takes; empty without partitions."""
    return functools.reduce(_largest, (profile_counters(partition.profile) for partition in possible)) if possible else {}


def all_slice_counters(possible: Sequence[Partition]) -> Counters:
    """Return all memory slices of a GPU."""
    return slice_counters(port.Placement(start=0, size=max((partition.placement.end for partition in possible), default=0)))


def engine_pool(possible: Sequence[Partition]) -> Counters:
    """Return the pool of engine counters: the largest amount of each engine, and all memory slices."""
    return {**largest_amounts(possible), **all_slice_counters(possible)}


def _largest(left: Counters, right: Counters) -> Counters:
    return {name: max(amount, right[name]) for name, amount in left.items()}


def fits(taken: Counters, left: Counters) -> bool:
    """Return whether ``left`` covers ``taken``."""
    return all(amount <= left.get(name, drakit.ZERO) for name, amount in taken.items())


def _counter_name(field: str) -> str:
    return field.replace("_", "-")
