"""Opaque parameters of drakit's drivers, good and bad, and the objects that carry them."""

from collections.abc import Mapping
from typing import Any

GPU, NIC, TPU = "gpu.drakit.dev", "nic.drakit.dev", "tpu.drakit.dev"
CLAIM, TEMPLATE, CLASS = "ResourceClaim", "ResourceClaimTemplate", "DeviceClass"
RESOURCES = {CLAIM: "resourceclaims", TEMPLATE: "resourceclaimtemplates", CLASS: "deviceclasses"}
PATHS = {CLAIM: "spec.devices.config[0]", TEMPLATE: "spec.spec.devices.config[0]", CLASS: "spec.config[0]"}

Json = Mapping[str, object]


def gpu(**fields: object) -> Json:
    return {"apiVersion": "gpu.drakit.dev/v1", "kind": "GpuConfig", **fields}


def mig(**fields: object) -> Json:
    return {"apiVersion": "gpu.drakit.dev/v1", "kind": "MigConfig", **fields}


def nvidia(**fields: object) -> Json:
    return {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", **fields}


def nic(**fields: object) -> Json:
    return {"apiVersion": "nic.drakit.dev/v1", "kind": "NicConfig", **fields}


LONG = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
MULTI_USER = {"strategy": "MPS", "mpsConfig": {"multiUser": True}}

GOOD: Mapping[str, tuple[str, Json]] = {
    "a GPU without anything": (GPU, gpu()),
    "a time slice": (GPU, gpu(sharing=LONG)),
    "MPS with limits": (GPU, mig(sharing={"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "4Gi"}})),
    "written for NVIDIA": (GPU, nvidia(sharing=LONG)),
    "an interface name": (NIC, nic(interfaceName="net1", mtu=9000, addresses=["10.1.2.3/24"])),
    "a route": (NIC, nic(addresses=["10.1.2.3/24"], routes=[{"destination": "10.9.0.0/16", "gateway": "10.1.2.1"}])),
}
"""What all may write, by what it is: the driver and its parameters."""

BAD: Mapping[str, tuple[str, Json, str, str]] = {
    "an unknown field": (GPU, gpu(sharing={"strateg": "MPS"}), "sharing.strateg", "is not a known field; known are strategy"),
    "an unknown value": (GPU, gpu(sharing={"strategy": "Turns"}), "sharing.strategy", 'must be one of "TimeSlicing", "MPS", not "Turns"'),
    "a missing field": (GPU, gpu(sharing={}), "sharing.strategy", "is required"),
    "fields of another strategy": (
        GPU,
        gpu(sharing=LONG | {"strategy": "MPS"}),
        "sharing.timeSlicingConfig",
        "is for strategy TimeSlicing",
    ),
    "a time slice of a partition": (GPU, mig(sharing=LONG), "sharing.timeSlicingConfig", "is not for MIG devices"),
    "another kind": (GPU, {**gpu(), "kind": "GpuConfigs"}, "kind", '"GpuConfigs" is not known; known are gpu.drakit.dev/v1 GpuConfig'),
    "another version": (NIC, {**nic(), "apiVersion": "nic.drakit.dev/v9"}, "apiVersion", '"nic.drakit.dev/v9" is not known'),
    "no kind": (NIC, {}, "apiVersion", "is required, as text"),
    "text for a number": (NIC, nic(mtu="9000"), "mtu", 'must be a whole number, not "9000"'),
    "a number out of range": (NIC, nic(mtu=20), "mtu", "20 is not between 68 and 65535"),
    "a bad address": (NIC, nic(addresses=["10.1.2.3/24", "10.1.2/24"]), "addresses[1]", "10.1.2/24"),
    "what a driver does not take": (TPU, {"topology": "2x2"}, "topology", "is not a known field; no field is allowed here"),
    "too large": (NIC, nic(interfaceName="x" * 11_000), "", "bytes of JSON, over the limit of 10240"),
}
"""What nobody may write: the driver, its parameters, the field below ``parameters``, and the start of the reason."""

CLASS_ONLY: Mapping[str, tuple[str, Json, str, str]] = {
    "bandwidth beyond the share": (NIC, nic(ceil="1G"), "ceil", "may be set only by an admin in the DeviceClass"),
    "a VLAN": (NIC, nic(vlan=7), "vlan", "may be set only by an admin in the DeviceClass"),
    "several users": (GPU, gpu(sharing=MULTI_USER), "sharing.mpsConfig.multiUser", "only a DeviceClass may set it, not a claim"),
}
"""What only a class may write."""

WRITTEN = [*GOOD.values(), *((driver, written) for driver, written, *_ in (*BAD.values(), *CLASS_ONLY.values()))]
"""All of them."""


def config(driver: str, parameters: object) -> dict[str, object]:
    return {"opaque": {"driver": driver, "parameters": parameters}}


def holding(kind: str, *configs: object, version: str = "v1", name: str = "x") -> dict[str, Any]:
    """An object of a kind with configurations, as the API server of that version takes it."""
    exactly = {"deviceClassName": GPU}
    requests = [{"name": "r", **({"exactly": exactly} if version != "v1beta1" else exactly)}]
    claim: dict[str, object] = {"devices": {"requests": requests, "config": list(configs)}}
    spec = {CLAIM: claim, TEMPLATE: {"spec": claim}, CLASS: {"config": list(configs)}}[kind]
    metadata = {"name": name} | ({} if kind == CLASS else {"namespace": "default"})
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": metadata, "spec": spec}


def review(
    new: object, *, old: object = None, operation: str = "", kind: str = "", version: str = "", subresource: str = ""
) -> dict[str, object]:
    """An AdmissionReview of Kubernetes 1.36 about an object."""
    body = new if isinstance(new, Mapping) else old if isinstance(old, Mapping) else {}
    group, _, written = str(body.get("apiVersion", "")).rpartition("/")
    found = {"group": group, "version": version or written, "kind": kind or body.get("kind")}
    resource = {"group": group, "version": found["version"], "resource": RESOURCES.get(str(found["kind"]), "things")}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": found,
        "resource": resource,
        "requestKind": found,
        "requestResource": resource,
        "name": "x",
        "namespace": "default",
        "operation": operation or ("CREATE" if old is None else "UPDATE"),
        "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
        "object": new,
        "oldObject": old,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    if subresource:
        request["subResource"] = request["requestSubResource"] = subresource
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
