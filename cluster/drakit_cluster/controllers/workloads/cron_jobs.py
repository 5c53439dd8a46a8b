"""CronJobs: a Job at each time of a schedule. Source: batch/v1 CronJob and its controller in Kubernetes 1.36.

Of the times that passed since the last Job, only the latest counts; spec.startingDeadlineSeconds says how late it may be. The name of
a Job holds the minute of its time, so that a time has one Job even if this controller stops in between.
"""

import contextlib
import datetime

from drakit_cluster.client import pod_claims
from drakit_cluster.client.informer import amend, discard, key_of, uid_of
from drakit_cluster.controllers.workloads import jobs, owned_pods
from drakit_cluster.controllers.workloads.controller import Controller
from drakit_cluster.objects import cron, errors, json_types, naming
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CRON_JOB, JOB

_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_LIMIT_MAX = 10**9
"""30 years, in seconds: no CronJob is older, and a much longer time leaves the range of dates."""


class CronJobs(Controller):
    """Creates the Jobs of CronJobs, and deletes those that ended long ago."""

    resource = CRON_JOB

    def _reconcile(self, owner: Object) -> float | None:
        owned = [job for job in self._api.list(JOB, namespace=key_of(owner).namespace).items if owned_pods.owns(owner, job)]
        active, status = [job for job in owned if not jobs.ended_at(job)], self._forget(owner, [job for job in owned if jobs.ended_at(job)])
        following = None
        if json_types.at(owner, "spec", "suspend") is not True:
            schedule, now = _schedule(owner), naming.present()
            earliest = _earliest(owner, now)
            if (time := schedule.latest(earliest, now)) is not None:
                active = self._start(owner, active, time.astimezone(schedule.zone), status)
            following = schedule.following(now if schedule.every is None else time or earliest)
        status["active"] = [_reference(job) for job in active]
        self._write(owner, status)
        return max(0.0, (following - naming.present()).total_seconds()) if following is not None else None

    def _forget(self, owner: Object, ended: list[Object]) -> Object:
        """Delete Jobs that ended, except the newest of each kind of end; return what the status says of those that ended well."""
        for complete, field in ((True, "successfulJobsHistoryLimit"), (False, "failedJobsHistoryLimit")):
            some = sorted((job for job in ended if jobs.is_complete(job) is complete), key=_started)
            for job in some[: max(0, len(some) - json_types.number(owner, "spec", field))]:
                self._delete(owner, job)
        times = [json_types.text(owner, "status", "lastSuccessfulTime")]
        times += [json_types.text(job, "status", "completionTime") for job in ended if jobs.is_complete(job)]
        return {"lastSuccessfulTime": max(times) or None}

    def _start(self, owner: Object, active: list[Object], time: datetime.datetime, status: Object) -> list[Object]:
        """Create the Job of a time unless the policy forbids it, and set the time in ``status``; return the Jobs that go on then."""
        policy = json_types.text(owner, "spec", "concurrencyPolicy")
        if policy == "Forbid" and active:
            reason = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._recorder.normal(CRON_JOB, owner, "JobAlreadyActive", reason)
            return active
        if policy == "Replace":
            for job in active:
                self._delete(owner, job)
            active = []
        template = json_types.copy_object(json_types.mapping(owner, "spec", "jobTemplate"))
        own = json_types.mapping(template, "metadata")
        scheduled: Object = {_SCHEDULED: time.isoformat(timespec="seconds").replace("+00:00", "Z")}
        metadata: Object = {
            "name": f"{key_of(owner).name}-{int(time.timestamp()) // 60}",
            "labels": json_types.mapping(own, "labels"),
            "annotations": json_types.mapping(own, "annotations") | scheduled,
            "ownerReferences": [pod_claims.owned_by(CRON_JOB, owner)],
        }
        status["lastScheduleTime"] = naming.text_of(time)
        with contextlib.suppress(errors.AlreadyExistsError):
            try:
                job = self._api.create(JOB, {"metadata": metadata, "spec": template["spec"]}, namespace=key_of(owner).namespace)
            except (errors.ForbiddenError, errors.InvalidError) as error:
                self._recorder.warning(CRON_JOB, owner, "FailedCreate", f"Error creating job: {error}")
                raise
            self._recorder.normal(CRON_JOB, owner, "SuccessfulCreate", f"Created job {key_of(job).name}")
            active = [*active, job]
        return active

    def _delete(self, owner: Object, job: Object) -> None:
        if discard(self._api, JOB, job):
            self._recorder.normal(CRON_JOB, owner, "SuccessfulDelete", f"Deleted job {key_of(job).name}")

    def _write(self, owner: Object, status: Object) -> None:
        held = json_types.mapping(owner, "status")
        if any((held.get(field) or None) != (value or None) for field, value in status.items()):
            amend(self._api, CRON_JOB, owner, {"status": status}, subresource="status")


def _schedule(owner: Object) -> cron.Schedule:
    return cron.read(json_types.text(owner, "spec", "schedule"), json_types.text(owner, "spec", "timeZone"))


def _earliest(owner: Object, now: datetime.datetime) -> datetime.datetime:
    """Return the moment after which a time has no Job yet and is not too late."""
    last = json_types.text(owner, "status", "lastScheduleTime") or json_types.text(owner, "metadata", "creationTimestamp")
    moment, limit = datetime.datetime.fromisoformat(last), json_types.at(owner, "spec", "startingDeadlineSeconds")
    return max(moment, now - datetime.timedelta(seconds=min(limit, _LIMIT_MAX))) if isinstance(limit, int) else moment


def _started(job: Object) -> str:
    return json_types.text(job, "status", "startTime") or json_types.text(job, "metadata", "creationTimestamp")


def _reference(job: Object) -> Object:
    key = key_of(job)
    return {"apiVersion": JOB.api_version, "kind": JOB.kind, "namespace": key.namespace, "name": key.name, "uid": uid_of(job)}
