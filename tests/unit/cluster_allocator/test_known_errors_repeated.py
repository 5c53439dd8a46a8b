"""The errors of Kubernetes 1.36, repeated where that is asked for: each alone, with the answer that its allocator gives."""

from collections.abc import Sequence

import pytest

from drakit_cluster.objects import quantity
from drakit_cluster.objects.devices import DeviceId
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.scheduling.allocator import known_errors
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.known_errors import KnownError, KnownErrors
from drakit_cluster.scheduling.allocator.state import AllocatedState
from fakes.allocation_objects import (
    ALL_FEATURES,
    CLASSES,
    NODE,
    chosen,
    claim,
    decide,
    device,
    partitioned,
    request,
    resource_slice,
    strings,
)
from fakes.simple_selectors import SimpleSelectors

MATCH_PARENT: Object = {"matchAttribute": "drv/parent"}
DISTINCT_PARENT: Object = {"distinctAttribute": "drv/parent"}


def partition(gpu: int, number: int) -> Object:
    return device(f"gpu-{gpu}-{number}", draws={f"gpu-{gpu}.memory": "1"}, attributes=strings(parent=f"gpu-{gpu}"))


GPUS = partitioned([partition(gpu, number) for gpu in (0, 1) for number in (0, 1)], {"gpu-0.memory": "2", "gpu-1.memory": "2"})
BOTH = claim(request("a"), request("b"), constraints=[MATCH_PARENT])


def holding(*names: str) -> AllocatedState:
    used = AllocatedState()
    for name in names:
        used.hold(DeviceId("drv", "pool", name))
    return used


def answers(kind: KnownError, slices: Sequence[Object], *claims: Object, used: AllocatedState | None = None) -> list[object]:
    """Return the devices that are chosen with this error alone, with all errors, and without any."""
    tried = (KnownErrors(kinds=frozenset({kind})), known_errors.KUBERNETES_1_36, known_errors.NONE)
    return [chosen(decide(slices, *claims, used=used, errors=errors)) for errors in tried]


def test_counters_of_a_rejected_candidate_are_kept() -> None:
    assert answers(KnownError.KEPT_COUNTERS, GPUS, BOTH, used=holding("gpu-0-1")) == [None, None, [["gpu-1-0", "gpu-1-1"]]]


