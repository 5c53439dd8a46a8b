"""Pods that ask for extended resources and get devices (KEP-5004)."""

import contextlib
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLASS, NODE, POD, TAINT_RULE
from drakit_cluster.scheduling.explain import whatif
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER, PREPARE, UNPREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster

RESOURCE = "example.com/gpu"
GENERATED = re.compile("-extended-resources-[a-z0-9]{5}")
"""The end of the name of a claim that the scheduler made."""
BY_CLASS = f"deviceclass.resource.kubernetes.io/{objects.CLASS}"


@contextlib.contextmanager
def _quick_cluster(gates: FeatureGates | None = None, nodes: tuple[str, ...] = ("node-1",)) -> Iterator[QuickCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = QuickCluster(folder, nodes=nodes, gates=gates, https=True)
    try:
        running.start()
        named = running.api.get(CLASS, objects.CLASS)
        json_types.child(named, "spec")["extendedResourceName"] = RESOURCE
        running.api.update(CLASS, named)
        for node in nodes:
            running.plugin(node=node)
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    with _quick_cluster() as running:
        running.offer("gpu-0", "gpu-1", "gpu-2")
        yield running


def _container(name: str, amount: int | str, resource: str = RESOURCE, **fields: Json) -> Object:
    amounts: Object = {resource: str(amount), "cpu": "1"}
    body: Object = {"name": name, "image": "none", "resources": {"requests": amounts, "limits": {resource: str(amount)}}}
    return body | fields


def _pod(*containers: Object, inits: Sequence[Object] = (), name: str = "p", selector: Json = None) -> Object:
    return objects.pod(name, containers=containers, inits=inits, nodeSelector=selector or {})


def _special(cluster: QuickCluster, pod: str = "p") -> tuple[Object, list[tuple[str, str, str]]]:
    """Return the pod's special claim, and which container gets which resource from which request."""
    status = json_types.mapping(cluster.find(POD, pod) or {}, "status", "extendedResourceClaimStatus")
    mappings = [
        (json_types.text(one, "containerName"), json_types.text(one, "resourceName"), json_types.text(one, "requestName"))
        for one in json_types.objects(status, "requestMappings")
    ]
    return cluster.claim(json_types.text(status, "resourceClaimName")), mappings


def _requests(claim: Object) -> dict[str, int]:
    requests = json_types.objects(claim, "spec", "devices", "requests")
    return {json_types.text(one, "name"): json_types.number(one, "exactly", "count") for one in requests}


@pytest.mark.parametrize("resource", [RESOURCE, BY_CLASS])
def test_a_pod_gets_the_devices_of_the_class_that_stands_for_a_resource(cluster: QuickCluster, resource: str) -> None:
    pod = cluster.run(_pod(_container("main", 2, resource)))
    claim, mappings = _special(cluster)
    position = sorted([resource, "cpu"]).index(resource)
    request = f"container-0-request-{position}"
    assert mappings == [("main", resource, request)]
    assert _requests(claim) == {request: 2}
    metadata = json_types.mapping(claim, "metadata")
    assert json_types.text(metadata, "name").startswith("p-extended-resources-")
    assert json_types.mapping(metadata, "annotations") == {"resource.kubernetes.io/extended-resource-claim": "true"}
    [owner] = json_types.objects(metadata, "ownerReferences")
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", json_types.text(pod, "metadata", "uid"), True)
    assert cluster.devices(json_types.text(metadata, "name")) == ["gpu-0", "gpu-1"]
    assert len(cluster.view("p").env) > 0


def test_the_claim_of_extended_resources_is_deleted_with_its_pod(cluster: QuickCluster) -> None:
    cluster.run(_pod(_container("main", 1)))
    uid = json_types.text(_special(cluster)[0], "metadata", "uid")
    cluster.delete("p")
    cluster.gone(POD, "p")
    cluster.until(lambda: not cluster.api.list(CLAIM).items, "the end of the claim")
    assert (cluster.plugins[0].uids(PREPARE), cluster.plugins[0].uids(UNPREPARE)) == ([uid], [uid])


def test_a_no_execute_taint_evicts_pods_with_extended_resources(cluster: QuickCluster) -> None:
    cluster.run(_pod(_container("main", 1)))
    taint: Object = {"key": "example.com/broken", "effect": "NoExecute"}
    cluster.create(TAINT_RULE, {"metadata": {"name": "r"}, "spec": {"deviceSelector": {"device": "gpu-0"}, "taint": taint}})
    cluster.gone(POD, "p")


def test_every_container_gets_its_own_devices_alone(cluster: QuickCluster) -> None:
    cluster.run(_pod(_container("first", 1), _container("second", 2), objects.container("third")))
    claim, mappings = _special(cluster)
    assert [(container, request) for container, _, request in mappings] == [
        ("first", "container-0-request-1"),
        ("second", "container-1-request-1"),
    ]
    assert _requests(claim) == {"container-0-request-1": 1, "container-1-request-1": 2}
    first, second, third = (
        {name: value for name, value in cluster.view("p", name).env.items() if name.startswith("DEVICE_")}
        for name in ("first", "second", "third")
    )
    assert first == {"DEVICE_CONTAINER-0-REQUEST-1": "gpu-0"}
    assert set(second) == {"DEVICE_CONTAINER-1-REQUEST-1"}
    assert third == {}


def test_init_containers_use_devices_of_later_containers(cluster: QuickCluster) -> None:
    sidecar = _container("sidecar", 1, restartPolicy="Always")
    cluster.create(POD, _pod(_container("main", 1), inits=[_container("small", 1), _container("big", 3), sidecar]))
    cluster.until(lambda: json_types.at(cluster.find(POD, "p"), "spec", "nodeName"), "the binding")
    claim, mappings = _special(cluster)
    assert _requests(claim) == {"container-1-request-1": 1, "container-2-request-1": 1, "container-3-request-1": 1}
    by_container = {name: [request for one, _, request in mappings if one == name] for name in ("small", "big", "sidecar", "main")}
    assert by_container == {
        "small": ["container-2-request-1"],
        "big": ["container-2-request-1", "container-3-request-1", "container-1-request-1"],
        "sidecar": ["container-2-request-1"],
        "main": ["container-3-request-1"],
    }


def test_a_pod_that_waits_for_resources_has_no_claim(cluster: QuickCluster) -> None:
    cluster.run(_pod(_container("main", 2), name="first"))
    cluster.create(POD, _pod(_container("main", 2), name="second"))
    cluster.until(lambda: cluster.scheduling_message("second"), "the refusal")
    assert len(cluster.api.list(CLAIM).items) == 1
    cluster.delete("first")
    cluster.phase("second", "Running")


def test_a_resource_that_nothing_offers_is_insufficient(cluster: QuickCluster) -> None:
    cluster.create(POD, _pod(_container("main", 1, "example.com/unknown")))
    cluster.until(lambda: "insufficient example.com/unknown" in cluster.scheduling_message("p"), "the refusal")


def test_a_claim_and_extended_resources_are_allocated_on_one_node(cluster: QuickCluster) -> None:
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c", containers=[_container("main", 2)]))
    special = json_types.text(_special(cluster)[0], "metadata", "name")
    assert sorted([*cluster.devices("c"), *cluster.devices(special)]) == ["gpu-0", "gpu-1", "gpu-2"]


def test_the_newest_class_of_a_resource_is_used(cluster: QuickCluster) -> None:
    newer = objects.device_class("newer")
    json_types.child(newer, "spec")["extendedResourceName"] = RESOURCE
    old = cluster.api.get(CLASS, objects.CLASS)
    cluster.until(lambda: _created(cluster, newer) > json_types.text(old, "metadata", "creationTimestamp"), "a newer class")
    cluster.run(_pod(_container("main", 1)))
    [request] = json_types.objects(_special(cluster)[0], "spec", "devices", "requests")
    assert json_types.text(request, "exactly", "deviceClassName") == "newer"


def _created(cluster: QuickCluster, body: Object) -> str:
    """Create a class anew and return when it was created, in whole seconds."""
    name = json_types.text(body, "metadata", "name")
    if cluster.find(CLASS, name):
        cluster.api.delete(CLASS, name)
    return json_types.text(cluster.create(CLASS, body), "metadata", "creationTimestamp")


def test_a_node_whose_device_plugin_offers_the_resource_needs_no_claim() -> None:
    with _quick_cluster(nodes=("node-1", "node-2")) as cluster:
        cluster.offer("gpu-0", node="node-2")
        node = cluster.api.get(NODE, "node-1")
        json_types.child(node, "status")["allocatable"] = {RESOURCE: "4"}
        cluster.api.update(NODE, node, subresource="status")
        cluster.run(_pod(_container("main", 1)))
        assert "extendedResourceClaimStatus" not in json_types.mapping(cluster.find(POD, "p"), "status")
        assert json_types.text(cluster.find(POD, "p"), "spec", "nodeName") == "node-1"
        cluster.run(_pod(_container("main", 1), name="q", selector={"kubernetes.io/hostname": "node-2"}))
        assert _special(cluster, "q")[0]


def test_resources_of_device_plugins_are_counted_and_released() -> None:
    with _quick_cluster() as cluster:
        node = cluster.api.get(NODE, "node-1")
        json_types.child(node, "status")["allocatable"] = {RESOURCE: "3"}
        cluster.api.update(NODE, node, subresource="status")
        cluster.run(_pod(_container("main", 2), name="a"))
        cluster.create(POD, _pod(_container("main", 1), _container("side", 1), name="b"))
        cluster.until(lambda: f"insufficient {RESOURCE}" in cluster.scheduling_message("b"), "the refusal")
        cluster.run(_pod(_container("main", 1), inits=[_container("setup", 1)], name="c"))
        cluster.delete("a")
        cluster.phase("b", "Running")
        assert cluster.api.list(CLAIM).items == []


def test_with_the_gate_off_resources_make_no_claims() -> None:
    with _quick_cluster(gates=FeatureGates.of({"DRAExtendedResource": False})) as cluster:
        cluster.offer("gpu-0")
        cluster.create(POD, _pod(_container("main", 1)))
        cluster.until(
            lambda: f"insufficient {RESOURCE}" in cluster.scheduling_message("p"), "the refusal, as for a resource that no node has"
        )
        assert cluster.api.list(CLAIM).items == []
        assert "extendedResourceName" not in json_types.mapping(cluster.api.get(CLASS, objects.CLASS), "spec")


def test_the_driver_prepares_an_extended_resource_as_an_ordinary_claim(cluster: QuickCluster) -> None:
    cluster.run(_pod(_container("main", 1)))
    claim, _ = _special(cluster)
    [result] = json_types.objects(claim, "status", "allocation", "devices", "results")
    assert (result["driver"], result["request"]) == (DRIVER, "container-0-request-1")
    assert len(json_types.items(claim, "status", "reservedFor")) == 1


def test_allocate_gives_pods_what_the_cluster_gives_them(cluster: QuickCluster) -> None:
    pods = [
        _pod(_container("main", 1, BY_CLASS), inits=[_container("first", 2, BY_CLASS)], name="a"),
        _pod(_container("main", 1), name="b"),
        _pod(_container("main", 1), name="c"),
    ]
    world = whatif.World.of(lambda kind: cluster.api.list(kind).items)
    made = [cluster.create(POD, pod) for pod in pods]
    expected = whatif.Scheduler(replace(world, pods=made), FeatureGates(), world.known_nodes()).decide()
    for decision in expected:
        name = decision.subject.removeprefix("pod default/")
        if not decision.fits:
            assert "claim default/c-extended-resources-*, request container-0-request-1: needs 1 device" in decision.message
            cluster.until(lambda: cluster.scheduling_message("c"), "the refusal")
            assert GENERATED.sub("-extended-resources-*", cluster.scheduling_message("c")) == decision.message
            continue
        cluster.phase(name, "Running")
        claim, _ = _special(cluster, name)
        [given] = decision.given
        assert cluster.devices(json_types.text(claim, "metadata", "name")) == [
            json_types.text(one, "device") for one in json_types.objects(given.allocation, "devices", "results")
        ]
