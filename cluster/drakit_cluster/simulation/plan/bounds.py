"""Proofs by counting that some nodes are too few for some pods. A count proves a shortage, but never that all pods fit.

There are two counts: the most pods of one template that fit if nothing else runs on the nodes; and, for every counter and shared capacity, the
least amount that all pods need together, compared with the amount of the nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.objects.quantity import Quantity
from drakit_cluster.scheduling.allocator.inventory import Device
from drakit_cluster.scheduling.allocator.problem import Problem
from drakit_cluster.scheduling.allocator.requests import Mode, Want
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.simulation.engine.blocks import PLENTY, NodeType
from drakit_cluster.simulation.engine.nodes import Node
from drakit_cluster.simulation.workload.templates import PodTemplate

Dimension = tuple[str, str]
"""Driver, and the name of a counter or of a shared capacity."""
UNKNOWN = PLENTY
"""The number of pods of a template if it cannot be counted."""


@dataclass(frozen=True, kw_only=True)
class Supply:
    """Upper bounds of one node: pods by template, each template alone, and amounts in nanos by dimension."""

    pods: Mapping[PodTemplate, int]
    amounts: Mapping[Dimension, int]


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Pods by template, and the least amount in nanos that each needs on any type of node."""

    counts: Mapping[PodTemplate, int]
    least: Mapping[PodTemplate, Mapping[Dimension, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, pods: Sequence[PodTemplate], types: Sequence[NodeType]) -> "Demand":
        """Return the demand of pods that may run on some types of node."""
        counts: dict[PodTemplate, int] = {}
        for template in pods:
            counts[template] = counts.get(template, 0) + 1
        return cls(counts=counts, least={template: _least_of(template, types) for template in counts})


def supply_of_type(offers: NodeType, templates: Sequence[PodTemplate]) -> Supply:
    """Return the supply of an empty node of a type."""
    return Supply(
        pods={template: _pod_limit(offers, template, [()] * len(offers.blocks)) for template in templates},
        amounts=_amounts(offers, AllocatedState()),
    )


def supply_of_node(node: Node, templates: Sequence[PodTemplate]) -> Supply:
    """Return the free supply of a node."""
    offers = node.type.offers
    return Supply(pods={template: _pod_limit(offers, template, node.states) for template in templates}, amounts=_amounts(offers, node.used))


def shortage(demand: Demand, supplies: Sequence[tuple[Supply, int]]) -> str:
    """Return why these numbers of nodes are too few; empty if counting proves nothing."""
    for template, count in demand.counts.items():
        limit = sum(number * supply.pods[template] for supply, number in supplies)
        if limit < count == 1:
            return f"{template.name} has no place on the nodes"
        if limit < count:
            return f"there are {count} pods of {template.name}, but at most {limit} fit on the nodes"
    for dimension in dict.fromkeys(name for least in demand.least.values() for name in least):
        needed = sum(count * demand.least[template].get(dimension, 0) for template, count in demand.counts.items())
        available = sum(number * supply.amounts.get(dimension, 0) for supply, number in supplies)
        if available < needed:
            driver, name = dimension
            return f"the pods need at least {Quantity(nanos=needed)} of {name} of {driver}, but the nodes have {Quantity(nanos=available)}"
    return ""


def _pod_limit(offers: NodeType, template: PodTemplate, states: Sequence[object]) -> int:
    """Return an upper bound of the pods of one template that fit on a node."""
    if not template.may_run_on(offers.node):
        return 0
    needs = offers.needs(template)
    if not needs.certain or not needs.exact:
        return UNKNOWN
    totals = [0] * needs.wants
    for number, state in enumerate(states):
        try:
            room = offers.room(template, number, state)  # type: ignore[arg-type]  # The states of a node.
        except AllocationError:
            return UNKNOWN
        if room is None:
            return UNKNOWN
        for want, count in enumerate(room):
            totals[want] += count
    return min(totals[want] // number for want, number in needs.exact)


def _amounts(offers: NodeType, allocated: AllocatedState) -> dict[Dimension, int]:
    amounts: dict[Dimension, int] = {}
    inventory = offers.inventory
    drivers = {pool.number: pool.id.driver for pool in inventory.usable}
    for (pool, name), remaining in zip(inventory.kinds, inventory.remaining(allocated), strict=True):
        key = (drivers[pool], name)
        amounts[key] = amounts.get(key, 0) + max(remaining, 0)
    for device in inventory.devices:
        if device.shareable and not allocated.use(device.id).held:
            consumed = allocated.use(device.id).taken
            for name, capacity in device.capacities.items():
                key = (device.driver, name)
                amounts[key] = amounts.get(key, 0) + max(capacity.value.nanos - consumed.get(name, 0), 0)
    return amounts


def _least_of(template: PodTemplate, types: Sequence[NodeType]) -> dict[Dimension, int]:
    """Return the least amounts that one pod needs on any type of node."""
    by_type = [least for offers in types if (least := _least_on(template, offers)) is not None]
    if not by_type:
        return {}
    common = set(by_type[0]).intersection(*by_type[1:])
    return {key: min(least[key] for least in by_type) for key in common}


def _least_on(template: PodTemplate, offers: NodeType) -> dict[Dimension, int] | None:
    """Return the least amounts that one pod needs on an empty node; None if it cannot run there, empty if they are unknown."""
    if not template.may_run_on(offers.node):
        return None
    if not offers.needs(template).certain:
        return {}
    problem = offers.problem(template.claims, AllocatedState())
    least: dict[Dimension, int] = {}
    for request in problem.requests:
        option = request.options[0]
        if request.prioritized or option.mode is not Mode.COUNT or option.want.admin:
            continue
        devices = [device for device in offers.inventory.devices if problem.suitability.verdict(option.want, device) is None]
        if not devices:
            return None
        for key, amount in _least(problem, option.want, devices).items():
            least[key] = least.get(key, 0) + amount * option.count
    return least


def _least(problem: Problem, want: Want, devices: Sequence[Device]) -> dict[Dimension, int]:
    takes: list[dict[Dimension, int]] = []
    for device in devices:
        amounts: dict[Dimension, int] = {}
        if problem.suitability.shared(device):
            for demand in problem.suitability.demands(want, device) or ():
                amounts[device.driver, demand.name] = demand.amount
        else:
            for position, amount in device.draws:
                key = (device.driver, problem.inventory.kinds[position][1])
                amounts[key] = amounts.get(key, 0) + amount
        takes.append(amounts)
    common = set(takes[0]).intersection(*takes[1:])
    return {key: min(amounts[key] for amounts in takes) for key in common}
