"""KEP-5075, test plan, create and update strategy: two API servers on one store, over HTTPS; the gate is off in the older one."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.storage.store import Store
from drakit_cluster.client.api import Api
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, SLICE
from fakes import allocating_server
from unit.cluster_kubelet import objects

GATE = "DRAConsumableCapacity"
SHARE = "a671734a-e8e5-11e4-8fde-42010af09327"
CAPACITY: Object = {"requests": {"bandwidth": "1G"}}
ALL_FIELDS = {"allowMultipleAllocations", "requestPolicy", "exactly", "firstAvailable", "distinctAttribute"}
CHANGE: Json = {"metadata": {"labels": {"touched": "yes"}}}


@dataclass(frozen=True, kw_only=True)
class Servers:
    """``newer`` has the gate on, ``older`` off."""

    newer: Api
    older: Api


@pytest.fixture
def servers() -> Iterator[Servers]:
    store = Store()
    with allocating_server.serve(store) as newer, allocating_server.serve(store, FeatureGates.of({GATE: False})) as older:
        yield Servers(newer=newer, older=older)


def _claim(name: str = "c") -> Object:
    """Return a claim with all fields of the feature."""
    sub: Object = {"name": "small", "deviceClassName": objects.CLASS, "capacity": CAPACITY}
    listed: Object = {"name": "listed", "firstAvailable": [sub]}
    constraint: Object = {"matchAttribute": "example.com/a", "distinctAttribute": "example.com/a"}
    return objects.claim(name, objects.request(capacity=CAPACITY), listed, constraints=[constraint])


def _create_all(api: Api) -> list[Object]:
    template: Object = {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": _claim()["spec"]}}
    slice_: Object = {"metadata": {"name": "s"}, "spec": objects.resource_slice(objects.nic("eth0"))["spec"]}
    return [api.create(SLICE, slice_), api.create(CLAIM, _claim()), api.create(CLAIM_TEMPLATE, template)]


def _touch_all(api: Api) -> list[Object]:
    """Change the labels of the three objects by replacing each as a whole."""
    changed = []
    for resource, name in ((SLICE, "s"), (CLAIM, "c"), (CLAIM_TEMPLATE, "t")):
        found = api.get(resource, name, "default" if resource.namespaced else "")
        json_types.child(found, "metadata")["labels"] = {"touched": "yes"}
        changed.append(api.update(resource, found))
    return changed


def _fields(stored: list[Object]) -> set[str]:
    """Return the feature's fields that slice, claim and template have; claim and template have the same."""
    slice_, claim, template = stored
    device = json_types.mapping(slice_, "spec", "devices", 0)
    found = {"allowMultipleAllocations"} & set(device)
    found |= {"requestPolicy"} & set(json_types.mapping(device, "capacity", "bandwidth"))
    of_claim, of_template = _of_spec(claim, "spec"), _of_spec(template, "spec", "spec")
    assert of_claim == of_template
    return found | of_claim


def _of_spec(obj: Object, *path: str) -> set[str]:
    devices = json_types.mapping(obj, *path, "devices")
    options = {
        "exactly": json_types.mapping(devices, "requests", 0, "exactly"),
        "firstAvailable": json_types.mapping(devices, "requests", 1, "firstAvailable", 0),
    }
    found = {name for name, option in options.items() if "capacity" in option}
    return found | ({"distinctAttribute"} & set(json_types.mapping(devices, "constraints", 0)))


def test_create_keeps_the_fields_if_the_feature_is_enabled(servers: Servers) -> None:
    assert _fields(_create_all(servers.newer)) == ALL_FIELDS


def test_create_drops_the_fields_if_the_feature_is_disabled(servers: Servers) -> None:
    assert _fields(_create_all(servers.older)) == set()


def test_update_keeps_the_fields_if_the_feature_is_enabled(servers: Servers) -> None:
    _create_all(servers.newer)
    assert _fields(_touch_all(servers.newer)) == ALL_FIELDS


