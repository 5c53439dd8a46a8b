"""Placement of pods one at a time: the choice of a node, the allocation there, and its release."""

from collections.abc import Sequence

from drakit_cluster.simulation.engine import policies
from drakit_cluster.simulation.engine.index import NodeIndex
from drakit_cluster.simulation.engine.nodes import Grant, Node, Nodes
from drakit_cluster.simulation.engine.policies import Fragmentation, Policy
from drakit_cluster.simulation.workload.templates import PodTemplate


class Observer:
    """Observes every change of a block; the base class ignores it."""

    def begin(self, nodes: Nodes, fragmentation: Fragmentation) -> None:
        """Record the nodes before the first event."""

    def changed(self, node: Node, numbers: Sequence[int]) -> None:
        """Record that blocks of a node have a new state."""

    def at(self, time: float, waiting: int) -> None:
        """Record that all events until ``time`` are processed, and the number of waiting pods."""


class Placer:
    """Places pods on nodes under a policy."""

    def __init__(self, nodes: Nodes, policy: Policy, fragmentation: Fragmentation, observer: Observer | None = None) -> None:
        self._nodes = nodes
        self._observer = observer or Observer()
        self._scorer = policies.Scorer(policy.choice, fragmentation)
        self._index = NodeIndex(nodes, self._scorer)
        self._observer.begin(nodes, fragmentation)

    def may_fit(self, template: PodTemplate, pods: int) -> bool:
        """Return whether the nodes have enough devices for each request of ``pods`` pods."""
        return self._index.may_fit(template, pods)

    def place(self, template: PodTemplate) -> Grant | None:
        """Place one pod on the best node on which the allocator finds devices. Raises AllocationError as it does."""
        while (node := self._index.best(template)) is not None:
            grant = self._nodes.allocate(template, node, self._scorer.first(node, template))
            if grant is not None:
                self._note(grant)
                return grant
            self._index.refused(template, node)
        return None

    def release(self, grant: Grant) -> None:
        """Release a pod's devices."""
        self._nodes.release(grant)
        self._note(grant)

    def _note(self, grant: Grant) -> None:
        for node, numbers in self._nodes.update(grant):
            self._index.changed([(node, numbers)])
            self._observer.changed(node, numbers)
