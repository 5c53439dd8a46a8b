"""Five decisions that Kubernetes 1.36.2 gets wrong, each with the right answer."""

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import DeviceId
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator.state import AllocatedState
from fakes.allocation_objects import bandwidth, chosen, claim, decide, device, partitioned, request, resource_slice, shared, strings

MATCH_PARENT: Object = {"matchAttribute": "drv/parent"}
DISTINCT_PARENT: Object = {"distinctAttribute": "drv/parent"}


def partition(gpu: int, number: int) -> Object:
    return device(f"gpu-{gpu}-{number}", draws={f"gpu-{gpu}.memory": "1"}, attributes=strings(parent=f"gpu-{gpu}"))


def test_a_rejected_candidate_releases_its_counters() -> None:
    devices = [partition(gpu, number) for gpu in (0, 1) for number in (0, 1)]
    slices = partitioned(devices, {"gpu-0.memory": "2", "gpu-1.memory": "2"})
    used = AllocatedState()
    used.hold(DeviceId("drv", "pool", "gpu-0-1"))
    both = claim(request("a"), request("b"), constraints=[MATCH_PARENT])
    assert chosen(decide(slices, both, used=used)) == [["gpu-1-0", "gpu-1-1"]]


@pytest.mark.parametrize("small", ["a", "z"])
def test_counters_of_two_drivers_with_equal_pool_names_are_kept_apart(small: str) -> None:
    devices = [device(f"d{number}", draws={"set.x": "1"}) for number in range(3)]
    slices = [
        *partitioned(devices, {"set.x": "1"}, driver=small),
        *partitioned(devices, {"set.x": "3"}, driver="drv"),
    ]
    results = decide(slices, claim(request(count=4)))
    assert results is not None
    drivers = [json_types.text(one, "driver") for one in json_types.objects(results[0], "devices", "results")]
    assert sorted(drivers) == sorted([small, "drv", "drv", "drv"])
    assert decide(slices, claim(request(count=5))) is None


def test_admin_access_needs_no_free_counters_and_takes_none() -> None:
    slices = partitioned([device(name, draws={"set.x": "1"}) for name in ("d0", "d1")], {"set.x": "1"})
    used = AllocatedState()
    used.hold(DeviceId("drv", "pool", "d0"))
    assert chosen(decide(slices, claim(request(mode="All", adminAccess=True)), used=used)) == [["d0", "d1"]]
    watched = claim(request("watch", adminAccess=True), name="admin")
    assert chosen(decide(slices, watched, claim(request(count=1)))) == [["d0"], ["d1"]]


def test_distinct_attribute_compares_all_devices() -> None:
    devices = [device(name, attributes=strings(parent=parent)) for name, parent in (("d0", "A"), ("d1", "B"), ("d2", "A"))]
    three = claim(request(count=3), constraints=[DISTINCT_PARENT])
    assert decide([resource_slice(devices)], three) is None
    devices.append(device("d3", attributes=strings(parent="C")))
    assert chosen(decide([resource_slice(devices)], three)) == [["d0", "d1", "d3"]]


def test_match_attribute_on_lists_is_restored_by_backtracking() -> None:
    parents = {"d0": ["p", "q"], "d1": ["p"], "d2": ["q"], "d3": ["q", "r"]}
    devices = [device(name, attributes=strings(parent=values)) for name, values in parents.items()]
    three = claim(request(count=3), constraints=[MATCH_PARENT])
    assert chosen(decide([resource_slice(devices)], three)) == [["d0", "d2", "d3"]]


@pytest.mark.parametrize("policy", [None, {"default": "1Gi", "validRange": {"min": "-5Gi"}}])
def test_a_negative_amount_gets_no_device_and_gives_nobody_more_than_there_is(policy: Object | None) -> None:
    nic = shared("nic", "10Gi", policy)
    assert decide([resource_slice([nic])], claim(request(capacity=bandwidth("-5Gi")))) is None
    both = [claim(request(capacity=bandwidth("-5Gi")), name="a"), claim(request(capacity=bandwidth("11Gi")), name="b")]
    assert decide([resource_slice([nic])], *both) is None


def test_a_device_that_draws_less_than_nothing_leaves_the_counter_as_it_is() -> None:
    slices = partitioned(
        [device("odd", draws={"set.memory": "-4Gi"}), device("whole", draws={"set.memory": "12Gi"})], {"set.memory": "8Gi"}
    )
    assert decide(slices, claim(request(count=2))) is None
    assert chosen(decide(slices, claim(request()))) == [["odd"]]
