"""What an AllocationResult says besides the devices."""

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Object
from fakes.allocation_objects import (
    CLASSES,
    bandwidth,
    chosen,
    claim,
    decide,
    device,
    first,
    first_available,
    request,
    resource_slice,
    shared,
    without,
)


def place(*requirements: Object, fields: bool = False) -> Object:
    term: Object = {"matchFields" if fields else "matchExpressions": json_types.from_objects(requirements)}
    return {"nodeSelector": {"nodeSelectorTerms": [term]}}


ZONE: Object = {"key": "zone", "operator": "In", "values": ["a"]}
EXISTS: Object = {"key": "zone", "operator": "Exists"}
ON_NODE: Object = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]}


def selector_of(*slices: Object, count: int = 1) -> object:
    results = decide(slices, claim(request(count=count)))
    assert results is not None
    return results[0].get("nodeSelector")


def test_a_local_device_binds_the_result_to_the_node() -> None:
    assert selector_of(resource_slice([device("d")])) == ON_NODE


def test_a_device_for_all_nodes_binds_it_to_none() -> None:
    assert selector_of(resource_slice([device("d")], place={"allNodes": True})) is None


def test_requirements_of_all_devices_are_merged_without_repeats() -> None:
    one = resource_slice([device("d")], place=place(ZONE), pool="a")
    two = resource_slice([device("d")], name="t", place=place(EXISTS, ZONE), pool="b")
    assert selector_of(one, two, count=2) == {"nodeSelectorTerms": [{"matchExpressions": [ZONE, EXISTS]}]}


def test_a_device_that_binds_binds_to_the_chosen_node() -> None:
    binding = device("d", bindsToNode=True, bindingConditions=["ready"], bindingFailureConditions=["failed"])
    slices = [resource_slice([binding], place={"allNodes": True})]
    assert selector_of(*slices) == ON_NODE
    assert first(decide(slices, claim(request()))) == {
        "request": "r",
        "driver": "drv",
        "pool": "pool",
        "device": "d",
        "bindingConditions": ["ready"],
        "bindingFailureConditions": ["failed"],
    }
    assert decide(slices, claim(request()), features=without(Gate.BINDING_CONDITIONS)) is None


def test_a_device_whose_node_selector_has_two_terms_fails_its_claim() -> None:
    terms: list[Object] = [{"matchExpressions": [ZONE]}, {"matchExpressions": [EXISTS]}]
    two: Object = {"nodeSelector": {"nodeSelectorTerms": json_types.from_objects(terms)}}
    with pytest.raises(AllocationError, match="2 terms"):
        decide([resource_slice([device("d")], place=two)], claim(request()))


def test_a_share_has_an_id_and_its_consumed_capacity() -> None:
    policy: Object = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    results = decide([resource_slice([shared("d", "10Gi", policy)])], claim(request(capacity=bandwidth("1536Mi"))))
    assert first(results)["shareID"] == "share-1"
    assert first(results)["consumedCapacity"] == {"bandwidth": "2Gi"}


def test_admin_access_is_marked() -> None:
    assert first(decide([resource_slice([device("d")])], claim(request(adminAccess=True))))["adminAccess"] is True


def test_a_subrequest_is_named_with_its_request() -> None:
    wanted = claim(first_available("r", request(device_class="drv", count=2), request()))
    assert first(decide([resource_slice([device("d")])], wanted))["request"] == "r/s1"


def opaque(value: str, **fields: list[str]) -> Object:
    made: Object = {"opaque": {"driver": "drv", "parameters": {"value": value}}}
    for name, values in fields.items():
        made[name] = json_types.from_strings(values)
    return made


def test_configuration_is_of_the_classes_first_and_then_of_the_claim() -> None:
    classes: dict[str, Object] = {
        **CLASSES,
        "tuned": {"metadata": {"name": "tuned"}, "spec": {"config": [opaque("class")]}},
    }
    wanted = claim(
        request("a", device_class="tuned"),
        request("b"),
        request("c", device_class="tuned"),
        first_available("d", request(device_class="drv")),
        config=[opaque("for all"), opaque("for b", requests=["b"]), opaque("for d", requests=["d/s0"]), opaque("other", requests=["d/s1"])],
    )
    results = decide([resource_slice([device(f"d{number}") for number in range(4)])], wanted, classes=classes)
    assert results is not None
    configs = json_types.objects(results[0], "devices", "config")
    result = [(one["source"], json_types.strings(one, "requests"), json_types.at(one, "opaque", "parameters", "value")) for one in configs]
    assert result == [
        ("FromClass", ["a", "c"], "class"),
        ("FromClaim", [], "for all"),
        ("FromClaim", ["b"], "for b"),
        ("FromClaim", ["d/s0"], "for d"),
    ]


def test_changing_a_result_does_not_change_its_inputs() -> None:
    tolerations: list[json_types.Json] = [{"key": "k", "operator": "Exists"}]
    wanted = claim(request(tolerations=tolerations), config=[opaque("x")])
    results = decide([resource_slice([device("d")])], wanted)
    json_types.mapping(json_types.items(first(results), "tolerations")[0])["key"] = "changed"
    assert tolerations == [{"key": "k", "operator": "Exists"}]


def test_claims_are_allocated_together_or_not_at_all() -> None:
    slices = [resource_slice([device("d0"), device("d1")])]
    assert chosen(decide(slices, claim(request(), name="a"), claim(request(), name="b"))) == [["d0"], ["d1"]]
    assert decide(slices, claim(request(count=2), name="a"), claim(request(), name="b")) is None


def test_no_claims_and_no_requests_are_allocated_at_once() -> None:
    assert decide([]) == []
    assert decide([], claim()) == [{"devices": {"results": []}}]
