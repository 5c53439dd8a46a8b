"""Packages, names and numbers are the kubelet's; a change here is a driver that no kubelet understands."""

import types

import pytest
from google.protobuf import descriptor

from drakit._proto import dra_health_v1_pb2, dra_health_v1alpha1_pb2, dra_v1_pb2, pluginregistration_v1_pb2

DRA = "k8s.io.kubelet.pkg.apis.dra.v1"
CLAIM = {1: "namespace", 2: "uid", 3: "name"}
MESSAGES = {
    "Claim": CLAIM,
    "NodePrepareResourcesRequest": {1: "claims"},
    "NodePrepareResourcesResponse": {1: "claims"},
    "NodePrepareResourceResponse": {1: "devices", 2: "error"},
    "Device": {1: "request_names", 2: "pool_name", 3: "device_name", 4: "cdi_device_ids", 5: "share_id"},
    "NodeUnprepareResourcesRequest": {1: "claims"},
    "NodeUnprepareResourcesResponse": {1: "claims"},
    "NodeUnprepareResourceResponse": {1: "error"},
}
HEALTH = {
    "NodeWatchResourcesRequest": {},
    "DeviceIdentifier": {1: "pool_name", 2: "device_name"},
    "DeviceHealth": {1: "device", 2: "health", 3: "last_updated_time", 4: "health_check_timeout_seconds", 5: "message"},
    "NodeWatchResourcesResponse": {1: "devices"},
}
REGISTRATION = {
    "InfoRequest": {},
    "PluginInfo": {1: "type", 2: "name", 3: "endpoint", 4: "supported_versions"},
    "RegistrationStatus": {1: "plugin_registered", 2: "error"},
    "RegistrationStatusResponse": {},
}


def shape(file: descriptor.FileDescriptor) -> dict[str, dict[int, str]]:
    return {name: {field.number: field.name for field in message.fields} for name, message in file.message_types_by_name.items()}


def methods(file: descriptor.FileDescriptor) -> set[str]:
    return {
        f"/{service.full_name}/{method.name}({method.input_type.name}) {method.output_type.name}"
        for service in file.services_by_name.values()
        for method in service.methods
    }


def test_messages_of_dra_v1_have_the_kubelets_numbers() -> None:
    assert shape(dra_v1_pb2.DESCRIPTOR) == MESSAGES


@pytest.mark.parametrize("file, package", [(dra_health_v1_pb2, "v1"), (dra_health_v1alpha1_pb2, "v1alpha1")])
def test_messages_of_both_health_versions_have_the_kubelets_numbers(file: types.ModuleType, package: str) -> None:
    assert file.DESCRIPTOR.package == package
    assert shape(file.DESCRIPTOR) == HEALTH
    assert dict(file.HealthStatus.items()) == {"UNKNOWN": 0, "HEALTHY": 1, "UNHEALTHY": 2}
    [service] = file.DESCRIPTOR.services_by_name.values()
    [method] = service.methods
    assert (service.full_name, method.name, method.server_streaming, method.client_streaming) == (
        f"{package}.DRAResourceHealth",
        "NodeWatchResources",
        True,
        False,
    )


def test_messages_of_registration_have_the_kubelets_numbers() -> None:
    assert shape(pluginregistration_v1_pb2.DESCRIPTOR) == REGISTRATION


def test_methods_have_the_kubelets_paths() -> None:
    assert methods(dra_v1_pb2.DESCRIPTOR) == {
        f"/{DRA}.DRAPlugin/NodePrepareResources(NodePrepareResourcesRequest) NodePrepareResourcesResponse",
        f"/{DRA}.DRAPlugin/NodeUnprepareResources(NodeUnprepareResourcesRequest) NodeUnprepareResourcesResponse",
    }
    assert methods(pluginregistration_v1_pb2.DESCRIPTOR) == {
        "/pluginregistration.Registration/GetInfo(InfoRequest) PluginInfo",
        "/pluginregistration.Registration/NotifyRegistrationStatus(RegistrationStatus) RegistrationStatusResponse",
    }


@pytest.mark.parametrize("share_id", [None, "7d1c2f6e-2f0e-4b6c-8f6e-0a4c2b1d3e5f"])
def test_share_id_keeps_the_difference_between_absent_and_set(share_id: str | None) -> None:
    sent = dra_v1_pb2.Device(device_name="gpu-0", share_id=share_id)
    assert dra_v1_pb2.Device.FromString(sent.SerializeToString()).HasField("share_id") is (share_id is not None)


def test_bytes_of_a_prepare_request_are_the_documented_ones() -> None:
    request = dra_v1_pb2.NodePrepareResourcesRequest(claims=[dra_v1_pb2.Claim(namespace="n", uid="u", name="c")])
    assert request.SerializeToString() == b"\x0a\x09\x0a\x01n\x12\x01u\x1a\x01c"
