"""The differences between kinds in writes: defaults, the fields that a sub-resource may change, and the fields that only the server sets."""

import base64
from collections.abc import Callable, Mapping

from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource

DEFAULT_ACCOUNT = "default"
"""The service account that every namespace has, and that a pod without one uses."""
_OWN_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink", "managedFields")
_STATUS_KEEPS = ("labels", "annotations", "finalizers", "ownerReferences", "generateName")


def prepare_create(resource: Resource, obj: Object, now: str) -> None:
    """Remove the fields that clients may not set, and fill in defaults. A new Node keeps its status; other kinds start without one."""
    for field in _OWN_METADATA:
        json_types.mapping(obj, "metadata").pop(field, None)
    if resource.has_status and resource is not resources.NODE:
        obj.pop("status", None)
    if resource is resources.POD_GROUP:
        metadata = json_types.child(obj, "metadata")
        metadata["finalizers"] = json_types.from_strings(
            dict.fromkeys([*json_types.strings(metadata, "finalizers"), resources.GROUP_FINALIZER])
        )
    if resource in _INITIAL_STATUS:
        obj["status"] = {"phase": _INITIAL_STATUS[resource]}
    fill_defaults(resource, obj, now)


_INITIAL_STATUS = {resources.POD: "Pending", resources.NAMESPACE: "Active"}


def select_pods(job: Object) -> None:
    """Label the pods of a new Job by its name and UID, and select them by its UID, as Kubernetes does. A label that the client wrote stays."""
    spec, metadata = json_types.child(job, "spec"), json_types.mapping(job, "metadata")
    name, uid = json_types.text(metadata, "name"), json_types.text(metadata, "uid")
    labels = json_types.child(json_types.child(json_types.child(spec, "template"), "metadata"), "labels")
    for prefix in ("batch.kubernetes.io/", ""):
        labels.setdefault(f"{prefix}controller-uid", uid)
        labels.setdefault(f"{prefix}job-name", name)
    if not spec.get("selector"):
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def prepare_update(resource: Resource, new: Object, old: Object, *, subresource: str, now: str) -> None:
    """Restore the fields that a write may not change: a write of the object, its status; a write of ``status``, all other fields."""
    metadata, before = json_types.child(new, "metadata"), json_types.mapping(old, "metadata")
    for field in (*_OWN_METADATA, *(_STATUS_KEEPS if subresource else ())):
        _restore(metadata, before, field)
    if subresource:
        for field in set(old) | set(new):
            if field not in ("metadata", "status", "apiVersion", "kind"):
                _restore(new, old, field)
    elif resource.has_status:
        _restore(new, old, "status")
    fill_defaults(resource, new, now)
    if resource is resources.CLAIM:
        _drop_deallocated(new, old)
    if resource is resources.TAINT_RULE and not subresource:
        _renew_taint(json_types.mapping(new, "spec", "taint"), json_types.mapping(old, "spec", "taint"), now)
    if resource.counts_generations and new.get("spec") != old.get("spec"):
        metadata["generation"] = json_types.number(before, "generation") + 1


def _restore(new: Object, old: Object, field: str) -> None:
    """Set ``field`` of ``new`` to its value in ``old``; remove it where ``old`` does not have it."""
    if field in old:
        new[field] = json_types.copy(old[field])
    else:
        new.pop(field, None)


