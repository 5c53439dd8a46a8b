"""The pods that have a node: the extended resources that they use, and the nodes that a new pod must avoid because of them.

Source of required anti-affinity: core/v1 PodAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution. It applies both ways: the terms of
the new pod and the terms of the running pods. Preferred terms, pod affinity and matchLabelKeys are ignored. A namespaceSelector counts
only if it is empty, which means all namespaces.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from drakit_cluster.client import pod_claims
from drakit_cluster.client.informer import uid_of
from drakit_cluster.client.sharing import group_of
from drakit_cluster.objects import json_types
from drakit_cluster.objects import labels as selectors
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.scheduling import extended

_TERMS = ("spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


class PlacedPods:
    """The pods that have a node and have not ended."""

    def __init__(self) -> None:
        self._placed: dict[str, tuple[Object, str]] = {}

    def observe(self, pod: Object, *, deleted: bool) -> bool:
        """Record a pod's current state. Return whether the pod ended, which may free resources for others."""
        node = json_types.text(pod, "spec", "nodeName")
        if node and not deleted and not pod_claims.is_terminal(pod):
            self.take(pod, node)
            return False
        return self._placed.pop(uid_of(pod), None) is not None

    def take(self, pod: Object, node: str) -> None:
        """Count a pod on its node, before the watch delivers it."""
        self._placed[uid_of(pod)] = (pod, node)

    def taken(self, node: str, resource: str) -> int:
        """Return how much of an extended resource the pods of a node use."""
        return sum(extended.amount(pod, resource) for pod, where in self._placed.values() if where == node)

    def is_first(self, pod: Object, waiting: Iterable[Object]) -> bool:
        """Return whether no other pod of the pod's PodGroup has a node or is ``waiting`` to be bound to one."""
        others = [*(other for other, _ in self._placed.values()), *waiting]
        return not any(group_of(other) == group_of(pod) and uid_of(other) != uid_of(pod) for other in others)

    def rule_for(self, pod: Object, nodes: Mapping[str, Object]) -> Callable[[Object], str]:
        """Return a function that gives the reason why the pod must avoid a node ("" for none). ``nodes`` are all nodes by name."""
        forbidden: dict[tuple[str, str], str] = {}
        for label, reason in self._forbidden(pod, nodes):
            forbidden.setdefault(label, reason)

        def obstacle(node: Object) -> str:
            labels = json_types.mapping(node, "metadata", "labels")
            return next((reason for (key, value), reason in forbidden.items() if labels.get(key) == value), "")

        return obstacle

    def _forbidden(self, pod: Object, nodes: Mapping[str, Object]) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield label and value of the nodes to keep away from, each with the reason."""
        own_terms = _terms(pod)
        for other, node in self._placed.values():
            if uid_of(other) == uid_of(pod):
                continue
            labels = json_types.mapping(nodes.get(node, {}), "metadata", "labels")
            name = json_types.text(other, "metadata", "name")
            for term in own_terms:
                yield from _place(term, pod, other, labels, f"pod {name} is there, which the pod's anti-affinity forbids")
            for term in _terms(other):
                yield from _place(term, other, pod, labels, f"the anti-affinity of pod {name} there forbids the pod")


def _terms(pod: Object) -> list[Object]:
    return json_types.objects(pod, *_TERMS)


def _place(term: Object, owner: Object, target: Object, labels: Mapping[str, Json], why: str) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the topology domain that ``term`` of ``owner`` closes because of ``target``. ``labels`` belong to the other pod's node."""
    key = json_types.text(term, "topologyKey")
    value = labels.get(key)
    if isinstance(value, str) and _names_namespace(term, owner, target) and selectors.selects(term.get("labelSelector"), target):
        yield (key, value), f"{why} ({key}={value})"


def _names_namespace(term: Object, owner: Object, target: Object) -> bool:
    listed, selector = json_types.strings(term, "namespaces"), term.get("namespaceSelector")
    namespace = json_types.text(target, "metadata", "namespace")
    if selector == {} or namespace in listed:
        return True
    return not listed and selector is None and namespace == json_types.text(owner, "metadata", "namespace")
