"""The rules that Kubernetes 1.37 added, as KEPs, the API and upstream's tests state them (``kubernetes-1.37.yaml``), asked of drakit."""

import itertools
import pathlib
from collections.abc import Callable, Mapping

import pytest
import yaml

from drakit_cluster import cel
from drakit_cluster.objects import capacity, devices, json_types, quantity, resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import table as shapes
from drakit_cluster.objects.validation import context, table
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.state import AllocatedState

CASES: list[Object] = yaml.load((pathlib.Path(__file__).parent / "kubernetes-1.37.yaml").read_text(), Loader=yaml.CSafeLoader)
DRIVER = "dra.example.com"
NODE: Object = {"metadata": {"name": "node-1"}}
CLASSES: dict[str, Object] = {"any": {"metadata": {"name": "any"}, "spec": {}}}
NEW = ("DRADerivedAttributes", "DRANodeAllocatableResources", "DRAOptionalNodeOperations", "DRAPartitionableDevicesType")
GROUPS = ("DRAWorkloadResourceClaims", "GenericWorkload")


def consume(case: Object) -> Json:
    requested = case.get("requested")
    published = capacity.decode_capacity({"value": case["value"], "requestPolicy": case["policy"]}, fractional=case["fractional"] is True)
    try:
        found = capacity.consumed(None if requested is None else quantity.parse(requested), published)
    except capacity.NotRepresentableError:
        return "refused"
    return found.nanos


def violates(case: Object) -> Json:
    return capacity.violates(
        quantity.parse(case["requested"]), capacity.decode_policy(case["policy"], fractional=case["fractional"] is True)
    )


def allocate(case: Object) -> Json:
    """Allocate the claims one after the other; return the devices of each."""
    features = FeatureGates.of(dict.fromkeys(json_types.strings(case, "gates"), True), "1.37")
    allocator = Allocator(slices_of(case), CLASSES, cel.Selectors(features), features)
    used, verdicts = AllocatedState(), list[Json]()
    for number, asked in enumerate(json_types.objects(case, "claims")):
        claim: Object = {"metadata": {"name": f"c{number}", "uid": f"u{number}"}, "spec": {"devices": claim_of(asked)}}
        try:
            results = allocator.allocate(claims=[claim], node=NODE, allocated=used, new_share_id=map(str, itertools.count()).__next__)
        except devices.AllocationError:
            verdicts.append("error")
            continue
        if results is None:
            verdicts.append("none")
            continue
        used.add({**claim, "status": {"allocation": results[0]}})
        given = json_types.objects(results[0], "devices", "results")
        assert all(one.get("skipNodeOperations") == case.get("skips") for one in given)
        verdicts.append([one["device"] for one in given])
    return verdicts


def slices_of(case: Object) -> list[Object]:
    sets = json_types.strings(case, "sets")
    pool: Object = {"name": "p", "generation": 1, "resourceSliceCount": 2 if sets else 1}
    listed = [published(device) for device in json_types.objects(case, "devices")]
    spec: Object = {"driver": DRIVER, "pool": pool, "nodeName": "node-1", "devices": json_types.from_objects(listed)}
    if skipped := case.get("skipNodeOperations"):
        spec["skipNodeOperations"] = skipped
    made: list[Object] = [{"metadata": {"name": "s"}, "spec": spec}]
    if sets:
        counters: list[Json] = [{"name": name, "counters": {"mem": {"value": "10"}}} for name in sets]
        made.append({"metadata": {"name": "counters"}, "spec": {"driver": DRIVER, "pool": pool, "sharedCounters": counters}})
    return made


def published(device: Object) -> Object:
    made = {name: value for name, value in device.items() if name != "groups"}
    draws: list[Json] = [
        {"counterSet": name, "counters": {"mem": {"value": "1"}}, **({"compatibilityGroups": groups} if groups else {})}
        for name, groups in json_types.mapping(device, "groups").items()
    ]
    return {**made, "consumesCounters": draws} if draws else made


def claim_of(asked: Object) -> Object:
    requests: list[Json] = []
    for request in json_types.objects(asked, "requests"):
        exactly: Object = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": request.get("count", 1)}
        if expression := request.get("select"):
            exactly["selectors"] = [{"cel": {"expression": expression}}]
        if derived := json_types.mapping(request, "derived"):
            exactly["derivedAttributes"] = [{"name": name, "expression": text} for name, text in derived.items()]
        requests.append({"name": request["name"], "exactly": exactly})
    return {"requests": requests, "constraints": asked.get("constraints", [])}


def validate(case: Object) -> Json:
    """Return the fields of the case that the rules refuse."""
    resource, obj = validated(case)
    features = FeatureGates.of(dict.fromkeys((*NEW, *GROUPS), True), "1.37")
    decoded, unknown = shapes.decode(resource, obj, features)
    assert not unknown
    rules = context.Context(gates=features, selectors=cel.Selectors(features))
    found = [failure.field for failure in table.check(resource, decoded, None, rules)]
    wanted = json_types.strings(case, "refuses")
    assert bool(found) is bool(wanted), found
    return json_types.from_strings([path for path in wanted if any(field.startswith(path) for field in found)])


def validated(case: Object) -> tuple[Resource, Object]:
    if "group" in case:
        spec: Object = {"schedulingPolicy": {"basic": {}}, "resourceClaims": case["group"]}
        return resources.POD_GROUP, {"metadata": {"name": "g", "namespace": "default"}, "spec": spec}
    if "derived" in case:
        exactly: Object = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1, "derivedAttributes": [case["derived"]]}
        asked: Object = {"requests": [{"name": "a", "exactly": exactly}], "constraints": [{"matchAttribute": case["constraint"]}]}
        return resources.CLAIM, {"metadata": {"name": "c", "namespace": "default"}, "spec": {"devices": asked}}
    pool: Object = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    device: Object = {"name": "d", **json_types.mapping(case, "device")}
    slice_spec: Object = {"driver": DRIVER, "pool": pool, "nodeName": "node-1", "devices": [device], **json_types.mapping(case, "slice")}
    return resources.SLICE, {"metadata": {"name": "s"}, "spec": slice_spec}


ANSWERS: Mapping[str, Callable[[Object], Json]] = {"consume": consume, "violates": violates, "allocate": allocate, "validate": validate}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}: {case['name']}")
def test_drakit_agrees_with_what_is_stated_for_1_37(case: Object) -> None:
    assert json_types.text(case, "source"), "every case has a source"
    expected = case["refuses" if case["kind"] == "validate" else "gives"]
    if case["kind"] == "consume" and expected != "refused":
        expected = quantity.parse(expected).nanos
    assert ANSWERS[json_types.text(case, "kind")](case) == expected
