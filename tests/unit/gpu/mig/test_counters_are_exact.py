"""The counters of every GPU model accept exactly the sets of partitions that its placements and instance counts allow (KEP-4815)."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from drakit_gpu import port
from drakit_gpu.mig import counters, partitioning
from drakit_gpu.mock import machine

MODELS = tuple(name for name in machine.model_names() if machine.load_model(name).profiles)
# Per table: sets of which no two partitions overlap, those of them within the instance counts, and whether engine counters are exact.
PROVEN = {
    "a100-sxm4-40gb": (5535, 2318, True),
    "a100-sxm4-80gb": (5535, 2318, True),
    "a30-24gb": (121, 83, False),
    "b200-sxm6-180gb": (5535, 2318, True),
    "h100-pcie-80gb": (5535, 2318, True),
    "h100-sxm5-80gb": (5535, 2318, True),
    "h200-sxm5-141gb": (5535, 2318, True),
    "rtx-pro-6000-96gb": (1601, 1248, False),
}


def partitions_of(model: str) -> tuple[partitioning.Partition, ...]:
    return partitioning.partitions(machine.load_model(model).profiles.values())


def disjoint_sets(
    partitions: tuple[partitioning.Partition, ...], chosen: tuple[partitioning.Partition, ...] = ()
) -> Iterator[tuple[partitioning.Partition, ...]]:
    """Every set of partitions of which no two overlap, the empty one included."""
    yield chosen
    for index, partition in enumerate(partitions):
        if not any(partition.placement.overlaps(other.placement) for other in chosen):
            yield from disjoint_sets(partitions[index + 1 :], (*chosen, partition))


def is_within_instance_counts(chosen: tuple[partitioning.Partition, ...]) -> bool:
    counts = Counter(partition.profile for partition in chosen)
    return all(count <= profile.instances for profile, count in counts.items())


def is_within_counters(chosen: tuple[partitioning.Partition, ...], counted: counters.GpuCounters) -> bool:
    totals: Counter[str] = Counter()
    for partition in chosen:
        totals.update({name: amount.nanos for name, amount in counted.draw(partition).items()})
    return all(total <= counted.pool[name].nanos for name, total in totals.items())


@pytest.mark.parametrize("model", MODELS)
def test_counters_accept_a_disjoint_set_exactly_when_nvml_does(model: str) -> None:
    partitions = partitions_of(model)
    counted = counters.counters_of(partitions)
    disjoint = accepted = 0
    for chosen in disjoint_sets(partitions):
        assert is_within_counters(chosen, counted) == is_within_instance_counts(chosen), [partition.profile.name for partition in chosen]
        disjoint += 1
        accepted += is_within_instance_counts(chosen)
    assert (disjoint - 1, accepted - 1, "multiprocessors" in counted.pool) == PROVEN[model], "the empty set is not counted"


def test_counters_are_exact_for_every_shipped_model() -> None:
    assert set(PROVEN) == set(MODELS)


@pytest.mark.parametrize("model", MODELS)
def test_counters_refuse_any_two_partitions_that_overlap(model: str) -> None:
    partitions = partitions_of(model)
    overlapping = [(a, b) for a in partitions for b in partitions if a.placement.overlaps(b.placement)]
    assert overlapping
    assert not any(is_within_counters(pair, counters.counters_of(partitions)) for pair in overlapping)


@pytest.mark.parametrize("model", MODELS)
def test_free_counters_allow_exactly_the_instances_nvml_allows(model: str) -> None:
    partitions = partitions_of(model)
    counted = counters.counters_of(partitions)
    for taken in (item for item in disjoint_sets(partitions) if len(item) == 2 and is_within_instance_counts(item)):
        left = counted.remaining(port.GpuInstance(id=1, profile_id=item.profile.id, placement=item.placement) for item in taken)
        for partition in partitions:
            disjoint = not any(partition.placement.overlaps(item.placement) for item in taken)
            assert partitioning.fits(counted.draw(partition), left) == (disjoint and is_within_instance_counts((*taken, partition)))


def changed(partitions: tuple[partitioning.Partition, ...], profile_id: int, **figures: Any) -> tuple[partitioning.Partition, ...]:
    """The partitions of a GPU whose table differs in some figures of one profile."""
    return tuple(
        dataclasses.replace(partition, profile=dataclasses.replace(partition.profile, **figures))
        if partition.profile.id == profile_id
        else partition
        for partition in partitions
    )


@pytest.mark.parametrize(
    "profile_id,figures",
    [
        (19, {"decoders": 1}),  # as some tables of the A100 80GB say: seven 1g would not fit the five decoders of 7g
        (0, {"jpeg_engines": 4, "ofa_engines": 4}),  # as some tables of the B200 say: four 1g+me would fit
        (14, {"memory_mib": 20480}),  # rounded sizes: three 2g would not fit
    ],
)
def test_a_gpu_with_inexact_engine_counts_is_counted_by_profiles(profile_id: int, figures: dict[str, int]) -> None:
    partitions = changed(partitions_of("a100-sxm4-40gb"), profile_id, **figures)
    counted = counters.counters_of(partitions)
    assert set(counted.pool) == {
        *(counters.counter_name(partition.profile) for partition in partitions),
        *(f"memory-slice-{index}" for index in range(8)),
    }
    assert all(is_within_counters(chosen, counted) == is_within_instance_counts(chosen) for chosen in disjoint_sets(partitions))


def test_a_gpu_with_too_many_sets_to_count_is_counted_by_profiles() -> None:
    partitions = partitions_of("a100-sxm4-40gb")
    engines = {partition.profile.id: partitioning.profile_counters(partition.profile) for partition in partitions}
    assert counters.is_exact(partitions, engines, sets_max=5535)
    assert not counters.is_exact(partitions, engines, sets_max=5534)


def test_a_gpu_without_partitions_has_no_counters() -> None:
    assert counters.counters_of(()) == counters.GpuCounters(pool={}, shared={})
