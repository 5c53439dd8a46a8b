"""Jobs: pods that end. Source: batch/v1 Job.

A pod that has finished is counted once: status.uncountedTerminatedPods names it until an annotation of the pod says so. A pod that is
deleted before this controller has seen its end counts for nothing, and another one runs. The API server
labels the template with the Job's name and UID.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import amend, discard, find, key_of, uid_of
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.controllers.workloads import owned_pods, statuses
from drakit_cluster.controllers.workloads.controller import Controller
from drakit_cluster.controllers.workloads.statuses import Condition
from drakit_cluster.objects import json_types, naming
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import JOB, POD

INDEX = "batch.kubernetes.io/job-completion-index"
_COUNTED = "batch.kubernetes.io/counted"
_BACKOFF_SECONDS = (10.0, 360.0)
_DOUBLINGS = 16


@dataclass(frozen=True, kw_only=True)
class _Ended:
    """Pods that have finished and are not counted yet, and those whose count is in the status already."""

    fresh: Sequence[Object]
    counted: Sequence[Object]


class Jobs(Controller):
    """Creates the pods of Jobs, counts those that finish, and ends the Jobs."""

    resource = JOB

    def __init__(self, api: Api, recorder: Recorder, *, backoff: tuple[float, float] = _BACKOFF_SECONDS) -> None:
        super().__init__(api, recorder)
        self._backoff = backoff

    def _reconcile(self, owner: Object) -> float | None:
        job = owner
        if (ended := ended_at(job)) is not None:
            return self._expire(job, ended)
        pods = owned_pods.of(self._api, job)
        job = self._count(job, pods)
        active = owned_pods.active(pods)
        end = _verdict(job, active)
        if end is not None or _suspended(job):
            for pod in active:
                discard(self._api, POD, pod)
            self._finish(job, end)
            return 0.0 if end is not None else None
        waits = self._run(job, pods, active)
        active = owned_pods.active(owned_pods.of(self._api, job))
        self._write(job, {"active": len(active), "ready": sum(map(owned_pods.is_ready, active))})
        return waits

    def _count(self, job: Object, pods: Iterable[Object]) -> Object:
        """Add the pods that have finished to the status, then annotate them; return the Job as it is afterwards."""
        named = {uid for kind in ("succeeded", "failed") for uid in json_types.strings(job, "status", "uncountedTerminatedPods", kind)}
        open_ = [pod for pod in pods if _has_ended(pod) and not json_types.text(pod, "metadata", "annotations", _COUNTED)]
        ended = _Ended(fresh=[pod for pod in open_ if uid_of(pod) not in named], counted=[pod for pod in open_ if uid_of(pod) in named])
        if ended.fresh:
            good = [pod for pod in ended.fresh if json_types.text(pod, "status", "phase") == "Succeeded"]
            bad = [pod for pod in ended.fresh if pod not in good]
            indexes = _indexes(job) | {_index(pod) for pod in good} if _is_indexed(job) else set()
            uncounted: Object = {"succeeded": [uid_of(pod) for pod in good], "failed": [uid_of(pod) for pod in bad]}
            status: Object = {
                "succeeded": len(indexes) if _is_indexed(job) else json_types.number(job, "status", "succeeded") + len(good),
                "failed": json_types.number(job, "status", "failed") + len(bad),
                "uncountedTerminatedPods": uncounted,
            }
            job = self._write(job, status | ({"completedIndexes": _ranges(indexes)} if _is_indexed(job) else {}))
        for pod in (*ended.fresh, *ended.counted):
            if find(self._api, POD, key_of(pod)) is not None:
                amend(self._api, POD, pod, {"metadata": {"annotations": {_COUNTED: "true"}}})
        return self._write(job, {"uncountedTerminatedPods": {"succeeded": [], "failed": []}}) if open_ else job

    def _run(self, job: Object, pods: Sequence[Object], active: Sequence[Object]) -> float | None:
        if not json_types.text(job, "status", "startTime"):
            job = self._write(job, {"startTime": naming.now(), "conditions": _conditions(job, [_suspension(job)])})
        left = _seconds_left(job)
        if (waits := self._backs_off(job, pods)) > 0:
            return waits if left is None else min(waits, left)
        completions = json_types.at(job, "spec", "completions")
        succeeded = json_types.number(job, "status", "succeeded")
        wanted = json_types.number(job, "spec", "parallelism")
        if isinstance(completions, int):
            wanted = min(wanted, completions - succeeded)
        elif succeeded:
            wanted = len(active)
        for pod in owned_pods.first_to_delete(active)[: max(0, len(active) - wanted)]:
            discard(self._api, POD, pod)
        self._fill(job, active, wanted - len(active))
        return left

    def _fill(self, job: Object, active: Iterable[Object], missing: int) -> None:
        if not _is_indexed(job):
            for _ in range(missing):
                self._create(job, None)
            return
        taken = _indexes(job) | {_index(pod) for pod in active}
        free = [number for number in range(json_types.number(job, "spec", "completions")) if number not in taken]
        for number in free[: max(0, missing)]:
            self._create(job, number)

    def _create(self, job: Object, number: int | None) -> None:
        name = key_of(job).name
        if number is None:
            self._create_pod(job, {"generateName": f"{name}-"})
            return
        template = json_types.mapping(job, "spec", "template", "spec")
        index: Object = {INDEX: str(number)}
        metadata: Object = {"generateName": f"{name}-{number}-", "labels": index, "annotations": index}
        fields: Object = {"hostname": f"{name}-{number}"}
        fields |= {field: _with_index(template, field, number) for field in ("containers", "initContainers") if field in template}
        self._create_pod(job, metadata, fields)

    def _backs_off(self, job: Object, pods: Iterable[Object]) -> float:
        """Return the seconds until the next pod may follow pods that failed: 10 s, doubled by each failure."""
        failures = json_types.number(job, "status", "failed")
        times = [time for pod in pods if json_types.text(pod, "status", "phase") == "Failed" and (time := _finished_at(pod))]
        if not failures or not times:
            return 0.0
        first, longest = self._backoff
        return min(longest, first * 2.0 ** min(failures - 1, _DOUBLINGS)) - owned_pods.seconds_since(max(times))

    def _finish(self, job: Object, end: Condition | None) -> None:
        if end is None:
            suspended = _suspension(job)
            status: Object = {"active": 0, "ready": 0, "startTime": None, "conditions": _conditions(job, [suspended])}
            if statuses.found(job, "Suspended").get("status") != "True":
                self._recorder.normal(JOB, job, "Suspended", "Job suspended")
            self._write(job, status)
            return
        completed: Object = {"completionTime": naming.now()} if end.type == "Complete" else {}
        self._write(job, {"active": 0, "ready": 0, "conditions": _conditions(job, [end])} | completed)
        record = self._recorder.normal if end.type == "Complete" else self._recorder.warning
        record(JOB, job, end.reason if end.type == "Failed" else "Completed", end.message or "Job completed")

    def _expire(self, job: Object, ended: str) -> float | None:
        """Delete a Job spec.ttlSecondsAfterFinished after its end; return the seconds until then."""
        limit = json_types.at(job, "spec", "ttlSecondsAfterFinished")
        if not isinstance(limit, int):
            return None
        remaining = limit - owned_pods.seconds_since(ended)
        if remaining > 0:
            return remaining
        discard(self._api, JOB, job)
        return None

    def _write(self, job: Object, status: Object) -> Object:
        if all(json_types.at(job, "status", field) == value for field, value in status.items()):
            return job
        return amend(self._api, JOB, job, {"status": status}, subresource="status")


def _verdict(job: Object, active: Sequence[Object]) -> Condition | None:
    """Return the condition that ends the Job, None while it goes on."""
    failed, succeeded = json_types.number(job, "status", "failed"), json_types.number(job, "status", "succeeded")
    limit, restarts = json_types.number(job, "spec", "backoffLimit"), sum(map(_restarts, active))
    if failed > limit or (restarts and restarts >= limit and _restarts_itself(job)):
        message = "Job has reached the specified backoff limit"
        return Condition(type="Failed", status="True", reason="BackoffLimitExceeded", message=message)
    left = _seconds_left(job)
    if left is not None and left <= 0 and not _suspended(job):
        return Condition(type="Failed", status="True", reason="DeadlineExceeded", message="Job was active longer than specified deadline")
    completions = json_types.at(job, "spec", "completions")
    is_complete = succeeded >= completions if isinstance(completions, int) else bool(succeeded) and not active
    reached = "Reached expected number of succeeded pods"
    return Condition(type="Complete", status="True", reason="CompletionsReached", message=reached) if is_complete else None


def _has_ended(pod: Object) -> bool:
    """Return whether a pod finished by itself: a container that is stopped by a deletion says nothing about its work."""
    return pod_claims.is_terminal(pod) and not pod_claims.is_deleting(pod)


def _restarts_itself(job: Object) -> bool:
    return json_types.text(job, "spec", "template", "spec", "restartPolicy") == "OnFailure"


def _restarts(pod: Object) -> int:
    return sum(json_types.number(one, "restartCount") for one in json_types.objects(pod, "status", "containerStatuses"))


def ended_at(job: Object) -> str | None:
    """Return when the Job ended, None while it goes on."""
    ended = [one for name in ("Complete", "Failed") if (one := statuses.found(job, name)).get("status") == "True"]
    return json_types.text(ended[0], "lastTransitionTime") if ended else None


def is_complete(job: Object) -> bool:
    """Return whether a Job ended well."""
    return statuses.found(job, "Complete").get("status") == "True"


def _conditions(job: Object, wanted: Sequence[Condition]) -> Json:
    """Return the Job's conditions with ``wanted`` added or changed. A Job that was never suspended has no such condition."""
    wanted = [one for one in wanted if one.type != "Suspended" or one.status == "True" or statuses.found(job, one.type)]
    names = {one.type for one in wanted}
    kept = [one for one in json_types.objects(job, "status", "conditions") if one.get("type") not in names]
    return [*kept, *json_types.items({"conditions": statuses.merged(job, wanted)}, "conditions")]


