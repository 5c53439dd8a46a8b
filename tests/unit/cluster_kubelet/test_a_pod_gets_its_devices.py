"""From a claim to what the container sees."""

from drakit.cluster import json_types
from drakit.cluster.resources import CLAIM, POD
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE, UNPREPARE
from unit.cluster_kubelet.town import Town


def test_a_pod_with_a_claim_runs_with_the_device_in_its_environment(town: Town) -> None:
    plugin = town.plugin()
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    pod = town.run(objects.pod("p", claim="c"))
    assert town.view("p").env == {"DEVICE_GPU": "gpu-0"}
    assert json_types.text(pod, "spec", "nodeName") == objects.NODE
    ready = [one for one in json_types.objects(pod, "status", "conditions") if one["type"] == "Ready"]
    assert [one["status"] for one in ready] == ["True"]
    assert plugin.uids(PREPARE) == [town.uid("c")]
    assert plugin.uids(UNPREPARE) == []


def test_a_pod_without_claims_just_runs(town: Town) -> None:
    town.run(objects.pod("p"))
    assert town.view("p").env == {}
