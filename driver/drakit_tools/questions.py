"""The pods and pending claims that a plan of ``drakit plan`` is for: those that are asked for, those that wait, or those of nodes to drain."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from drakit.core import errors
from drakit.telemetry import plurals
from drakit_tools import fleets, worlds

if TYPE_CHECKING:
    from drakit_cluster.objects.features import FeatureGates
    from drakit_cluster.objects.json_types import Object
    from drakit_cluster.scheduling.explain import whatif
    from drakit_cluster.simulation.fleet.groups import Fleet
    from drakit_cluster.simulation.plan.moves import User
    from drakit_cluster.simulation.workload.templates import PodTemplate


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """The pods and pending claims that need devices, by name, and the present fleet."""

    pods: "Sequence[tuple[str, PodTemplate]]"
    fleet: "Fleet"
    gates: "FeatureGates"
    claims: Collection[str]
    """Those of ``pods`` that are claims without a pod."""
    waiting: Collection[str] = ()
    """Those of ``pods`` that wait in the input, and claims without a pod: they are listed apart if they fit on no node."""
    drained: Sequence[str] = ()
    """The nodes that all pods leave."""
    sizes: "Mapping[str, int]" = dataclasses.field(default_factory=dict)
    """The number of pods of those entries of ``pods`` that are several pods with claims in common."""
    ending: Sequence[str] = ()
    """The pods of the nodes that are drained that have finished or are being deleted already."""
    staying: Sequence[str] = ()
    """The pods of DaemonSets with devices of the nodes that are drained."""

    def number(self, names: Collection[str]) -> int:
        """Return how many pods and claims some entries of ``pods`` are."""
        return sum(self.sizes.get(name, 1) for name in names)

    @property
    def total(self) -> int:
        """Return how many pods and claims there are."""
        return self.number([name for name, _ in self.pods])

    @property
    def counted(self) -> str:
        """Return the number of pods and of claims, as text."""
        counts = ((self.total - len(self.claims), "pod"), (len(self.claims), "claim"))
        number = " and ".join(plurals.counted(number, what) for number, what in counts if number)
        return f"{number} of {' and '.join(self.drained)}" if self.drained else number

    @property
    def subject(self) -> str:
        """Return the title of a column of the names."""
        return "POD OR CLAIM" if self.claims else "POD"

    @property
    def nothing(self) -> str:
        """Return why there is nothing to plan if there are no pods and claims."""
        nodes = " and ".join(self.drained)
        if not nodes:
            return "no pod and no claim waits for devices; --ask TEMPLATE:COUNT plans for more pods"
        if self.staying or self.ending:
            return f"nothing has to move from {nodes}"
        return f"no pod or claim has devices on {nodes}, so nothing has to move"

    def without(self, names: Collection[str]) -> "Question":
        """Return the question without some waiting pods and claims."""
        pods = [(name, template) for name, template in self.pods if name not in names]
        return dataclasses.replace(self, pods=pods, claims=[name for name in self.claims if name not in names])


def asked(machines: Sequence[str], workload: str | None, ask: Sequence[str], world: "whatif.World", gates: "FeatureGates") -> Question:
    """Return the pods of --ask and --workload, and the pods and claims of the world that wait. Raises ConfigError."""
    from drakit_cluster.simulation.plan import moves
    from drakit_cluster.simulation.workload import reading

    catalogue = reading.Catalogue(world.templates)
    pods: list[tuple[str, PodTemplate]] = []
    for text in ask:
        name, count = fleets.counted(text, "--ask", "TEMPLATE")
        pods += [(f"{name} #{number}" if count > 1 else name, catalogue.template(name)) for number in range(1, count + 1)]
    if workload is not None:
        for task in fleets.workload_of(workload, world).tasks:
            pods += [(f"{task.name} #{number}" if task.pods > 1 else task.name, task.template) for number in range(1, task.pods + 1)]
    users = moves.waiting_users(world.claims, world.pods)
    waiting = [(user.name, dataclasses.replace(user.template(), nodes=_nodes_of(user, world))) for user in users]
    pods += waiting
    return Question(
        pods=pods,
        fleet=_fleet(machines, world, pods),
        gates=gates,
        claims=[user.name for user in users if not user.pods],
        waiting=[user.name for user in users],
        sizes={user.name: len(user.pods) for user in users if user.pods},
    )


def _nodes_of(user: "User", world: "whatif.World") -> frozenset[str] | None:
    """Return the names of the nodes where all claims of the user's pods can be used that have devices; None for all nodes."""
    from drakit_cluster.client import informer, pod_claims
    from drakit_cluster.objects import json_types, nodes

    named = {key for pod in user.known for key in pod_claims.claim_keys(pod)}
    allocations = [pod_claims.allocation(claim) for claim in world.claims if informer.key_of(claim) in named]
    selectors = [allocation["nodeSelector"] for allocation in allocations if allocation.get("nodeSelector") is not None]
    if not selectors:
        return None
    return frozenset(
        json_types.text(node, "metadata", "name")
        for node in world.known_nodes()
        if all(nodes.selects(selector, node) for selector in selectors)
    )


