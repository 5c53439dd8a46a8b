"""Gates that are off drop their fields silently, and never from objects that already use them."""

import pytest

from drakit_cluster.api import registry
from drakit_cluster.api.http import openapi
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, NAMESPACE, SLICE
from unit.cluster import samples

RICH: dict[str, Json] = {
    "taints": [{"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
    "consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "1"}}}],
    "allowMultipleAllocations": True,
    "capacity": {"m": {"value": "1", "requestPolicy": {"default": "1"}}},
    "bindingConditions": ["x"],
    "bindingFailureConditions": ["y"],
    "bindsToNode": True,
    "includes": [{"name": "m"}],
}


MIXINS = {"DRAResourceSliceMixins": True}
"""Off by default, as no released Kubernetes has them."""


def without(gate: str) -> registry.Registry:
    return registry.Registry(gates=FeatureGates.of(MIXINS | {gate: False}))


def rich_slice() -> Object:
    return samples.slice_(
        devices=[{"name": "gpu-0", **RICH}],
        mixins={"device": [{"name": "m", "attributes": {"a": {"int": 1}}}]},
    )


@pytest.mark.parametrize(
    "gate, lost",
    [
        ("DRADeviceTaints", {"taints"}),
        ("DRAPartitionableDevices", {"consumesCounters"}),
        ("DRADeviceBindingConditions", {"bindingConditions", "bindingFailureConditions", "bindsToNode"}),
        ("DRAResourceClaimDeviceStatus", {"bindingConditions", "bindingFailureConditions", "bindsToNode"}),
        ("DRAConsumableCapacity", {"allowMultipleAllocations"}),
        ("DRAResourceSliceMixins", {"includes"}),
    ],
)
def test_a_gate_that_is_off_drops_exactly_its_fields(gate: str, lost: set[str]) -> None:
    whole = registry.Registry(gates=FeatureGates.of(MIXINS)).create(SLICE, rich_slice())
    assert json_types.mapping(whole, "spec", "devices", 0) == {"name": "gpu-0", **RICH}
    stored = without(gate).create(SLICE, rich_slice())
    device = json_types.mapping(stored, "spec", "devices", 0)
    assert set(RICH) - set(device) == lost
    assert ("mixins" in json_types.mapping(stored, "spec")) is (gate != "DRAResourceSliceMixins")
    policy = json_types.at(device, "capacity", "m", "requestPolicy")
    assert (policy is None) is (gate == "DRAConsumableCapacity")


def test_mixins_are_off_by_default_and_the_openapi_lists_them_only_where_they_are_on() -> None:
    stored = registry.Registry().create(SLICE, rich_slice())
    assert "mixins" not in json_types.mapping(stored, "spec")
    for gates, known in ((FeatureGates(), False), (FeatureGates.of(MIXINS), True)):
        for version in ("v1", "v1beta2"):
            schemas = openapi.document(gates, f"/openapi/v3/apis/resource.k8s.io/{version}")
            found = json_types.mapping(schemas, "components", "schemas", f"io.k8s.api.resource.{version}.ResourceSlice")
            spec = json_types.mapping(found, "properties", "spec", "properties")
            assert ("mixins" in spec) is known
            assert ("includes" in json_types.mapping(spec, "devices", "items", "properties")) is known
            assert "consumesCounters" in json_types.mapping(spec, "devices", "items", "properties"), "a released field is always listed"


def test_claims_for_workloads_are_listed_by_the_openapi_only_where_they_are_on() -> None:
    for on in (True, False):
        document = openapi.document(FeatureGates.of({"DRAReservedForWorkloads": on}), "/openapi/v3/apis/resource.k8s.io/v1")
        schemas = json_types.mapping(document, "components", "schemas")
        claim = json_types.mapping(schemas, "io.k8s.api.resource.v1.ResourceClaim", "properties")
        assert ("reservedFor" in json_types.mapping(claim, "spec", "properties")) is on
        assert "reservedFor" in json_types.mapping(claim, "status", "properties")


def test_list_attributes_are_off_and_so_leave_an_invalid_attribute() -> None:
    given = samples.slice_(devices=[{"name": "gpu-0", "attributes": {"a": {"ints": [1]}}}])
    with pytest.raises(errors.InvalidError, match="exactly one value must be specified"):
        registry.Registry().create(SLICE, given)
    on = registry.Registry(gates=FeatureGates.of({"DRAListTypeAttributes": True}))
    assert json_types.at(on.create(SLICE, given), "spec", "devices", 0, "attributes", "a", "ints") == [1]


def test_a_slice_whose_node_selection_is_dropped_is_refused() -> None:
    given = samples.slice_(nodeName=None, perDeviceNodeSelection=True, devices=[{"name": "a", "nodeName": "n1"}])
    with pytest.raises(errors.InvalidError, match="exactly one of"):
        without("DRAPartitionableDevices").create(SLICE, given)


def test_an_object_that_uses_a_gate_keeps_its_fields_when_the_gate_goes_off() -> None:
    before = registry.Registry(gates=FeatureGates.of(MIXINS))
    before.create(SLICE, rich_slice())
    after = registry.Registry(before.store, gates=FeatureGates.of({"DRADeviceTaints": False}))
    stored = after.update(SLICE, rich_slice())
    assert "taints" in json_types.mapping(stored, "spec", "devices", 0)
    json_types.mapping(other := rich_slice(), "metadata")["name"] = "another"
    assert "taints" not in json_types.mapping(after.create(SLICE, other), "spec", "devices", 0)


def test_claims_lose_share_ids_and_statuses_with_their_gates() -> None:
    for gate, lost in (("DRAConsumableCapacity", "shareID"), ("DRAResourceClaimDeviceStatus", "devices")):
        api = without(gate)
        made = api.create(CLAIM, samples.claim())
        shared = samples.result(share=samples.SHARE)
        given = samples.allocated(made, shared)
        json_types.mapping(given, "status")["devices"] = [samples.device_status(shareID=samples.SHARE)]
        stored = json_types.mapping(api.update(CLAIM, given, subresource="status"), "status")
        result = json_types.mapping(stored, "allocation", "devices", "results", 0)
        assert (lost in result if lost == "shareID" else lost in stored) is False


def test_a_template_loses_the_same_fields_as_a_claim() -> None:
    wanted: Object = {"devices": {"requests": [{"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": "c"}]}]}}
    with pytest.raises(errors.InvalidError, match="exactly one of exactly or firstAvailable"):
        without("DRAPrioritizedList").create(CLAIM_TEMPLATE, {"metadata": {"name": "t"}, "spec": {"spec": wanted}}, namespace="default")


