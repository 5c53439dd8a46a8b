"""On small worlds the allocator gives exactly what exhaustive search gives: the same devices, none, or an error."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, event, given, settings

from drakit_cluster.objects import devices, json_types
from drakit_cluster.scheduling.allocator import search
from fakes import examples
from fakes.random_allocations import RandomAllocation, random_allocation

BOUNDED = settings(max_examples=examples.count(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
Choice = tuple[int, str, str, str]


def exhaustive(world: RandomAllocation) -> list[Choice] | None:
    """Return the choice of exhaustive search, or None; raise AllocationError as it does."""
    found = world.decide_exhaustively()
    event("none" if found is None else "allocated")
    return None if found is None else [(one.claim, one.request, one.driver, one.device) for one in found]


def agree(world: RandomAllocation, decide: Callable[[], list[Choice] | None]) -> None:
    try:
        expected = exhaustive(world)
    except devices.AllocationError:
        event("error")
        with pytest.raises(devices.AllocationError):
            decide()
        return
    assert decide() == expected


@BOUNDED
@given(random_allocation())
def test_the_allocator_chooses_what_exhaustive_search_chooses(world: RandomAllocation) -> None:
    def decide() -> list[Choice] | None:
        results = world.decide()
        if results is None:
            return None
        return [
            (number, json_types.text(result, "request"), json_types.text(result, "driver"), json_types.text(result, "device"))
            for number, allocation in enumerate(results)
            for result in json_types.objects(allocation, "devices", "results")
        ]

    agree(world, decide)


@BOUNDED
@given(random_allocation())
def test_every_proof_at_every_step_loses_no_solution_and_no_error(world: RandomAllocation) -> None:
    def decide() -> list[Choice] | None:
        picks = search.Search(world.problem(), learning=True).run()
        if picks is None:
            return None
        return [(pick.claim, pick.option.name, pick.device.id.driver, pick.device.id.device) for pick in picks]

    agree(world, decide)
