"""An allocator that has decided before decides as a new one: what it keeps is true of any claim and any use of the devices."""

import pytest
from hypothesis import HealthCheck, given, settings

from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import AllocationError, DeviceId
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.state import AllocatedState
from fakes import examples
from fakes.allocation_objects import ALL_FEATURES, CLASSES, NODE, chosen, claim, device, request, resource_slice, strings
from fakes.random_allocations import RandomAllocation, random_allocation
from fakes.simple_selectors import SimpleSelectors

BIG = 'device.attributes["drv"].size == "big"'


def over(slices: list[Object]) -> Allocator:
    return Allocator(slices, CLASSES, SimpleSelectors(), ALL_FEATURES)


def asked(allocator: Allocator, claims: list[Object], used: AllocatedState, node: Object = NODE) -> list[Object] | str | None:
    """Return the answer, or the text of the error."""
    try:
        return allocator.allocate(claims=claims, node=node, allocated=used, new_share_id=lambda: "share")
    except AllocationError as error:
        return str(error)


def selecting(expression: str) -> Object:
    return request(selectors=[{"cel": {"expression": expression}}])


@settings(max_examples=examples.count(60), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(random_allocation())
def test_a_reused_allocator_decides_as_a_new_one(world: RandomAllocation) -> None:
    claims = list(world.claims)
    allocator = world.allocator()
    for group in ([one] for one in claims):
        asked(allocator, group, AllocatedState())
    asked(allocator, claims[::-1], AllocatedState())
    for used in (world.allocated(), AllocatedState()):
        assert asked(allocator, claims, used) == asked(world.allocator(), claims, used)


def test_a_claim_changed_after_a_decision_is_read_again() -> None:
    slices = [resource_slice([device("small", attributes=strings(size="small")), device("big", attributes=strings(size="big"))])]
    allocator, wanted = over(slices), claim(selecting(BIG))
    assert chosen(allocator.allocate(claims=[wanted], node=NODE, allocated=AllocatedState(), new_share_id=str)) == [["big"]]
    selector = json_types.child(json_types.objects(wanted, "spec", "devices", "requests", 0, "exactly", "selectors")[0], "cel")
    selector["expression"] = BIG.replace("big", "small")
    assert chosen(allocator.allocate(claims=[wanted], node=NODE, allocated=AllocatedState(), new_share_id=str)) == [["small"]]
    assert chosen(allocator.allocate(claims=[claim(selecting(BIG))], node=NODE, allocated=AllocatedState(), new_share_id=str)) == [["big"]]


def test_errors_name_the_requested_claim() -> None:
    allocator = over([resource_slice([device("d")])])
    for name in ("first", "second"):
        with pytest.raises(AllocationError, match=f"default/{name}.*asks for at least 33 devices"):
            allocator.allocate(claims=[claim(request(count=33), name=name)], node=NODE, allocated=AllocatedState(), new_share_id=str)


def test_a_selector_that_fails_on_a_device_in_use_fails_once_it_is_free() -> None:
    allocator, wanted = over([resource_slice([device("bare"), device("big", attributes=strings(size="big"))])]), claim(selecting(BIG))
    used = AllocatedState()
    used.hold(DeviceId("drv", "pool", "bare"))
    assert chosen(allocator.allocate(claims=[wanted], node=NODE, allocated=used, new_share_id=str)) == [["big"]]
    used.hold(DeviceId("drv", "pool", "bare"), -1)
    with pytest.raises(AllocationError, match="no such key: size"):
        allocator.allocate(claims=[wanted], node=NODE, allocated=used, new_share_id=str)