def test_a_claim_that_asks_for_admin_access_may_still_get_it_when_the_gate_goes_off() -> None:
    before = registry.Registry()
    json_types.mapping(namespace := before.get(NAMESPACE, "default"), "metadata")["labels"] = {
        "resource.kubernetes.io/admin-access": "true"
    }
    before.update(NAMESPACE, namespace)
    wanted = samples.claim()
    json_types.mapping(wanted, "spec", "devices", "requests", 0, "exactly")["adminAccess"] = True
    made = before.create(CLAIM, wanted)
    after = registry.Registry(before.store, gates=FeatureGates.of({"DRAAdminAccess": False}))
    result = samples.result() | {"adminAccess": True}
    stored = after.update(CLAIM, samples.allocated(made, result), subresource="status")
    assert json_types.at(stored, "status", "allocation", "devices", "results", 0, "adminAccess") is True


def test_a_gate_that_needs_another_one_is_refused_without_it() -> None:
    with pytest.raises(ValueError, match="DRADeviceTaintRules has no effect without DRADeviceTaints: add --gate DRADeviceTaints=true"):
        FeatureGates.of({"DRADeviceTaintRules": True}, "1.35")
    assert FeatureGates.of({"DRADeviceTaintRules": True, "DRADeviceTaints": True}, "1.35").on(Gate.DEVICE_TAINT_RULES)
