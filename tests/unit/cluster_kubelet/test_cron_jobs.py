"""CronJobs create Jobs at the times of their schedule, as their policy allows, and keep those that ended last."""

import datetime

import pytest

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.objects import errors, json_types, naming
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CRON_JOB, JOB, POD
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QuickCluster


def cron_job(*, seconds: float = 0.1, **spec: Json) -> Object:
    pod = json_types.mapping(objects.pod("x"), "spec") | {"restartPolicy": "Never"}
    template: Object = {"metadata": {"annotations": {"drakit.dev/run-seconds": str(seconds)}}, "spec": pod}
    made: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"template": template}}
    return {"metadata": {"name": "c", "namespace": "default"}, "spec": {"schedule": "@every 1s", "jobTemplate": made, **spec}}


def jobs(cluster: QuickCluster) -> list[Object]:
    return list(cluster.api.list(JOB).items)


def names(cluster: QuickCluster) -> set[str]:
    return {json_types.text(job, "metadata", "name") for job in jobs(cluster)}


def status(cluster: QuickCluster) -> Object:
    return json_types.mapping(cluster.find(CRON_JOB, "c") or {}, "status")


def make_due(cluster: QuickCluster, minutes: int, **spec: Json) -> None:
    """Say that the last Job was ``minutes`` ago, so that the latest minute since then is due at once."""
    last = naming.text_of(naming.present() - datetime.timedelta(minutes=minutes))
    if spec:
        cluster.api.patch(CRON_JOB, "c", {"spec": spec}, namespace="default", kind=PatchKind.MERGE)
    patch: Object = {"status": {"lastScheduleTime": last}}
    cluster.api.patch(CRON_JOB, "c", patch, namespace="default", kind=PatchKind.MERGE, subresource="status")


def earlier_job(cluster: QuickCluster, number: int) -> None:
    """Create a Job as the CronJob would have made it ``number`` minutes ago."""
    cron = cluster.find(CRON_JOB, "c") or {}
    owner: Object = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": json_types.text(cron, "metadata", "uid")}
    metadata: Object = {"name": f"c-{number}", "namespace": "default", "ownerReferences": [owner | {"controller": True}]}
    spec = json_types.mapping(json_types.copy_object(cron), "spec", "jobTemplate", "spec")
    cluster.create(JOB, {"metadata": metadata, "spec": spec})


def test_a_time_has_one_job_from_the_template_which_the_status_names_until_its_end(cluster: QuickCluster) -> None:
    cluster.create(CRON_JOB, cron_job(seconds=1))
    cluster.until(lambda: json_types.items(status(cluster), "active"), "a job in the status")
    job = jobs(cluster)[0]
    assert json_types.text(job, "metadata", "labels", "a") == "b"
    assert json_types.text(job, "metadata", "annotations", "batch.kubernetes.io/cronjob-scheduled-timestamp").endswith("Z")
    assert json_types.text(status(cluster), "active", 0, "uid") == json_types.text(job, "metadata", "uid")
    cluster.until(lambda: json_types.text(status(cluster), "lastSuccessfulTime"), "the end")
    assert json_types.text(status(cluster), "lastScheduleTime")
    assert cluster.events("SuccessfulCreate")


def test_of_the_times_that_passed_only_the_latest_has_a_job(cluster: QuickCluster) -> None:
    cluster.create(CRON_JOB, cron_job(schedule="* * * * *", suspend=True))
    make_due(cluster, 60, suspend=False)
    cluster.until(lambda: jobs(cluster), "the job")
    minute = int(naming.present().timestamp()) // 60
    assert names(cluster) <= {f"c-{minute}", f"c-{minute - 1}"}


def test_a_time_that_passed_too_long_ago_has_no_job(cluster: QuickCluster) -> None:
    cluster.create(CRON_JOB, cron_job(schedule="0 0 1 1 *", startingDeadlineSeconds=10))
    make_due(cluster, 60 * 24 * 400)
    cluster.create(CRON_JOB, cron_job() | {"metadata": {"name": "other", "namespace": "default"}})
    cluster.until(lambda: names(cluster), "the job of the other")
    assert not any(name.startswith("c-") for name in names(cluster))


def test_a_limit_of_thousands_of_years_is_no_limit(cluster: QuickCluster) -> None:
    cluster.create(CRON_JOB, cron_job(schedule="* * * * *", startingDeadlineSeconds=99999999999, suspend=True))
    make_due(cluster, 60, suspend=False)
    cluster.until(lambda: jobs(cluster), "the job")


