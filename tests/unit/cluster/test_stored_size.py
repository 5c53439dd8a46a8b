"""What etcd would not take is refused, in the words and with the codes that a real server has."""

import re

import httpx
import pytest

from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.storage import store
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CONFIGMAP, LEASE, SLICE
from unit.cluster import samples

NUMBER = 9_223_372_036_854_775_807


def config(size: int) -> Object:
    return {"metadata": {"name": "c", "namespace": "default"}, "data": {"key": "x" * size}}


@pytest.mark.parametrize(
    "size, message",
    [
        (store.REQUEST_LIMIT, r"etcdserver: request is too large"),
        (
            store.MESSAGE_LIMIT,
            r"rpc error: code = ResourceExhausted desc = trying to send message larger than max \(20974\d\d vs\. 2097152\)",
        ),
    ],
)
def test_what_etcd_would_not_take_is_refused_and_nothing_is_stored(memory: registry.Registry, size: int, message: str) -> None:
    assert memory.create(CONFIGMAP, config(store.REQUEST_LIMIT - 1000))
    memory.delete(CONFIGMAP, "c", namespace="default")
    with pytest.raises(errors.StorageError) as refused:
        memory.create(CONFIGMAP, config(size))
    assert re.fullmatch(message, refused.value.message)
    assert memory.list(CONFIGMAP).items == []


def test_an_update_that_grows_too_large_leaves_the_object_as_it_was(memory: registry.Registry) -> None:
    made = memory.create(CONFIGMAP, config(10))
    with pytest.raises(errors.StorageError):
        memory.update(CONFIGMAP, made | {"data": {"key": "x" * store.REQUEST_LIMIT}})
    assert memory.get(CONFIGMAP, "c", "default") == made


def test_the_status_has_the_codes_of_a_real_server(server: apiserver.ApiServer) -> None:
    headers = {"authorization": f"Bearer {server.issue_token('t', ('system:masters',))}"}
    path = CONFIGMAP.path("default")
    with httpx.Client(base_url=server.url, verify=False, headers=headers, timeout=30) as raw:  # noqa: S501 -- codes are asked for here.
        stored = raw.post(path, json=config(store.REQUEST_LIMIT))
        body = raw.post(path, json=config(3 << 20))
    assert stored.status_code == 500
    assert "reason" not in stored.json()
    assert errors.from_status(stored.json()).message == "etcdserver: request is too large"
    assert (body.status_code, body.json()["reason"]) == (413, "RequestEntityTooLarge")
    assert body.json()["message"] == "Request entity too large: limit is 3145728"


@pytest.mark.parametrize(
    "value, size",
    [
        ({"name": "ab"}, 2 + 4),
        ({"labels": {"k": "v"}}, 2 + 2 + 6),
        ({"generation": 300}, 2 + 3),
        ({"finalizers": ["a", "b"]}, 2 + 3 + 3),
        ({"creationTimestamp": "2026-01-01T00:00:00Z"}, 2 + 10),
        ({"deletionTimestamp": None}, 2),
        ({"name": "x" * 200}, 3 + 203),
    ],
)
def test_the_size_is_that_of_protobuf(value: Object, size: int) -> None:
    """A key and a length before the metadata, then its fields; the name and the envelope beside it are the same for all."""
    empty = store.request_bytes(LEASE, ("", "n"), {})
    assert store.request_bytes(LEASE, ("", "n"), {"metadata": value}) - empty == size


def test_quantities_flags_and_free_json_have_their_own_sizes() -> None:
    def added(device: Json) -> int:
        bare = store.request_bytes(SLICE, ("", "n"), {"spec": {"devices": [{}]}})
        return store.request_bytes(SLICE, ("", "n"), {"spec": {"devices": [device]}}) - bare

    assert added({"allowMultipleAllocations": True}) == 2
    # The entry of the map: its key, then the capacity, which holds the quantity, which holds a text of four bytes.
    assert added({"capacity": {"m": {"value": "40Gi"}}}) == 2 + 3 + 2 + 2 + 6
    fields: Object = {"fieldsV1": {"f:spec": {}}}
    owned = store.request_bytes(LEASE, ("", "n"), {"metadata": {"managedFields": [fields]}})
    assert owned - store.request_bytes(LEASE, ("", "n"), {"metadata": {"managedFields": [{}]}}) == 2 + len('{"f:spec":{}}')


def test_a_slice_takes_less_than_its_json(memory: registry.Registry) -> None:
    made = memory.create(SLICE, samples.slice_(devices=[{"name": f"gpu-{n}", "attributes": {"a": {"int": NUMBER}}} for n in range(128)]))
    size = store.request_bytes(SLICE, ("", json_types.text(made, "metadata", "name")), made)
    assert 128 * 25 < size < len(str(made))
