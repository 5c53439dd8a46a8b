"""Which counters describe a GPU: the ones of engines where they are exact, else one for each profile.

Every GPU has a counter for each memory slice (value 1), which keep partitions from lying on each other. What else NVML allows it tells by instance
counts: so many of a profile at most. Engine counters (multiprocessors, memory and the others, with the largest amount any profile has as the pool)
express that on some GPUs and are worth having, because they say what a GPU is made of. On others they refuse sets that NVML allows (A30, RTX PRO
6000: media engines are given out in ways their numbers do not tell) or would allow sets that NVML refuses. So they are used only where counting all
sets of partitions of the GPU's own tables proves that they accept exactly what the instance counts do. Otherwise a counter for each profile whose
value is its instance count is exact by construction.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from drakit.core import quantity
from drakit.devices.gpu import port
from drakit.devices.gpu.mig import partitioning

# Sets looked at before engine counters are given up as unproven; A100, the most there is, has 5535.
SETS_MAX = 100_000

Amounts = Mapping[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counting:
    """The counters of one kind of GPU; ``shared`` is what an instance of a profile draws wherever it lies, by profile id."""

    pool: partitioning.Counters
    shared: Mapping[int, partitioning.Counters]

    def draw(self, partition: partitioning.Partition) -> partitioning.Counters:
        """All a partition takes from its GPU."""
        return {**self.shared[partition.profile.id], **partitioning.slices(partition.placement)}

    def remaining(self, instances: Iterable[port.GpuInstance]) -> partitioning.Counters:
        """What is left once these instances have taken their part, never below zero; one of an unknown profile takes its memory slices."""
        left = dict(self.pool)
        for instance in instances:
            taken = {**self.shared.get(instance.profile_id, {}), **partitioning.slices(instance.placement)}
            for name in left.keys() & taken.keys():
                left[name] = max(left[name] - taken[name], quantity.ZERO)
        return left


@functools.lru_cache(maxsize=64)
def of(found: tuple[partitioning.Partition, ...]) -> Counting:
    """The exact counters of a GPU with these partitions; empty without partitions. Cached, because GPUs of one kind have equal tables."""
    profiles = {item.profile.id: item.profile for item in found}
    engines = {profile.id: partitioning.engines(profile) for profile in profiles.values()}
    if is_exact(found, engines):
        return Counting(pool=partitioning.pool(found), shared=engines)
    instances = {profile.id: {counter_name(profile): quantity.ONE} for profile in profiles.values()}
    counts = {counter_name(profile): quantity.Quantity.of(profile.instances) for profile in profiles.values()}
    return Counting(pool={**counts, **partitioning.all_slices(found)}, shared=instances)


def counter_name(profile: port.GpuInstanceProfile) -> str:
    """The counter of a profile's instances: ``mig-1g6gb-me-21``."""
    return f"mig-{partitioning.slug(profile)}"


def is_exact(found: Sequence[partitioning.Partition], engines: Mapping[int, partitioning.Counters], sets_max: int = SETS_MAX) -> bool:
    """Whether engine counters accept a set of partitions exactly when it is within all instance counts, for every set that does not overlap."""
    pool = {name: amount.nanos for name, amount in partitioning.pool(found).items()}
    amounts = {key: {name: amount.nanos for name, amount in drawn.items()} for key, drawn in engines.items()}
    limits = {item.profile.id: item.profile.instances for item in found}
    known: set[frozenset[tuple[int, int]]] = set()
    for looked_at, counts in enumerate(_counts_of_disjoint_sets(found)):
        if looked_at > sets_max:
            return False
        key = frozenset(counts.items())
        if key in known:
            continue
        known.add(key)
        if all(count <= limits[profile] for profile, count in counts.items()) != _within(counts, amounts, pool):
            return False
    return True


def _within(counts: Mapping[int, int], amounts: Mapping[int, Amounts], pool: Amounts) -> bool:
    names = {name for key in counts for name in amounts[key]}
    return all(sum(count * amounts[key][name] for key, count in counts.items()) <= pool[name] for name in names)


def _counts_of_disjoint_sets(found: Sequence[partitioning.Partition]) -> Iterator[Mapping[int, int]]:
    """How many partitions of each profile there are, for every set of which no two overlap."""
    masks = [(item.profile.id, ((1 << item.placement.size) - 1) << item.placement.start) for item in found]
    waiting: list[tuple[int, int, dict[int, int]]] = [(0, 0, {})]
    while waiting:
        first, taken, counts = waiting.pop()
        yield counts
        for index, (profile, mask) in enumerate(masks[first:], first + 1):
            if not taken & mask:
                waiting.append((index, taken | mask, {**counts, profile: counts.get(profile, 0) + 1}))
