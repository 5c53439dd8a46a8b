"""Kubernetes' defaults for the kinds around the driver: access, admission, workloads, secrets."""

import base64
from collections.abc import Callable

from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource

WEBHOOK_SECONDS = 10


def fill(resource: Resource, obj: Object) -> None:
    """Fill in the defaults of ``obj``."""
    if known := _DEFAULTS.get(resource):
        known(obj)


def _set(holder: Object, **fields: Json) -> None:
    for name, value in fields.items():
        if holder.get(name) in (None, ""):
            holder[name] = value


def _binding(obj: Object) -> None:
    _set(json_types.child(obj, "roleRef"), apiGroup=resources.RBAC_GROUP)
    for subject in json_types.objects(obj, "subjects"):
        if json_types.text(subject, "kind") in ("User", "Group"):
            _set(subject, apiGroup=resources.RBAC_GROUP)


def _policy(obj: Object) -> None:
    spec = json_types.child(obj, "spec")
    _set(spec, failurePolicy="Fail")
    _match(json_types.child(spec, "matchConstraints"))


def _policy_binding(obj: Object) -> None:
    wanted = json_types.at(obj, "spec", "matchResources")
    if isinstance(wanted, dict):
        _match(wanted)


def _match(constraints: Object) -> None:
    _selectors(constraints)
    for field in ("resourceRules", "excludeResourceRules"):
        _scopes(constraints, field)


def _selectors(holder: Object) -> None:
    _set(holder, matchPolicy="Equivalent")
    for field in ("namespaceSelector", "objectSelector"):
        holder.setdefault(field, {})


def _scopes(holder: Object, field: str) -> None:
    for rule in json_types.objects(holder, field):
        _set(rule, scope="*")


def _webhooks(obj: Object) -> None:
    for webhook in json_types.objects(obj, "webhooks"):
        _set(webhook, failurePolicy="Fail", timeoutSeconds=WEBHOOK_SECONDS)
        _selectors(webhook)
        _scopes(webhook, "rules")


def _secret(obj: Object) -> None:
    _set(obj, type="Opaque")
    written = obj.pop("stringData", None)
    if isinstance(written, dict) and written:
        data = json_types.child(obj, "data")
        data |= {name: base64.b64encode(str(value).encode()).decode() for name, value in written.items()}


def _pod_template(obj: Object) -> None:
    spec = json_types.child(json_types.child(obj, "spec"), "template").get("spec")
    if isinstance(spec, dict):
        _set(spec, restartPolicy="Always", schedulerName="default-scheduler", terminationGracePeriodSeconds=30)


def _daemon_set(obj: Object) -> None:
    _pod_template(obj)
    spec = json_types.child(obj, "spec")
    _set(spec, revisionHistoryLimit=10)
    strategy = json_types.child(spec, "updateStrategy")
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(json_types.child(strategy, "rollingUpdate"), maxUnavailable=1, maxSurge=0)


def _deployment(obj: Object) -> None:
    _pod_template(obj)
    spec = json_types.child(obj, "spec")
    _set(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = json_types.child(spec, "strategy")
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(json_types.child(strategy, "rollingUpdate"), maxUnavailable="25%", maxSurge="25%")


_DEFAULTS: dict[Resource, Callable[[Object], None]] = {
    resources.ROLE_BINDING: _binding,
    resources.CLUSTER_ROLE_BINDING: _binding,
    resources.ADMISSION_POLICY: _policy,
    resources.ADMISSION_BINDING: _policy_binding,
    resources.WEBHOOKS: _webhooks,
    resources.SECRET: _secret,
    resources.DAEMON_SET: _daemon_set,
    resources.DEPLOYMENT: _deployment,
}
