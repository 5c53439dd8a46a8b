"""Jobs run pods that end: so many, so many at the same time, by number, again after failures, and not while suspended."""

import pytest

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM_TEMPLATE, JOB, POD
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QuickCluster


def job(*, pod: Object | None = None, seconds: float = 0.1, **spec: Json) -> Object:
    body = json_types.mapping(pod or objects.pod("x"), "spec") | {"restartPolicy": "Never"}
    metadata: Object = {"annotations": {"drakit.dev/run-seconds": str(seconds)}}
    return {"metadata": {"name": "j", "namespace": "default"}, "spec": {"template": {"metadata": metadata, "spec": body}, **spec}}


def status(cluster: QuickCluster, *fields: str) -> tuple[int, ...]:
    found = cluster.find(JOB, "j") or {}
    return tuple(json_types.number(found, "status", field) for field in fields)


def ended(cluster: QuickCluster) -> str:
    conditions = json_types.objects(cluster.find(JOB, "j") or {}, "status", "conditions")
    return next((f"{one['type']} {one['reason']}" for one in conditions if one["status"] == "True"), "")


def active(cluster: QuickCluster) -> list[Object]:
    return [pod for pod in cluster.api.list(POD).items if json_types.text(pod, "status", "phase") in ("Pending", "Running")]


def test_a_job_runs_one_pod_to_its_end_and_keeps_it(cluster: QuickCluster) -> None:
    cluster.create(JOB, job())
    cluster.until(lambda: ended(cluster) == "Complete CompletionsReached", "the end")
    assert status(cluster, "succeeded", "failed", "active") == (1, 0, 0)
    [pod] = cluster.api.list(POD).items
    assert json_types.text(pod, "metadata", "labels", "job-name") == "j"
    assert json_types.text(cluster.find(JOB, "j") or {}, "status", "completionTime")
    cluster.delete(json_types.text(pod, "metadata", "name"))
    cluster.gone(POD, json_types.text(pod, "metadata", "name"))
    assert status(cluster, "succeeded") == (1,)


def test_a_job_finishes_on_fewer_devices_than_its_parallelism_asks_for(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    cluster.create(JOB, job(pod=objects.pod("x", template="t"), completions=5, parallelism=3))
    cluster.until(lambda: ended(cluster) == "Complete CompletionsReached", "the end")
    assert status(cluster, "succeeded", "failed") == (5, 0)
    assert len(cluster.api.list(POD).items) == 5


def test_never_more_pods_run_than_parallelism_allows_or_completions_need(cluster: QuickCluster) -> None:
    cluster.create(JOB, job(completions=3, parallelism=2, seconds=600))
    cluster.until(lambda: status(cluster, "active") == (2,), "two pods")
    cluster.api.patch(JOB, "j", {"spec": {"parallelism": 7}}, namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: status(cluster, "active") == (3,), "no more than three pods")
    cluster.api.patch(JOB, "j", {"spec": {"parallelism": 1}}, namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: len(active(cluster)) == 1, "one pod")


def test_each_pod_of_an_indexed_job_has_a_number_in_its_environment(cluster: QuickCluster) -> None:
    cluster.create(JOB, job(completions=3, parallelism=3, completionMode="Indexed"))
    cluster.until(lambda: ended(cluster) == "Complete CompletionsReached", "the end")
    assert json_types.text(cluster.find(JOB, "j") or {}, "status", "completedIndexes") == "0-2"
    pods = cluster.api.list(POD).items
    numbers = {json_types.text(pod, "metadata", "annotations", "batch.kubernetes.io/job-completion-index") for pod in pods}
    seen = {json_types.text(pod, "spec", "containers", 0, "env", 0, "value") for pod in pods}
    assert numbers == seen == {"0", "1", "2"}
    assert {json_types.text(pod, "spec", "hostname") for pod in pods} == {"j-0", "j-1", "j-2"}


def test_a_suspended_job_has_no_pods_until_it_is_resumed(cluster: QuickCluster) -> None:
    cluster.create(JOB, job(suspend=True))
    cluster.until(lambda: ended(cluster) == "Suspended JobSuspended", "the suspension")
    assert not cluster.api.list(POD).items
    cluster.api.patch(JOB, "j", {"spec": {"suspend": False}}, namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: ended(cluster) == "Complete CompletionsReached", "the end")


def fail(cluster: QuickCluster) -> None:
    """End the pod that runs with a failure, as an eviction does."""
    cluster.until(lambda: any(json_types.text(pod, "status", "phase") == "Running" for pod in active(cluster)), "a pod that runs")
    name = json_types.text(active(cluster)[0], "metadata", "name")
    cluster.api.patch(POD, name, {"status": {"phase": "Failed"}}, namespace="default", kind=PatchKind.MERGE, subresource="status")


def test_a_job_fails_after_more_failures_than_its_back_off_limit(cluster: QuickCluster) -> None:
    cluster.create(JOB, job(seconds=600, backoffLimit=1))
    fail(cluster)
    cluster.until(lambda: status(cluster, "failed") == (1,), "the first failure")
    assert ended(cluster) == ""
    fail(cluster)
    cluster.until(lambda: ended(cluster) == "Failed BackoffLimitExceeded", "the end")
    assert not active(cluster)


def test_a_pod_that_is_deleted_counts_neither_as_done_nor_as_failed(cluster: QuickCluster) -> None:
    cluster.create(JOB, job(seconds=600, completions=3, parallelism=3))
    cluster.until(lambda: status(cluster, "ready") == (3,), "three pods")
    cluster.api.patch(JOB, "j", {"spec": {"parallelism": 1}}, namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: len(cluster.api.list(POD).items) == 1, "the end of two")
    cluster.delete(json_types.text(cluster.api.list(POD).items[0], "metadata", "name"))
    cluster.until(lambda: status(cluster, "ready") == (1,), "another one")
    assert (status(cluster, "succeeded", "failed"), ended(cluster)) == ((0, 0), "")


def test_a_deadline_passes_while_a_job_waits_after_a_failure(cluster: QuickCluster) -> None:
    cluster.create(JOB, job(seconds=600, activeDeadlineSeconds=3))
    fail(cluster)
    cluster.until(lambda: ended(cluster) == "Failed DeadlineExceeded", "the deadline", timeout=9)


def test_restarts_in_place_count_against_the_back_off_limit(cluster: QuickCluster) -> None:
    made = job(seconds=600, backoffLimit=2)
    json_types.mapping(made, "spec", "template", "spec")["restartPolicy"] = "OnFailure"
    cluster.create(JOB, made)
    cluster.until(lambda: status(cluster, "ready") == (1,), "the pod")
    [pod] = cluster.api.list(POD).items
    containers = [{**one, "restartCount": 2} for one in json_types.objects(pod, "status", "containerStatuses")]
    patch: Object = {"status": {"containerStatuses": json_types.from_objects(containers)}}
    name = json_types.text(pod, "metadata", "name")
    cluster.api.patch(POD, name, patch, namespace="default", kind=PatchKind.MERGE, subresource="status")
    cluster.until(lambda: ended(cluster) == "Failed BackoffLimitExceeded", "the end")


def test_a_job_ends_at_its_deadline_and_is_deleted_when_its_time_after_that_is_over(cluster: QuickCluster) -> None:
    cluster.create(JOB, job(seconds=600, activeDeadlineSeconds=1, ttlSecondsAfterFinished=1))
    cluster.until(lambda: ended(cluster) == "Failed DeadlineExceeded", "the deadline")
    cluster.gone(JOB, "j")
    cluster.until(lambda: not cluster.api.list(POD).items, "the end of its pods")


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"podFailurePolicy": {"rules": []}}, "spec.podFailurePolicy: Forbidden"),
        ({"backoffLimitPerIndex": 1}, "spec.backoffLimitPerIndex: Forbidden"),
        ({"completionMode": "Indexed", "parallelism": 2}, "spec.completions: Required value"),
        ({"parallelism": -1}, "spec.parallelism: Invalid value"),
    ],
)
def test_a_job_field_that_nothing_follows_is_refused(cluster: QuickCluster, fields: dict[str, Json], message: str) -> None:
    made = job()
    json_types.mapping(made, "spec").update(fields)
    with pytest.raises(errors.InvalidError) as raised:
        cluster.create(JOB, made)
    assert message in str(raised.value)


