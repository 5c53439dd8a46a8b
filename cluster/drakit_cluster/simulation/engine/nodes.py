"""The nodes of one run: the devices in use on each, and the allocator's decisions there."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from drakit_cluster.cel import selectors
from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import DeviceId, UnusablePoolError
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator import known_errors
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.known_errors import KnownErrors
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.simulation.engine import blocks
from drakit_cluster.simulation.engine.blocks import NodeType, State
from drakit_cluster.simulation.fleet import variants
from drakit_cluster.simulation.fleet.groups import Fleet, Group
from drakit_cluster.simulation.fleet.variants import Variant
from drakit_cluster.simulation.workload.templates import PodTemplate


@dataclass(eq=False)
class Node:
    """One node. ``used`` is in the names of the prototype's pools, unless the node's pools span nodes."""

    rank: int
    name: str
    type: "PlacedType"
    used: AllocatedState
    states: list[State] = field(default_factory=list)


class Grant(NamedTuple):
    """The allocation of one pod on one node: its claims, in the names of the prototype."""

    node: Node
    claims: tuple[Object, ...]

    def devices(self) -> list[DeviceId]:
        """Return the devices, in the names of the prototype."""
        return [_device(result) for claim in self.claims for result in _results(claim)]

    def names(self) -> list[str]:
        """Return driver/device of each device of the pod, with the consumed capacity of shares."""
        return [_description(result) for claim in self.claims for result in _results(claim)]

    @property
    def is_offered(self) -> bool:
        """Whether the node's slices have all devices. They lack those of a driver that is down, or of hardware that is gone."""
        return all(device in self.node.type.offers.block_of for device in self.devices())


class PlacedType:
    """A node type with the allocators that decide for its nodes."""

    def __init__(self, group: Group, slices: Sequence[Object], make: "AllocatorFactory", *, spans: bool) -> None:
        self._group = group
        self._make = make
        self._slices = slices
        self._allocators: dict[str, Allocator] = {}
        self.prototype = group.prototype
        self.offers = NodeType(group.label, group.node, self.allocator(), spans=spans)

    @property
    def node(self) -> Object:
        return self._group.node

    def allocator(self, first: str = "") -> Allocator:
        """Return the allocator; with ``first``, one that gets the devices of that counter set first."""
        if first not in self._allocators:
            slices = variants.reordered(self._slices, variants.first_of(first)) if first else self._slices
            self._allocators[first] = self._make.over(slices)
        return self._allocators[first]


class AllocatorFactory:
    """Creates allocators that share their selectors, one for each list of slices."""

    def __init__(self, classes: Mapping[str, Object], gates: FeatureGates, errors: KnownErrors, variant: Variant) -> None:
        self._classes = classes
        self._gates = gates
        self._errors = errors
        self._selectors = selectors.Selectors(gates)
        self._variant = variant
        self._changed: dict[int, Sequence[Object]] = {}
        self._allocators: dict[int, tuple[Sequence[Object], Allocator]] = {}

    def changed(self, slices: Sequence[Object]) -> Sequence[Object]:
        """Return the slices as the policy changes them, cached by identity."""
        if id(slices) not in self._changed:
            self._changed[id(slices)] = self._variant.applied(slices)
        return self._changed[id(slices)]

    def over(self, slices: Sequence[Object]) -> Allocator:
        """Return the allocator over the slices, cached by identity."""
        if id(slices) not in self._allocators:
            self._allocators[id(slices)] = (slices, Allocator(slices, self._classes, self._selectors, self._gates, self._errors))
        return self._allocators[id(slices)][1]


