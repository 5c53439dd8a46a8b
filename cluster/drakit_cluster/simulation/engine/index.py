"""An index of nodes: for each template a heap of the nodes that may have room, best score first.

A node is in the heap of a template while it has at least as many devices for each request as the template needs. The allocator decides
whether they fit together. A node that the allocator refused leaves the heap until something on it changes. The pods that all nodes may have
room for are summed, so that a gang that cannot fit is not tried. An update costs O(log n) for each template, and so does taking the best of n
nodes. Stale entries are dropped when they reach the top.
"""

import heapq
from collections.abc import Iterable, Sequence

from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.simulation.engine.blocks import PLENTY, Needs, Room
from drakit_cluster.simulation.engine.nodes import Node, Nodes
from drakit_cluster.simulation.engine.policies import Scorer
from drakit_cluster.simulation.workload.templates import PodTemplate

_SPARSE = 4
"""A heap with more than this many entries for each node is rebuilt."""


class _Candidates:
    """The nodes that may have room for one template."""

    def __init__(self, size: int) -> None:
        self.heap: list[tuple[float, int]] = []
        self.scores: list[float | None] = [None] * size
        """The score of each node in the heap; None for a node without room."""

    def best(self) -> int | None:
        """Return the rank of the best node, or None."""
        heap, scores = self.heap, self.scores
        while heap:
            score, rank = heap[0]
            if scores[rank] == score:
                return rank
            heapq.heappop(heap)
        return None

    def put(self, rank: int, score: float | None) -> None:
        """Set a node's score; None removes it."""
        if score == self.scores[rank]:
            return
        self.scores[rank] = score
        if score is not None:
            heapq.heappush(self.heap, (score, rank))
            if len(self.heap) > _SPARSE * len(self.scores) + _SPARSE:
                self.heap = [(score, number) for number, score in enumerate(self.scores) if score is not None]
                heapq.heapify(self.heap)


class _Watched:
    """One template: the types of nodes where its pods may run, its candidates, and the devices of every node for each want."""

    def __init__(self, template: PodTemplate, nodes: Sequence[Node]) -> None:
        size = len(nodes)
        self.template = template
        self.types = {placed for placed in {node.type for node in nodes} if template.may_run_on(placed.node)}
        self.candidates = _Candidates(size)
        self.rooms: list[list[Room | None]] = [[] for _ in range(size)]
        self.totals: list[list[int]] = [[] for _ in range(size)]
        self.pods = [0] * size
        """The number of pods for which each node may have room."""
        self.pods_of_all = 0

    def put(self, rank: int, score: float | None, pods: int) -> None:
        """Set a node's score and the number of pods for which it may have room; None and 0 remove it."""
        self.candidates.put(rank, score)
        self.pods_of_all += pods - self.pods[rank]
        self.pods[rank] = pods


class NodeIndex:
    """The nodes of one run."""

    def __init__(self, nodes: Nodes, scorer: Scorer) -> None:
        self._nodes = nodes.all
        self._scorer = scorer
        self._watched: dict[PodTemplate, _Watched] = {}

    def best(self, template: PodTemplate) -> Node | None:
        """Return the best node that may have room, or None if the template fits nowhere."""
        rank = self._watch(template).candidates.best()
        return None if rank is None else self._nodes[rank]

    def may_fit(self, template: PodTemplate, pods: int) -> bool:
        """Return whether all nodes together may have room for that many pods."""
        return self._watch(template).pods_of_all >= pods

    def refused(self, template: PodTemplate, node: Node) -> None:
        """Exclude a node for a template until something on it changes."""
        self._watch(template).put(node.rank, None, 0)

    def changed(self, changes: Iterable[tuple[Node, Sequence[int]]]) -> None:
        """Record that blocks of nodes have a new state."""
        for node, numbers in changes:
            for watched in self._watched.values():
                self._update(watched, node, numbers)

    def _watch(self, template: PodTemplate) -> _Watched:
        watched = self._watched.get(template)
        if watched is None:
            watched = self._watched[template] = _Watched(template, self._nodes)
            for node in self._nodes:
                if node.type in watched.types:
                    self._add_node(watched, node)
        return watched

    def _add_node(self, watched: _Watched, node: Node) -> None:
        needs = node.type.offers.needs(watched.template)
        if needs.certain:
            rooms = [_room(node, watched.template, number) for number in range(len(node.states))]
            watched.rooms[node.rank] = rooms
            watched.totals[node.rank] = [sum(room[want] for room in rooms if room) for want in range(needs.wants)]
        self._update_candidate(watched, node, needs)

    def _update(self, watched: _Watched, node: Node, numbers: Sequence[int]) -> None:
        if node.type not in watched.types:
            return
        needs = node.type.offers.needs(watched.template)
        if needs.certain:
            rooms, totals = watched.rooms[node.rank], watched.totals[node.rank]
            for number in numbers:
                old_room, new_room = rooms[number], _room(node, watched.template, number)
                if old_room != new_room:
                    rooms[number] = new_room
                    for want in range(needs.wants):
                        totals[want] += (new_room[want] if new_room else 0) - (old_room[want] if old_room else 0)
        self._update_candidate(watched, node, needs)

    def _update_candidate(self, watched: _Watched, node: Node, needs: Needs) -> None:
        rank = node.rank
        unknown = not needs.certain or None in watched.rooms[rank]
        pods = PLENTY if unknown else needs.pods(watched.totals[rank])
        watched.put(rank, self._scorer.score(node, watched.template) if pods else None, pods)


def _room(node: Node, template: PodTemplate, number: int) -> Room | None:
    try:
        return node.type.offers.room(template, number, node.states[number])
    except AllocationError:
        return None
