"""The counters of every GPU model accept exactly the sets of partitions that its placements and instance counts allow (KEP-4815)."""

from collections import Counter
from collections.abc import Iterator

import pytest

from drakit.devices.gpu import machine, mig, port

MODELS = machine.model_names()


def partitions_of(model: str) -> tuple[mig.Partition, ...]:
    return mig.partitions(machine.load_model(model).profiles.values())


def disjoint_sets(found: tuple[mig.Partition, ...], chosen: tuple[mig.Partition, ...] = ()) -> Iterator[tuple[mig.Partition, ...]]:
    """Every set of partitions of which no two overlap, the empty one included."""
    yield chosen
    for index, partition in enumerate(found):
        if not any(partition.placement.overlaps(other.placement) for other in chosen):
            yield from disjoint_sets(found[index + 1 :], (*chosen, partition))


def is_within_instance_counts(chosen: tuple[mig.Partition, ...]) -> bool:
    counts = Counter(partition.profile for partition in chosen)
    return all(count <= profile.instances for profile, count in counts.items())


def is_within_counters(chosen: tuple[mig.Partition, ...], pool: mig.Counters) -> bool:
    totals: Counter[str] = Counter()
    for partition in chosen:
        totals.update({name: amount.nanos for name, amount in mig.draw(partition).items()})
    return all(total <= pool[name].nanos for name, total in totals.items())


def test_an_a100_has_5535_disjoint_sets_of_which_2318_can_exist() -> None:
    found = partitions_of("a100-sxm4-40gb")
    sets = [chosen for chosen in disjoint_sets(found) if chosen]
    assert len(found) == 25
    assert len(sets) == 5535
    assert sum(map(is_within_instance_counts, sets)) == 2318


@pytest.mark.parametrize("model", MODELS)
def test_counters_accept_a_disjoint_set_exactly_when_nvml_does(model: str) -> None:
    found = partitions_of(model)
    pool = mig.pool(found)
    for chosen in disjoint_sets(found):
        assert is_within_counters(chosen, pool) == is_within_instance_counts(chosen), [item.profile.name for item in chosen]


@pytest.mark.parametrize("model", MODELS)
def test_counters_refuse_any_two_partitions_that_overlap(model: str) -> None:
    found = partitions_of(model)
    pool = mig.pool(found)
    overlapping = [(a, b) for a in found for b in found if a.placement.overlaps(b.placement)]
    assert overlapping
    assert not any(is_within_counters(pair, pool) for pair in overlapping)


@pytest.mark.parametrize("model", MODELS)
def test_what_instances_leave_is_what_can_still_be_added(model: str) -> None:
    found = partitions_of(model)
    pool = mig.pool(found)
    for taken in (item for item in disjoint_sets(found) if len(item) == 2 and is_within_instance_counts(item)):
        instances = [port.GpuInstance(id=1, profile_id=item.profile.id, placement=item.placement) for item in taken]
        left = mig.remaining(pool, instances, found)
        for partition in found:
            disjoint = not any(partition.placement.overlaps(item.placement) for item in taken)
            assert mig.fits(mig.draw(partition), left) == (disjoint and is_within_instance_counts((*taken, partition)))
