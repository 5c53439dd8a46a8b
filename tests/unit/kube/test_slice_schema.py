"""What an API server's OpenAPI document says of slices, and how often it is asked."""

import pathlib
from typing import Any

import pytest

from drakit.core import errors, ports, records
from drakit.kube import client, discovery, transport
from drakit.kube import slices as kube_slices
from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.http import openapi
from drakit_cluster.objects import features, resources
from fakes import fake_transport, manual_clock, real_clock
from fakes import slice_samples as samples

REF = "#/components/schemas/"


def document(**spec: Any) -> dict[str, Any]:
    """A document as an API server of 1.37 writes it: every part a schema of its own, wrapped in allOf."""
    device = {"name": {"type": "string"}, "taints": {"type": "array"}, "consumesCounters": _list("Consumption")}
    device |= {"allowMultipleAllocations": {"type": "boolean"}, "attributes": _map("Attribute"), "capacity": _map("Capacity")}
    device |= {"nodeAllocatableResources": {"type": "object"}}
    fields = {"devices": _list("Device"), "sharedCounters": {}, "partitionTypeAttribute": {}, "skipNodeOperations": {}, **spec}
    schemas = {
        "io.k8s.api.resource.v1.ResourceSlice": {
            "properties": {"spec": {"allOf": [{"$ref": f"{REF}Spec"}], "default": {}}},
            "x-kubernetes-group-version-kind": [{"group": "resource.k8s.io", "version": "v1", "kind": "ResourceSlice"}],
        },
        "Spec": {"properties": fields},
        "Device": {"properties": device},
        "Consumption": {"properties": {"counterSet": {}, "counters": {}, "compatibilityGroups": {}}},
        "Attribute": {"properties": {"string": {}, "strings": {}}},
        "Capacity": {"properties": {"value": {}, "requestPolicy": {}}},
    }
    return {"components": {"schemas": schemas}}


def _list(name: str) -> dict[str, Any]:
    return {"type": "array", "items": {"allOf": [{"$ref": f"{REF}{name}"}]}}


