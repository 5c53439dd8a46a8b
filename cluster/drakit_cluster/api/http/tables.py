"""The Table form of objects, which ``kubectl get`` requests: the server chooses the columns."""

import datetime
from collections.abc import Callable
from typing import NamedTuple

from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource


class Column(NamedTuple):
    """A column: its header and how its cell is read from an object. ``wide`` columns show with ``-o wide`` only."""

    name: str
    read: Callable[[Object], Json]
    wide: bool = False


def is_requested(accept: str) -> bool:
    """Return whether a client prefers a Table: it is the first form that the Accept header names."""
    return "as=Table" in accept.partition(",")[0]


def table(resource: Resource, objects: list[Object], version: str, include: str) -> Object:
    """Return objects as a meta.k8s.io/v1 Table. ``include`` is the request's includeObject: what each row has of its object beside the cells."""
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
        "rows": [{"cells": [column.read(obj) for column in columns], **_included(resource, obj, include)} for obj in objects],
    }


def _included(resource: Resource, obj: Object, include: str) -> Object:
    """Return a row's object: whole for ``kubectl get --sort-by``, which sorts by any field, else its metadata. Source: TableOptions."""
    if include == "None":
        return {}
    if include == "Object":
        return {"object": obj | {"apiVersion": resource.api_version, "kind": resource.kind}}
    return {"object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": json_types.mapping(obj, "metadata")}}


