"""Shared devices that change while claims hold them (KEP-5075, updates of AllowMultipleAllocations and RequestPolicy)."""

from drakit.cluster.features import Gate
from drakit.cluster.json_types import Object
from drakit.cluster.state import AllocatedState
from fakes.allocation_objects import (
    allocated,
    bandwidth,
    chosen,
    claim,
    decide,
    device,
    first,
    partitioned,
    request,
    resource_slice,
    shared,
    without,
)


def holding(slices: list[Object], wanted: Object) -> AllocatedState:
    results = decide(slices, wanted)
    assert results is not None
    return AllocatedState.of([allocated(wanted, results[0])])


def test_a_device_that_becomes_shared_stays_alone_until_released() -> None:
    wanted = claim(request())
    used = holding([resource_slice([device("d")])], wanted)
    now_shared = [resource_slice([shared("d", "10")])]
    assert decide(now_shared, claim(request(capacity=bandwidth("1")), name="next"), used=used) is None
    used.remove(wanted)
    assert chosen(decide(now_shared, claim(request(capacity=bandwidth("1")), name="next"), used=used)) == [["d"]]


def test_a_device_that_becomes_exclusive_is_not_given_out_while_shares_remain() -> None:
    wanted = claim(request(capacity=bandwidth("1")))
    used = holding([resource_slice([shared("d", "10")])], wanted)
    exclusive = [resource_slice([device("d", capacity={"bandwidth": {"value": "10"}})])]
    assert decide(exclusive, claim(request(capacity=bandwidth("1")), name="next"), used=used) is None
    used.remove(wanted)
    assert chosen(decide(exclusive, claim(request(), name="next"), used=used)) == [["d"]]


def test_a_changed_policy_never_changes_what_was_consumed() -> None:
    policy: Object = {"default": "4", "validRange": {"min": "4"}}
    used = holding([resource_slice([shared("d", "10", policy)])], claim(request()))
    without_policy = [resource_slice([shared("d", "10")])]
    assert decide(without_policy, claim(request(capacity=bandwidth("7")), name="next"), used=used) is None
    assert chosen(decide(without_policy, claim(request(capacity=bandwidth("6")), name="next"), used=used)) == [["d"]]


def test_a_shared_device_without_capacity_serves_any_number() -> None:
    slices = [resource_slice([shared("d")])]
    results = decide(slices, *(claim(request(), name=f"c{number}") for number in range(20)))
    assert chosen(results) == [["d"]] * 20
    assert "consumedCapacity" not in first(results)


def test_a_policy_of_zero_consumes_nothing_and_is_recorded() -> None:
    slices = [resource_slice([shared("d", "1", {"default": "0", "validValues": ["0"]})])]
    results = decide(slices, *(claim(request(), name=f"c{number}") for number in range(3)))
    assert first(results)["consumedCapacity"] == {"bandwidth": "0"}


def test_one_request_never_gets_one_device_twice_but_two_requests_do() -> None:
    slices = [resource_slice([shared("d", "10")])]
    assert decide(slices, claim(request(count=2, capacity=bandwidth("1")))) is None
    both = claim(request("a", capacity=bandwidth("1")), request("b", capacity=bandwidth("1")))
    assert chosen(decide(slices, both)) == [["d", "d"]]


def test_a_shared_device_draws_its_counters_once() -> None:
    slices = partitioned([shared("d", "10", consumesCounters=[{"counterSet": "set", "counters": {"x": {"value": "1"}}}])], {"set.x": "1"})
    first_share = claim(request(capacity=bandwidth("1")))
    used = holding(slices, first_share)
    more = [claim(request(capacity=bandwidth("1")), name=f"c{number}") for number in range(3)]
    assert chosen(decide(slices, *more, used=used)) == [["d"]] * 3


def test_where_the_feature_is_off_a_shareable_device_is_exclusive() -> None:
    slices = [resource_slice([shared("d", "10")])]
    features = without(Gate.CONSUMABLE_CAPACITY)
    wanted = claim(request())
    results = decide(slices, wanted, features=features)
    assert "shareID" not in first(results)
    assert results is not None
    used = AllocatedState.of([allocated(wanted, results[0])], consumable_capacity=False)
    assert decide(slices, claim(request(), name="next"), used=used, features=features) is None
