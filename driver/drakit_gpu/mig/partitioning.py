"""MIG arithmetic: which partitions a GPU can have, in which order they are offered, and which counters describe them.

A partition is a profile at a placement. Every GPU has one counter for each memory slice (value 1), so two partitions cannot overlap. NVML also limits
how many instances of each profile may exist. Engine counters (multiprocessors, memory and others, with the largest amount of any profile as the
pool) express that limit on some GPUs, and they tell users what a GPU is made of. On other GPUs they reject sets that NVML allows (A30 and RTX PRO
6000, where the amounts of media engines do not add up), or accept sets that NVML rejects. So they are used only where a check of all sets of
partitions proves that they accept exactly the same sets as the instance limits. Otherwise each profile has a counter of its own, whose value is its
instance limit; that is exact by construction.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from drakit.core import quantity
from drakit_gpu import port

Counters = Mapping[str, quantity.Quantity]

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
    amounts = {_counter_name(name): quantity.Quantity.of(getattr(profile, name)) for name in _ENGINES}
    return {**amounts, "memory": quantity.Quantity.binary(profile.memory_mib * _MIB)}


def slice_counters(placement: port.Placement) -> Counters:
    """Return the memory slices of a placement, by counter name."""
    return {f"memory-slice-{index}": quantity.ONE for index in range(placement.start, placement.end)}


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
    return all(amount <= left.get(name, quantity.ZERO) for name, amount in taken.items())


def _counter_name(field: str) -> str:
    return field.replace("_", "-")


# Sets of partitions checked before engine counters are rejected as unproven. A100 has 5535, the most of all models.
SETS_MAX = 100_000

Amounts = Mapping[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuCounters:
    """The counters of one kind of GPU; ``shared`` is what an instance of a profile draws at any placement, by profile id."""

    pool: Counters
    shared: Mapping[int, Counters]

    def draw(self, partition: Partition) -> Counters:
        """Return what a partition draws from its GPU's counters."""
        return {**self.shared[partition.profile.id], **slice_counters(partition.placement)}

    def remaining(self, instances: Iterable[port.GpuInstance]) -> Counters:
        """Return the counters without these instances, never below zero. An instance of an unknown profile takes its memory slices."""
        left = dict(self.pool)
        for instance in instances:
            taken = {**self.shared.get(instance.profile_id, {}), **slice_counters(instance.placement)}
            for name in left.keys() & taken.keys():
                left[name] = max(left[name] - taken[name], quantity.ZERO)
        return left


@functools.lru_cache(maxsize=64)
def counters_of(possible: tuple[Partition, ...]) -> GpuCounters:
    """Return the exact counters of a GPU with these partitions; empty without partitions. Cached, because GPUs of one model have equal tables."""
    profiles = {partition.profile.id: partition.profile for partition in possible}
    engines = {profile.id: profile_counters(profile) for profile in profiles.values()}
    if is_exact(possible, engines):
        return GpuCounters(pool=engine_pool(possible), shared=engines)
    instances = {profile.id: {counter_name(profile): quantity.ONE} for profile in profiles.values()}
    counts = {counter_name(profile): quantity.Quantity.of(profile.instances) for profile in profiles.values()}
    return GpuCounters(pool={**counts, **all_slice_counters(possible)}, shared=instances)


def counter_name(profile: port.GpuInstanceProfile) -> str:
    """Return the name of a profile's instance counter: ``mig-1g6gb-me-21``."""
    return f"mig-{profile_slug(profile)}"


def is_exact(possible: Sequence[Partition], engines: Mapping[int, Counters], sets_max: int = SETS_MAX) -> bool:
    """Return whether engine counters and instance limits accept the same sets, for every set of partitions that do not overlap."""
    limit = {name: amount.nanos for name, amount in engine_pool(possible).items()}
    amounts = {key: {name: amount.nanos for name, amount in drawn.items()} for key, drawn in engines.items()}
    limits = {partition.profile.id: partition.profile.instances for partition in possible}
    checked: set[frozenset[tuple[int, int]]] = set()
    for looked_at, counts in enumerate(_counts_of_disjoint_sets(possible)):
        if looked_at > sets_max:
            return False
        key = frozenset(counts.items())
        if key in checked:
            continue
        checked.add(key)
        if all(count <= limits[profile] for profile, count in counts.items()) != _within(counts, amounts, limit):
            return False
    return True


def _within(counts: Mapping[int, int], amounts: Mapping[int, Amounts], pool: Amounts) -> bool:
    names = {name for key in counts for name in amounts[key]}
    return all(sum(count * amounts[key][name] for key, count in counts.items()) <= pool[name] for name in names)


def _counts_of_disjoint_sets(possible: Sequence[Partition]) -> Iterator[Mapping[int, int]]:
    """Return the number of partitions of each profile, for every set of partitions that do not overlap."""
    masks = [(partition.profile.id, ((1 << partition.placement.size) - 1) << partition.placement.start) for partition in possible]
    waiting: list[tuple[int, int, dict[int, int]]] = [(0, 0, {})]
    while waiting:
        first, taken, counts = waiting.pop()
        yield counts
        for index, (profile, mask) in enumerate(masks[first:], first + 1):
            if not taken & mask:
                waiting.append((index, taken | mask, {**counts, profile: counts.get(profile, 0) + 1}))