def test_update_keeps_the_fields_of_a_slice_that_has_any_of_them(servers: Servers) -> None:
    shared: Object = {"name": "eth0", "allowMultipleAllocations": True}
    made = servers.newer.create(SLICE, {"metadata": {"name": "s"}, "spec": objects.resource_slice(shared)["spec"]})
    json_types.mapping(made, "spec")["devices"] = [objects.nic("eth0")]
    stored = json_types.mapping(servers.older.update(SLICE, made), "spec", "devices", 0)
    assert stored["allowMultipleAllocations"] is True
    assert "requestPolicy" in json_types.mapping(stored, "capacity", "bandwidth")


def test_update_keeps_the_fields_of_a_claim_and_a_template_that_have_any_of_them(servers: Servers) -> None:
    _create_all(servers.newer)
    assert _fields(_touch_all(servers.older)) == ALL_FIELDS


def _status() -> Object:
    result: Object = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "eth0"}
    result |= {"shareID": SHARE, "consumedCapacity": {"bandwidth": "1G"}}
    return {"allocation": {"devices": {"results": [result]}}}


def _result(claim: Object) -> set[str]:
    return {"shareID", "consumedCapacity"} & set(json_types.mapping(claim, "status", "allocation", "devices", "results", 0))


def test_update_keeps_the_fields_of_a_claim_whose_status_has_any_of_them(servers: Servers) -> None:
    claim = servers.newer.create(CLAIM, objects.claim("c"))
    servers.newer.update(CLAIM, claim | {"status": _status()}, subresource="status")
    found = servers.older.get(CLAIM, "c", "default")
    reserved: Object = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]}
    stored = servers.older.update(CLAIM, found | {"status": json_types.mapping(found, "status") | reserved}, subresource="status")
    assert _result(stored) == {"shareID", "consumedCapacity"}


def test_update_drops_the_fields_if_the_feature_is_disabled_and_the_object_had_none(servers: Servers) -> None:
    spec = objects.resource_slice(objects.device("eth0"))["spec"]
    made = servers.newer.create(SLICE, {"metadata": {"name": "s"}, "spec": spec})
    json_types.mapping(made, "spec")["devices"] = [objects.nic("eth0")]
    stored = json_types.mapping(servers.older.update(SLICE, made), "spec", "devices", 0)
    assert "allowMultipleAllocations" not in stored
    assert json_types.mapping(stored, "capacity", "bandwidth") == {"value": "10G"}
    claim = servers.newer.create(CLAIM, objects.claim("c"))
    assert _result(servers.older.update(CLAIM, claim | {"status": _status()}, subresource="status")) == set()


def test_capacity_in_the_subrequests_of_first_available_is_dropped_as_well(servers: Servers) -> None:
    sub: Object = {"name": "small", "deviceClassName": objects.CLASS, "capacity": CAPACITY}
    made = servers.older.create(CLAIM, objects.claim("c", {"name": "listed", "firstAvailable": [sub]}))
    stored = json_types.mapping(made, "spec", "devices", "requests", 0, "firstAvailable", 0)
    assert (stored["name"], "capacity" in stored) == ("small", False)


@pytest.mark.parametrize("statuses", [True, False])
def test_the_strategy_of_claims_is_the_same_with_and_without_device_statuses(*, statuses: bool) -> None:
    store = Store()
    gates = {"DRAResourceClaimDeviceStatus": statuses}
    with (
        allocating_server.serve(store, FeatureGates.of(gates)) as newer,
        allocating_server.serve(store, FeatureGates.of(gates | {GATE: False})) as older,
    ):
        for name, api, kept in (("a", newer, True), ("b", older, False)):
            claim = api.create(CLAIM, _claim(name))
            assert bool(_of_spec(claim, "spec")) is kept
            assert bool(_result(api.update(CLAIM, claim | {"status": _status()}, subresource="status"))) is kept
        touched = older.patch(CLAIM, "a", CHANGE, namespace="default", kind=PatchKind.MERGE)
        assert _of_spec(touched, "spec") == {"exactly", "firstAvailable", "distinctAttribute"}
        assert _result(touched) == {"shareID", "consumedCapacity"}


def test_the_fields_are_stored_again_once_the_feature_is_on_again(servers: Servers) -> None:
    claim = servers.older.create(CLAIM, _claim())
    assert _of_spec(claim, "spec") == set()
    servers.newer.delete(CLAIM, "c", namespace="default")
    assert _of_spec(servers.newer.create(CLAIM, _claim()), "spec") == {"exactly", "firstAvailable", "distinctAttribute"}
