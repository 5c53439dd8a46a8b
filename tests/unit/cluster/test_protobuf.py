"""Bodies as kubectl and drivers in Go post them in protobuf, byte by byte."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as any_

from drakit_cluster.api.http import protobuf
from drakit_cluster.objects import errors
from drakit_cluster.objects.json_types import Object


def varint(value: int) -> bytes:
    high, low = divmod(value, 128)
    return bytes([low | 128, high] if high else [low])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def envelope(kind: str, raw: bytes, version: bytes = b"v1") -> bytes:
    return b"k8s\x00" + field(1, field(1, version) + field(2, kind.encode())) + field(2, raw) + field(4, b"")


def test_an_access_review_is_read_whole() -> None:
    attributes = field(1, b"default") + field(2, b"get") + field(3, b"resource.k8s.io") + field(5, b"resourceclaims") + field(6, b"")
    found = protobuf.read(envelope("SelfSubjectAccessReview", field(1, b"") + field(2, field(1, attributes))))
    assert found == {
        "apiVersion": "v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "group": "resource.k8s.io", "resource": "resourceclaims"}},
    }


def test_a_token_request_is_read_whole() -> None:
    bound = field(1, b"Pod") + field(2, b"v1") + field(3, b"p1") + field(4, b"u")
    spec = field(1, b"a") + field(1, b"b") + field(3, bound) + bytes([4 << 3, 0x90, 0x1C])
    found = protobuf.read(envelope("TokenRequest", field(2, spec)))
    assert found["spec"] == {
        "audiences": ["a", "b"],
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p1", "uid": "u"},
        "expirationSeconds": 3600,
    }


def entry(key: bytes, value: bytes) -> bytes:
    return field(1, key) + field(2, value)


META = field(1, field(1, b"x") + field(2, b"") + field(8, b"") + field(11, entry(b"app", b"y")))


@pytest.mark.parametrize(
    "kind, raw, found",
    [
        ("Namespace", META + field(2, b"") + field(3, b""), {}),
        ("ConfigMap", META + field(2, entry(b"a", b"b")) + field(2, entry(b"c", b"")), {"data": {"a": "b", "c": ""}}),
        ("Secret", META + field(2, entry(b"p", b"\x00\xff")) + field(3, b"Opaque"), {"data": {"p": "AP8="}, "type": "Opaque"}),
        ("ConfigMap", META + bytes([4 << 3, 1]), {"immutable": True}),
        ("ServiceAccount", META, {}),
        (
            "Role",
            META + field(2, field(1, b"get") + field(2, b"") + field(3, b"pods")),
            {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
        ),
        (
            "RoleBinding",
            META + field(2, field(1, b"User") + field(3, b"u")) + field(3, field(2, b"Role") + field(3, b"r")),
            {"subjects": [{"kind": "User", "name": "u"}], "roleRef": {"kind": "Role", "name": "r"}},
        ),
        (
            "Deployment",
            META + field(2, bytes([1 << 3, 2]) + field(2, field(1, entry(b"app", b"x"))) + field(3, field(2, field(2, field(2, b"img"))))),
            {
                "spec": {
                    "replicas": 2,
                    "selector": {"matchLabels": {"app": "x"}},
                    "template": {"spec": {"containers": [{"image": "img"}]}},
                }
            },
        ),
        (
            "Eviction",
            META + field(2, bytes([1 << 3, 5]) + field(5, b"All")),
            {"deleteOptions": {"gracePeriodSeconds": 5, "dryRun": ["All"]}},
        ),
    ],
)
def test_objects_created_by_kubectl_are_decoded_completely(kind: str, raw: bytes, found: Object) -> None:
    metadata: Object = {"name": "x", "labels": {"app": "y"}}
    read = protobuf.read(envelope(kind, raw))
    assert read == {"apiVersion": "v1", "kind": kind, "metadata": metadata, **found}


def test_options_of_a_delete_are_read_without_an_object() -> None:
    raw = field(2, field(1, b"u")) + bytes([3 << 3, 1]) + field(4, b"Orphan")
    found = protobuf.read(envelope("DeleteOptions", raw))
    assert (found["preconditions"], found["orphanDependents"], found["propagationPolicy"]) == ({"uid": "u"}, True, "Orphan")


SLICE_META = field(1, field(2, b"n-gpu-") + field(6, b"7") + field(13, field(1, b"Node") + field(3, b"n") + bytes([6 << 3, 1])))


def quantity(text: bytes) -> bytes:
    return field(1, field(1, text))


def sliced(spec: bytes, version: bytes = b"resource.k8s.io/v1") -> Object:
    return protobuf.read(envelope("ResourceSlice", SLICE_META + field(2, spec), version))


def test_a_slice_of_a_driver_in_go_is_read_whole() -> None:
    attributes = (
        field(2, entry(b"i", bytes([2 << 3, 0]))) + field(2, entry(b"b", bytes([3 << 3, 0]))) + field(2, entry(b"t", field(4, b"")))
    )
    device = (
        field(1, b"gpu-0") + attributes + field(3, entry(b"memory", quantity(b"80Gi"))) + field(8, field(1, b"k") + field(3, b"NoSchedule"))
    )
    spec = field(1, b"gpu.example.com") + field(2, field(1, b"n") + bytes([2 << 3, 1, 3 << 3, 1])) + field(3, b"n") + field(6, device)
    assert sliced(spec) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "generateName": "n-gpu-",
            "resourceVersion": "7",
            "ownerReferences": [{"kind": "Node", "name": "n", "controller": True}],
        },
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n",
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {"i": {"int": 0}, "b": {"bool": False}, "t": {"string": ""}},
                    "capacity": {"memory": {"value": "80Gi"}},
                    "taints": [{"key": "k", "effect": "NoSchedule"}],
                }
            ],
        },
    }


def test_counters_policies_times_and_lists_of_a_slice_are_read() -> None:
    counters = field(2, entry(b"slices", quantity(b"7")))
    policy = field(1, quantity(b"1Gi")[2:]) + field(4, field(1, field(1, b"1Gi")))
    device = (
        field(2, entry(b"roots", bytes([6 << 3, 1, 6 << 3, 2]) + field(8, b"a")))
        + field(3, entry(b"memory", quantity(b"8Gi") + field(2, policy)))
        + field(4, field(1, b"set") + counters)
        + field(6, field(1, field(2, field(1, b"metadata.name") + field(2, b"In") + field(3, b"n"))))
        + field(8, field(4, bytes([1 << 3, 10])))
        + bytes([12 << 3, 1])
    )
    spec: Object = {
        "devices": [
            {
                "attributes": {"roots": {"ints": [1, 2], "strings": ["a"]}},
                "capacity": {"memory": {"value": "8Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi"}}}},
                "consumesCounters": [{"counterSet": "set", "counters": {"slices": {"value": "7"}}}],
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]},
                "taints": [{"timeAdded": "1970-01-01T00:00:10Z"}],
                "allowMultipleAllocations": True,
            }
        ],
        "sharedCounters": [{"name": "set", "counters": {"slices": {"value": "7"}}}],
    }
    assert sliced(field(6, device) + field(8, field(1, b"set") + counters))["spec"] == spec


def number(place: int, value: int) -> bytes:
    return bytes([place << 3, value])


def test_fields_that_1_37_added_to_slices_are_read() -> None:
    mapping = field(1, b"") + field(2, field(1, b"2")) + field(3, field(1, b"1Gi"))
    resource = field(3, mapping) + field(4, field(1, field(1, b"100m")) + field(2, field(1, b"10m")))
    device = (
        field(1, b"mig")
        + field(4, field(1, b"gpu") + field(3, b"mig") + field(3, b"whole"))
        + field(13, entry(b"cpu", field(1, b"x.example.com/c") + field(2, field(1, b"2"))))
        + field(14, entry(b"memory", resource))
    )
    assert sliced(field(6, device) + field(9, b"x.example.com/profile") + field(10, b"*"))["spec"] == {
        "devices": [
            {
                "name": "mig",
                "consumesCounters": [{"counterSet": "gpu", "compatibilityGroups": ["mig", "whole"]}],
                "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "x.example.com/c", "allocationMultiplier": "2"}},
                "nodeAllocatableResources": {
                    "memory": {
                        "mapping": {"capacityKey": "", "capacityMultiplier": "2", "deviceMultiplier": "1Gi"},
                        "overhead": {"perPod": "100m", "perContainer": "10m"},
                    }
                },
            }
        ],
        "partitionTypeAttribute": "x.example.com/profile",
        "skipNodeOperations": ["*"],
    }


def test_a_claim_with_its_status_is_read_whole() -> None:
    opaque = field(1, field(1, b"x.example.com") + field(2, field(1, b'{"a": [1]}')))
    exactly = (
        field(1, b"c")
        + field(2, field(1, field(1, b"true")))
        + field(3, b"ExactCount")
        + number(4, 2)
        + number(5, 1)
        + field(6, field(1, b"k") + field(2, b"Exists") + field(3, b"") + number(5, 0))
        + field(7, field(1, entry(b"memory", field(1, b"1Gi"))))
    )
    alternative = field(1, b"small") + field(2, b"c") + field(4, b"All") + number(5, 0)
    devices = (
        field(1, field(1, b"a") + field(2, exactly))
        + field(1, field(1, b"b") + field(3, alternative))
        + field(2, field(1, b"a") + field(2, b"x.example.com/numa"))
        + field(3, field(1, b"a") + field(2, opaque))
    )
    result = field(1, b"a") + field(2, b"x.example.com") + field(3, b"p") + field(4, b"d") + field(9, b"") + field(11, b"*")
    allocation = field(1, field(1, result) + field(2, field(1, b"FromClaim") + field(3, opaque))) + field(5, number(1, 10))
    condition = field(1, b"Ready") + field(2, b"True") + number(3, 0) + field(4, b"") + field(5, b"Up") + field(6, b"")
    reported = (
        field(1, b"x.example.com") + field(3, b"d") + field(4, condition) + field(5, field(1, b"{}")) + field(6, field(2, b"10.0.0.1/8"))
    )
    status = field(1, allocation) + field(2, field(3, b"pods") + field(4, b"p1") + field(5, b"u")) + field(4, reported)
    managed = field(17, field(1, b"kubectl") + field(7, field(1, b'{"f:spec": {}}')))
    meta = field(1, b"x") + number(7, 3) + field(8, number(1, 5)) + managed
    raw = field(1, meta) + field(2, field(1, devices)) + field(3, status)
    assert protobuf.read(envelope("ResourceClaim", raw, b"resource.k8s.io/v1")) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": "x",
            "generation": 3,
            "creationTimestamp": "1970-01-01T00:00:05Z",
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "a",
                        "exactly": {
                            "deviceClassName": "c",
                            "selectors": [{"cel": {"expression": "true"}}],
                            "allocationMode": "ExactCount",
                            "count": 2,
                            "adminAccess": True,
                            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 0}],
                            "capacity": {"requests": {"memory": "1Gi"}},
                        },
                    },
                    {"name": "b", "firstAvailable": [{"name": "small", "deviceClassName": "c", "allocationMode": "All"}]},
                ],
                "constraints": [{"requests": ["a"], "matchAttribute": "x.example.com/numa"}],
                "config": [{"requests": ["a"], "opaque": {"driver": "x.example.com", "parameters": {"a": [1]}}}],
            }
        },
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {
                            "request": "a",
                            "driver": "x.example.com",
                            "pool": "p",
                            "device": "d",
                            "shareID": "",
                            "skipNodeOperations": ["*"],
                        }
                    ],
                    "config": [{"source": "FromClaim", "opaque": {"driver": "x.example.com", "parameters": {"a": [1]}}}],
                },
                "allocationTimestamp": "1970-01-01T00:00:10Z",
            },
            "reservedFor": [{"resource": "pods", "name": "p1", "uid": "u"}],
            "devices": [
                {
                    "driver": "x.example.com",
                    "device": "d",
                    "conditions": [{"type": "Ready", "status": "True", "reason": "Up"}],
                    "data": {},
                    "networkData": {"ips": ["10.0.0.1/8"]},
                }
            ],
        },
    }


@pytest.mark.parametrize(
    "kind, version, raw, spec",
    [
        ("DeviceClass", b"v1", field(4, b"x.example.com/gpu"), {"extendedResourceName": "x.example.com/gpu"}),
        (
            "DeviceTaintRule",
            b"v1beta2",
            field(1, field(2, b"d")) + field(2, field(1, b"k") + field(3, b"None")),
            {"deviceSelector": {"driver": "d"}, "taint": {"key": "k", "effect": "None"}},
        ),
        ("ResourceClaimTemplate", b"v1", field(1, field(8, b"")) + field(2, field(1, b"")), {"metadata": {}, "spec": {"devices": {}}}),
        ("ResourcePoolStatusRequest", b"v1alpha3", field(1, b"d") + number(3, 7), {"driver": "d", "limit": 7}),
    ],
)
def test_every_kind_of_the_group_is_read(kind: str, version: bytes, raw: bytes, spec: Object) -> None:
    assert protobuf.read(envelope(kind, field(2, raw), b"resource.k8s.io/" + version))["spec"] == spec


def test_a_field_that_is_not_known_is_refused_and_never_dropped() -> None:
    with pytest.raises(errors.UnsupportedMediaError, match="field 99 of the message Exactly is not known; send application/json"):
        protobuf.read(envelope("ResourceClaim", field(2, field(1, field(1, field(2, field(99, b"x"))))), b"resource.k8s.io/v1"))


def test_an_unknown_field_that_says_nothing_is_no_obstacle() -> None:
    nothing = field(15, field(1, b"") + number(2, 0) + field(3, field(1, b"")))
    assert protobuf.read(envelope("Namespace", META + nothing))["metadata"] == {"name": "x", "labels": {"app": "y"}}


def test_parameters_that_are_not_json_are_refused() -> None:
    config = field(2, field(1, field(1, field(2, field(1, b"{")))))
    with pytest.raises(errors.BadRequestError, match="not JSON"):
        protobuf.read(envelope("DeviceClass", field(2, config), b"resource.k8s.io/v1"))


def test_slices_of_v1beta1_must_be_json() -> None:
    with pytest.raises(errors.UnsupportedMediaError):
        sliced(b"", b"resource.k8s.io/v1beta1")


def test_a_time_that_no_calendar_has_is_refused() -> None:
    with pytest.raises(errors.BadRequestError):
        sliced(field(6, field(8, field(4, bytes([1 << 3]) + b"\xff" * 8 + b"\x7f"))))


def test_other_kinds_must_be_json() -> None:
    with pytest.raises(errors.UnsupportedMediaError):
        protobuf.read(envelope("Pod", b""))


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"k8s\x00\xff", b"k8s\x00\x0a\x05ab", b"k8s\x00\x0b", b"k8s\x00" + b"\xff" * 12, b"k8s\x00\x0c\x01", b"k8s\x00\x0d\x01"],
)
def test_invalid_bytes_are_refused(body: bytes) -> None:
    with pytest.raises((errors.BadRequestError, errors.UnsupportedMediaError)):
        protobuf.read(body)


@given(any_.binary(max_size=64))
def test_any_bytes_are_decoded_or_refused(content: bytes) -> None:
    for body in (envelope("TokenRequest", b"") + content, b"k8s\x00" + content):
        with contextlib.suppress(errors.BadRequestError, errors.UnsupportedMediaError):
            assert "apiVersion" in protobuf.read(body)
