"""The official Python client against the server: its models, its watch, its way of applying."""

import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client as official
from kubernetes import config
from kubernetes import watch as watching

from drakit.cluster import apiserver, json_types, registry
from drakit.cluster.json_types import Json
from drakit.cluster.resources import CLAIM, SLICE
from unit.cluster import samples

WATCH: Any = watching.Watch  # The library has no types.


@pytest.fixture
def connection(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> Iterator[Any]:
    path = tmp_path / "kubeconfig"
    server.write_kubeconfig(path)
    with config.new_client_from_config(str(path)) as connected:
        yield connected
        connected.rest_client.pool_manager.clear()


@pytest.fixture
def dra(connection: Any) -> Any:
    return official.ResourceV1Api(connection)


@pytest.fixture
def core(connection: Any) -> Any:
    return official.CoreV1Api(connection)


def test_it_creates_lists_updates_and_deletes_slices(dra: Any) -> None:
    made = dra.create_resource_slice(samples.slice_())
    assert made.spec.pool.resource_slice_count == 1
    assert [one.metadata.name for one in dra.list_resource_slice(field_selector="spec.nodeName=n1").items] == [made.metadata.name]
    made.spec.devices[0].name = "gpu-7"
    stored = dra.replace_resource_slice(made.metadata.name, made)
    assert stored.metadata.generation == 2
    with pytest.raises(official.ApiException) as stale:
        dra.replace_resource_slice(made.metadata.name, made)
    assert stale.value.status == 409
    dra.delete_resource_slice(made.metadata.name)
    with pytest.raises(official.ApiException) as missing:
        dra.read_resource_slice(made.metadata.name)
    assert missing.value.status == 404


def test_it_watches_from_a_list(dra: Any, memory: registry.Registry) -> None:
    since = dra.list_resource_slice().metadata.resource_version
    memory.create(SLICE, samples.slice_())
    watcher = WATCH()
    seen = []
    stream = watcher.stream(dra.list_resource_slice, resource_version=since, timeout_seconds=20)
    for event in stream:
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 1:
            threading.Thread(target=memory.delete, args=(SLICE, "0-n1-aaaaa")).start()
        else:
            watcher.stop()
    stream.close()
    assert seen == [("ADDED", "0-n1-aaaaa"), ("DELETED", "0-n1-aaaaa")]


def test_its_watch_learns_that_the_history_is_lost(dra: Any, memory: registry.Registry) -> None:
    since = dra.list_resource_slice().metadata.resource_version
    memory.create(SLICE, samples.slice_())
    memory.store.forget_history()
    stream = WATCH().stream(dra.list_resource_slice, resource_version=since, timeout_seconds=5)
    with pytest.raises(official.ApiException) as gone:
        next(iter(stream))
    assert gone.value.status == 410


def test_it_patches_a_pods_status(core: Any) -> None:
    core.create_namespaced_pod("default", samples.pod())
    body: Json = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    assert core.patch_namespaced_pod_status("p1", "default", body).status.phase == "Running"
    core.patch_namespaced_pod_status("p1", "default", {"status": {"conditions": [{"type": "A", "status": "True"}]}})
    found = core.read_namespaced_pod("p1", "default").status
    assert sorted(one.type for one in found.conditions) == ["A", "Ready"]
    assert core.list_pod_for_all_namespaces(field_selector="status.phase=Running").items != []


def test_it_applies_the_status_of_a_claims_devices(dra: Any, memory: registry.Registry) -> None:
    made = memory.create(CLAIM, samples.claim())
    memory.update(CLAIM, samples.allocated(made, samples.result()), subresource="status")
    body: Json = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c1", "namespace": "default"},
        "status": {"devices": [samples.device_status(conditions=samples.ready())]},
    }
    stored = dra.patch_namespaced_resource_claim_status(
        "c1",
        "default",
        body,
        field_manager="gpu.drakit.dev",
        force=True,
        _content_type="application/apply-patch+yaml",
    )
    assert stored.status.devices[0].conditions[0].type == "Ready"
    assert stored.status.allocation.devices.results[0].device == "gpu-0"
    managers = json_types.objects(memory.get(CLAIM, "c1", "default"), "metadata", "managedFields")
    assert ("gpu.drakit.dev", "Apply") in {(one["manager"], one["operation"]) for one in managers}
    assert {one.operation for one in stored.metadata.managed_fields} == {"Apply", "Update"}


def test_an_invalid_object_names_the_field(dra: Any) -> None:
    with pytest.raises(official.ApiException) as refused:
        dra.create_resource_slice(samples.slice_(allNodes=True))
    assert refused.value.status == 422
    assert "exactly one of" in str(refused.value.body)


def test_it_deletes_nodes_and_reads_the_version(core: Any, connection: Any) -> None:
    core.create_node({"metadata": {"name": "n1"}})
    core.delete_node("n1")
    assert core.list_node().items == []
    assert official.VersionApi(connection).get_code().minor == "36"
