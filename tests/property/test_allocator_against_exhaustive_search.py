"""On small worlds the allocator gives exactly what exhaustive search gives: the same devices, none, or an error."""

import pytest
from hypothesis import HealthCheck, event, given, settings

from drakit.cluster import json_types, ports
from fakes.small_worlds import Small, small


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(small())
def test_the_allocator_chooses_what_exhaustive_search_chooses(world: Small) -> None:
    try:
        expected = world.decide_exhaustively()
    except ports.AllocationError:
        event("error")
        with pytest.raises(ports.AllocationError):
            world.decide()
        return
    results = world.decide()
    event("none" if expected is None else "allocated")
    if expected is None:
        assert results is None
        return
    assert results is not None
    chosen = [
        (number, result["request"], result["driver"], result["device"])
        for number, allocation in enumerate(results)
        for result in json_types.objects(allocation, "devices", "results")
    ]
    assert chosen == [tuple(found) for found in expected]
