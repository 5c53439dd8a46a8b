"""MIG arithmetic: which partitions a GPU can have, what each takes of it, and in which order to offer them.

A partition is a profile at a placement. ``counting`` makes counters of what is said here, and says when they are exact.
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


def slug(profile: port.GpuInstanceProfile) -> str:
    """A profile's name as part of a DNS label, and its hardware id: ``1g.5gb+me`` gives ``1g5gb-me-20``."""
    return f"{profile.name.lower().replace('.', '').replace('+', '-')}-{profile.id}"


def largest(found: Sequence[Partition]) -> Counters:
    """Of each engine the largest amount any partition takes; empty without partitions."""
    return functools.reduce(_largest, (engines(item.profile) for item in found)) if found else {}


def all_slices(found: Sequence[Partition]) -> Counters:
    """Every memory slice of a GPU."""
    return slices(port.Placement(start=0, size=max((item.placement.end for item in found), default=0)))


def pool(found: Sequence[Partition]) -> Counters:
    """All a GPU has, counted by engines: the largest amount of each, and every memory slice."""
    return {**largest(found), **all_slices(found)}


def _largest(left: Counters, right: Counters) -> Counters:
    return {name: max(amount, right[name]) for name, amount in left.items()}


def fits(taken: Counters, left: Counters) -> bool:
    """Whether all that would be taken is there."""
    return all(amount <= left.get(name, quantity.ZERO) for name, amount in taken.items())


def _counter_name(field: str) -> str:
    return field.replace("_", "-")
