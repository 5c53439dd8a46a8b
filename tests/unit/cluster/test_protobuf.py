"""Bodies as kubectl posts them in protobuf, byte by byte."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as any_

from drakit_cluster.api.http import protobuf
from drakit_cluster.objects import errors
from drakit_cluster.objects.json_types import Object


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def envelope(kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, b"v1") + field(2, kind.encode())) + field(2, raw) + field(4, b"")


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
def test_what_kubectl_creates_is_read_whole(kind: str, raw: bytes, found: Object) -> None:
    metadata: Object = {"name": "x", "labels": {"app": "y"}}
    read = protobuf.read(envelope(kind, raw))
    assert read == {"apiVersion": "v1", "kind": kind, "metadata": metadata, **found}


def test_options_of_a_delete_are_read_without_an_object() -> None:
    raw = field(2, field(1, b"u")) + bytes([3 << 3, 1]) + field(4, b"Orphan")
    found = protobuf.read(envelope("DeleteOptions", raw))
    assert (found["preconditions"], found["orphanDependents"], found["propagationPolicy"]) == ({"uid": "u"}, True, "Orphan")


def test_other_kinds_must_be_json() -> None:
    with pytest.raises(errors.UnsupportedMediaError):
        protobuf.read(envelope("Pod", b""))


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"k8s\x00\xff", b"k8s\x00\x0a\x05ab", b"k8s\x00\x0b", b"k8s\x00" + b"\xff" * 12, b"k8s\x00\x0c\x01", b"k8s\x00\x0d\x01"],
)
def test_bytes_that_make_no_sense_are_refused(body: bytes) -> None:
    with pytest.raises((errors.BadRequestError, errors.UnsupportedMediaError)):
        protobuf.read(body)


@given(any_.binary(max_size=64))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for body in (envelope("TokenRequest", b"") + content, b"k8s\x00" + content):
        with contextlib.suppress(errors.BadRequestError, errors.UnsupportedMediaError):
            assert "apiVersion" in protobuf.read(body)
