"""What etcd would not take is refused, in the words and with the codes that a real server has."""

import httpx
import pytest

from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.storage import store
from drakit_cluster.objects import errors
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CONFIGMAP
from fakes import waits


def config(size: int) -> Object:
    return {"metadata": {"name": "c", "namespace": "default"}, "data": {"key": "x" * size}}


def test_an_object_above_etcds_limit_is_refused_and_not_stored(memory: registry.Registry) -> None:
    assert memory.create(CONFIGMAP, config(store.SIZE_LIMIT - 1000))
    memory.delete(CONFIGMAP, "c", namespace="default")
    with pytest.raises(errors.StorageError, match=r"^etcdserver: request is too large$"):
        memory.create(CONFIGMAP, config(store.SIZE_LIMIT))
    assert memory.list(CONFIGMAP).items == []


def test_an_update_that_grows_too_large_leaves_the_object_as_it_was(memory: registry.Registry) -> None:
    made = memory.create(CONFIGMAP, config(10))
    with pytest.raises(errors.StorageError):
        memory.update(CONFIGMAP, made | {"data": {"key": "x" * store.SIZE_LIMIT}})
    assert memory.get(CONFIGMAP, "c", "default") == made


def test_the_status_has_the_codes_of_a_real_server(server: apiserver.ApiServer) -> None:
    headers = {"authorization": f"Bearer {server.issue_token('t', ('system:masters',))}"}
    path = CONFIGMAP.path("default")
    with httpx.Client(base_url=server.url, verify=False, headers=headers, timeout=waits.SECONDS) as raw:  # noqa: S501 -- codes are asked for here.
        stored = raw.post(path, json=config(store.SIZE_LIMIT))
        body = raw.post(path, json=config(3 << 20))
    assert stored.status_code == 500
    assert "reason" not in stored.json()
    assert errors.from_status(stored.json()).message == "etcdserver: request is too large"
    assert (body.status_code, body.json()["reason"]) == (413, "RequestEntityTooLarge")
    assert body.json()["message"] == "Request entity too large: limit is 3145728"
