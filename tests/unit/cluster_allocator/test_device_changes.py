"""Shared devices that change while claims hold them (KEP-5075, updates of AllowMultipleAllocations and RequestPolicy)."""

import pytest

from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator.state import AllocatedState
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


COARSE: Object = {"default": "4", "validRange": {"min": "4"}}
FINE: Object = {"default": "1", "validRange": {"min": "1"}}


@pytest.mark.parametrize(
    "before, after, taken, next_taken",
    [(None, COARSE, "3", "4"), (COARSE, FINE, "4", "1"), (COARSE, None, "4", "6"), (FINE, COARSE, "1", "4")],
)
def test_a_policy_that_is_set_changed_or_unset_rules_later_shares_alone(
    before: Object | None, after: Object | None, taken: str, next_taken: str
) -> None:
    wanted = claim(request(capacity=bandwidth("3")) if before is None else request())
    results = decide([resource_slice([shared("d", "10", before)])], wanted)
    assert results is not None
    assert first(results)["consumedCapacity"] == {"bandwidth": taken}
    used = AllocatedState.of([allocated(wanted, results[0])])
    later = claim(request(capacity=bandwidth("6")) if after is None else request(), name="next")
    assert first(decide([resource_slice([shared("d", "10", after)])], later, used=used))["consumedCapacity"] == {"bandwidth": next_taken}


def test_a_scheduler_without_the_feature_refuses_amounts_and_ignores_sharing() -> None:
    slices = [resource_slice([shared("d", "10", COARSE)])]
    features = without(Gate.CONSUMABLE_CAPACITY)
    with pytest.raises(AllocationError, match="capacity is set, but the feature DRAConsumableCapacity is off"):
        decide(slices, claim(request(capacity=bandwidth("4"))), features=features)
    assert first(decide(slices, claim(request()), features=features)).keys() == {"request", "driver", "pool", "device"}


def test_shares_from_before_the_feature_was_off_keep_the_device_from_others() -> None:
    slices = [resource_slice([shared("d", "10")])]
    wanted = claim(request(capacity=bandwidth("1")))
    results = decide(slices, wanted)
    assert results is not None
    used = AllocatedState.of([allocated(wanted, results[0])], consumable_capacity=False)
    features = without(Gate.CONSUMABLE_CAPACITY)
    assert decide(slices, claim(request(), name="next"), used=used, features=features) is None
    used.remove(wanted)
    assert chosen(decide(slices, claim(request(), name="next"), used=used, features=features)) == [["d"]]


def test_where_a_server_without_the_feature_dropped_the_fields_devices_are_exclusive() -> None:
    slices = [resource_slice([device("d", capacity={"bandwidth": {"value": "10"}})])]
    used = holding(slices, claim(request(capacity=bandwidth("1"))))
    assert decide(slices, claim(request(capacity=bandwidth("1")), name="next"), used=used) is None


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
