"""The shared counters (KEP-4815) of a GPU's partitions.

Every GPU has one counter for each memory slice (value 1), so two partitions cannot overlap. NVML also limits how many instances of each profile may
exist. Engine counters (multiprocessors, memory and others, with the largest amount of any profile as the pool) express that limit on some GPUs, and
they tell users what a GPU is made of. On other GPUs they reject sets that NVML allows (A30 and RTX PRO
6000, where the amounts of media engines do not add up), or accept sets that NVML rejects. So they are used only where a check of all sets of
partitions proves that they accept exactly the same sets as the instance limits. Otherwise each profile has a counter of its own, whose value is its
instance limit; that is exact by construction.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import drakit
from drakit_gpu import port
from drakit_gpu.mig import partitioning

# Sets of partitions checked before engine counters are rejected as unproven. A100 has 5535, the most of all models.
SETS_MAX = 100_000

Amounts = Mapping[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuCounters:
    """The counters of one kind of GPU; ``shared`` is what an instance of a profile draws at any placement, by profile id."""

    pool: partitioning.Counters
    shared: Mapping[int, partitioning.Counters]

    def draw(self, partition: partitioning.Partition) -> partitioning.Counters:
        """Return what a partition draws from its GPU's counters."""
        return {**self.shared[partition.profile.id], **partitioning.slice_counters(partition.placement)}

    def remaining(self, instances: Iterable[port.GpuInstance]) -> partitioning.Counters:
        """Return the counters without these instances, never below zero. An instance of an unknown profile takes its memory slices."""
        left = dict(self.pool)
        for instance in instances:
            taken = {**self.shared.get(instance.profile_id, {}), **partitioning.slice_counters(instance.placement)}
            for name in left.keys() & taken.keys():
                left[name] = max(left[name] - taken[name], drakit.ZERO)
        return left


@functools.lru_cache(maxsize=64)
def counters_of(possible: tuple[partitioning.Partition, ...]) -> GpuCounters:
    """Return the exact counters of a GPU with these partitions; empty without partitions. Cached, because GPUs of one model have equal tables."""
    profiles = {partition.profile.id: partition.profile for partition in possible}
    engines = {profile.id: partitioning.profile_counters(profile) for profile in profiles.values()}
    if is_exact(possible, engines):
        return GpuCounters(pool=partitioning.engine_pool(possible), shared=engines)
    instances = {profile.id: {counter_name(profile): drakit.ONE} for profile in profiles.values()}
    counts = {counter_name(profile): drakit.Quantity.of(profile.instances) for profile in profiles.values()}
    return GpuCounters(pool={**counts, **partitioning.all_slice_counters(possible)}, shared=instances)


def counter_name(profile: port.GpuInstanceProfile) -> str:
    """Return the name of a profile's instance counter: ``mig-1g6gb-me-21``."""
    return f"mig-{partitioning.profile_slug(profile)}"


def is_exact(possible: Sequence[partitioning.Partition], engines: Mapping[int, partitioning.Counters], sets_max: int = SETS_MAX) -> bool:
    """Return whether engine counters and instance limits accept the same sets, for every set of partitions that do not overlap."""
    limit = {name: amount.nanos for name, amount in partitioning.engine_pool(possible).items()}
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


def _counts_of_disjoint_sets(possible: Sequence[partitioning.Partition]) -> Iterator[Mapping[int, int]]:
    """Return the number of partitions of each profile, for every set of partitions that do not overlap."""
    masks = [(partition.profile.id, ((1 << partition.placement.size) - 1) << partition.placement.start) for partition in possible]
    waiting: list[tuple[int, int, dict[int, int]]] = [(0, 0, {})]
    while waiting:
        first, taken, counts = waiting.pop()
        yield counts
        for index, (profile, mask) in enumerate(masks[first:], first + 1):
            if not taken & mask:
                waiting.append((index, taken | mask, {**counts, profile: counts.get(profile, 0) + 1}))