def test_a_job_selects_its_own_pods_by_its_uid(cluster: QuickCluster) -> None:
    cluster.create(JOB, job(seconds=600))
    cluster.until(lambda: len(active(cluster)) == 1, "the pod")
    made, [pod] = cluster.find(JOB, "j") or {}, active(cluster)
    uid = json_types.text(made, "metadata", "uid")
    assert json_types.at(made, "spec", "selector") == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    wanted = {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid, "batch.kubernetes.io/job-name": "j", "job-name": "j"}
    for labelled in (json_types.mapping(made, "spec", "template"), pod):
        assert json_types.mapping(labelled, "metadata", "labels") == wanted


@pytest.mark.parametrize(
    "spec, labels, message",
    [
        ({"selector": {"matchLabels": {"a": "b"}}}, {"a": "b"}, "spec.selector: Forbidden"),
        ({}, {"batch.kubernetes.io/controller-uid": "of another"}, "does not match template"),
    ],
)
def test_a_job_with_the_selector_or_label_of_another_is_refused(cluster: QuickCluster, spec: Object, labels: Object, message: str) -> None:
    made = job()
    json_types.mapping(made, "spec").update(spec)
    json_types.mapping(made, "spec", "template", "metadata")["labels"] = labels
    with pytest.raises(errors.InvalidError) as raised:
        cluster.create(JOB, made)
    assert message in str(raised.value)


def test_the_selector_of_a_job_does_not_change(cluster: QuickCluster) -> None:
    cluster.create(JOB, job(seconds=600))
    cluster.api.patch(JOB, "j", {"metadata": {"labels": {"a": "b"}}}, namespace="default", kind=PatchKind.MERGE)
    with pytest.raises(errors.InvalidError, match=r"spec\.selector"):
        cluster.api.patch(JOB, "j", {"spec": {"selector": None}}, namespace="default", kind=PatchKind.MERGE)


def test_pods_of_a_job_must_be_allowed_to_end(cluster: QuickCluster) -> None:
    made = job()
    json_types.mapping(made, "spec", "template", "spec")["restartPolicy"] = "Always"
    with pytest.raises(errors.InvalidError, match=r'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'):
        cluster.create(JOB, made)