def test_counters_of_a_tainted_candidate_are_kept() -> None:
    tainted = partition(0, 0) | {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    slices = partitioned([tainted, partition(0, 1)], {"gpu-0.memory": "1"})
    assert answers(KnownError.KEPT_COUNTERS, slices, claim(request())) == [None, None, [["gpu-0-1"]]]


def test_selectors_come_before_counters_so_a_pinned_gpu_is_found() -> None:
    expression = 'device.attributes["drv"].parent == "gpu-1"'
    pin: Json = [{"cel": {"expression": expression}}]
    both = claim(request("a", selectors=pin), request("b", selectors=pin), constraints=[MATCH_PARENT])
    found = decide(GPUS, both, used=holding("gpu-0-1"), errors=known_errors.KUBERNETES_1_36)
    assert chosen(found) == [["gpu-1-0", "gpu-1-1"]]


def test_two_drivers_with_one_pool_name_get_more_than_there_is() -> None:
    devices = [device(f"d{number}", draws={"b.x": "1"}) for number in range(2)]
    slices = [
        *partitioned([device("a0", draws={"a.x": "1"})], {"a.x": "1"}, driver="a"),
        *partitioned(devices, {"b.x": "1"}, driver="drv"),
    ]
    assert answers(KnownError.POOL_NAMES, slices, claim(request(count=3))) == [[["a0", "d0", "d1"]], [["a0", "d0", "d1"]], None]


def test_admin_access_does_not_reach_devices_whose_counters_are_used_up() -> None:
    slices = partitioned([device("d0", draws={"set.x": "1"})], {"set.x": "1"})
    watched = claim(request(adminAccess=True))
    assert answers(KnownError.ADMIN_COUNTERS, slices, watched, used=holding("d0")) == [None, None, [["d0"]]]


def test_distinct_attribute_compares_with_the_last_device_alone() -> None:
    slices = [resource_slice([device(f"d{at}", attributes=strings(parent=parent)) for at, parent in enumerate("ABA")])]
    three = claim(request(count=3), constraints=[DISTINCT_PARENT])
    assert answers(KnownError.DISTINCT_LAST, slices, three) == [[["d0", "d1", "d2"]], [["d0", "d1", "d2"]], None]


def test_match_attribute_on_lists_misses_solutions_after_backtracking() -> None:
    parents = {"d0": ["p", "q"], "d1": ["p"], "d2": ["q"], "d3": ["q", "r"]}
    slices = [resource_slice([device(name, attributes=strings(parent=values)) for name, values in parents.items()])]
    three = claim(request(count=3), constraints=[MATCH_PARENT])
    assert answers(KnownError.LISTS_NOT_RESTORED, slices, three) == [None, None, [["d0", "d2", "d3"]]]


def test_a_share_without_consumed_capacity_is_not_seen_by_the_next_one() -> None:
    slices = partitioned([device("d0", draws={"set.x": "1"}, allowMultipleAllocations=True)], {"set.x": "1"})
    used = AllocatedState()
    used.share(DeviceId("drv", "pool", "d0"), {})
    assert answers(KnownError.SHARES_WITHOUT_CAPACITY, slices, claim(request()), used=used) == [None, None, [["d0"]]]


def test_a_share_with_consumed_capacity_is_seen_by_the_next_one() -> None:
    capacity: Object = {"bandwidth": {"value": "2", "requestPolicy": {"default": "1"}}}
    slices = partitioned([device("d0", draws={"set.x": "1"}, allowMultipleAllocations=True, capacity=capacity)], {"set.x": "1"})
    used = AllocatedState()
    used.share(DeviceId("drv", "pool", "d0"), {"bandwidth": quantity.parse("1")})
    assert answers(KnownError.SHARES_WITHOUT_CAPACITY, slices, claim(request()), used=used) == [[["d0"]]] * 3


def test_a_device_that_is_no_longer_shared_is_allocated_beside_its_shares() -> None:
    slices = [resource_slice([device("d0")])]
    used = AllocatedState()
    used.share(DeviceId("drv", "pool", "d0"), {})
    assert answers(KnownError.FORMER_SHARES, slices, claim(request()), used=used) == [[["d0"]], [["d0"]], None]


def test_kubernetes_1_37_keeps_some_of_the_errors() -> None:
    assert chosen(decide(GPUS, BOTH, used=holding("gpu-0-1"), errors=known_errors.KUBERNETES_1_37)) == [["gpu-1-0", "gpu-1-1"]]
    slices = partitioned([device("d0", draws={"set.x": "1"})], {"set.x": "1"})
    assert decide(slices, claim(request(adminAccess=True)), used=holding("d0"), errors=known_errors.KUBERNETES_1_37) is None


def allocator(errors: KnownErrors, slices: Sequence[Object] = GPUS) -> Allocator:
    return Allocator(slices, CLASSES, SimpleSelectors(lists=True), ALL_FEATURES, errors)


def test_the_explanation_names_the_error_and_a_way_around_it() -> None:
    reason = allocator(known_errors.KUBERNETES_1_36).misjudged(claims=[BOTH], node=NODE, allocated=holding("gpu-0-1"))
    assert reason.startswith("the claims fit, but Kubernetes 1.36 does not find it: it does not release the counters of a device")
    assert "name the GPU with a CEL selector in the first request" in reason


def test_claims_that_do_not_fit_are_explained_without_the_errors() -> None:
    used = holding("gpu-0-0", "gpu-1-0", "gpu-0-1")
    for errors in (known_errors.KUBERNETES_1_36, known_errors.NONE):
        assert allocator(errors).misjudged(claims=[BOTH], node=NODE, allocated=used) == ""


def test_a_search_of_all_combinations_ends() -> None:
    devices = [device(f"d{number}", attributes=strings(parent=f"p{number}")) for number in range(30)]
    slices = [resource_slice(devices)]
    many = claim(request(count=15), constraints=[DISTINCT_PARENT, {"matchAttribute": "drv/parent", "requests": ["r"]}])
    pair = claim(request("a", count=10), request("r", count=2), constraints=[{**MATCH_PARENT, "requests": ["r"]}])
    made = allocator(KnownErrors(kinds=frozenset(KnownError), max_steps=500), slices)
    assert made.allocate(claims=[many], node=NODE, allocated=AllocatedState(), new_share_id=str) is None
    assert made.allocate(claims=[pair], node=NODE, allocated=AllocatedState(), new_share_id=str) is None


def test_a_version_whose_errors_are_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'1\.33' are not known; write 1\.34 or 1\.35 or"):
        known_errors.of_version("1.33")


SHARED_PARTS = partitioned(
    [device(name, draws={"gpu.memory": "1"}, allowMultipleAllocations=name == "shared") for name in ("shared", "part")], {"gpu.memory": "1"}
)


@pytest.mark.parametrize("version, devices", [("1.34", ["part"]), ("1.35", ["part"]), ("1.36", []), ("1.37", []), ("1.38", [])])
def test_counters_of_shared_devices_that_other_claims_have_count_as_free_before_1_36(version: str, devices: list[str]) -> None:
    used = AllocatedState()
    used.share(DeviceId("drv", "pool", "shared"), {})
    part: Json = [{"cel": {"expression": "device.allowMultipleAllocations == false"}}]
    alone = claim(request(selectors=part))
    results = decide(SHARED_PARTS, alone, used=used, errors=known_errors.BY_VERSION[version])
    assert (chosen(results) or [[]]) == [devices]


@pytest.mark.parametrize("version, fits", [("1.34", False), ("1.35", True), ("1.36", True)])
def test_two_shares_in_one_claim_consume_counters_twice_in_1_34(version: str, fits: bool) -> None:  # noqa: FBT001 - a case
    policy: Object = {"default": "1", "validRange": {"min": "1"}}
    shared = device(
        "shared",
        draws={"gpu.memory": "1"},
        allowMultipleAllocations=True,
        capacity={"bandwidth": {"value": "10", "requestPolicy": policy}},
    )
    slices = partitioned([shared], {"gpu.memory": "1"})
    results = decide(slices, claim(request("a"), request("b")), errors=known_errors.BY_VERSION[version])
    assert (results is not None) is fits


@pytest.mark.parametrize("version, fits", [("1.34", True), ("1.35", False), ("1.38", False)])
def test_distinct_attribute_accepts_equal_values_of_two_devices_in_1_34(version: str, fits: bool) -> None:  # noqa: FBT001 - a case
    slices = [resource_slice([device(name, attributes=strings(parent="one")) for name in ("d0", "d1")])]
    pair = claim(request("a"), request("b"), constraints=[DISTINCT_PARENT])
    results = decide(slices, pair, errors=known_errors.BY_VERSION[version])
    assert (results is not None) is fits
