"""Policies: the choice of one of the nodes that fit a pod, and changes of the slices.

A policy gives each node a score for a template; the lowest wins, and among equal scores the first node by name. Scores depend only on the
state of the node, so they are cached by state.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from drakit_cluster.simulation.engine.blocks import NodeType, State
from drakit_cluster.simulation.engine.nodes import Node
from drakit_cluster.simulation.fleet.variants import DeviceOrder, Variant
from drakit_cluster.simulation.workload.templates import PodTemplate, WorkloadError


class NodeChoice(enum.StrEnum):
    """Which node a pod gets."""

    FIRST_FIT = "first-fit"
    MOST_ALLOCATED = "most-allocated"
    LEAST_ALLOCATED = "least-allocated"
    LEAST_FRAGMENTATION = "least-fragmentation"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One policy; ``name`` is the text that it was read from."""

    name: str = NodeChoice.FIRST_FIT.value
    choice: NodeChoice = NodeChoice.FIRST_FIT
    variant: Variant = field(default_factory=Variant)


FORM = "CHOICE[,order=ORDER][,layout=PROFILE+PROFILE...][,step=BANDWIDTH]"


def parse(text: str) -> Policy:
    """Return the policy of a text such as ``most-allocated,order=largest-first``. Raises WorkloadError."""
    choice, *changes = (part.strip() for part in text.split(","))
    variant = Variant()
    for change in changes:
        name, _, value = change.partition("=")
        match name:
            case "order":
                variant = replace(variant, order=DeviceOrder(_checked(text, value, DeviceOrder)))
            case "layout" if value:
                variant = replace(variant, layout=() if value == "on-demand" else tuple(_profiles(value)))
            case "step" if value:
                variant = replace(variant, step=value)
            case _:
                raise WorkloadError(f"policy {text}: {change!r} is none of order=, layout= and step=; write {FORM}")
    return Policy(name=text, choice=NodeChoice(_checked(text, choice, NodeChoice)), variant=variant)


def _checked(text: str, value: str, values: type[enum.StrEnum]) -> str:
    if value not in {member.value for member in values}:
        raise WorkloadError(f"policy {text}: {value!r} is unknown; known are {', '.join(values)}")
    return value


def _profiles(text: str) -> list[str]:
    profiles = []
    for part in text.split("+"):
        profile, _, times = part.partition("*")
        profiles += [profile] * (int(times) if times.isdecimal() else 1)
    return profiles


class Fragmentation:
    """The part of the free devices that cannot serve the expected pods (Weng et al., USENIX ATC 2023, for MIG placements).

    The fragmentation of a block is its free share, times the share of pods that need such a block and do not fit on it. Pods are expected as
    often as their templates occur in the workload.
    """

    def __init__(self, weights: Mapping[PodTemplate, float]) -> None:
        self._weights = weights
        self._relevant: dict[tuple[NodeType, int], list[tuple[PodTemplate, int, float]]] = {}
        self._by_block: dict[tuple[NodeType, int, State], float] = {}
        self._growths: dict[tuple[NodeType, int, State, PodTemplate], float] = {}

    def of_block(self, offers: NodeType, block: int, state: State) -> float:
        """Return the fragmentation of a block, from 0 to 1."""
        key = (offers, block, state)
        if key not in self._by_block:
            free = 1.0 - offers.used(block, state)
            self._by_block[key] = free * self._unserved(offers, block, state) if free > 0 else 0.0
        return self._by_block[key]

    def growth(self, offers: NodeType, block: int, state: State, template: PodTemplate) -> float:
        """Return the growth of fragmentation if the template's first device is taken from the block; infinite if no device suits."""
        key = (offers, block, state, template)
        if key not in self._growths:
            new_state = offers.first_device(template, block, state)
            if new_state is None:
                self._growths[key] = float("inf")
            else:
                self._growths[key] = self.of_block(offers, block, new_state) - self.of_block(offers, block, state)
        return self._growths[key]

    def _unserved(self, offers: NodeType, block: int, state: State) -> float:
        relevant = self._of_interest(offers, block)
        total = sum(weight for _, _, weight in relevant)
        unserved_weight = 0.0
        for template, want, weight in relevant:
            room = offers.room(template, block, state)
            if room is not None and not room[want]:
                unserved_weight += weight
        return unserved_weight / total if total else 0.0

    def _of_interest(self, offers: NodeType, block: int) -> list[tuple[PodTemplate, int, float]]:
        """Return the wants that an unused block could serve."""
        key = (offers, block)
        if key not in self._relevant:
            wants = []
            for template, weight in self._weights.items():
                room = offers.room(template, block, ()) if offers.needs(template).certain else None
                wants += [(template, want, weight) for want, count in enumerate(room or ()) if count]
            self._relevant[key] = wants
        return self._relevant[key]


class Scorer:
    """The scores of one policy."""

    def __init__(self, choice: NodeChoice, fragmentation: Fragmentation) -> None:
        self._choice = choice
        self._fragmentation = fragmentation

    def score(self, node: Node, template: PodTemplate) -> float:
        """Return the node's score for a template; the lowest wins."""
        match self._choice:
            case NodeChoice.FIRST_FIT:
                return 0.0
            case NodeChoice.MOST_ALLOCATED:
                return -_used(node)
            case NodeChoice.LEAST_ALLOCATED:
                return _used(node)
            case NodeChoice.LEAST_FRAGMENTATION:
                return min(self._growths(node, template), default=0.0)

    def first(self, node: Node, template: PodTemplate) -> str:
        """Return the counter set whose devices the allocator gets first; "" for the order of the slices."""
        if self._choice is not NodeChoice.LEAST_FRAGMENTATION or node.type.offers.spans:
            return ""
        growths = self._growths(node, template)
        best = min(range(len(growths)), key=growths.__getitem__, default=None)
        return "" if best is None or growths[best] == float("inf") else node.type.offers.blocks[best].counter_set

    def _growths(self, node: Node, template: PodTemplate) -> list[float]:
        offers = node.type.offers
        return [self._fragmentation.growth(offers, number, state, template) for number, state in enumerate(node.states)]


def _used(node: Node) -> float:
    offers = node.type.offers
    return sum(offers.used(number, state) for number, state in enumerate(node.states))
