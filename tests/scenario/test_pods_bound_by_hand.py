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
from unit.cluster_kubelet.town import Town

NODES = ("node-1", "node-2")


@pytest.fixture
def town() -> Iterator[Town]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = Town(folder, nodes=NODES, https=True).start()
    for node in NODES:
        running.plugin(node=node)
        running.offer("gpu-0", node=node)
    yield running
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)


def _users(town: Town, claim: str) -> list[str]:
    return [json_types.text(one, "name") for one in json_types.objects(town.claim(claim), "status", "reservedFor")]


def _allocate(town: Town, name: str, node: str) -> None:
    """Give a claim its device on a node for nobody, as another scheduler that stopped halfway leaves it."""
    claim = town.create(CLAIM, objects.claim(name))
    selector: Object = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}],
    }
    results: Object = {"results": [{"request": "gpu", "driver": DRIVER, "pool": node, "device": "gpu-0"}]}
    town.api.update(CLAIM, claim | {"status": {"allocation": {"devices": results, "nodeSelector": selector}}}, subresource="status")


def test_a_pod_with_a_node_is_added_to_the_users_of_an_allocated_claim(town: Town) -> None:
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))
    town.run(objects.pod("q", claim="c", nodeName="node-1"))
    assert _users(town, "c") == ["p", "q"]
    town.delete("p")
    town.until(lambda: _users(town, "c") == ["q"], "the end of the first reservation")
    assert town.devices("c") == ["gpu-0"]
    town.delete("q")
    town.until(lambda: town.devices("c") == [], "the deallocation")


def test_a_pod_with_a_node_waits_until_its_claim_is_allocated_for_another_pod(town: Town) -> None:
    town.create(CLAIM, objects.claim("c"))
    town.create(POD, objects.pod("q", claim="c", nodeName="node-1"))
    town.until(
        lambda: any("is not allowed to use" in text for text in town.events("FailedPrepareDynamicResources")), "the kubelet's refusal"
    )
    assert town.devices("c") == []
    town.run(objects.pod("p", claim="c"))
    town.phase("q", "Running")
    assert sorted(_users(town, "c")) == ["p", "q"]


def test_devices_of_nobody_on_the_wrong_node_are_given_back(town: Town) -> None:
    _allocate(town, "c", "node-1")
    pod = town.run(objects.pod("p", claim="c", nodeSelector={"kubernetes.io/hostname": "node-2"}))
    assert json_types.text(pod, "spec", "nodeName") == "node-2"
    results = json_types.objects(town.claim("c"), "status", "allocation", "devices", "results")
    assert [json_types.text(result, "pool") for result in results] == ["node-2"]


def test_devices_of_nobody_on_the_right_node_are_taken_as_they_are(town: Town) -> None:
    _allocate(town, "c", "node-2")
    pod = town.run(objects.pod("p", claim="c"))
    assert json_types.text(pod, "spec", "nodeName") == "node-2"
    assert town.plugins[1].uids(PREPARE) == [town.uid("c")]


def test_devices_of_another_pod_are_never_taken(town: Town) -> None:
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))
    town.create(POD, objects.pod("q", claim="c", nodeSelector={"kubernetes.io/hostname": "node-2"}))
    town.until(lambda: "claim c is allocated on another node" in town.scheduling_message("q"), "the refusal")
    assert _users(town, "c") == ["p"]
    assert town.phase("p", "Running")
