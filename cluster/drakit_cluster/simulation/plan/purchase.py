"""Finds the smallest number of nodes to add so that the scheduler places all pods.

It simulates increasing numbers of nodes, from the number that counting allows. The simulation uses first fit in the order of the pods, as the
scheduler does. The answer is exact if counting or an exhaustive search proves that fewer nodes are too few, and an estimate otherwise.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.simulation.engine import policies, simulator
from drakit_cluster.simulation.engine.nodes import Nodes, PlacedType
from drakit_cluster.simulation.engine.simulator import Outcome
from drakit_cluster.simulation.fleet.groups import Fleet, Group
from drakit_cluster.simulation.plan import bounds
from drakit_cluster.simulation.plan.bounds import Demand, Supply
from drakit_cluster.simulation.plan.partition import GivenUpError, Partition
from drakit_cluster.simulation.report import refusals
from drakit_cluster.simulation.workload import tasks
from drakit_cluster.simulation.workload.templates import PodTemplate

_DECISIONS = 1500
"""The maximum number of decisions of the allocator in the proof that fewer nodes are too few."""
_MIXES_MAX = 400
"""The maximum number of simulations with mixes of several machines."""
_NODES_MAX = 20_000

Mix = tuple[int, ...]
"""The number of nodes of each machine."""


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """The number of nodes of each machine to add. ``outcomes`` are those of the simulation that verified it.

    ``exact`` is true if fewer nodes are too few; ``why`` is the proof, or what is not proven. ``impossible`` is why no number of nodes is enough.
    """

    nodes: Sequence[tuple[str, int]] = ()
    outcomes: Sequence[Outcome] = ()
    exact: bool = False
    why: str = ""
    impossible: Sequence[str] = ()

    @property
    def total(self) -> int:
        """Return the number of nodes to add."""
        return sum(number for _, number in self.nodes)


class Planner:
    """A search for the nodes to add to a fleet for some pods. ``machines`` has a group with one node of each machine."""

    def __init__(self, fleet: Fleet, machines: Sequence[Group], pods: Sequence[PodTemplate], gates: FeatureGates | None = None) -> None:
        self._fleet = fleet
        self._gates = gates
        self._machines = machines
        self._pods = pods
        self._workload = tasks.ordered(
            [tasks.Task(name=f"pod-{number}", template=template, arrival=0) for number, template in enumerate(pods)]
        )
        self._base = Nodes(fleet, gates=gates)
        shown = Fleet(groups=[dataclasses.replace(machine, names=[machine.label]) for machine in machines], classes=fleet.classes)
        offered = Nodes(shown, gates=gates)
        self._types: list[PlacedType] = offered.types
        self._templates = list(dict.fromkeys(pods))
        self._demand = Demand.of(pods, [placed.offers for placed in (*self._base.types, *self._types)])
        self._base_supply = [(bounds.supply_of_node(node, self._templates), 1) for node in self._base.all]
        self._supplies = [bounds.supply_of_type(placed.offers, self._templates) for placed in self._types]
        self._outcomes: dict[Mix, list[Outcome]] = {}

    def plan(self) -> Purchase:
        """Return the smallest purchase."""
        if impossible := self._impossible():
            return Purchase(impossible=impossible)
        smallest = self._smallest_mix() if len(self._machines) > 1 else self._smallest_of_one_machine()
        if smallest is None:
            return Purchase(impossible=[f"even {_NODES_MAX} nodes are not enough"])
        mix, proven, shortage = smallest
        names = [(machine.label, number) for machine, number in zip(self._machines, mix, strict=True) if number]
        purchase = Purchase(nodes=names, outcomes=self._run(mix), exact=proven, why=shortage)
        return purchase if proven else self._proven(purchase, mix)

    def _impossible(self) -> list[str]:
        """Return why pods fit neither on the fleet nor on any machine, by template."""
        reasons = []
        placeable = {id(outcome.task.template) for outcome in self._run((0,) * len(self._machines)) if outcome.started is not None}
        for template in self._templates:
            reasons_by_machine = [
                f"{placed.offers.label}: {reason}" for placed in self._types if (reason := refusals.why_not(template, placed))
            ]
            if len(reasons_by_machine) == len(self._types) and id(template) not in placeable:
                reasons.append(f"{template.name}: {'; '.join(reasons_by_machine) or 'there is no machine to add'}")
        return reasons

    def _smallest_of_one_machine(self) -> tuple[Mix, bool, str] | None:
        """Return the smallest number of nodes of one machine, whether counting proves it, and the shortage with one node fewer."""
        least, shortage = self._least()
        high, step = least, 1
        while not self._fits((high,)):
            least = high + 1
            high, step = high + step, step * 2
            if high > _NODES_MAX:
                return None
        low = least
        while low < high:
            middle = (low + high) // 2
            if self._fits((middle,)):
                high = middle
            else:
                low = middle + 1
        fewer = self._shortage((high - 1,)) if high else ""
        return (high,), not high or bool(fewer), fewer or shortage

    def _least(self) -> tuple[int, str]:
        """Return the smallest number of nodes that counting allows, and why one fewer is too few."""
        number, shortage = 0, ""
        while lacking := self._shortage((number,)):
            number, shortage = number + 1, lacking
            if number > _NODES_MAX:
                break
        return number, shortage

    def _smallest_mix(self) -> tuple[Mix, bool, str] | None:
        """Return the mix with the fewest nodes; among equals, the one with most nodes of the first machine."""
        simulated, proven, shortage = 0, True, ""
        for total in itertools.count():
            unproven = []
            for mix in _mixes(total, len(self._machines)):
                if lacking := self._shortage(mix):
                    shortage = lacking
                else:
                    unproven.append(mix)
            for mix in unproven:
                simulated += 1
                if self._fits(mix):
                    return mix, proven, shortage
                if simulated > _MIXES_MAX or total > _NODES_MAX:
                    return None
            proven = proven and not unproven
        return None

    def _proven(self, purchase: Purchase, mix: Mix) -> Purchase:
        """Try to prove by an exhaustive search that fewer nodes are too few; only for an empty fleet."""
        if self._base.all:
            return dataclasses.replace(purchase, why="fewer nodes were only simulated, because the fleet is not empty")
        pods = tuple(self._demand.counts[template] for template in self._templates)
        search = Partition(self._templates, _DECISIONS)
        try:
            for fewer in _mixes(sum(mix) - 1, len(mix)):
                if not self._shortage(fewer) and search.possible(pods, list(zip(self._types, fewer, strict=True))):
                    names = ", ".join(f"{number} {machine.label}" for machine, number in zip(self._machines, fewer, strict=True) if number)
                    why = f"{names} would be enough with the right node for each pod, which first fit in this order does not find"
                    return dataclasses.replace(purchase, why=why)
        except GivenUpError:
            return dataclasses.replace(purchase, why="fewer nodes were only simulated; an exhaustive search would take too long")
        return dataclasses.replace(purchase, exact=True, why="an exhaustive search shows that the pods do not fit on fewer nodes")

    def _shortage(self, mix: Mix) -> str:
        supplies: list[tuple[Supply, int]] = [*self._base_supply, *zip(self._supplies, mix, strict=True)]
        return bounds.shortage(self._demand, supplies)

    def _fits(self, mix: Mix) -> bool:
        return all(outcome.started is not None for outcome in self._run(mix))

    def _run(self, mix: Mix) -> list[Outcome]:
        if mix not in self._outcomes:
            added = [
                dataclasses.replace(machine, names=[f"new-{machine.label}-{place:04}" for place in range(number)])
                for machine, number in zip(self._machines, mix, strict=True)
                if number
            ]
            fleet = dataclasses.replace(self._fleet, groups=[*self._fleet.groups, *added])
            self._outcomes[mix] = simulator.Simulator(Nodes(fleet, gates=self._gates), self._workload, policies.Policy()).run()
        return self._outcomes[mix]


def _mixes(total: int, kinds: int) -> Iterator[Mix]:
    """Yield all mixes of ``total`` nodes of some kinds, those with most nodes of the first kind first."""
    if kinds == 1:
        if total >= 0:
            yield (total,)
        return
    for first in range(total, -1, -1):
        for others in _mixes(total - first, kinds - 1):
            yield (first, *others)
