"""The sum over allocated claims, kept one claim at a time."""

import pytest

from drakit_cluster.objects import quantity
from drakit_cluster.objects.devices import DeviceId
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.scheduling.allocator.state import AllocatedState

GPU, NIC = DeviceId("drv", "pool", "gpu"), DeviceId("drv", "pool", "nic")


def result(device: str, **fields: Json) -> Object:
    return {"request": "r", "driver": "drv", "pool": "pool", "device": device, **fields}


def claim(uid: str, *results: Object) -> Object:
    return {"metadata": {"uid": uid}, "status": {"allocation": {"devices": {"results": list(results)}}}}


def share(amount: str, number: int = 1) -> Object:
    return result("nic", shareID=f"s{number}", consumedCapacity={"bandwidth": amount})


def test_exclusive_shared_and_admin_results_count_differently() -> None:
    state = AllocatedState.of(
        [claim("a", result("gpu"), share("1G")), claim("b", share("500M", 2)), claim("c", result("x", adminAccess=True))]
    )
    assert state.use(GPU).held
    assert not state.use(GPU).shared
    assert state.use(NIC).shared
    assert not state.use(NIC).held
    assert state.use(NIC).taken == {"bandwidth": quantity.parse("1500M").nanos}
    assert not state.use(DeviceId("drv", "pool", "x")).held


def test_a_negative_share_frees_nothing() -> None:
    state = AllocatedState.of([claim("a", share("1G")), claim("b", share("-5G", 2))])
    assert state.use(NIC).taken == {"bandwidth": quantity.parse("1G").nanos}
    state.remove(claim("b"))
    assert state.use(NIC).taken == {"bandwidth": quantity.parse("1G").nanos}
    state.remove(claim("a"))
    assert state.snapshot() == {}


def test_a_claim_is_removed_as_it_was_added() -> None:
    state = AllocatedState()
    before = state.snapshot()
    state.add(claim("a", result("gpu"), share("1G")))
    state.remove(claim("a"))
    state.remove(claim("a"))
    assert state.snapshot() == before


def test_adding_a_claim_again_replaces_it() -> None:
    state = AllocatedState.of([claim("a", result("gpu"))])
    state.add(claim("a", share("1G")))
    assert not state.use(GPU).held
    assert state.use(NIC).shared


def test_a_malformed_capacity_changes_nothing() -> None:
    state = AllocatedState.of([claim("a", result("gpu"))])
    before = state.snapshot()
    with pytest.raises(quantity.QuantityError):
        state.add(claim("a", share("much")))
    assert state.snapshot() == before


def test_a_share_that_consumes_nothing_still_counts() -> None:
    state = AllocatedState.of([claim("a", result("nic", shareID="s1"))])
    assert state.use(NIC).shared
    assert state.use(NIC).draws_counters


def test_with_consumable_capacity_off_a_share_holds_its_device() -> None:
    assert AllocatedState.of([claim("a", share("1G"))], consumable_capacity=False).use(NIC).held


def test_claims_without_uid_are_known_by_namespace_and_name() -> None:
    state = AllocatedState()
    for name in ("a", "b"):
        state.add({**claim("", result(name)), "metadata": {"namespace": "ns", "name": name}})
    state.remove({"metadata": {"namespace": "ns", "name": "a"}})
    assert not state.use(DeviceId("drv", "pool", "a")).held
    assert state.use(DeviceId("drv", "pool", "b")).held
