"""Bodies as kubectl and drivers in Go post them in protobuf, byte by byte."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as any_

from drakit_cluster.api.http import protobuf
from drakit_cluster.objects import errors
from drakit_cluster.objects.json_types import Object


def field(number: int, content: bytes) -> bytes:
    high, low = divmod(len(content), 128)
    return bytes([number << 3 | 2, *([low | 128, high] if high else [low])]) + content


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
