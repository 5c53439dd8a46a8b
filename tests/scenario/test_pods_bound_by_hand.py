"""Pods that name their node themselves, and claims whose devices are where their pod cannot go."""

import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, POD
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER, PREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster

NODES = ("node-1", "node-2")


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = QuickCluster(folder, nodes=NODES, https=True).start()
    for node in NODES:
        running.plugin(node=node)
        running.offer("gpu-0", node=node)
    yield running
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)


def _users(cluster: QuickCluster, claim: str) -> list[str]:
    return [json_types.text(one, "name") for one in json_types.objects(cluster.claim(claim), "status", "reservedFor")]


def _allocate(cluster: QuickCluster, name: str, node: str) -> None:
    """Give a claim its device on a node for nobody, as another scheduler that stopped halfway leaves it."""
    claim = cluster.create(CLAIM, objects.claim(name))
    selector: Object = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}],
    }
    results: Object = {"results": [{"request": "gpu", "driver": DRIVER, "pool": node, "device": "gpu-0"}]}
    cluster.api.update(CLAIM, claim | {"status": {"allocation": {"devices": results, "nodeSelector": selector}}}, subresource="status")


def test_a_pod_with_a_node_is_added_to_the_users_of_an_allocated_claim(cluster: QuickCluster) -> None:
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.run(objects.pod("q", claim="c", nodeName="node-1"))
    assert _users(cluster, "c") == ["p", "q"]
    cluster.delete("p")
    cluster.until(lambda: _users(cluster, "c") == ["q"], "the end of the first reservation")
    assert cluster.devices("c") == ["gpu-0"]
    cluster.delete("q")
    cluster.until(lambda: cluster.devices("c") == [], "the deallocation")


def test_a_pod_with_a_node_waits_until_its_claim_is_allocated_for_another_pod(cluster: QuickCluster) -> None:
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("q", claim="c", nodeName="node-1"))
    cluster.until(
        lambda: any("is not allowed to use" in text for text in cluster.events("FailedPrepareDynamicResources")), "the kubelet's refusal"
    )
    assert cluster.devices("c") == []
    cluster.run(objects.pod("p", claim="c"))
    cluster.phase("q", "Running")
    assert sorted(_users(cluster, "c")) == ["p", "q"]


def test_unreserved_devices_on_another_node_are_released(cluster: QuickCluster) -> None:
    _allocate(cluster, "c", "node-1")
    pod = cluster.run(objects.pod("p", claim="c", nodeSelector={"kubernetes.io/hostname": "node-2"}))
    assert json_types.text(pod, "spec", "nodeName") == "node-2"
    results = json_types.objects(cluster.claim("c"), "status", "allocation", "devices", "results")
    assert [json_types.text(result, "pool") for result in results] == ["node-2"]


def test_unreserved_devices_on_the_pods_node_are_used(cluster: QuickCluster) -> None:
    _allocate(cluster, "c", "node-2")
    pod = cluster.run(objects.pod("p", claim="c"))
    assert json_types.text(pod, "spec", "nodeName") == "node-2"
    assert cluster.plugins[1].uids(PREPARE) == [cluster.uid("c")]


def test_devices_of_another_pod_are_never_taken(cluster: QuickCluster) -> None:
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.create(POD, objects.pod("q", claim="c", nodeSelector={"kubernetes.io/hostname": "node-2"}))
    cluster.until(lambda: "claim c is allocated on another node" in cluster.scheduling_message("q"), "the refusal")
    assert _users(cluster, "c") == ["p"]
    assert cluster.phase("p", "Running")