def _map(name: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": {"allOf": [{"$ref": f"{REF}{name}"}], "default": {}}}


def test_a_released_server_lacks_mixins_alone() -> None:
    assert discovery.missing_gates(document()) == {"DRAResourceSliceMixins"}
    assert discovery.missing_gates(document(mixins={"type": "object"})) == frozenset()


@pytest.mark.parametrize(
    "part,field,gate",
    [
        ("Spec", "sharedCounters", "DRAPartitionableDevices"),
        ("Device", "consumesCounters", "DRAPartitionableDevices"),
        ("Device", "allowMultipleAllocations", "DRAConsumableCapacity"),
        ("Capacity", "requestPolicy", "DRAConsumableCapacity"),
        ("Device", "taints", "DRADeviceTaints"),
        ("Attribute", "strings", "DRAListTypeAttributes"),
        ("Consumption", "compatibilityGroups", "DRADeviceCompatibilityGroups"),
        ("Spec", "partitionTypeAttribute", "DRAPartitionableDevicesType"),
        ("Spec", "skipNodeOperations", "DRAOptionalNodeOperations"),
        ("Device", "nodeAllocatableResources", "DRANodeAllocatableResources"),
    ],
)
def test_a_field_that_is_not_listed_is_lacking(part: str, field: str, gate: str) -> None:
    older = document(mixins={})
    del older["components"]["schemas"][part]["properties"][field]
    without_counters = {"DRADeviceCompatibilityGroups"} if field == "consumesCounters" else set()
    assert discovery.missing_gates(older) == {gate} | without_counters


def test_a_server_of_1_36_has_the_older_form_of_node_resources() -> None:
    older = document(mixins={})
    fields = older["components"]["schemas"]["Device"]["properties"]
    fields["nodeAllocatableResourceMappings"] = fields.pop("nodeAllocatableResources")
    assert discovery.missing_gates(older) == {"nodeAllocatableResources"}


@pytest.mark.parametrize("version", ["1.34", "1.36", "1.37"])
def test_the_schema_of_each_version_lacks_the_fields_that_came_later(version: str) -> None:
    group = "/openapi/v3/apis/resource.k8s.io/v1"
    described = openapi.document(features.FeatureGates.of({}, version), group)
    assert described is not None
    lacks = discovery.missing_gates(described)
    alpha = {"DRADeviceCompatibilityGroups", "DRAPartitionableDevicesType", "DRAOptionalNodeOperations"}
    before_1_37 = {"1.34": {"DRANodeAllocatableResources", "DRAListTypeAttributes"}, "1.36": {"nodeAllocatableResources"}}
    assert lacks == {"DRAResourceSliceMixins"} | (before_1_37[version] | alpha if version != "1.37" else set())


def loop() -> dict[str, Any]:
    made = document()
    made["components"]["schemas"]["Spec"] = {"allOf": [{"$ref": f"{REF}Spec"}]}
    return made


@pytest.mark.parametrize(
    "strange", [{}, {"components": None}, {"components": {"schemas": {"a": None}}}, {"components": {"schemas": []}}, loop()]
)
def test_a_document_that_describes_no_slice_says_nothing(strange: dict[str, Any]) -> None:
    assert discovery.missing_gates(strange) == frozenset()


class Describing(fake_transport.FakeTransport):
    """A server that can be upgraded, and that may refuse."""

    def __init__(self) -> None:
        super().__init__(self._described)
        self.version = "v1.36.2"
        self.failure: errors.ApiError | None = None

    def _described(self, request: fake_transport.Request) -> fake_transport.Answer:
        assert request.method == "GET", "nothing is written"
        return self.failure or records.freeze_record({"gitVersion": self.version} if request.path == discovery.VERSION_PATH else document())

    @property
    def asked(self) -> list[str]:
        return [request.path for request in self.requests]


def store_of(api: transport.Transport, clock: ports.Clock) -> kube_slices.ApiSlices:
    return kube_slices.ApiSlices(api, driver=samples.DRIVER, node=samples.NODE, clock=clock)


def test_the_schema_is_read_once_a_version_and_the_version_once_a_minute() -> None:
    api, clock = Describing(), manual_clock.ManualClock()
    store = store_of(api, clock)
    for _ in range(100):
        assert store.server().lacks == {"DRAResourceSliceMixins"}
    assert api.asked == ["/version", "/openapi/v3/apis/resource.k8s.io/v1"]
    clock.moment += discovery.VERSION_SECONDS
    store.server()
    assert api.asked[2:] == ["/version"]
    api.version = "v1.37.0"
    clock.moment += discovery.VERSION_SECONDS
    assert store.server().version == "v1.37.0"
    assert api.asked[3:] == ["/version", "/openapi/v3/apis/resource.k8s.io/v1"]


def test_a_server_that_hides_its_description_lacks_nothing_so_that_the_probe_decides() -> None:
    api = Describing()
    api.failure = errors.ApiError("forbidden", status=403)
    assert store_of(api, manual_clock.ManualClock()).server().lacks == frozenset()


@pytest.mark.parametrize("mixins", [False, True])
def test_the_local_cluster_describes_itself_to_a_driver(mixins: bool, tmp_path: pathlib.Path) -> None:  # noqa: FBT001
    gates = features.FeatureGates.of({"DRAResourceSliceMixins": mixins})
    with apiserver.ApiServer(registry.Registry(gates=gates)) as server:
        server.registry.create(resources.NODE, {"metadata": {"name": samples.NODE}})
        server.write_kubeconfig(tmp_path / "config")
        api = client.connect(tmp_path / "config")
        described = store_of(api, real_clock.RealClock()).server()
        api.close()
    assert described.version.startswith("v1.37")
    assert described.lacks == (frozenset() if mixins else {"DRAResourceSliceMixins"})
