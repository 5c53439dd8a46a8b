"""Derived attributes of requests (KEP-6080): constraints use values that the claim computes for each device."""

from collections.abc import Sequence

import pytest

from drakit_cluster.cel import Selectors
from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.scheduling.allocator.known_errors import KUBERNETES_1_37
from fakes import allocation_objects as objects
from fakes.allocation_objects import DRIVER

KEY = "derived/numa"
GPUS = [objects.device("gpu-0", attributes={"numa": {"int": 0}}), objects.device("gpu-1", attributes={"numa": {"int": 1}})]
NICS = [
    objects.device("nic-1", attributes={"place": {"string": "numa1-nic"}}),
    objects.device("nic-2", attributes={"place": {"string": "numa2-nic"}}),
]
OF_GPU = 'string(device.attributes["drv"].numa)'
OF_NIC = 'device.attributes["nics"].place.split("-")[0].replace("numa", "")'


def decide(claim: Object, *devices: Object, known_errors: bool = False, **gates: bool) -> list[str]:
    """Return the devices of a claim for GPUs of the driver and NICs of another, in two pools; none if it does not fit."""
    features = FeatureGates.of({"DRADerivedAttributes": True, **gates}, "1.37")
    slices = [
        objects.resource_slice(devices or GPUS),
        objects.resource_slice(NICS, name="s-1", driver="nics", pool="nics"),
    ]
    errors = {"errors": KUBERNETES_1_37} if known_errors else {}
    results = objects.decide(slices, claim, features=features, selectors=Selectors(features), **errors)  # type: ignore[arg-type]  # One option.
    return [json_types.text(each, "device") for each in json_types.objects((results or [{}])[0], "devices", "results")]


def deriving(name: str, expression: str, *, driver: str = DRIVER, key: str = KEY, count: int = 1) -> Object:
    """Return a request for a device of a driver with one derived attribute."""
    selectors: Json = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    derived: Json = [{"name": key, "expression": expression}]
    return objects.request(name, selectors=selectors, derivedAttributes=derived, count=count)


def matching(*requests: Object, key: str = KEY, kind: str = "matchAttribute", bound: Sequence[str] = ()) -> Object:
    constraint: Object = {kind: key, "requests": json_types.from_strings(bound)}
    return objects.claim(*requests, constraints=[constraint])


@pytest.mark.parametrize("known_errors", [False, True])
def test_two_drivers_are_matched_by_values_that_each_request_computes(known_errors: bool) -> None:  # noqa: FBT001 - a case
    claim = matching(deriving("gpu", OF_GPU), deriving("nic", OF_NIC, driver="nics"))
    assert decide(claim, known_errors=known_errors) == ["gpu-1", "nic-1"]


def test_without_the_gate_derived_attributes_are_ignored() -> None:
    claim = matching(deriving("gpu", OF_GPU), deriving("nic", OF_NIC, driver="nics"))
    assert decide(claim, DRADerivedAttributes=False) == []


def test_a_derived_attribute_comes_before_the_devices_own() -> None:
    devices = [
        objects.device(name, attributes=objects.strings(side=side, real=real)) for name, side, real in (("a", "x", "1"), ("b", "x", "2"))
    ]
    own = matching(objects.request(count=2), key="drv/side")
    assert decide(own, *devices) == ["a", "b"]
    assert decide(matching(deriving("r", 'device.attributes["drv"].real', key="drv/side", count=2), key="drv/side"), *devices) == []


def test_requests_that_do_not_derive_the_attribute_use_the_devices_own() -> None:
    devices = [objects.device("a", attributes=objects.strings(side="1")), objects.device("b", attributes=objects.strings(other="1"))]
    named: Json = [{"cel": {"expression": '"side" in device.attributes["drv"]'}}]
    static = objects.request("static", selectors=named)
    claim = matching(static, deriving("derived", 'device.attributes["drv"].?other.orValue("")', key="drv/side"), key="drv/side")
    assert decide(claim, *devices) == ["a", "b"]


def test_distinct_attributes_compare_derived_values() -> None:
    devices = [objects.device(name, attributes=objects.strings(place=place)) for name, place in (("a", "1-x"), ("b", "1-y"), ("c", "2-z"))]
    claim = matching(deriving("r", 'device.attributes["drv"].place.split("-")[0]', count=2), kind="distinctAttribute")
    assert decide(claim, *devices) == ["a", "c"]


def test_a_list_matches_by_a_common_element() -> None:
    devices = [
        objects.device(name, attributes=objects.strings(p=p, q=q)) for name, p, q in (("a", "1", "2"), ("b", "3", "4"), ("c", "2", "5"))
    ]
    claim = matching(deriving("r", '[device.attributes["drv"].p, device.attributes["drv"].q]', count=2))
    assert decide(claim, *devices, DRAListTypeAttributes=True) == ["a", "c"]


@pytest.mark.parametrize(
    "expression, error",
    [
        ('device.attributes["drv"].missing', "no such key: missing"),
        ('device.capacity["drv"]', "must evaluate to a string, int, bool, semver or a list of one of these"),
        ("1.5", "not double"),
        ('dyn(device.capacity["drv"])', "is no string, int, bool or semver"),
        ('[dyn("a"), dyn(1)]', "a list of values of different types"),
    ],
)
def test_an_expression_that_fails_stops_the_allocation(expression: str, error: str) -> None:
    with pytest.raises(AllocationError, match=f"derived attribute {KEY} fails on device drv/pool/gpu-0: .*{error}"):
        decide(matching(deriving("r", expression)))


def test_an_expression_is_evaluated_only_for_devices_that_the_selectors_select() -> None:
    claim = matching(deriving("nic", 'device.attributes["nics"].place', driver="nics"))
    assert decide(claim) == ["nic-1"]


def test_a_version_matches_a_published_version() -> None:
    devices = [
        objects.device("a", attributes={"v": {"version": "1.2.0-rc.1"}}),
        objects.device("b", attributes=objects.strings(text="v1.2.0-rc.1")),
    ]
    own: Json = [{"cel": {"expression": '"v" in device.attributes["drv"]'}}]
    parsed = deriving("parsed", 'semver(device.attributes["drv"].?text.orValue("0.0.0"), true)', key="drv/v")
    assert decide(matching(objects.request("own", selectors=own), parsed, key="drv/v"), *devices) == ["a", "b"]
