"""How kinds differ when they are written: defaults, what each sub-resource may change, what the server alone decides."""

import base64
from collections.abc import Callable

from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource

DEFAULT_GRACE_SECONDS = 30
DEFAULT_ACCOUNT = "default"
"""The service account that every namespace has, and of every pod that names none."""
DEFAULT_POOL_LIMIT = 100
"""Pools that a ResourcePoolStatusRequest asks about at most."""
_OWN_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink", "managedFields")
_STATUS_KEEPS = ("labels", "annotations", "finalizers", "ownerReferences", "generateName")


def prepare_create(resource: Resource, obj: Object, now: str) -> None:
    """Reset what clients may not choose, and fill in defaults. Nodes register with their status; other kinds start without."""
    for field in _OWN_METADATA:
        json_types.mapping(obj, "metadata").pop(field, None)
    if resource.has_status and resource is not resources.NODE:
        obj.pop("status", None)
    if resource in _INITIAL_STATUS:
        obj["status"] = {"phase": _INITIAL_STATUS[resource]}
    fill_defaults(resource, obj, now)


_INITIAL_STATUS = {resources.POD: "Pending", resources.NAMESPACE: "Active"}


def prepare_update(resource: Resource, new: Object, old: Object, *, subresource: str, now: str) -> None:
    """Put back what this sub-resource may not change: status for the main one, everything else for ``status``."""
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
    """Make ``field`` of ``new`` what it is in ``old``, absent included."""
    if field in old:
        new[field] = json_types.copy(old[field])
    else:
        new.pop(field, None)


def fill_defaults(resource: Resource, obj: Object, now: str) -> None:
    """Fill in Kubernetes' defaults for the fields that this cluster reads."""
    _fill_by_kind(resource, obj)
    if fill := _DEFAULTS.get(resource):
        fill(obj, now)


def _slice_defaults(obj: Object, now: str) -> None:
    for device in json_types.objects(obj, "spec", "devices"):
        for taint in json_types.objects(device, "taints"):
            taint.setdefault("timeAdded", now)


def _claim_defaults(obj: Object, _now: str) -> None:
    _device_claim_defaults(json_types.at(obj, "spec", "devices"))
    for result in json_types.objects(obj, "status", "allocation", "devices", "results"):
        _toleration_defaults(result)


def _template_defaults(obj: Object, _now: str) -> None:
    _device_claim_defaults(json_types.at(obj, "spec", "spec", "devices"))


def _device_claim_defaults(wanted: Json) -> None:
    for request in json_types.objects(wanted, "requests"):
        exactly = json_types.at(request, "exactly")
        for one in (exactly, *json_types.items(request, "firstAvailable")):
            if isinstance(one, dict):
                _request_defaults(one)


def _request_defaults(request: Object) -> None:
    if not request.get("allocationMode"):
        request["allocationMode"] = "ExactCount"
    if request["allocationMode"] == "ExactCount" and "count" not in request:
        request["count"] = 1
    _toleration_defaults(request)


def _toleration_defaults(holder: Object) -> None:
    for toleration in json_types.objects(holder, "tolerations"):
        toleration.setdefault("operator", "Equal")


def _pod_defaults(obj: Object, _now: str) -> None:
    spec = json_types.child(obj, "spec")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = json_types.text(spec, "serviceAccount") or DEFAULT_ACCOUNT
    spec["serviceAccount"] = spec["serviceAccountName"]


def _namespace_defaults(obj: Object, _now: str) -> None:
    labels = json_types.child(json_types.child(obj, "metadata"), "labels")
    labels["kubernetes.io/metadata.name"] = json_types.text(obj, "metadata", "name")


def _taint_rule_defaults(obj: Object, now: str) -> None:
    taint = json_types.at(obj, "spec", "taint")
    if isinstance(taint, dict):
        taint.setdefault("timeAdded", now)


def _renew_taint(new: Object, old: Object, now: str) -> None:
    """A taint with another effect begins anew, unless the writer says when it began."""
    if new.get("effect") != old.get("effect") and new.get("timeAdded") == old.get("timeAdded"):
        new["timeAdded"] = now


def _pool_request_defaults(obj: Object, _now: str) -> None:
    json_types.child(obj, "spec").setdefault("limit", DEFAULT_POOL_LIMIT)


_DEFAULTS: dict[Resource, Callable[[Object, str], None]] = {
    resources.SLICE: _slice_defaults,
    resources.TAINT_RULE: _taint_rule_defaults,
    resources.POOL_STATUS_REQUEST: _pool_request_defaults,
    resources.CLAIM: _claim_defaults,
    resources.CLAIM_TEMPLATE: _template_defaults,
    resources.POD: _pod_defaults,
    resources.NAMESPACE: _namespace_defaults,
}


