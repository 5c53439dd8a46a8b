"""DaemonSets and Deployments: their pods, and the status that ``kubectl rollout status`` reads.

Simpler than Kubernetes' own: a Deployment owns its pods itself, without ReplicaSets, so there is no history to roll back to; this
controller sets the node of DaemonSet pods, instead of an affinity. A new template replaces pods one by one: a Deployment's after the
new pod is ready, a DaemonSet's before, unless its updateStrategy is OnDelete.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import discard, find, key_of, uid_of
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.objects import errors, json_types, naming, taints
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import DAEMON_SET, DEPLOYMENT, NODE, POD, Resource

_HASH_LABELS = {DAEMON_SET: "controller-revision-hash", DEPLOYMENT: "pod-template-hash"}
_HASH_LENGTH = 10
_DAEMON_TOLERATIONS: list[Object] = [
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists"}
    for name in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
]


@dataclass(frozen=True, kw_only=True)
class _Group:
    """A workload and the pods that it owns; without pods that have finished or are being deleted."""

    resource: Resource
    owner: Object
    hash: str
    pods: Sequence[Object]
    refusals: list[errors.ApiError] = field(default_factory=list)
    """Errors of pods that could not be created."""

    def current(self) -> list[Object]:
        """Return the pods of the current template."""
        label = _HASH_LABELS[self.resource]
        return [pod for pod in self.pods if json_types.text(pod, "metadata", "labels", label) == self.hash]

    def outdated(self) -> list[Object]:
        """Return the pods of earlier templates."""
        current = {uid_of(pod) for pod in self.current()}
        return [pod for pod in self.pods if uid_of(pod) not in current]


class WorkloadMaker:
    """Creates and deletes pods of workloads."""

    def __init__(self, api: Api, recorder: Recorder) -> None:
        self._api = api
        self._recorder = recorder
        self._steps: dict[Resource, Callable[[_Group], Object]] = {DAEMON_SET: self._daemon_set, DEPLOYMENT: self._deployment}

    def check_daemon_set(self, key: Key) -> None:
        """Reconcile a DaemonSet; raise the ApiError of a pod that could not be created, for a retry."""
        self._check(DAEMON_SET, key)

    def check_deployment(self, key: Key) -> None:
        """Reconcile a Deployment; raise the ApiError of a pod that could not be created, for a retry."""
        self._check(DEPLOYMENT, key)

    def check_of_owner(self, pod: Object) -> tuple[Callable[[Key], None], Key] | None:
        """Return the check of the workload that owns a pod, and its key; None without a workload."""
        owner = pod_claims.owner(pod)
        key = Key(key_of(pod).namespace, json_types.text(owner, "name"))
        checks = {DAEMON_SET.kind: self.check_daemon_set, DEPLOYMENT.kind: self.check_deployment}
        check = checks.get(json_types.text(owner, "kind")) if json_types.text(owner, "apiVersion") == DAEMON_SET.api_version else None
        return (check, key) if check is not None else None

    def _check(self, resource: Resource, key: Key) -> None:
        owner = find(self._api, resource, key)
        if owner is None or pod_claims.is_deleting(owner):
            return
        pods = [pod for pod in self._api.list(POD, namespace=key.namespace).items if _owns(owner, pod) and not pod_claims.is_deleting(pod)]
        for pod in pods:
            if pod_claims.is_terminal(pod):
                discard(self._api, POD, pod)
        running = [pod for pod in pods if not pod_claims.is_terminal(pod)]
        group = _Group(resource=resource, owner=owner, hash=_hash(owner), pods=running)
        status = self._steps[resource](group) | {"observedGeneration": json_types.number(owner, "metadata", "generation")}
        if any(json_types.at(owner, "status", field) != value for field, value in status.items()):
            self._api.patch(resource, key.name, {"status": status}, namespace=key.namespace, kind=PatchKind.MERGE, subresource="status")
        if group.refusals:
            raise group.refusals[0]

    def _daemon_set(self, group: _Group) -> Object:
        nodes = [json_types.text(node, "metadata", "name") for node in self._api.list(NODE).items if _runs_on(group.owner, node)]
        by_node = {json_types.text(pod, "spec", "nodeName"): pod for pod in group.pods}
        for name in nodes:
            if name not in by_node:
                self._create(group, {"nodeName": name})
        for name, pod in by_node.items():
            if name not in nodes:
                discard(self._api, POD, pod)
        outdated = [pod for pod in group.outdated() if json_types.text(pod, "spec", "nodeName") in nodes]
        ready = [pod for pod in group.pods if _is_ready(pod)]
        replaces = json_types.text(group.owner, "spec", "updateStrategy", "type") != "OnDelete"
        if outdated and replaces and len(ready) == len(nodes):
            discard(self._api, POD, outdated[0])
        return {
            "desiredNumberScheduled": len(nodes),
            "currentNumberScheduled": sum(name in by_node for name in nodes),
            "numberMisscheduled": sum(name not in nodes for name in by_node),
            "numberReady": len(ready),
            "numberAvailable": len(ready),
            "numberUnavailable": len(nodes) - len(ready),
            "updatedNumberScheduled": len(group.current()),
        }

    def _deployment(self, group: _Group) -> Object:
        replicas = json_types.number(group.owner, "spec", "replicas")
        current, outdated = group.current(), group.outdated()
        ready = [pod for pod in group.pods if _is_ready(pod)]
        paused = json_types.at(group.owner, "spec", "paused") is True
        creatable = replicas - len(group.pods) + (1 if outdated else 0)
        for _ in range(0 if paused else max(0, min(replicas - len(current), creatable))):
            self._create(group, {})
        surplus = len(group.pods) - replicas
        unready_old = [pod for pod in outdated if not _is_ready(pod)]
        if surplus > 0 and outdated and not paused and (len(ready) > replicas or unready_old):
            discard(self._api, POD, (unready_old or outdated)[0])
        elif surplus > 0 and not outdated:
            for pod in sorted(current, key=_is_ready)[:surplus]:
                discard(self._api, POD, pod)
        return {
            "replicas": len(group.pods),
            "updatedReplicas": len(current),
            "readyReplicas": len(ready),
            "availableReplicas": len(ready),
            "unavailableReplicas": max(0, replicas - len(ready)),
            "conditions": _conditions(group, available=len(ready) >= replicas, done=len(current) == len(group.pods) == replicas),
        }

    def _create(self, group: _Group, fields: Object) -> None:
        owner, template = group.owner, json_types.mapping(group.owner, "spec", "template")
        name = json_types.text(owner, "metadata", "name")
        label = _HASH_LABELS[group.resource]
        middle = f"{group.hash}-" if group.resource is DEPLOYMENT else ""
        metadata: Object = {
            "generateName": f"{name}-{middle}",
            "labels": json_types.mapping(template, "metadata", "labels") | {label: group.hash},
            "annotations": json_types.mapping(template, "metadata", "annotations"),
            "ownerReferences": [pod_claims.owned_by(group.resource, owner)],
        }
        spec = json_types.copy_object(json_types.mapping(template, "spec")) | fields
        try:
            pod = self._api.create(POD, {"metadata": metadata, "spec": spec}, namespace=key_of(owner).namespace)
        except (errors.ForbiddenError, errors.InvalidError) as error:
            self._recorder.warning(group.resource, owner, "FailedCreate", f"Error creating: {error}")
            group.refusals.append(error)
            return
        self._recorder.normal(group.resource, owner, "SuccessfulCreate", f"Created pod: {key_of(pod).name}")


def _owns(owner: Object, pod: Object) -> bool:
    return json_types.text(pod_claims.owner(pod), "uid") == uid_of(owner)


def _hash(owner: Object) -> str:
    template = json.dumps(json_types.at(owner, "spec", "template"), sort_keys=True)
    return hashlib.sha256(template.encode()).hexdigest()[:_HASH_LENGTH]


def _is_ready(pod: Object) -> bool:
    conditions = json_types.objects(pod, "status", "conditions")
    return any((condition.get("type"), condition.get("status")) == ("Ready", "True") for condition in conditions)


def _runs_on(owner: Object, node: Object) -> bool:
    """Return whether a DaemonSet has a pod on a node: its labels and taints allow it. A cordoned node may run one."""
    spec = json_types.mapping(owner, "spec", "template", "spec")
    labels = json_types.mapping(node, "metadata", "labels")
    if any(labels.get(name) != value for name, value in json_types.mapping(spec, "nodeSelector").items()):
        return False
    tolerations = [*json_types.objects(spec, "tolerations"), *_DAEMON_TOLERATIONS]
    return not taints.prevents(json_types.objects(node, "spec", "taints"), tolerations) and not pod_claims.is_deleting(node)


def _conditions(group: _Group, *, available: bool, done: bool) -> Json:
    """Return the conditions of a Deployment. An unchanged condition keeps its time."""
    existing = {str(condition.get("type")): condition for condition in json_types.objects(group.owner, "status", "conditions")}
    return [
        _condition(
            existing.get("Available", {}), "Available", "MinimumReplicasAvailable" if available else "MinimumReplicasUnavailable", available
        ),
        _condition(
            existing.get("Progressing", {}), "Progressing", "NewReplicaSetAvailable" if done and available else "ReplicaSetUpdated", True
        ),
    ]


def _condition(existing: Object, name: str, reason: str, holds: bool) -> Json:  # noqa: FBT001 -- the condition's own status.
    status = "True" if holds else "False"
    if (existing.get("status"), existing.get("reason")) == (status, reason):
        return existing
    now = naming.now()
    return {"type": name, "status": status, "reason": reason, "lastTransitionTime": now, "lastUpdateTime": now}
