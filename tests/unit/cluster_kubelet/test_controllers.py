"""Claims from templates, and the end of reservations, allocations and generated claims."""

import time

import pytest

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.controllers import claims
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, POD
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE, UNPREPARE
from unit.cluster_kubelet.town import Town


def _generated(town: Town, pod: str) -> str:
    [status] = json_types.objects(town.find(POD, pod), "status", "resourceClaimStatuses")
    assert status["name"] == "gpu"
    return json_types.text(status, "resourceClaimName")


def test_each_pod_gets_a_claim_of_its_own_from_a_template(town: Town) -> None:
    town.plugin()
    town.offer("gpu-0", "gpu-1")
    template = objects.template("t")
    json_types.child(template, "spec")["metadata"] = {"labels": {"team": "red"}, "annotations": {"note": "x"}}
    town.create(CLAIM_TEMPLATE, template)
    pods = [town.run(objects.pod(name, template="t")) for name in ("p", "q")]
    names = [_generated(town, name) for name in ("p", "q")]
    assert [town.devices(name) for name in names] == [["gpu-0"], ["gpu-1"]]
    claim = town.claim(names[0])
    assert names[0].startswith("p-gpu-")
    assert json_types.mapping(claim, "metadata", "labels") == {"team": "red"}
    assert json_types.mapping(claim, "metadata", "annotations") == {"note": "x", "resource.kubernetes.io/pod-claim-name": "gpu"}
    [owner] = json_types.objects(claim, "metadata", "ownerReferences")
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "p", True)
    assert owner["uid"] == json_types.text(pods[0], "metadata", "uid")


def test_a_generated_claim_goes_with_its_pod(town: Town) -> None:
    plugin = town.plugin()
    town.offer("gpu-0")
    town.create(CLAIM_TEMPLATE, objects.template("t"))
    town.run(objects.pod("p", template="t"))
    name = _generated(town, "p")
    uid = town.uid(name)
    town.delete("p")
    town.gone(CLAIM, name)
    assert plugin.uids(UNPREPARE) == [uid]


def test_a_generated_claim_goes_when_its_pod_has_finished(town: Town) -> None:
    town.plugin()
    town.offer("gpu-0")
    town.create(CLAIM_TEMPLATE, objects.template("t"))
    town.create(POD, objects.pod("p", template="t", run_seconds=0.05))
    town.phase("p", "Succeeded")
    town.gone(CLAIM, _generated(town, "p"))


def test_a_generated_claim_of_a_pod_that_never_ran_goes_too(town: Town) -> None:
    town.create(CLAIM_TEMPLATE, objects.template("t"))
    town.create(POD, objects.pod("p", template="t"))
    town.until(lambda: town.api.list(CLAIM).items, "the claim")
    town.delete("p")
    town.until(lambda: not town.api.list(CLAIM).items, "the end of the claim")


def test_a_pod_waits_for_its_template(town: Town) -> None:
    town.plugin()
    town.offer("gpu-0")
    town.create(POD, objects.pod("p", template="t"))
    town.until(lambda: town.events("FailedResourceClaimCreation"), "an event")
    assert town.scheduling_message("p") == "claim gpu is not yet generated from template t"
    town.create(CLAIM_TEMPLATE, objects.template("t"))
    town.phase("p", "Running")
    assert town.events("FailedScheduling") == []


def test_a_pod_that_waits_for_its_claim_is_not_tried_and_gets_no_failure_event(town: Town) -> None:
    town.plugin()
    town.offer("gpu-0")
    town.create(POD, objects.pod("p", claim="later"))
    town.until(lambda: town.scheduling_message("p") == "claim default/later not found", "the reason")
    town.create(CLAIM, objects.claim("later"))
    town.phase("p", "Running")
    town.create(CLAIM_TEMPLATE, objects.template("t"))
    town.delete("p")
    town.gone(POD, "p")
    town.run(objects.pod("q", template="t"))
    assert town.events("FailedScheduling") == []
    assert sum("assigned default/" in text for text in town.events("Scheduled")) == 2


def test_a_generated_claim_that_was_not_recorded_is_found_again(town: Town) -> None:
    town.plugin()
    town.create(CLAIM_TEMPLATE, objects.template("t"))
    town.create(POD, objects.pod("p", template="t"))
    town.until(lambda: json_types.at(town.find(POD, "p"), "status", "resourceClaimStatuses"), "the claim")
    name = _generated(town, "p")
    forget: json_types.Object = {"status": {"resourceClaimStatuses": None}}
    town.api.patch(POD, "p", forget, namespace="default", kind=PatchKind.MERGE, subresource="status")
    town.until(lambda: json_types.at(town.find(POD, "p"), "status", "resourceClaimStatuses"), "the claim again")
    assert _generated(town, "p") == name
    assert len(town.api.list(CLAIM).items) == 1


def test_a_claim_that_was_made_for_another_pod_is_not_prepared(town: Town) -> None:
    plugin = town.plugin()
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))
    town.create(CLAIM_TEMPLATE, objects.template("t"))
    thief = town.create(POD, objects.pod("q", template="t", nodeName=objects.NODE))
    told: json_types.Object = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}}
    town.api.patch(POD, "q", told, namespace="default", kind=PatchKind.MERGE, subresource="status")
    claim = town.claim("c")
    json_types.items(claim, "status", "reservedFor").append(
        {"resource": "pods", "name": "q", "uid": json_types.text(thief, "metadata", "uid")}
    )
    town.api.update(CLAIM, claim, subresource="status")
    mine = "ResourceClaim default/c is not owned by pod q"
    town.until(lambda: any(mine in text for text in town.events("FailedPrepareDynamicResources")), "the kubelet's event")
    assert plugin.count(PREPARE) == 1


def test_a_claim_that_is_not_made_on_purpose_keeps_no_pod_waiting(town: Town) -> None:
    town.plugin()
    pod = objects.pod("p", template="t", nodeName=objects.NODE)
    town.create(POD, pod)
    told: json_types.Object = {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}
    town.api.patch(POD, "p", told, namespace="default", kind=PatchKind.MERGE, subresource="status")
    town.phase("p", "Running")


def test_a_claim_in_use_stays_until_its_last_pod_is_done(town: Town) -> None:
    town.plugin()
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))
    town.api.delete(CLAIM, "c", namespace="default")
    time.sleep(0.1)
    assert town.devices("c") == ["gpu-0"]
    town.delete("p")
    town.gone(CLAIM, "c")


def test_a_released_claim_loses_its_devices_and_its_finalizer(town: Town) -> None:
    town.plugin()
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))
    town.delete("p")
    town.until(lambda: not json_types.items(town.claim("c"), "metadata", "finalizers"), "the finalizer's end")
    assert town.claim("c").get("status") in (None, {})


def test_a_pod_of_the_same_name_does_not_inherit_a_reservation(town: Town) -> None:
    town.plugin()
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    first = town.run(objects.pod("p", claim="c"))
    town.delete("p", force=True)
    town.create(POD, objects.pod("p", claim="c"))
    second = town.phase("p", "Running")
    uids = [json_types.text(one, "uid") for one in json_types.objects(town.claim("c"), "status", "reservedFor")]
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
