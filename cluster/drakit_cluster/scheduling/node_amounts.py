"""How much of the extended resources of device plugins is taken on each node, by the pods that are there."""

from drakit_cluster.client import pod_claims
from drakit_cluster.client.informer import uid_of
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling import extended


class NodeAmounts:
    """Keeps the amounts of pods that have a node, until they end."""

    def __init__(self) -> None:
        self._by_pod: dict[str, tuple[str, dict[str, int]]] = {}

    def note(self, pod: Object, *, gone: bool) -> bool:
        """Take in a pod as it is now; say whether it gave something back."""
        node = json_types.text(pod, "spec", "nodeName")
        if gone or pod_claims.is_terminal(pod):
            return self._by_pod.pop(uid_of(pod), None) is not None
        if node:
            self.take(pod, node)
        return False

    def take(self, pod: Object, node: str) -> None:
        """Count a pod on a node, which it may have been given just now."""
        if amounts := {name: extended.amount(pod, name) for name in extended.wanted(pod)}:
            self._by_pod[uid_of(pod)] = (node, amounts)

    def taken(self, node: str, resource: str) -> int:
        """Return how much of a resource the pods of a node have."""
        return sum(amounts.get(resource, 0) for where, amounts in self._by_pod.values() if where == node)