_NOW = "now"
"""The current time in a table of defaults."""
_POD_SPEC: dict[str, Json] = {"restartPolicy": "Always", "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30}
_JOB_POD = {name: value for name, value in _POD_SPEC.items() if name != "restartPolicy"}
_REQUESTS = ("devices.requests[].exactly", "devices.requests[].firstAvailable[]")


def _within(path: str, fields: Mapping[str, Json]) -> dict[str, Json]:
    return {f"{path}.{field}": value for field, value in fields.items()}


def _match(path: str) -> dict[str, Json]:
    fields: dict[str, Json] = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    return _within(path, fields | {"rules[].scope": "*", "resourceRules[].scope": "*", "excludeResourceRules[].scope": "*"})


def _claim(path: str) -> dict[str, Json]:
    request: dict[str, Json] = {"allocationMode": "ExactCount", "tolerations[].operator": "Equal"}
    return {name: value for request_path in _REQUESTS for name, value in _within(f"{path}.{request_path}", request).items()}


_WORKLOAD = _within("spec.template.spec", _POD_SPEC) | {"spec.revisionHistoryLimit": 10}
_DEFAULTS: dict[Resource, dict[str, Json]] = {
    resources.ROLE_BINDING: {"roleRef.apiGroup": resources.RBAC_GROUP},
    resources.CLUSTER_ROLE_BINDING: {"roleRef.apiGroup": resources.RBAC_GROUP},
    resources.ADMISSION_POLICY: {"spec.failurePolicy": "Fail", **_match("spec.matchConstraints+")},
    resources.ADMISSION_BINDING: _match("spec.matchResources"),
    resources.WEBHOOKS: {"webhooks[].failurePolicy": "Fail", "webhooks[].timeoutSeconds": 10, **_match("webhooks[]")},
    resources.SECRET: {"type": "Opaque"},
    resources.DAEMON_SET: _WORKLOAD | {"spec.updateStrategy+.type": "RollingUpdate"},
    resources.DEPLOYMENT: _WORKLOAD | {"spec.replicas": 1, "spec.progressDeadlineSeconds": 600, "spec.strategy+.type": "RollingUpdate"},
    resources.REPLICA_SET: _within("spec.template.spec", _POD_SPEC) | {"spec.replicas": 1},
    resources.STATEFUL_SET: _WORKLOAD
    | {"spec.replicas": 1, "spec.podManagementPolicy": "OrderedReady", "spec.updateStrategy+.type": "RollingUpdate"},
    resources.JOB: _within("spec.template.spec", _JOB_POD)
    | {"spec.backoffLimit": 6, "spec.completionMode": "NonIndexed", "spec.suspend": False},
    resources.CRON_JOB: _within("spec.jobTemplate.spec.template.spec", _JOB_POD)
    | _within("spec", {"concurrencyPolicy": "Allow", "suspend": False, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}),
    resources.SERVICE: {"spec+.type": "ClusterIP"},
    resources.SLICE: {"spec.devices[].taints[].timeAdded": _NOW},
    resources.TAINT_RULE: {"spec.taint.timeAdded": _NOW},
    resources.POOL_STATUS_REQUEST: {"spec+.limit": 100},
    resources.CLAIM: _claim("spec") | {"status.allocation.devices.results[].tolerations[].operator": "Equal"},
    resources.CLAIM_TEMPLATE: _claim("spec.spec"),
    resources.POD: _within("spec+", _POD_SPEC),
}
"""Kubernetes' defaults for the fields that this cluster reads. ``[]`` means each item of a list, and ``+`` creates a missing object."""


def fill_defaults(resource: Resource, obj: Object, now: str) -> None:
    """Fill in Kubernetes' defaults for the fields that this cluster reads."""
    for path, value in _DEFAULTS.get(resource, {}).items():
        *steps, field = path.split(".")
        for holder in _holders(obj, steps):
            if holder.get(field) in (None, ""):
                holder[field] = now if value is _NOW else json_types.copy(value)
    if fill := _FURTHER.get(resource):
        fill(obj)


def _holders(obj: Object, steps: list[str]) -> list[Object]:
    holders = [obj]
    for step in steps:
        if step.endswith("[]"):
            holders = [entry for holder in holders for entry in json_types.objects(holder, step[:-2])]
        elif step.endswith("+"):
            holders = [json_types.child(holder, step[:-1]) for holder in holders]
        else:
            holders = [inner for holder in holders if isinstance(inner := holder.get(step), dict)]
    return holders


def _fill_binding(obj: Object) -> None:
    for subject in json_types.objects(obj, "subjects"):
        if json_types.text(subject, "kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = resources.RBAC_GROUP


def _fill_secret(obj: Object) -> None:
    texts = obj.pop("stringData", None)
    if isinstance(texts, dict) and texts:
        data = json_types.child(obj, "data")
        data |= {name: base64.b64encode(str(value).encode()).decode() for name, value in texts.items()}


def _fill_strategy(field: str, unavailable: Json, surge: Json) -> Callable[[Object], None]:
    def fill(obj: Object) -> None:
        strategy = json_types.mapping(obj, "spec", field)
        if strategy.get("type") == "RollingUpdate":
            rolling = json_types.child(strategy, "rollingUpdate")
            strategy["rollingUpdate"] = {"maxUnavailable": unavailable, "maxSurge": surge} | rolling

    return fill


def _fill_job(obj: Object) -> None:
    """Without completions and parallelism a Job runs one pod; with one of them, parallelism is 1."""
    spec = json_types.child(obj, "spec")
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)


def _fill_claim(*steps: str) -> Callable[[Object], None]:
    def fill(obj: Object) -> None:
        for request_path in _REQUESTS:
            for request in _holders(obj, [*steps, *request_path.split(".")]):
                if request["allocationMode"] == "ExactCount":
                    request.setdefault("count", 1)

    return fill


def _fill_pod(obj: Object) -> None:
    spec = json_types.child(obj, "spec")
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = json_types.text(spec, "serviceAccount") or DEFAULT_ACCOUNT
    spec["serviceAccount"] = spec["serviceAccountName"]


def _fill_namespace(obj: Object) -> None:
    labels = json_types.child(json_types.child(obj, "metadata"), "labels")
    labels["kubernetes.io/metadata.name"] = json_types.text(obj, "metadata", "name")


_FURTHER: dict[Resource, Callable[[Object], None]] = {
    resources.ROLE_BINDING: _fill_binding,
    resources.CLUSTER_ROLE_BINDING: _fill_binding,
    resources.SECRET: _fill_secret,
    resources.DAEMON_SET: _fill_strategy("updateStrategy", 1, 0),
    resources.DEPLOYMENT: _fill_strategy("strategy", "25%", "25%"),
    resources.JOB: _fill_job,
    resources.CLAIM: _fill_claim("spec"),
    resources.CLAIM_TEMPLATE: _fill_claim("spec", "spec"),
    resources.POD: _fill_pod,
    resources.NAMESPACE: _fill_namespace,
}


def _renew_taint(new: Object, old: Object, now: str) -> None:
    """Renew the time of a taint whose effect changes, unless the writer sets it."""
    if new.get("effect") != old.get("effect") and new.get("timeAdded") == old.get("timeAdded"):
        new["timeAdded"] = now


def _drop_deallocated(new: Object, old: Object) -> None:
    """Remove the device statuses of devices that the old allocation has and the new one does not."""
    status = json_types.mapping(new, "status")
    deallocated = _allocated(old) - _allocated(new)
    if deallocated and "devices" in status:
        status["devices"] = [device for device in json_types.items(status, "devices") if _device(device) not in deallocated]
        if not status["devices"]:
            del status["devices"]


def _allocated(claim: Object) -> set[tuple[str, ...]]:
    return {_device(result) for result in json_types.items(claim, "status", "allocation", "devices", "results")}


def _device(entry: Json) -> tuple[str, ...]:
    return tuple(json_types.text(entry, key) for key in ("driver", "pool", "device", "shareID"))


def grace_seconds(resource: Resource, obj: Object, requested: int | None) -> int:
    """Return how long a delete waits. Only pods on a node wait, until the kubelet confirms with 0."""
    if resource is not resources.POD or not json_types.text(obj, "spec", "nodeName"):
        return 0
    if json_types.text(obj, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    return json_types.number(obj, "spec", "terminationGracePeriodSeconds") if requested is None else max(0, requested)