def _drop_deallocated(new: Object, old: Object) -> None:
    """Remove the device statuses of devices that the old allocation had and the new one has not."""
    status = json_types.mapping(new, "status")
    gone = _allocated(old) - _allocated(new)
    if gone and "devices" in status:
        status["devices"] = [device for device in json_types.items(status, "devices") if _device(device) not in gone]
        if not status["devices"]:
            del status["devices"]


def _allocated(claim: Object) -> set[tuple[str, ...]]:
    return {_device(result) for result in json_types.items(claim, "status", "allocation", "devices", "results")}


def _device(entry: Json) -> tuple[str, ...]:
    return tuple(json_types.text(entry, key) for key in ("driver", "pool", "device", "shareID"))


def grace_seconds(resource: Resource, obj: Object, asked: int | None) -> int:
    """Return how long a delete waits. Only pods that run on a node wait, for the kubelet to confirm with 0."""
    if resource is not resources.POD or not json_types.text(obj, "spec", "nodeName"):
        return 0
    if json_types.text(obj, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    return json_types.number(obj, "spec", "terminationGracePeriodSeconds") if asked is None else max(0, asked)


WEBHOOK_SECONDS = 10


def _fill_by_kind(resource: Resource, obj: Object) -> None:
    """Fill in the defaults of ``obj``."""
    if known := _PLAIN_DEFAULTS.get(resource):
        known(obj)


def _set(holder: Object, **fields: Json) -> None:
    for name, value in fields.items():
        if holder.get(name) in (None, ""):
            holder[name] = value


def _role_binding_defaults(obj: Object) -> None:
    _set(json_types.child(obj, "roleRef"), apiGroup=resources.RBAC_GROUP)
    for subject in json_types.objects(obj, "subjects"):
        if json_types.text(subject, "kind") in ("User", "Group"):
            _set(subject, apiGroup=resources.RBAC_GROUP)


def _policy_defaults(obj: Object) -> None:
    spec = json_types.child(obj, "spec")
    _set(spec, failurePolicy="Fail")
    _match_defaults(json_types.child(spec, "matchConstraints"))


def _policy_binding_defaults(obj: Object) -> None:
    wanted = json_types.at(obj, "spec", "matchResources")
    if isinstance(wanted, dict):
        _match_defaults(wanted)


def _match_defaults(constraints: Object) -> None:
    _selector_defaults(constraints)
    for field in ("resourceRules", "excludeResourceRules"):
        _scope_defaults(constraints, field)


def _selector_defaults(holder: Object) -> None:
    _set(holder, matchPolicy="Equivalent")
    for field in ("namespaceSelector", "objectSelector"):
        holder.setdefault(field, {})


def _scope_defaults(holder: Object, field: str) -> None:
    for rule in json_types.objects(holder, field):
        _set(rule, scope="*")


def _webhook_defaults(obj: Object) -> None:
    for webhook in json_types.objects(obj, "webhooks"):
        _set(webhook, failurePolicy="Fail", timeoutSeconds=WEBHOOK_SECONDS)
        _selector_defaults(webhook)
        _scope_defaults(webhook, "rules")


def _secret_defaults(obj: Object) -> None:
    _set(obj, type="Opaque")
    written = obj.pop("stringData", None)
    if isinstance(written, dict) and written:
        data = json_types.child(obj, "data")
        data |= {name: base64.b64encode(str(value).encode()).decode() for name, value in written.items()}


def _pod_template_defaults(obj: Object) -> None:
    spec = json_types.child(json_types.child(obj, "spec"), "template").get("spec")
    if isinstance(spec, dict):
        _set(spec, restartPolicy="Always", schedulerName="default-scheduler", terminationGracePeriodSeconds=30)


def _daemon_set_defaults(obj: Object) -> None:
    _pod_template_defaults(obj)
    spec = json_types.child(obj, "spec")
    _set(spec, revisionHistoryLimit=10)
    strategy = json_types.child(spec, "updateStrategy")
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(json_types.child(strategy, "rollingUpdate"), maxUnavailable=1, maxSurge=0)


def _deployment_defaults(obj: Object) -> None:
    _pod_template_defaults(obj)
    spec = json_types.child(obj, "spec")
    _set(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = json_types.child(spec, "strategy")
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(json_types.child(strategy, "rollingUpdate"), maxUnavailable="25%", maxSurge="25%")


_PLAIN_DEFAULTS: dict[Resource, Callable[[Object], None]] = {
    resources.ROLE_BINDING: _role_binding_defaults,
    resources.CLUSTER_ROLE_BINDING: _role_binding_defaults,
    resources.ADMISSION_POLICY: _policy_defaults,
    resources.ADMISSION_BINDING: _policy_binding_defaults,
    resources.WEBHOOKS: _webhook_defaults,
    resources.SECRET: _secret_defaults,
    resources.DAEMON_SET: _daemon_set_defaults,
    resources.DEPLOYMENT: _deployment_defaults,
}
