"""Rules of the kinds that make pods. Source: the validation of apps/v1 and batch/v1 in Kubernetes 1.36.

What this cluster's controllers do not do is refused here, so that no field is accepted and ignored.
"""

import dataclasses
from collections.abc import Iterator

from drakit_cluster.objects import cron, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.validation import failure, pods
from drakit_cluster.objects.validation.failure import Failure

_CRON_NAME = 52
"""How long the name of a CronJob may be, so that those of its Jobs have room for the minute."""
_JOB_POLICIES = ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes", "podReplacementPolicy", "managedBy")


def _workload(obj: Object, old: Object | None) -> Iterator[Failure]:
    """Check the pod template, and that the selector matches its labels and does not change."""
    yield from _template(obj)
    selector = json_types.mapping(obj, "spec", "selector")
    if not json_types.mapping(selector, "matchLabels") and not json_types.items(selector, "matchExpressions"):
        yield failure.invalid("spec.selector", selector, "empty selector is invalid")
    yield from mismatch(obj)
    if old is not None and selector != json_types.mapping(old, "spec", "selector"):
        yield failure.invalid("spec.selector", selector, "field is immutable")
    yield from restart_policy(json_types.mapping(obj, "spec", "template", "spec"), "spec.template.spec", ends=False)


def restart_policy(spec: Object, path: str, *, ends: bool) -> Iterator[Failure]:
    """Yield the failure of a restart policy that the workload's pod spec at ``path`` may not have. ``ends``: the workload is a Job or makes Jobs."""
    policy, allowed = json_types.text(spec, "restartPolicy"), ("OnFailure", "Never") if ends else ("Always",)
    if ends and policy in ("", "Always"):
        yield failure.required(f"{path}.restartPolicy", 'valid values: "OnFailure", "Never"')
    elif policy and policy not in allowed:
        yield failure.not_supported(f"{path}.restartPolicy", policy, allowed)


def mismatch(obj: Object) -> Iterator[Failure]:
    """Yield the failure of a template without the labels that the workload's selector requires."""
    labels = json_types.mapping(obj, "spec", "template", "metadata", "labels")
    required = json_types.mapping(obj, "spec", "selector", "matchLabels")
    if any(labels.get(key) != value for key, value in required.items()):
        yield failure.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _template(obj: Object) -> Iterator[Failure]:
    yield from pods.of_spec(json_types.mapping(obj, "spec", "template", "spec"), "spec.template.spec")


def replica_set(obj: Object, old: Object | None) -> Iterator[Failure]:
    """Check a ReplicaSet: selector, and numbers that are not negative."""
    yield from _workload(obj, old)
    yield from _not_negative(obj, "replicas", "minReadySeconds")


def deployment(obj: Object, old: Object | None) -> Iterator[Failure]:
    """Check a Deployment, and the numbers of its strategy."""
    yield from replica_set(obj, old)
    strategy = json_types.mapping(obj, "spec", "strategy")
    yield from _one_of("spec.strategy.type", json_types.text(strategy, "type"), ("Recreate", "RollingUpdate"))
    rolling = json_types.at(strategy, "rollingUpdate")
    if strategy.get("type") == "Recreate" and rolling is not None:
        yield failure.forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    if isinstance(rolling, dict):
        for field in ("maxSurge", "maxUnavailable"):
            yield from _amount(f"spec.strategy.rollingUpdate.{field}", rolling.get(field))
        if _is_zero(rolling.get("maxSurge")) and _is_zero(rolling.get("maxUnavailable")):
            yield failure.invalid("spec.strategy.rollingUpdate.maxUnavailable", 0, "may not be 0 when `maxSurge` is 0")
    if json_types.number(obj, "spec", "progressDeadlineSeconds") <= json_types.number(obj, "spec", "minReadySeconds"):
        deadline = json_types.number(obj, "spec", "progressDeadlineSeconds")
        yield failure.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def daemon_set(obj: Object, old: Object | None) -> Iterator[Failure]:
    """Check a DaemonSet, and the numbers of its strategy."""
    yield from _workload(obj, old)
    yield from _not_negative(obj, "minReadySeconds")
    yield from _one_of("spec.updateStrategy.type", json_types.text(obj, "spec", "updateStrategy", "type"), ("OnDelete", "RollingUpdate"))
    rolling = json_types.mapping(obj, "spec", "updateStrategy", "rollingUpdate")
    if json_types.text(obj, "spec", "updateStrategy", "type") != "RollingUpdate":
        return
    for field in ("maxSurge", "maxUnavailable"):
        yield from _amount(f"spec.updateStrategy.rollingUpdate.{field}", rolling.get(field))
    if _is_zero(rolling.get("maxSurge")) == _is_zero(rolling.get("maxUnavailable")):
        detail = "may not be 0 when `maxSurge` is 0" if _is_zero(rolling.get("maxSurge")) else "must be 0 when `maxSurge` is not 0"
        yield failure.invalid("spec.updateStrategy.rollingUpdate.maxUnavailable", rolling.get("maxUnavailable"), detail)


