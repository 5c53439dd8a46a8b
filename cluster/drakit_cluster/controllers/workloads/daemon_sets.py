"""DaemonSets: one pod on each node that the template allows.

This controller sets the node of the pods itself, instead of an affinity. A new template replaces the pods, unless the updateStrategy is
OnDelete: with maxUnavailable that many are deleted at the same time; with maxSurge the new pod starts first, on that many nodes at the
same time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from drakit_cluster.client import pod_claims
from drakit_cluster.client.informer import discard
from drakit_cluster.controllers.workloads import owned_pods, replicas, statuses
from drakit_cluster.controllers.workloads.controller import Controller
from drakit_cluster.objects import errors, json_types, nodes, taints
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import DAEMON_SET, NODE, POD

HASH = "controller-revision-hash"
_TOLERATIONS: list[Object] = [
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists"}
    for name in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
]


@dataclass(frozen=True, kw_only=True)
class _Node:
    """The pods of one node: of earlier templates, and of the current one."""

    old: list[Object] = field(default_factory=list)
    current: list[Object] = field(default_factory=list)


class DaemonSets(Controller):
    """Creates and deletes the pods of DaemonSets."""

    resource = DAEMON_SET

    def _reconcile(self, owner: Object) -> float | None:
        found = owned_pods.of(self._api, owner)
        for pod in found:
            if pod_claims.is_terminal(pod) and not pod_claims.is_deleting(pod):
                discard(self._api, POD, pod)
        pods = owned_pods.active(found)
        wanted = {json_types.text(node, "metadata", "name") for node in self._api.list(NODE).items if _runs_on(owner, node)}
        current = owned_pods.template_hash(owner)
        minimum = json_types.number(owner, "spec", "minReadySeconds")
        ready = owned_pods.availability(pods, minimum)
        by_node: dict[str, _Node] = {name: _Node() for name in wanted}
        for pod in pods:
            name = json_types.text(pod, "spec", "nodeName")
            if name in wanted:
                is_current = json_types.text(pod, "metadata", "labels", HASH) == current
                (by_node[name].current if is_current else by_node[name].old).append(pod)
            else:
                discard(self._api, POD, pod)
        status: Object = {
            "desiredNumberScheduled": len(wanted),
            "currentNumberScheduled": sum(bool(one.old or one.current) for one in by_node.values()),
            "numberMisscheduled": len({json_types.text(pod, "spec", "nodeName") for pod in pods} - wanted),
            "numberReady": min(ready.ready, len(wanted)),
            "numberAvailable": min(ready.available, len(wanted)),
            "numberUnavailable": max(0, len(wanted) - ready.available),
            "updatedNumberScheduled": sum(bool(one.current) for one in by_node.values()),
        }
        statuses.write(self._api, DAEMON_SET, owner, status)
        surged = self._replace(owner, by_node, minimum)
        ending = {json_types.text(pod, "spec", "nodeName") for pod in found if pod_claims.is_deleting(pod)}
        empty = {name for name, one in by_node.items() if not one.old and not one.current} - ending
        self._create(owner, sorted(empty | surged), current)
        return ready.seconds

    def _replace(self, owner: Object, by_node: Mapping[str, _Node], minimum: int) -> set[str]:
        """Delete old pods that may go; return the nodes that get a new pod beside their old one."""
        strategy = json_types.mapping(owner, "spec", "updateStrategy")
        if json_types.text(strategy, "type") == "OnDelete":
            return set()
        surge = replicas.rounded_up(json_types.at(strategy, "rollingUpdate", "maxSurge"), len(by_node))
        unavailable = replicas.rounded_up(json_types.at(strategy, "rollingUpdate", "maxUnavailable"), len(by_node))
        unavailable -= sum(not _serves([*one.old, *one.current], minimum) for one in by_node.values())
        surge -= sum(bool(one.old and one.current) for one in by_node.values())
        surged = set()
        for name, one in by_node.items():
            is_spare, is_broken = _serves(one.current, minimum), not _serves(one.old, minimum)
            if one.old and (is_spare or is_broken or (unavailable > 0 and not one.current)):
                unavailable -= not is_spare and not is_broken
                for pod in one.old:
                    discard(self._api, POD, pod)
            elif one.old and not one.current and surge > 0:
                surge -= 1
                surged.add(name)
        return surged

    def _create(self, owner: Object, names: list[str], current: str) -> None:
        metadata: Object = {"generateName": f"{json_types.text(owner, 'metadata', 'name')}-", "labels": {HASH: current}}
        refusals = []
        for name in names:
            try:
                self._create_pod(owner, metadata, {"nodeName": name})
            except errors.ApiError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]


def _serves(pods: list[Object], minimum: int) -> bool:
    """Return whether one of the pods was ready for ``minimum`` seconds."""
    return owned_pods.availability(pods, minimum).available > 0


def _runs_on(owner: Object, node: Object) -> bool:
    """Return whether a DaemonSet has a pod on a node: labels, affinity and taints allow it. A cordoned node may run one."""
    spec = json_types.mapping(owner, "spec", "template", "spec")
    labels = json_types.mapping(node, "metadata", "labels")
    if any(labels.get(name) != value for name, value in json_types.mapping(spec, "nodeSelector").items()):
        return False
    required = json_types.at(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None and not nodes.selects(required, node):
        return False
    tolerations = [*json_types.objects(spec, "tolerations"), *_TOLERATIONS]
    return not taints.prevents(json_types.objects(node, "spec", "taints"), tolerations) and not pod_claims.is_deleting(node)