class Nodes:
    """The nodes of a fleet, in the order of their names."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        gates: FeatureGates | None = None,
        errors: KnownErrors = known_errors.NONE,
        variant: Variant | None = None,
    ) -> None:
        factory = AllocatorFactory(fleet.classes, gates or FeatureGates(), errors, variant or Variant())
        self.spans = bool(fleet.shared)
        self.repeats_errors = bool(errors)
        everywhere = AllocatedState()
        self.types = [PlacedType(group, factory.changed(group.slices), factory, spans=self.spans) for group in fleet.groups]
        named = sorted((name, kind) for kind, group in enumerate(fleet.groups) for name in group.names)
        self.all = [
            Node(rank=rank, name=name, type=self.types[kind], used=everywhere if self.spans else AllocatedState())
            for rank, (name, kind) in enumerate(named)
        ]
        self._uids = (f"claim-{number}" for number in itertools.count())
        self._share_ids = (f"00000000-0000-4000-8000-{number:012}" for number in itertools.count())
        self._by_name = {node.name: node for node in self.all}
        self._hold(fleet.held)
        for node in self.all:
            node.states = [blocks.state_of(block, node.used) for block in node.type.offers.blocks]

    def allocate(self, template: PodTemplate, node: Node, first: str = "") -> Grant | None:
        """Allocate a pod's devices on a node, or return None if they do not fit there. Raises AllocationError as the allocator does."""
        try:
            results = node.type.allocator(first).allocate(
                claims=template.claims, node=node.type.node, allocated=node.used, new_share_id=self._share_ids.__next__
            )
        except UnusablePoolError:
            return None
        if results is None:
            return None
        grant = Grant(node, tuple(self._claim(allocation) for allocation in results))
        self.restore(grant)
        return grant

    def release(self, grant: Grant) -> None:
        """Release a pod's devices."""
        for claim in grant.claims:
            grant.node.used.remove(claim)

    def restore(self, grant: Grant) -> None:
        """Allocate the devices of a released grant again."""
        for claim in grant.claims:
            grant.node.used.add(claim)

    def _claim(self, allocation: Object) -> Object:
        return {"metadata": {"uid": next(self._uids)}, "status": {"allocation": allocation}}

    def update(self, grant: Grant) -> Iterable[tuple[Node, Sequence[int]]]:
        """Update the block states after a change of a grant; yield each node with the numbers of its changed blocks."""
        if self.spans:
            for node in self.all:
                node.states = [blocks.state_of(block, node.used) for block in node.type.offers.blocks]
                yield node, range(len(node.states))
            return
        offers = grant.node.type.offers
        changed = list(dict.fromkeys(offers.block_of[device] for device in grant.devices() if device in offers.block_of))
        for number in changed:
            grant.node.states[number] = blocks.state_of(offers.blocks[number], grant.node.used)
        yield grant.node, changed

    def grants_of(self, claim: Object) -> list[Grant]:
        """Return the devices of a claim from before the run, as one grant for each node."""
        by_node: dict[int, list[Object]] = {}
        for result in _results(claim):
            node = self._by_name.get(json_types.text(result, "pool")) or self._owner(result)
            if node is not None:
                renamed = result | {"pool": node.type.prototype} if result["pool"] == node.name else result
                by_node.setdefault(node.rank, []).append(renamed)
        grants = []
        for rank, results in by_node.items():
            allocation: Object = {"devices": {"results": json_types.from_objects(results)}}
            claim_on_node: Object = {"metadata": claim.get("metadata"), "status": {"allocation": allocation}}
            grants.append(Grant(self.all[rank], (claim_on_node,)))
        return grants

    def _hold(self, claims: Iterable[Object]) -> None:
        """Add claims that are allocated before the run: each result on the node of its pool."""
        for claim in claims:
            if self.spans:
                if self.all:
                    self.all[0].used.add(claim)
                continue
            for grant in self.grants_of(claim):
                self.restore(grant)

    def _owner(self, result: Object) -> Node | None:
        """Return the node of a pool that is not named after its node."""
        device = _device(result)
        return next((node for node in self.all if device in node.type.offers.block_of), None)


def _results(claim: Object) -> list[Object]:
    return json_types.objects(claim, "status", "allocation", "devices", "results")


def _device(result: Object) -> DeviceId:
    return DeviceId(json_types.text(result, "driver"), json_types.text(result, "pool"), json_types.text(result, "device"))


def _description(result: Object) -> str:
    consumed = ", ".join(f"{name} {amount}" for name, amount in json_types.mapping(result, "consumedCapacity").items())
    text = f"{json_types.text(result, 'driver')}/{json_types.text(result, 'device')}"
    return f"{text} ({consumed})" if consumed else text