def _suspension(job: Object) -> Condition:
    if _suspended(job):
        return Condition(type="Suspended", status="True", reason="JobSuspended", message="Job suspended")
    return Condition(type="Suspended", status="False", reason="JobResumed", message="Job resumed")


def _suspended(job: Object) -> bool:
    return json_types.at(job, "spec", "suspend") is True


def _is_indexed(job: Object) -> bool:
    return json_types.text(job, "spec", "completionMode") == "Indexed"


def _index(pod: Object) -> int:
    text = json_types.text(pod, "metadata", "annotations", INDEX)
    return int(text) if text.isdecimal() else -1


def _indexes(job: Object) -> set[int]:
    """Return the numbers in status.completedIndexes, written as 1,3-5."""
    numbers: set[int] = set()
    for part in filter(None, json_types.text(job, "status", "completedIndexes").split(",")):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def _ranges(numbers: Iterable[int]) -> str:
    parts: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _with_index(template: Object, field: str, number: int) -> Json:
    """Return the containers with their number in the environment, as a value: this cluster's kubelet reads no fieldRef."""
    variable: Object = {"name": "JOB_COMPLETION_INDEX", "value": str(number)}
    return [one | {"env": [*json_types.items(one, "env"), variable]} for one in json_types.objects(template, field)]


def _seconds_left(job: Object) -> float | None:
    """Return the seconds until spec.activeDeadlineSeconds passes; None without it or before the start."""
    deadline, started = json_types.at(job, "spec", "activeDeadlineSeconds"), json_types.text(job, "status", "startTime")
    return deadline - owned_pods.seconds_since(started) if isinstance(deadline, int) and started else None


def _finished_at(pod: Object) -> str:
    ends = [json_types.text(one, "state", "terminated", "finishedAt") for one in json_types.objects(pod, "status", "containerStatuses")]
    return max(ends, default="")
