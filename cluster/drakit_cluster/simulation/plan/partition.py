"""Exact search for a distribution of pods over empty nodes.

The allocator decides whether pods fit together on one node: all their claims are one decision. If some pods fit, fewer pods fit too, so the search
only tries maximal sets of pods for a node. It stops if it would take too long.
"""

import itertools
from collections.abc import Iterator, Sequence

from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.simulation.engine.nodes import PlacedType
from drakit_cluster.simulation.workload.templates import PodTemplate

Counts = tuple[int, ...]
"""Pods by template."""


class GivenUpError(Exception):
    """The search exceeded its number of decisions."""


class Partition:
    """A search with pods of some templates; ``budget`` is the maximum number of decisions of the allocator."""

    def __init__(self, templates: Sequence[PodTemplate], budget: int) -> None:
        self._templates = templates
        self._budget = budget
        self._fitting: dict[tuple[PlacedType, Counts], bool] = {}
        self._choices: dict[tuple[PlacedType, Counts], list[Counts]] = {}
        self._failed: set[tuple[Counts, Counts]] = set()

    def possible(self, pods: Counts, types: Sequence[tuple[PlacedType, int]]) -> bool:
        """Return whether the pods fit on so many nodes of each type. Raises GivenUpError."""
        return self._share(pods, [placed for placed, _ in types], tuple(number for _, number in types))

    def _share(self, pods: Counts, types: Sequence[PlacedType], nodes_left: Counts) -> bool:
        if not any(pods):
            return True
        if (pods, nodes_left) in self._failed:
            return False
        for place, placed in enumerate(types):
            if nodes_left[place]:
                fewer_nodes = tuple(number - (place == other) for other, number in enumerate(nodes_left))
                for choice in self._maximal(placed, pods):
                    pods_left = tuple(count - taken for count, taken in zip(pods, choice, strict=True))
                    if self._share(pods_left, types, fewer_nodes):
                        return True
        self._failed.add((pods, nodes_left))
        return False

    def _maximal(self, placed: PlacedType, pods: Counts) -> list[Counts]:
        """Return the maximal choices of these pods that fit on one empty node."""
        key = (placed, pods)
        if key not in self._choices:
            fitting = [choice for choice in self._bounded(placed, pods) if self._fits(placed, choice)]
            self._choices[key] = [
                choice
                for choice in fitting
                if any(choice)
                and not any(count < pods[place] and self._fits(placed, _more(choice, place)) for place, count in enumerate(choice))
            ]
        return self._choices[key]

    def _bounded(self, placed: PlacedType, pods: Counts) -> Iterator[Counts]:
        """Yield the choices that may fit: at most as many pods of each template as fit alone."""
        limits = []
        for place, count in enumerate(pods):
            limit = 0
            while limit < count and self._fits(placed, tuple(limit + 1 if place == other else 0 for other in range(len(pods)))):
                limit += 1
            limits.append(range(limit + 1))
        return itertools.product(*limits)

    def _fits(self, placed: PlacedType, choice: Counts) -> bool:
        key = (placed, choice)
        if key not in self._fitting:
            if len(self._fitting) >= self._budget:
                raise GivenUpError
            self._fitting[key] = self._decide(placed, choice)
        return self._fitting[key]

    def _decide(self, placed: PlacedType, choice: Counts) -> bool:
        pods = [template for template, count in zip(self._templates, choice, strict=True) for _ in range(count)]
        if not pods:
            return True
        if not all(template.may_run_on(placed.node) for template in pods):
            return False
        claims = [claim for template in pods for claim in template.claims]
        try:
            results = placed.allocator().allocate(claims=claims, node=placed.node, allocated=AllocatedState(), new_share_id=lambda: "")
        except AllocationError:
            return False
        return results is not None


def _more(choice: Counts, place: int) -> Counts:
    return tuple(count + (place == other) for other, count in enumerate(choice))
