"""The Table form of objects, which ``kubectl get`` asks for: columns chosen by the server."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass

from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column: its header and how its cell is read from an object. ``wide`` columns show with ``-o wide`` only."""

    name: str
    read: Callable[[Object], Json]
    wide: bool = False


def wanted(accept: str) -> bool:
    """Say whether a client prefers a Table: the first kind that an Accept header names."""
    return "as=Table" in accept.partition(",")[0]


def table(resource: Resource, objects: list[Object], version: str) -> Object:
    """Return objects as a meta.k8s.io/v1 Table."""
    columns = _COLUMNS.get(resources.stored(resource), (_NAME, _AGE))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": [
            {
                "name": column.name,
                "type": "string",
                "format": "name" if column is _NAME else "",
                "description": column.name,
                "priority": int(column.wide),
            }
            for column in columns
        ],
        "rows": [_row(columns, obj) for obj in objects],
    }


def _row(columns: tuple[Column, ...], obj: Object) -> Json:
    partial: Object = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": json_types.mapping(obj, "metadata")}
    return {"cells": [column.read(obj) for column in columns], "object": partial}


def age(moment: str) -> str:
    """Return how long ago a time was, in its largest unit: ``5s``, ``12m``, ``3h``, ``8d``."""
    if not moment:
        return "<unknown>"
    passed = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(moment)
    seconds = max(0, int(passed.total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _field(*path: str, default: str = "") -> Callable[[Object], Json]:
    return lambda obj: json_types.text(obj, *path) or default


def _pod_status(pod: Object) -> Json:
    if json_types.text(pod, "metadata", "deletionTimestamp"):
        return "Terminating"
    return json_types.text(pod, "status", "reason") or json_types.text(pod, "status", "phase") or "Unknown"


def _pod_ready(pod: Object) -> Json:
    states = json_types.items(pod, "status", "containerStatuses")
    ready = sum(json_types.at(state, "ready") is True for state in states)
    return f"{ready}/{len(json_types.items(pod, 'spec', 'containers'))}"


def _gates(pod: Object) -> Json:
    wanted = [json_types.text(one, "conditionType") for one in json_types.objects(pod, "spec", "readinessGates")]
    held = {one.get("type") for one in json_types.objects(pod, "status", "conditions") if one.get("status") == "True"}
    return f"{sum(one in held for one in wanted)}/{len(wanted)}" if wanted else "<none>"


def _restarts(pod: Object) -> Json:
    states = json_types.items(pod, "status", "containerStatuses")
    return str(sum(json_types.number(state, "restartCount") for state in states))


def _claim_state(claim: Object) -> Json:
    states = [
        word
        for word, holds in (
            ("deleted", json_types.text(claim, "metadata", "deletionTimestamp")),
            ("allocated", json_types.at(claim, "status", "allocation") is not None),
            ("reserved", json_types.items(claim, "status", "reservedFor")),
        )
        if holds
    ]
    return ",".join(states) if "allocated" in states else ",".join([*states, "pending"])


def _node_status(node: Object) -> Json:
    conditions = json_types.items(node, "status", "conditions")
    ready = [json_types.text(one, "status") for one in conditions if json_types.text(one, "type") == "Ready"]
    word = {"True": "Ready", "False": "NotReady"}.get("".join(ready), "Unknown")
    return f"{word},SchedulingDisabled" if json_types.at(node, "spec", "unschedulable") is True else word


def _event_object(event: Object) -> Json:
    involved = json_types.mapping(event, "involvedObject")
    return f"{json_types.text(involved, 'kind').lower()}/{json_types.text(involved, 'name')}"


def _event_age(event: Object) -> Json:
    return age(json_types.text(event, "lastTimestamp") or json_types.text(event, "metadata", "creationTimestamp"))


def _count(*path: str) -> Callable[[Object], Json]:
    return lambda obj: str(json_types.number(obj, *path))


def _subjects(kind: str) -> Callable[[Object], Json]:
    def read(binding: Object) -> Json:
        found = [one for one in json_types.objects(binding, "subjects") if one.get("kind") == kind]
        return ", ".join(
            "/".join(part for part in (str(one.get("namespace") or ""), json_types.text(one, "name")) if part) for one in found
        )

    return read


def _node_roles(node: Object) -> Json:
    prefix = "node-role.kubernetes.io/"
    roles = sorted(label.removeprefix(prefix) for label in json_types.mapping(node, "metadata", "labels") if label.startswith(prefix))
    return ",".join(roles) or "<none>"


def _address(node: Object) -> Json:
    found = [one for one in json_types.objects(node, "status", "addresses") if one.get("type") == "InternalIP"]
    return json_types.text(found[0], "address") if found else "<none>"


def _of_containers(field: str) -> Callable[[Object], Json]:
    return lambda obj: ",".join(json_types.text(one, field) for one in json_types.objects(obj, "spec", "template", "spec", "containers"))


def _labels(*path: str) -> Callable[[Object], Json]:
    return lambda obj: ",".join(f"{key}={value}" for key, value in json_types.mapping(obj, *path).items()) or "<none>"


def _length(*path: str) -> Callable[[Object], Json]:
    return lambda obj: str(len(json_types.items(obj, *path)))


def _param_kind(policy: Object) -> Json:
    kind = json_types.mapping(policy, "spec", "paramKind")
    return f"{json_types.text(kind, 'apiVersion')}/{json_types.text(kind, 'kind')}" if kind else "<unset>"


def _param_ref(binding: Object) -> Json:
    reference = json_types.mapping(binding, "spec", "paramRef")
    named = "/".join(part for part in (json_types.text(reference, "namespace"), json_types.text(reference, "name")) if part)
    return (named or "*") if reference else "<unset>"


def _role(binding: Object) -> Json:
    return f"{json_types.text(binding, 'roleRef', 'kind')}/{json_types.text(binding, 'roleRef', 'name')}"


def _ready_replicas(obj: Object) -> Json:
    return f"{json_types.number(obj, 'status', 'readyReplicas')}/{json_types.number(obj, 'spec', 'replicas')}"


def _size(obj: Object) -> Json:
    return str(len(json_types.mapping(obj, "data")) + len(json_types.mapping(obj, "binaryData")))


_NAME = Column(name="Name", read=_field("metadata", "name"))
_AGE = Column(name="Age", read=lambda obj: age(json_types.text(obj, "metadata", "creationTimestamp")))
_TEMPLATE_COLUMNS = (
    Column(name="Containers", read=_of_containers("name"), wide=True),
    Column(name="Images", read=_of_containers("image"), wide=True),
    Column(name="Selector", read=_labels("spec", "selector", "matchLabels"), wide=True),
)
_SUBJECT_COLUMNS = (
    Column(name="Users", read=_subjects("User"), wide=True),
    Column(name="Groups", read=_subjects("Group"), wide=True),
    Column(name="ServiceAccounts", read=_subjects("ServiceAccount"), wide=True),
)
_COLUMNS: dict[Resource, tuple[Column, ...]] = {
    resources.POD: (
        _NAME,
        Column(name="Ready", read=_pod_ready),
        Column(name="Status", read=_pod_status),
        Column(name="Restarts", read=_restarts),
        _AGE,
        Column(name="IP", read=_field("status", "podIP", default="<none>"), wide=True),
        Column(name="Node", read=_field("spec", "nodeName", default="<none>"), wide=True),
        Column(name="Nominated Node", read=_field("status", "nominatedNodeName", default="<none>"), wide=True),
        Column(name="Readiness Gates", read=_gates, wide=True),
    ),
    resources.NODE: (
        _NAME,
        Column(name="Status", read=_node_status),
        Column(name="Roles", read=_node_roles),
        _AGE,
        Column(name="Version", read=_field("status", "nodeInfo", "kubeletVersion")),
        Column(name="Internal-IP", read=_address, wide=True),
        Column(name="OS-Image", read=_field("status", "nodeInfo", "osImage", default="<unknown>"), wide=True),
        Column(name="Kernel-Version", read=_field("status", "nodeInfo", "kernelVersion", default="<unknown>"), wide=True),
        Column(name="Container-Runtime", read=_field("status", "nodeInfo", "containerRuntimeVersion", default="<unknown>"), wide=True),
    ),
    resources.NAMESPACE: (_NAME, Column(name="Status", read=_field("status", "phase")), _AGE),
    resources.EVENT: (
        Column(name="Last Seen", read=_event_age),
        Column(name="Type", read=_field("type")),
        Column(name="Reason", read=_field("reason")),
        Column(name="Object", read=_event_object),
        Column(name="Message", read=_field("message")),
    ),
    resources.CLAIM: (_NAME, Column(name="State", read=_claim_state), _AGE),
    resources.SLICE: (
        _NAME,
        Column(name="Node", read=_field("spec", "nodeName", default="<none>")),
        Column(name="Driver", read=_field("spec", "driver")),
        Column(name="Pool", read=_field("spec", "pool", "name")),
        _AGE,
    ),
    resources.TAINT_RULE: (_NAME, Column(name="Effect", read=_field("spec", "taint", "effect")), _AGE),
    resources.DAEMON_SET: (
        _NAME,
        Column(name="Desired", read=_count("status", "desiredNumberScheduled")),
        Column(name="Current", read=_count("status", "currentNumberScheduled")),
        Column(name="Ready", read=_count("status", "numberReady")),
        Column(name="Up-to-date", read=_count("status", "updatedNumberScheduled")),
        Column(name="Available", read=_count("status", "numberAvailable")),
        Column(name="Node Selector", read=_labels("spec", "template", "spec", "nodeSelector")),
        _AGE,
        *_TEMPLATE_COLUMNS,
    ),
    resources.DEPLOYMENT: (
        _NAME,
        Column(name="Ready", read=_ready_replicas),
        Column(name="Up-to-date", read=_count("status", "updatedReplicas")),
        Column(name="Available", read=_count("status", "availableReplicas")),
        _AGE,
        *_TEMPLATE_COLUMNS,
    ),
    resources.SERVICEACCOUNT: (_NAME, Column(name="Secrets", read=_length("secrets")), _AGE),
    resources.ROLE: (_NAME, Column(name="Created At", read=_field("metadata", "creationTimestamp"))),
    resources.CLUSTER_ROLE: (_NAME, Column(name="Created At", read=_field("metadata", "creationTimestamp"))),
    resources.LEASE: (_NAME, Column(name="Holder", read=_field("spec", "holderIdentity")), _AGE),
    resources.SECRET: (_NAME, Column(name="Type", read=_field("type")), Column(name="Data", read=_size), _AGE),
    resources.CONFIGMAP: (_NAME, Column(name="Data", read=_size), _AGE),
    resources.ROLE_BINDING: (_NAME, Column(name="Role", read=_role), _AGE, *_SUBJECT_COLUMNS),
    resources.CLUSTER_ROLE_BINDING: (_NAME, Column(name="Role", read=_role), _AGE, *_SUBJECT_COLUMNS),
    resources.ADMISSION_POLICY: (
        _NAME,
        Column(name="Validations", read=_length("spec", "validations")),
        Column(name="ParamKind", read=_param_kind),
        _AGE,
    ),
    resources.ADMISSION_BINDING: (
        _NAME,
        Column(name="PolicyName", read=_field("spec", "policyName")),
        Column(name="ParamRef", read=_param_ref),
        _AGE,
    ),
    resources.WEBHOOKS: (_NAME, Column(name="Webhooks", read=_length("webhooks")), _AGE),
}
