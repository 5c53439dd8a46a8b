"""Claims from templates, and the end of reservations, allocations and generated claims."""

import time

import pytest

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.controllers import claims
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, POD
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE, UNPREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster


def _generated(cluster: QuickCluster, pod: str) -> str:
    [status] = json_types.objects(cluster.find(POD, pod), "status", "resourceClaimStatuses")
    assert status["name"] == "gpu"
    return json_types.text(status, "resourceClaimName")


def test_each_pod_gets_a_claim_of_its_own_from_a_template(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0", "gpu-1")
    template = objects.template("t")
    json_types.child(template, "spec")["metadata"] = {"labels": {"team": "red"}, "annotations": {"note": "x"}}
    cluster.create(CLAIM_TEMPLATE, template)
    pods = [cluster.run(objects.pod(name, template="t")) for name in ("p", "q")]
    names = [_generated(cluster, name) for name in ("p", "q")]
    assert [cluster.devices(name) for name in names] == [["gpu-0"], ["gpu-1"]]
    claim = cluster.claim(names[0])
    assert names[0].startswith("p-gpu-")
    assert json_types.mapping(claim, "metadata", "labels") == {"team": "red"}
    assert json_types.mapping(claim, "metadata", "annotations") == {"note": "x", "resource.kubernetes.io/pod-claim-name": "gpu"}
    [owner] = json_types.objects(claim, "metadata", "ownerReferences")
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "p", True)
    assert owner["uid"] == json_types.text(pods[0], "metadata", "uid")


def test_a_generated_claim_is_deleted_with_its_pod(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    cluster.run(objects.pod("p", template="t"))
    name = _generated(cluster, "p")
    uid = cluster.uid(name)
    cluster.delete("p")
    cluster.gone(CLAIM, name)
    assert plugin.uids(UNPREPARE) == [uid]


def test_a_generated_claim_is_deleted_when_its_pod_has_finished(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    cluster.create(POD, objects.pod("p", template="t", run_seconds=0.05))
    cluster.phase("p", "Succeeded")
    cluster.gone(CLAIM, _generated(cluster, "p"))


def test_a_generated_claim_of_a_pod_that_never_ran_is_deleted(cluster: QuickCluster) -> None:
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    cluster.create(POD, objects.pod("p", template="t"))
    cluster.until(lambda: cluster.api.list(CLAIM).items, "the claim")
    cluster.delete("p")
    cluster.until(lambda: not cluster.api.list(CLAIM).items, "the end of the claim")


def test_a_pod_waits_for_its_template(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(POD, objects.pod("p", template="t"))
    cluster.until(lambda: cluster.events("FailedResourceClaimCreation"), "an event")
    assert cluster.scheduling_message("p") == "claim gpu is not yet generated from template t; check that the template exists"
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    cluster.phase("p", "Running")
    assert cluster.events("FailedScheduling") == []


def test_a_pod_without_its_claim_is_not_scheduled_and_has_no_failure_event(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(POD, objects.pod("p", claim="later"))
    cluster.until(lambda: cluster.scheduling_message("p") == "claim default/later not found", "the reason")
    cluster.create(CLAIM, objects.claim("later"))
    cluster.phase("p", "Running")
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    cluster.delete("p")
    cluster.gone(POD, "p")
    cluster.run(objects.pod("q", template="t"))
    assert cluster.events("FailedScheduling") == []
    cluster.until(lambda: sum("assigned default/" in text for text in cluster.events("Scheduled")) == 2, "both events")


def test_a_generated_claim_that_was_not_recorded_is_found_again(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    cluster.create(POD, objects.pod("p", template="t"))
    cluster.until(lambda: json_types.at(cluster.find(POD, "p"), "status", "resourceClaimStatuses"), "the claim")
    name = _generated(cluster, "p")
    forget: json_types.Object = {"status": {"resourceClaimStatuses": None}}
    cluster.api.patch(POD, "p", forget, namespace="default", kind=PatchKind.MERGE, subresource="status")
    cluster.until(lambda: json_types.at(cluster.find(POD, "p"), "status", "resourceClaimStatuses"), "the claim again")
    assert _generated(cluster, "p") == name
    assert len(cluster.api.list(CLAIM).items) == 1


def test_a_claim_that_was_made_for_another_pod_is_not_prepared(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    thief = cluster.create(POD, objects.pod("q", template="t", nodeName=objects.NODE))
    cluster.until(lambda: json_types.at(cluster.api.get(POD, "q", "default"), "status", "resourceClaimStatuses"), "its own claim's name")
    result: json_types.Object = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}}
    cluster.api.patch(POD, "q", result, namespace="default", kind=PatchKind.MERGE, subresource="status")
    claim = cluster.claim("c")
    json_types.items(claim, "status", "reservedFor").append(
        {"resource": "pods", "name": "q", "uid": json_types.text(thief, "metadata", "uid")}
    )
    cluster.api.update(CLAIM, claim, subresource="status")
    mine = "ResourceClaim default/c is not owned by pod q"
    cluster.until(lambda: any(mine in text for text in cluster.events("FailedPrepareDynamicResources")), "the kubelet's event")
    assert plugin.count(PREPARE) == 1


def test_a_claim_deliberately_not_generated_delays_no_pod(cluster: QuickCluster) -> None:
    cluster.plugin()
    pod = objects.pod("p", template="t", nodeName=objects.NODE)
    cluster.create(POD, pod)
    result: json_types.Object = {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}
    cluster.api.patch(POD, "p", result, namespace="default", kind=PatchKind.MERGE, subresource="status")
    cluster.phase("p", "Running")


def test_a_claim_in_use_stays_until_its_last_pod_is_done(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.api.delete(CLAIM, "c", namespace="default")
    time.sleep(0.1)
    assert cluster.devices("c") == ["gpu-0"]
    cluster.delete("p")
    cluster.gone(CLAIM, "c")


def test_a_released_claim_loses_its_devices_and_its_finalizer(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.delete("p")
    cluster.until(lambda: not json_types.items(cluster.claim("c"), "metadata", "finalizers"), "the finalizer's end")
    assert cluster.claim("c").get("status") in (None, {})


def test_a_pod_of_the_same_name_does_not_inherit_a_reservation(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    first = cluster.run(objects.pod("p", claim="c"))
    cluster.delete("p", force=True)
    cluster.create(POD, objects.pod("p", claim="c"))
    second = cluster.phase("p", "Running")
    uids = [json_types.text(one, "uid") for one in json_types.objects(cluster.claim("c"), "status", "reservedFor")]
    assert uids == [json_types.text(second, "metadata", "uid")]
    assert uids != [json_types.text(first, "metadata", "uid")]


@pytest.mark.parametrize(
    "pod,entry,wanted",
    [
        ("p", "gpu", "p-gpu-"),
        ("a" * 60, "b" * 60, "a" * 28 + "-" + "b" * 28 + "-"),
        ("a" * 250, "gpu", "a" * 55 + "-g-"),
    ],
)
def test_long_names_are_cut_in_proportion(pod: str, entry: str, wanted: str) -> None:
    assert claims.generate_name(pod, entry) == wanted
