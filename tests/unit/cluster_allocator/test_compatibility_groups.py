"""Compatibility groups (KEP-5963): which devices of one counter set are allocated together."""

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import DeviceId
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.scheduling.allocator import known_errors
from drakit_cluster.scheduling.allocator.known_errors import KnownError, KnownErrors
from drakit_cluster.scheduling.allocator.state import AllocatedState
from fakes.allocation_objects import chosen, claim, decide, first_available, partitioned, request, resource_slice, without

GPU = {"gpu.mem": "8"}


def part(name: str, *groups: str, owner: str = "gpu", amount: str = "1", **fields: Json) -> Object:
    drawn: Object = {"counterSet": owner, "counters": {"mem": {"value": amount}}}
    if groups:
        drawn["compatibilityGroups"] = json_types.from_strings(groups)
    return {"name": name, "consumesCounters": [drawn], **fields}


def holding(*names: str) -> AllocatedState:
    used = AllocatedState()
    for name in names:
        used.hold(DeviceId("drv", "pool", name))
    return used


@pytest.mark.parametrize(
    "groups, together",
    [
        ([["mig"], ["vgpu"]], False),
        ([["mig"], ["mig"]], True),
        ([["foo", "bar"], ["bar", "foo"]], True),
        ([["foo", "bar"], ["bar", "baz"]], True),
        ([["foo", "bar"], ["bar", "baz"], ["foo", "baz"]], False),
        ([["foo", "bar"], ["bar"], ["bar", "baz"]], True),
        ([[], []], True),
        ([[], ["mig"]], False),
    ],
)
def test_devices_of_a_counter_set_are_allocated_together_only_with_a_common_group(groups: list[list[str]], *, together: bool) -> None:
    slices = partitioned([part(f"d{number}", *named) for number, named in enumerate(groups)], GPU)
    found = decide(slices, claim(request(count=len(groups))))
    assert chosen(found) == ([[f"d{number}" for number in range(len(groups))]] if together else None)


def test_counter_sets_are_not_compared_with_each_other() -> None:
    slices = partitioned([part("a", "mig"), part("b", "vgpu", owner="other")], {**GPU, "other.mem": "8"})
    assert chosen(decide(slices, claim(request(count=2)))) == [["a", "b"]]


def test_a_device_that_draws_nothing_of_its_counters_still_needs_a_common_group() -> None:
    slices = partitioned([part("a", "mig", amount="0"), part("b", "vgpu", amount="0")], GPU)
    assert decide(slices, claim(request(count=2))) is None


def test_the_groups_of_devices_in_use_count() -> None:
    slices = partitioned([part("mig-0", "mig"), part("vgpu-0", "vgpu"), part("vgpu-1", "vgpu"), part("plain")], GPU)
    assert chosen(decide(slices, claim(request()), used=holding("vgpu-0"))) == [["vgpu-1"]]
    assert decide(slices, claim(request()), used=holding("plain")) is None


def test_the_groups_of_a_share_in_use_count_and_a_second_share_is_not_compared() -> None:
    slices = partitioned([part("shared", "mps", allowMultipleAllocations=True), part("mig-0", "mig")], GPU)
    used = AllocatedState()
    used.share(DeviceId("drv", "pool", "shared"), {})
    assert chosen(decide(slices, claim(request(count=1)), used=used)) == [["shared"]]
    assert decide(slices, claim(request(count=2)), used=used) is None


def test_the_groups_of_another_nodes_devices_count() -> None:
    slices = [
        resource_slice(name="s-0", count=3, counters=GPU, place={"allNodes": True}),
        resource_slice([part("theirs", "vgpu")], name="s-1", count=3, place={"nodeName": "node-2"}),
        resource_slice([part("mine", "mig")], name="s-2", count=3),
    ]
    assert chosen(decide(slices, claim(request()))) == [["mine"]]
    assert decide(slices, claim(request()), used=holding("theirs")) is None


def test_admin_access_needs_no_common_group_and_excludes_nobody() -> None:
    slices = partitioned([part("mig-0", "mig"), part("vgpu-0", "vgpu")], GPU)
    every = claim(request(mode="All", adminAccess=True))
    assert chosen(decide(slices, every, used=holding("vgpu-0"))) == [["mig-0", "vgpu-0"]]
    repeated = KnownErrors(kinds=frozenset({KnownError.ADMIN_COUNTERS}))
    assert decide(slices, every, used=holding("vgpu-0"), errors=repeated) is None


def test_the_next_alternative_is_taken_where_groups_exclude_the_first() -> None:
    slices = partitioned([part("mig-0", "mig"), part("vgpu-0", "vgpu"), part("mig-1", "mig")], GPU)
    either = first_available("r", request(count=2), request(count=1))
    assert chosen(decide(slices, claim(either))) == [["mig-0", "mig-1"]]
    assert chosen(decide(slices, claim(either), used=holding("mig-0"))) == [["mig-1"]]


def test_a_later_request_makes_an_earlier_one_choose_other_groups() -> None:
    slices = partitioned([part("mig-0", "mig"), part("vgpu-0", "vgpu"), part("vgpu-1", "vgpu")], GPU)
    assert chosen(decide(slices, claim(request("a"), request("b")))) == [["vgpu-0", "vgpu-1"]]
    repeated = known_errors.KUBERNETES_1_36
    assert chosen(decide(slices, claim(request("a"), request("b")), errors=repeated)) == [["vgpu-0", "vgpu-1"]]


def test_with_the_gate_off_counter_sets_with_groups_are_skipped() -> None:
    slices = partitioned([part("mig-0", "mig"), part("plain-0"), part("plain-1")], GPU)
    off = without(Gate.COMPATIBILITY_GROUPS)
    assert chosen(decide(slices, claim(request(count=2)), features=off)) == [["plain-0", "plain-1"]]
    assert decide(slices, claim(request()), features=off, used=holding("mig-0")) is None