def age(moment: str, until: str = "") -> str:
    """Return the time from a moment until another (default: now) in its largest unit: ``5s``, ``12m``, ``3h``, ``8d``."""
    if not moment:
        return "<unknown>"
    end = datetime.datetime.fromisoformat(until) if until else datetime.datetime.now(datetime.UTC)
    passed = end - datetime.datetime.fromisoformat(moment)
    seconds = max(0, int(passed.total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _field(*path: str, default: str = "") -> Callable[[Object], Json]:
    return lambda obj: json_types.text(obj, *path) or default


def _pod_status(pod: Object) -> Json:
    """Return what a pod does: the reason of a container that waits or has ended, or else of the pod. Source: printPod of kubectl's server side."""
    phase = json_types.text(pod, "status", "phase")
    if json_types.text(pod, "metadata", "deletionTimestamp") and phase not in ("Succeeded", "Failed"):
        return "Terminating"
    if initializing := _initializing(pod):
        return initializing
    states = json_types.objects(pod, "status", "containerStatuses")
    reason = next(filter(None, map(_ended_or_waiting, states)), "") or json_types.text(pod, "status", "reason") or phase or "Unknown"
    if reason == "Completed" and any(
        state.get("ready") is True and json_types.at(state, "state", "running") is not None for state in states
    ):
        conditions = json_types.objects(pod, "status", "conditions")
        is_ready = any((one.get("type"), one.get("status")) == ("Ready", "True") for one in conditions)
        return "Running" if is_ready else "NotReady"
    return reason


def _initializing(pod: Object) -> str:
    """Return the state of the first init container that has not succeeded; "" where all have."""
    states = json_types.objects(pod, "status", "initContainerStatuses")
    for place, state in enumerate(states):
        if "terminated" in json_types.mapping(state, "state") and not json_types.number(state, "state", "terminated", "exitCode"):
            continue
        reason = _ended_or_waiting(state)
        return f"Init:{reason}" if reason and reason not in _BEFORE_START else f"Init:{place}/{len(states)}"
    return ""


def _ended_or_waiting(state: Object) -> str:
    """Return why a container waits or how it ended; "" while it runs."""
    terminated = json_types.at(state, "state", "terminated")
    if terminated is None:
        return json_types.text(state, "state", "waiting", "reason")
    signal, code = json_types.number(terminated, "signal"), json_types.number(terminated, "exitCode")
    return json_types.text(terminated, "reason") or (f"Signal:{signal}" if signal else f"ExitCode:{code}")


def _pod_ready(pod: Object) -> Json:
    states = json_types.items(pod, "status", "containerStatuses")
    ready = sum(json_types.at(state, "ready") is True for state in states)
    return f"{ready}/{len(json_types.items(pod, 'spec', 'containers'))}"


def _gates(pod: Object) -> Json:
    gates = [json_types.text(gate, "conditionType") for gate in json_types.objects(pod, "spec", "readinessGates")]
    true_conditions = {
        condition.get("type") for condition in json_types.objects(pod, "status", "conditions") if condition.get("status") == "True"
    }
    return f"{sum(gate in true_conditions for gate in gates)}/{len(gates)}" if gates else "<none>"


def _restarts(pod: Object) -> Json:
    states = json_types.items(pod, "status", "containerStatuses")
    return str(sum(json_types.number(state, "restartCount") for state in states))


def _claim_state(claim: Object) -> Json:
    deleted = ["deleted"] if json_types.text(claim, "metadata", "deletionTimestamp") else []
    allocated = ["allocated"] if json_types.at(claim, "status", "allocation") is not None else []
    reserved = ["reserved"] if json_types.items(claim, "status", "reservedFor") else []
    return ",".join([*deleted, *allocated, *reserved, *([] if allocated else ["pending"])])


def _node_status(node: Object) -> Json:
    conditions = json_types.items(node, "status", "conditions")
    ready = [json_types.text(condition, "status") for condition in conditions if json_types.text(condition, "type") == "Ready"]
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
        subjects = [subject for subject in json_types.objects(binding, "subjects") if subject.get("kind") == kind]
        return ", ".join(
            "/".join(part for part in (str(entry.get("namespace") or ""), json_types.text(entry, "name")) if part) for entry in subjects
        )

    return read


def _node_roles(node: Object) -> Json:
    prefix = "node-role.kubernetes.io/"
    roles = sorted(label.removeprefix(prefix) for label in json_types.mapping(node, "metadata", "labels") if label.startswith(prefix))
    return ",".join(roles) or "<none>"


def _address(node: Object) -> Json:
    addresses = [address for address in json_types.objects(node, "status", "addresses") if address.get("type") == "InternalIP"]
    return json_types.text(addresses[0], "address") if addresses else "<none>"


def _of_containers(field: str) -> Callable[[Object], Json]:
    return lambda obj: ",".join(
        json_types.text(container, field) for container in json_types.objects(obj, "spec", "template", "spec", "containers")
    )


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


def _job_status(job: Object) -> Json:
    held = {one.get("type") for one in json_types.objects(job, "status", "conditions") if one.get("status") == "True"}
    return next((name for name in ("Complete", "Failed", "Suspended") if name in held), "Running")


def _completions(job: Object) -> Json:
    succeeded, wanted = json_types.number(job, "status", "succeeded"), json_types.at(job, "spec", "completions")
    return f"{succeeded}/{wanted}" if wanted is not None else f"{succeeded}/1 of {json_types.number(job, 'spec', 'parallelism')}"


def _duration(job: Object) -> Json:
    started, ended = json_types.text(job, "status", "startTime"), json_types.text(job, "status", "completionTime")
    return age(started, ended) if started else ""


def _last_schedule(job: Object) -> Json:
    last = json_types.text(job, "status", "lastScheduleTime")
    return age(last) if last else "<none>"


def _ports(service: Object) -> Json:
    ports = json_types.objects(service, "spec", "ports")
    return ",".join(f"{json_types.number(port, 'port')}/{json_types.text(port, 'protocol') or 'TCP'}" for port in ports) or "<none>"


def _size(obj: Object) -> Json:
    return str(len(json_types.mapping(obj, "data")) + len(json_types.mapping(obj, "binaryData")))


_BEFORE_START = ("PodInitializing", "ContainerCreating")
_NAME = Column("Name", _field("metadata", "name"))
_AGE = Column("Age", lambda obj: age(json_types.text(obj, "metadata", "creationTimestamp")))
_CREATED = Column("Created At", _field("metadata", "creationTimestamp"))


def _wide(**columns: Callable[[Object], Json]) -> tuple[Column, ...]:
    return tuple(Column(name.replace("_", "-"), read, wide=True) for name, read in columns.items())


_TEMPLATE = _wide(Containers=_of_containers("name"), Images=_of_containers("image"), Selector=_labels("spec", "selector", "matchLabels"))
_BINDING = (
    _NAME,
    Column("Role", _role),
    _AGE,
    *_wide(Users=_subjects("User"), Groups=_subjects("Group"), ServiceAccounts=_subjects("ServiceAccount")),
)
_COLUMNS: dict[Resource, tuple[Column, ...]] = {
    resources.POD: (
        _NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts),
        _AGE,
        *_wide(IP=_field("status", "podIP", default="<none>"), Node=_field("spec", "nodeName", default="<none>")),
        Column("Nominated Node", _field("status", "nominatedNodeName", default="<none>"), wide=True),
        Column("Readiness Gates", _gates, wide=True),
    ),
    resources.NODE: (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        Column("Version", _field("status", "nodeInfo", "kubeletVersion")),
        *_wide(
            Internal_IP=_address,
            OS_Image=_field("status", "nodeInfo", "osImage", default="<unknown>"),
            Kernel_Version=_field("status", "nodeInfo", "kernelVersion", default="<unknown>"),
            Container_Runtime=_field("status", "nodeInfo", "containerRuntimeVersion", default="<unknown>"),
        ),
    ),
    resources.NAMESPACE: (_NAME, Column("Status", _field("status", "phase")), _AGE),
    resources.EVENT: (
        Column("Last Seen", _event_age),
        Column("Type", _field("type")),
        Column("Reason", _field("reason")),
        Column("Object", _event_object),
        Column("Message", _field("message")),
    ),
    resources.CLAIM: (_NAME, Column("State", _claim_state), _AGE),
    resources.SLICE: (
        _NAME,
        Column("Node", _field("spec", "nodeName", default="<none>")),
        Column("Driver", _field("spec", "driver")),
        Column("Pool", _field("spec", "pool", "name")),
        _AGE,
    ),
    resources.TAINT_RULE: (_NAME, Column("Effect", _field("spec", "taint", "effect")), _AGE),
    resources.DAEMON_SET: (
        _NAME,
        Column("Desired", _count("status", "desiredNumberScheduled")),
        Column("Current", _count("status", "currentNumberScheduled")),
        Column("Ready", _count("status", "numberReady")),
        Column("Up-to-date", _count("status", "updatedNumberScheduled")),
        Column("Available", _count("status", "numberAvailable")),
        Column("Node Selector", _labels("spec", "template", "spec", "nodeSelector")),
        _AGE,
        *_TEMPLATE,
    ),
    resources.DEPLOYMENT: (
        _NAME,
        Column("Ready", _ready_replicas),
        Column("Up-to-date", _count("status", "updatedReplicas")),
        Column("Available", _count("status", "availableReplicas")),
        _AGE,
        *_TEMPLATE,
    ),
    resources.REPLICA_SET: (
        _NAME,
        Column("Desired", _count("spec", "replicas")),
        Column("Current", _count("status", "replicas")),
        Column("Ready", _count("status", "readyReplicas")),
        _AGE,
        *_TEMPLATE,
    ),
    resources.STATEFUL_SET: (_NAME, Column("Ready", _ready_replicas), _AGE, *_TEMPLATE),
    resources.JOB: (
        _NAME,
        Column("Status", _job_status),
        Column("Completions", _completions),
        Column("Duration", _duration),
        _AGE,
        *_TEMPLATE,
    ),
    resources.CRON_JOB: (
        _NAME,
        Column("Schedule", _field("spec", "schedule")),
        Column("Timezone", _field("spec", "timeZone", default="<none>")),
        Column("Suspend", lambda job: str(json_types.at(job, "spec", "suspend") is True)),
        Column("Active", _length("status", "active")),
        Column("Last Schedule", _last_schedule),
        _AGE,
    ),
    resources.SERVICE: (
        _NAME,
        Column("Type", _field("spec", "type")),
        Column("Cluster-IP", _field("spec", "clusterIP", default="<none>")),
        Column("Port(s)", _ports),
        _AGE,
    ),
    resources.SERVICEACCOUNT: (_NAME, Column("Secrets", _length("secrets")), _AGE),
    resources.ROLE: (_NAME, _CREATED),
    resources.CLUSTER_ROLE: (_NAME, _CREATED),
    resources.LEASE: (_NAME, Column("Holder", _field("spec", "holderIdentity")), _AGE),
    resources.SECRET: (_NAME, Column("Type", _field("type")), Column("Data", _size), _AGE),
    resources.CONFIGMAP: (_NAME, Column("Data", _size), _AGE),
    resources.ROLE_BINDING: _BINDING,
    resources.CLUSTER_ROLE_BINDING: _BINDING,
    resources.ADMISSION_POLICY: (_NAME, Column("Validations", _length("spec", "validations")), Column("ParamKind", _param_kind), _AGE),
    resources.ADMISSION_BINDING: (_NAME, Column("PolicyName", _field("spec", "policyName")), Column("ParamRef", _param_ref), _AGE),
    resources.WEBHOOKS: (_NAME, Column("Webhooks", _length("webhooks")), _AGE),
}