def _fleet(machines: Sequence[str], world: "whatif.World", pods: "Sequence[tuple[str, PodTemplate]]") -> "Fleet":
    """Return the fleet for these pods and for those that have devices, which may move."""
    from drakit_cluster.client import pod_claims
    from drakit_cluster.simulation.plan import moves

    holders = moves.users_of(list(filter(pod_claims.is_allocated, world.claims)), world.pods)
    templates = [*(template for _, template in pods), *(user.template() for user in holders)]
    return fleets.assembled(fleets.groups(fleets.parsed(machines)), world, templates)


def drained(machines: Sequence[str], world: "whatif.World", gates: "FeatureGates", names: Sequence[str]) -> "tuple[whatif.World, Question]":
    """Return the world with nodes cordoned and without the claims that a drain of them ends, and their pods as the question.

    It leaves out the pods of DaemonSets, as kubectl drain, and those that end already. Admin access counts for no pod: it takes no device. Raises
    ConfigError.
    """
    from drakit_cluster.client import pod_claims
    from drakit_cluster.objects import json_types, naming
    from drakit_cluster.simulation.plan import moves

    nodes = worlds.nodes_by_name(world, names, "--drain")
    pools = {
        (json_types.text(entry, "spec", "driver"), json_types.text(entry, "spec", "pool", "name"))
        for entry in world.slices
        if json_types.text(entry, "spec", "nodeName") in names
    }
    # A node's own pool has its name, also after the kubelet deleted the slices of a driver that is down.
    here = [
        claim
        for claim in world.claims
        if any(
            json_types.text(result, "pool") in names or (json_types.text(result, "driver"), json_types.text(result, "pool")) in pools
            for result in _results(claim)
        )
    ]
    fixed = {naming.label(pod) for pod in world.pods if moves.stays(pod)}
    ended = {naming.label(pod) for pod in world.pods if pod_claims.is_deleting(pod) or pod_claims.is_terminal(pod)}
    users = [
        user
        for user in moves.users_of(here, world.pods)
        if any(result.get("adminAccess") is not True for claim in user.claims for result in _results(claim))
    ]
    staying = [user for user in users if user.pods and fixed.issuperset(user.pods)]
    ending = [user for user in users if user.pods and ended.issuperset(user.pods) and user not in staying]
    leaving = [user for user in users if user not in staying and user not in ending]
    gone = {id(claim) for user in (*leaving, *ending) for claim in user.claims}
    cordoned = [
        {**node, "spec": {**json_types.mapping(node, "spec"), "unschedulable": True}} if name in names else node
        for name, node in nodes.items()
    ]
    left = dataclasses.replace(world, nodes=cordoned, claims=[claim for claim in world.claims if id(claim) not in gone])
    pods = [(user.name, user.template()) for user in leaving]
    fleet = _fleet(machines, left, pods)
    if fleet.shared:
        raise errors.ConfigError("--drain: moves cannot be planned if a pool offers devices to several nodes")
    return left, Question(
        pods=pods,
        fleet=fleet,
        gates=gates,
        claims=[user.name for user in leaving if not user.pods],
        waiting=[user.name for user in leaving if not user.pods],
        drained=names,
        sizes={user.name: len(user.pods) for user in leaving if user.pods},
        ending=[user.name for user in ending],
        staying=[user.name for user in staying],
    )


def _results(claim: "Object") -> "Sequence[Object]":
    from drakit_cluster.objects import json_types

    return json_types.objects(claim, "status", "allocation", "devices", "results")