def stateful_set(obj: Object, old: Object | None) -> Iterator[Failure]:
    """Check a StatefulSet. Volume claims and maxUnavailable are refused."""
    yield from replica_set(obj, old)
    yield from _one_of("spec.podManagementPolicy", json_types.text(obj, "spec", "podManagementPolicy"), ("OrderedReady", "Parallel"))
    yield from _one_of("spec.updateStrategy.type", json_types.text(obj, "spec", "updateStrategy", "type"), ("OnDelete", "RollingUpdate"))
    for path in ("ordinals.start", "updateStrategy.rollingUpdate.partition"):
        if (number := json_types.number(obj, "spec", *path.split("."))) < 0:
            yield failure.invalid(f"spec.{path}", number, "must be greater than or equal to 0")
    for field in ("volumeClaimTemplates", "persistentVolumeClaimRetentionPolicy"):
        if json_types.at(obj, "spec", field):
            yield failure.forbidden(f"spec.{field}", "this cluster has no volume claims")
    if json_types.at(obj, "spec", "updateStrategy", "rollingUpdate", "maxUnavailable") is not None:
        yield failure.forbidden("spec.updateStrategy.rollingUpdate.maxUnavailable", "this cluster replaces one pod after the other")


def job(obj: Object, old: Object | None) -> Iterator[Failure]:
    """Check a Job. Its own selector and policies of failure and success are refused."""
    spec = json_types.mapping(obj, "spec")
    yield from _job_fields(obj)
    yield from _job_selector(obj, old)
    if old is not None:
        fixed = ["completionMode", *(["template"] if json_types.at(old, "status", "startTime") else [])]
        if json_types.text(spec, "completionMode") != "Indexed":
            fixed.append("completions")
        for field in fixed:
            if spec.get(field) != json_types.at(old, "spec", field):
                yield failure.invalid(f"spec.{field}", spec.get(field), "field is immutable")


def _job_fields(obj: Object) -> Iterator[Failure]:
    """Check what holds for a Job and for the template of one, in which fields with a default may be missing."""
    spec = json_types.mapping(obj, "spec")
    yield from _template(obj)
    yield from _not_negative(obj, "parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
    yield from _one_of("spec.completionMode", json_types.text(spec, "completionMode") or "NonIndexed", ("Indexed", "NonIndexed"))
    if json_types.text(spec, "completionMode") == "Indexed" and "completions" not in spec:
        yield failure.required("spec.completions", "when completion mode is Indexed")
    yield from restart_policy(json_types.mapping(spec, "template", "spec"), "spec.template.spec", ends=True)
    for field in ("manualSelector", *_JOB_POLICIES):
        if spec.get(field):
            yield failure.forbidden(f"spec.{field}", "this cluster's Jobs do not have it; remove the field")


def cron_job(obj: Object, _: Object | None) -> Iterator[Failure]:
    """Check a CronJob: its schedule in its time zone, its numbers, and the template of its Jobs."""
    spec, name = json_types.mapping(obj, "spec"), json_types.text(obj, "metadata", "name")
    if len(name) > _CRON_NAME:
        yield failure.invalid("metadata.name", name, f"must be no more than {_CRON_NAME} characters")
    schedule, zone = json_types.text(spec, "schedule"), spec.get("timeZone")
    if "TZ" in schedule:
        yield failure.invalid("spec.schedule", schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    else:
        yield from _readable("spec.schedule", schedule)
    if zone is not None:
        yield from _readable("spec.timeZone", zone)
    policies = ("Allow", "Forbid", "Replace")
    yield from _one_of("spec.concurrencyPolicy", json_types.text(spec, "concurrencyPolicy"), policies)
    yield from _not_negative(obj, "startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    template = json_types.mapping(spec, "jobTemplate")
    for one in _job_fields(template):
        yield dataclasses.replace(one, field=f"spec.jobTemplate.{one.field}")
    if json_types.at(template, "spec", "selector"):
        yield failure.forbidden("spec.jobTemplate.spec.selector", "`selector` will be auto-generated")


def _readable(path: str, value: Json) -> Iterator[Failure]:
    """Check that a schedule or the name of a time zone can be read."""
    try:
        (cron.read if path == "spec.schedule" else cron.zone_named)(str(value))
    except ValueError as error:
        yield failure.invalid(path, value, str(error))


def _job_selector(obj: Object, old: Object | None) -> Iterator[Failure]:
    """Check that a Job's selector is the one that the server made of its UID, and that the template has its label."""
    selector = json_types.mapping(obj, "spec", "selector")
    if old is not None:
        if selector != json_types.mapping(old, "spec", "selector"):
            yield failure.invalid("spec.selector", selector, "field is immutable")
    elif selector != {"matchLabels": {"batch.kubernetes.io/controller-uid": json_types.text(obj, "metadata", "uid")}}:
        yield failure.forbidden("spec.selector", "this cluster's Jobs have no selector of their own; remove the field")
    else:
        yield from mismatch(obj)


def _one_of(path: str, value: str, known: tuple[str, ...]) -> Iterator[Failure]:
    if value not in known:
        yield failure.not_supported(path, value, known)


def _not_negative(obj: Object, *fields: str) -> Iterator[Failure]:
    for field in fields:
        if (number := json_types.number(obj, "spec", field)) < 0:
            yield failure.invalid(f"spec.{field}", number, "must be greater than or equal to 0")


def _amount(path: str, value: Json) -> Iterator[Failure]:
    is_percentage = isinstance(value, str) and value.endswith("%") and value[:-1].isdecimal()
    if not is_percentage and not (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        yield failure.invalid(path, value, "must be a number of pods or a percentage, such as 1 or 25%")


def _is_zero(value: Json) -> bool:
    return value in (0, "0%")
