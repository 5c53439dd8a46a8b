"""What makes a decision impossible, and what merely does not fit."""

import pytest

from drakit_cluster.objects.devices import AllocationError, DeviceId
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator.state import AllocatedState
from fakes.allocation_objects import (
    bandwidth,
    chosen,
    claim,
    decide,
    device,
    first_available,
    partitioned,
    request,
    resource_slice,
    strings,
    without,
)

ONE = [resource_slice([device("d")])]
NO_KEY: Object = {"cel": {"expression": 'device.attributes["drv"].size == "big"'}}


@pytest.mark.parametrize(
    "wanted, message",
    [
        (request(device_class="nope"), "claim default/c, request r: there is no DeviceClass nope"),
        (request(device_class=""), "request r: deviceClassName is not set"),
        (request(mode=""), "unsupported allocationMode ''"),
        (request(mode="Some"), "unsupported allocationMode 'Some'"),
        (request(count=33), "at least 33 devices; a claim may have 32"),
        (request(selectors=[{}]), "selector #0: cel is not set"),
        (request(selectors=[NO_KEY]), "selector #0 of the request fails on device drv/pool/d: no such key: size"),
        (request(capacity=bandwidth("much")), "capacity.requests: 'much' is not a quantity"),
        ({"name": "r"}, "neither exactly nor firstAvailable"),
    ],
)
def test_an_invalid_request_is_an_error_that_names_it(wanted: Object, message: str) -> None:
    with pytest.raises(AllocationError, match=message):
        decide(ONE, claim(wanted))


@pytest.mark.parametrize(
    "gate, wanted",
    [
        (Gate.PRIORITIZED_LIST, first_available("r", request())),
        (Gate.ADMIN_ACCESS, request(adminAccess=True)),
        (Gate.CONSUMABLE_CAPACITY, request(capacity=bandwidth("1"))),
        (Gate.CONSUMABLE_CAPACITY, first_available("r", request(capacity=bandwidth("1")))),
    ],
)
def test_a_field_whose_feature_is_off_is_an_error(gate: Gate, wanted: Object) -> None:
    with pytest.raises(AllocationError, match=gate.value):
        decide(ONE, claim(wanted), features=without(gate))


def test_an_unknown_constraint_is_an_error() -> None:
    empty: Object = {}
    distinct: Object = {"distinctAttribute": "drv/x"}
    for constraint, features in ((empty, without()), (distinct, without(Gate.CONSUMABLE_CAPACITY))):
        with pytest.raises(AllocationError, match="constraint #0: sets none of matchAttribute"):
            decide(ONE, claim(request(), constraints=[constraint]), features=features)


def test_a_selector_that_fails_on_a_device_in_use_is_no_error() -> None:
    slices = [resource_slice([device("odd"), device("good", attributes=strings(size="big"))])]
    used = AllocatedState()
    used.hold(DeviceId("drv", "pool", "odd"))
    assert chosen(decide(slices, claim(request(selectors=[NO_KEY])), used=used)) == [["good"]]


def test_a_selector_that_fails_on_a_device_behind_the_first_fit_is_no_error() -> None:
    slices = [resource_slice([device("good", attributes=strings(size="big")), device("odd")])]
    assert chosen(decide(slices, claim(request(selectors=[NO_KEY])))) == [["good"]]
    with pytest.raises(AllocationError, match="no such key"):
        decide(slices, claim(request(selectors=[NO_KEY], count=2)))


def test_too_much_or_unknown_capacity_does_not_fit() -> None:
    slices = [resource_slice([device("d", capacity={"bandwidth": {"value": "1"}})])]
    assert decide(slices, claim(request(capacity=bandwidth("2")))) is None
    assert decide(slices, claim(request(capacity={"requests": {"speed": "1"}}))) is None
    assert chosen(decide(slices, claim(request(capacity=bandwidth("1"))))) == [["d"]]


def test_counters_without_their_feature_do_not_fit() -> None:
    slices = partitioned([device("d", draws={"set.x": "1"})], {"set.x": "1"})
    assert decide(slices, claim(request()), features=without(Gate.PARTITIONABLE_DEVICES)) is None


def test_an_overdrawn_pool_allocates_no_device_with_counters() -> None:
    devices = [device("d0", draws={"set.x": "2"}), device("d1", draws={"set.y": "1"}), device("d2")]
    slices = partitioned(devices, {"set.x": "1", "set.y": "1"})
    used = AllocatedState()
    used.hold(DeviceId("drv", "pool", "d0"))
    assert chosen(decide(slices, claim(request()), used=used)) == [["d2"]]


def test_all_is_everything_selected_and_nothing_less() -> None:
    slices = [resource_slice([device("d0"), device("d1")]), resource_slice([device("n0")], name="t", driver="other")]
    every = claim(request(mode="All", device_class="drv"))
    assert chosen(decide(slices, every)) == [["d0", "d1"]]
    used = AllocatedState()
    used.hold(DeviceId("drv", "pool", "d1"))
    assert decide(slices, every, used=used) is None
    assert decide([], every) is None


def test_all_needs_to_know_every_pool() -> None:
    incomplete = resource_slice([device("n0")], name="t", driver="other", count=2)
    with pytest.raises(AllocationError, match="pool other/pool is incomplete: 1 of 2 slices"):
        decide([*ONE, incomplete], claim(request(mode="All", device_class="drv")))


def test_all_against_a_constraint_is_an_error() -> None:
    slices = [resource_slice([device(name, attributes=strings(parent=name)) for name in ("d0", "d1")])]
    with pytest.raises(AllocationError, match="a constraint forbids drv/pool/d1"):
        decide(slices, claim(request(mode="All"), constraints=[{"matchAttribute": "drv/parent"}]))


def test_alternatives_beyond_the_limit_are_skipped() -> None:
    slices = [resource_slice([device(f"d{number:02}") for number in range(40)])]
    wanted = claim(request("a", count=30), first_available("b", request(count=3), request(count=2)))
    results = chosen(decide(slices, wanted))
    assert results is not None
    assert len(results[0]) == 32


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
@pytest.mark.parametrize("odd", [{"string": {"a": "b"}}, {"string": ["a"]}, {"strings": [{}]}, {"int": 1.5}, {"new": "x"}])
def test_an_attribute_of_an_unknown_type_matches_no_other(kind: str, odd: Object) -> None:
    devices = [device(name, attributes={"parent": odd}) for name in ("d0", "d1")]
    assert decide([resource_slice(devices)], claim(request(count=2), constraints=[{kind: "drv/parent"}])) is None


def test_a_count_below_one_asks_for_nothing() -> None:
    assert chosen(decide(ONE, claim(request("a", count=-1), request("b", count=0), request("c")))) == [["d"]]