def test_a_suspended_schedule_has_no_jobs_until_it_goes_on(cluster: QuickCluster) -> None:
    cluster.create(CRON_JOB, cron_job(suspend=True))
    make_due(cluster, 60)
    cluster.create(CRON_JOB, cron_job() | {"metadata": {"name": "other", "namespace": "default"}})
    cluster.until(lambda: names(cluster), "the job of the other")
    assert not any(name.startswith("c-") for name in names(cluster))
    cluster.api.patch(CRON_JOB, "c", {"spec": {"suspend": False}}, namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: any(name.startswith("c-") for name in names(cluster)), "its job")


@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
def test_the_policy_says_what_happens_while_a_job_goes_on(cluster: QuickCluster, policy: str) -> None:
    cluster.create(CRON_JOB, cron_job(schedule="* * * * *", seconds=600, suspend=True, concurrencyPolicy=policy))
    earlier_job(cluster, 1)
    cluster.until(lambda: json_types.items(status(cluster), "active"), "the earlier job in the status")
    make_due(cluster, 60, suspend=False)
    if policy == "Forbid":
        cluster.until(lambda: cluster.events("JobAlreadyActive"), "the event")
        assert names(cluster) == {"c-1"}
        cluster.api.delete(JOB, "c-1", namespace="default")
    cluster.until(lambda: names(cluster) - {"c-1"}, "the next job")
    assert ("c-1" in names(cluster)) is (policy == "Allow")


def test_only_the_jobs_that_ended_last_are_kept(cluster: QuickCluster) -> None:
    cluster.create(CRON_JOB, cron_job(suspend=True, successfulJobsHistoryLimit=1))
    for number in (1, 2, 3):
        earlier_job(cluster, number)
    cluster.until(lambda: len(jobs(cluster)) == 1 and json_types.text(jobs(cluster)[0], "status", "completionTime"), "one job that ended")
    cluster.until(lambda: len(cluster.api.list(POD).items) == 1, "the end of the pods of the others")


def test_the_jobs_of_a_deleted_cron_job_are_deleted(cluster: QuickCluster) -> None:
    cluster.create(CRON_JOB, cron_job(seconds=600))
    cluster.until(lambda: jobs(cluster), "the job")
    cluster.api.delete(CRON_JOB, "c", namespace="default")
    cluster.until(lambda: not jobs(cluster) and not cluster.api.list(POD).items, "the end of its job and pod")


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"schedule": "every day"}, "spec.schedule: Invalid value"),
        ({"schedule": "CRON_TZ=UTC 0 0 * * *"}, "use timeZone field instead"),
        ({"timeZone": "Europe/Nowhere"}, "spec.timeZone: Invalid value"),
        ({"timeZone": ""}, "spec.timeZone: Invalid value"),
        ({"concurrencyPolicy": "Never"}, "spec.concurrencyPolicy: Unsupported value"),
        ({"failedJobsHistoryLimit": -1}, "spec.failedJobsHistoryLimit: Invalid value"),
    ],
)
def test_a_cron_job_that_no_controller_could_follow_is_refused(cluster: QuickCluster, fields: dict[str, Json], message: str) -> None:
    made = cron_job()
    json_types.mapping(made, "spec").update(fields)
    with pytest.raises(errors.InvalidError) as raised:
        cluster.create(CRON_JOB, made)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"parallelism": -1}, "spec.jobTemplate.spec.parallelism: Invalid value"),
        ({"podFailurePolicy": {"rules": []}}, "spec.jobTemplate.spec.podFailurePolicy: Forbidden"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "spec.jobTemplate.spec.selector: Forbidden"),
    ],
)
def test_the_template_of_its_jobs_is_checked_when_it_is_created(cluster: QuickCluster, fields: Object, message: str) -> None:
    made = cron_job()
    json_types.mapping(made, "spec", "jobTemplate", "spec").update(fields)
    with pytest.raises(errors.InvalidError) as raised:
        cluster.create(CRON_JOB, made)
    assert message in str(raised.value)


def test_the_name_of_a_cron_job_leaves_room_for_the_minute(cluster: QuickCluster) -> None:
    with pytest.raises(errors.InvalidError, match="must be no more than 52 characters"):
        cluster.create(CRON_JOB, cron_job() | {"metadata": {"name": "c" * 53, "namespace": "default"}})
