"""``drakit plan``: finds the nodes to add, or the claims to move, so that pods fit; also those of a node to drain."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drakit import exits, extras
from drakit.cli import options, output
from drakit.core import errors
from drakit.telemetry import plurals
from drakit_tools import fleets, worlds
from drakit_tools import manifests as sources

if TYPE_CHECKING:
    from drakit_cluster.objects.features import FeatureGates
    from drakit_cluster.objects.json_types import Object
    from drakit_cluster.scheduling.explain import whatif
    from drakit_cluster.simulation.fleet.groups import Fleet, Group
    from drakit_cluster.simulation.plan.moves import MovePlanner
    from drakit_cluster.simulation.plan.moves import Plan as Moves
    from drakit_cluster.simulation.plan.purchase import Purchase
    from drakit_cluster.simulation.workload.templates import PodTemplate

_INDENT = 2
_SHOWN_NODES = 3
_SEARCHING_MOVES = "still searching: all ways to move {} of {} with devices, to make room for {}; --max-moves N moves at most N"
_SEARCHING_NODES = "still searching: the fewest nodes of {} for {}; fewer pods, or one --buy at a time, end the search earlier"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Question:
    """The pods and pending claims that need devices, by name, and the present fleet."""

    pods: "Sequence[tuple[str, PodTemplate]]"
    fleet: "Fleet"
    gates: "FeatureGates"
    claims: "Mapping[str, PodTemplate]"
    """Those of ``pods`` that are claims without a pod."""
    drained: str = ""
    """The node that all pods leave."""
    sizes: "Mapping[str, int]" = dataclasses.field(default_factory=dict)
    """The number of pods of those entries of ``pods`` that are several pods with claims in common."""
    staying: Sequence[str] = ()
    """The pods of DaemonSets with devices of the node that is drained."""

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
        return f"{number} of {self.drained}" if self.drained else number

    @property
    def subject(self) -> str:
        """Return the title of a column of the names."""
        return "POD OR CLAIM" if self.claims else "POD"

    def without(self, names: Collection[str]) -> "_Question":
        """Return the question without some pending claims."""
        pods = [(name, template) for name, template in self.pods if name not in names]
        claims = {name: template for name, template in self.claims.items() if name not in names}
        return dataclasses.replace(self, pods=pods, claims=claims)


@options.quietly
@sources.answering()
def plan(
    machines: fleets.Machines = None,
    files: sources.Files = None,
    live: sources.Live = False,
    kubeconfig: sources.Kubeconfig = None,
    workload: Annotated[
        str | None, typer.Option("--workload", "-w", metavar="FILE", help="CSV or YAML file with tasks. Their times are ignored.")
    ] = None,
    ask: Annotated[
        list[str] | None,
        typer.Option(
            "--ask",
            metavar="TEMPLATE[:COUNT]",
            help="Add COUNT pods of a template, which is written as in a workload: mig=1g.5gb:20. May be repeated.",
        ),
    ] = None,
    buy: Annotated[
        list[str] | None,
        typer.Option(
            "--buy", metavar="MACHINE", help="Add nodes of this mock machine. May be repeated.", autocompletion=options.machine_names
        ),
    ] = None,
    move: Annotated[bool, typer.Option("--move", help="Find the fewest claims to move, instead of nodes to add.")] = False,
    max_moves: Annotated[
        int | None, typer.Option("--max-moves", min=0, metavar="N", help="Move at most N pods and claims. Default: 8. Fewer are faster.")
    ] = None,
    drain: Annotated[
        str | None,
        typer.Option(
            "--drain", metavar="NODE", help="Ask whether the pods with devices on this node fit elsewhere; with --move by default."
        ),
    ] = None,
    gates: sources.Gates = None,
    kubernetes: sources.Kubernetes = None,
    why: Annotated[bool, typer.Option("--why", help="Print the proof of the answer, and the devices of every pod.")] = False,
    form: options.Output = options.Format.TABLE,
) -> None:
    """Plan capacity: the smallest number of nodes to add, or the fewest claims to move, so that pods fit.

    The pods are those of --ask and --workload, and pending ResourceClaims in files (-f). The fleet is described as for drakit simulate: --live adds
    the nodes and allocated claims of a cluster; without --ask, --workload and claims in files, its pending claims are the question. Allocated claims
    keep their devices, except with --move. Pending claims that fit on no node, even an empty one, are listed apart; the plan is for the others.

    --drain NODE cordons the node in the plan: the question is where its pods, and claims without a pod, get devices on other nodes. If not all do, it
    names those that have no place while no other pod moves.

    --buy simulates first fit, in the order of the pods, with more and more nodes. The answer is exact if counting or an exhaustive search proves
    that fewer nodes are too few; otherwise it is called an estimate. --move tries every way to move one pod, then two, and so on. Its answer is
    exact unless the search would take too long. The simulator verifies a plan before it is printed. --kubernetes chooses the rules of a version;
    plans are made without its known errors.

    The exit status is 0 with a plan, 1 if there is none for all pods and claims, and 2 for bad input.

    [bold]Examples[/bold]

      drakit plan --ask mig=1g.5gb:100 --ask gpu=8:2 --buy dgx-a100-40gb --why

      drakit plan --ask mig=3g.20gb:40 --buy dgx-a100-40gb-2gpu --buy server-a30

      drakit plan --live --ask gpu=4 --move --why

      drakit plan --live --drain node-3

      drakit plan -f now.yaml -w tomorrow.csv --buy dgx-h100 -o json
    """
    extras.require_local_cluster()
    is_asked = bool(ask) or workload is not None or drain is not None
    if drain is not None and (ask or workload is not None):
        raise errors.ConfigError("--drain asks for the pods of a node; leave out --ask and --workload")
    move = move or (drain is not None and not buy)
    _require_one_way(buy or [], move=move, max_moves=max_moves, is_asked=is_asked or bool(files))
    with fleets.bad_input():
        world, chosen = fleets.known_world(files or [], gates or [], kubernetes, live=live, kubeconfig=kubeconfig, pending=not is_asked)
        if drain is None:
            question = _question(machines or [], workload, ask or [], world, chosen)
        else:
            world, question = _drained(machines or [], world, chosen, drain)
        bought = fleets.groups([(name, 1) for name in dict.fromkeys(buy or [])])
        fleets.require_profiles([template for _, template in question.pods], [*question.fleet.groups, *bought])
        if move and question.pods and not question.fleet.size:
            raise errors.ConfigError(fleets.NO_NODES)
        never = _never(question, bought)
        question = question.without(never)
        answer = None if never and not question.pods else _moved(question, world, max_moves) if move else _bought(question, bought)
    if form is options.Format.TABLE:
        if not question.pods and not never:
            _say(
                f"nothing has to move from {drain}"
                if question.staying
                else f"no pod or claim has devices on {drain}, so nothing has to move"
            )
        elif answer is not None:
            answer.print(why=why)
        if question.staying:
            _say(f"a drain does not end pods of a DaemonSet; on {drain} stay: {', '.join(question.staying)}")
        _say(*(f"{name} can never be allocated: {reason}" for name, reason in never.items()))
        _say(*_cordoned(world) if why else ())
        worlds.print_doubts(world)
    else:
        apart = {"never": [{"claim": name, "why": reason} for name, reason in never.items()]} if never else {}
        planned = answer.document() if answer is not None else {"possible": False}
        output.document({**planned, **apart, **worlds.document_of_notes(world)}, form)
    if never or answer is None or not answer.possible:
        raise typer.Exit(exits.Exit.NEGATIVE)


def _require_one_way(buy: Sequence[str], *, move: bool, max_moves: int | None, is_asked: bool) -> None:
    """Raise ConfigError unless either nodes to add or moves are searched."""
    if bool(buy) == move:
        needs = "" if is_asked or buy else ", and what needs room: --ask TEMPLATE:COUNT, --workload FILE, or -f FILE with claims"
        raise errors.ConfigError(f"add either --buy MACHINE or --move{needs}")
    if max_moves is not None and not move:
        raise errors.ConfigError("--max-moves limits the search of --move; leave it out with --buy")


def _question(machines: Sequence[str], workload: str | None, ask: Sequence[str], world: "whatif.World", gates: "FeatureGates") -> _Question:
    from drakit_cluster.client import pod_claims
    from drakit_cluster.objects import naming
    from drakit_cluster.simulation.workload import reading, templates

    catalogue = reading.Catalogue(world.templates)
    pods: list[tuple[str, PodTemplate]] = []
    for text in ask:
        name, count = fleets.counted(text, "--ask", "TEMPLATE")
        pods += [(f"{name} #{number}" if count > 1 else name, catalogue.template(name)) for number in range(1, count + 1)]
    if workload is not None:
        for task in fleets.workload_of(workload, world).tasks:
            pods += [(f"{task.name} #{number}" if task.pods > 1 else task.name, task.template) for number in range(1, task.pods + 1)]
    claims: dict[str, PodTemplate] = {}
    for claim in world.claims:
        if not pod_claims.is_allocated(claim):
            label = f"claim {naming.label(claim)}"
            claims[label] = templates.PodTemplate(name=label, claims=[claim])
    pods += claims.items()
    if not pods:
        raise errors.ConfigError(
            "there are no pods and no pending claims; add --ask TEMPLATE:COUNT, --workload FILE, or -f FILE with claims"
        )
    return _Question(pods=pods, fleet=_fleet(machines, world, pods), gates=gates, claims=claims)


def _fleet(machines: Sequence[str], world: "whatif.World", pods: "Sequence[tuple[str, PodTemplate]]") -> "Fleet":
    """Return the fleet for these pods and for those that have devices, which may move."""
    from drakit_cluster.client import pod_claims
    from drakit_cluster.simulation.plan import moves

    holders = moves.users_of(list(filter(pod_claims.is_allocated, world.claims)), world.pods)
    templates = [*(template for _, template in pods), *(user.template() for user in holders)]
    return fleets.assembled(fleets.groups(fleets.parsed(machines)), world, templates)


def _drained(machines: Sequence[str], world: "whatif.World", gates: "FeatureGates", node: str) -> "tuple[whatif.World, _Question]":
    """Return the world with a node cordoned and without the claims that a drain of it ends, and their pods as the question.

    As kubectl drain, it leaves out the pods of DaemonSets. Admin access counts for no pod: it takes no device. Raises ConfigError.
    """
    from drakit_cluster.objects import json_types, naming
    from drakit_cluster.simulation.plan import moves

    nodes = world.known_nodes()
    names = [json_types.text(entry, "metadata", "name") for entry in nodes]
    if node not in names:
        raise errors.ConfigError(f"--drain: no node {node!r}; {options.meant(node, names)}")
    pools = {
        (json_types.text(entry, "spec", "driver"), json_types.text(entry, "spec", "pool", "name"))
        for entry in world.slices
        if json_types.text(entry, "spec", "nodeName") == node
    }
    # A node's own pool has its name, also after the kubelet deleted the slices of a driver that is down.
    here = [
        claim
        for claim in world.claims
        if any(
            json_types.text(result, "pool") == node or (json_types.text(result, "driver"), json_types.text(result, "pool")) in pools
            for result in _results(claim)
        )
    ]
    fixed = {naming.label(pod) for pod in world.pods if moves.stays(pod)}
    users = [
        user
        for user in moves.users_of(here, world.pods)
        if any(result.get("adminAccess") is not True for claim in user.claims for result in _results(claim))
    ]
    staying = [user for user in users if user.pods and fixed.issuperset(user.pods)]
    leaving = [user for user in users if user not in staying]
    gone = {id(claim) for user in leaving for claim in user.claims}
    cordoned = [
        {**entry, "spec": {**json_types.mapping(entry, "spec"), "unschedulable": True}} if name == node else entry
        for name, entry in zip(names, nodes, strict=True)
    ]
    left = dataclasses.replace(world, nodes=cordoned, claims=[claim for claim in world.claims if id(claim) not in gone])
    pods = [(user.name, user.template()) for user in leaving]
    fleet = _fleet(machines, left, pods)
    if fleet.shared:
        raise errors.ConfigError("--drain: moves cannot be planned if a pool offers devices to several nodes")
    return left, _Question(
        pods=pods,
        fleet=fleet,
        gates=gates,
        claims={name: template for (name, template), user in zip(pods, leaving, strict=True) if not user.pods},
        drained=node,
        sizes={user.name: len(user.pods) for user in leaving if user.pods},
        staying=[user.name for user in staying],
    )


def _results(claim: "Object") -> "Sequence[Object]":
    from drakit_cluster.objects import json_types

    return json_types.objects(claim, "status", "allocation", "devices", "results")


def _never(question: _Question, bought: "Sequence[Group]") -> Mapping[str, str]:
    """Return the pending claims that fit on no node, present or bought, even an empty one, with the reason on the first."""
    from drakit_cluster.simulation.engine.nodes import Nodes
    from drakit_cluster.simulation.report import refusals

    if not question.claims:
        return {}
    nodes = Nodes(dataclasses.replace(question.fleet, groups=[*question.fleet.groups, *bought]), gates=question.gates)
    reasons = {name: [refusals.why_not(template, placed) for placed in nodes.types] for name, template in question.claims.items()}
    return {name: found[0].removeprefix(f"{name}, ") for name, found in reasons.items() if all(found)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Bought:
    """The answer to --buy."""

    question: _Question
    purchase: "Purchase"

    @property
    def possible(self) -> bool:
        return not self.purchase.impossible

    def document(self) -> Mapping[str, object]:
        """Return the answer as data."""
        if not self.possible:
            return {"possible": False, "reasons": list(self.purchase.impossible)}
        return {
            "possible": True,
            "exact": self.purchase.exact,
            "why": self.purchase.why,
            "nodes": [{"machine": name, "count": count} for name, count in self.purchase.nodes],
            "placements": [{"pod": name, "node": node, "devices": devices} for name, node, devices in self._placements()],
        }

    def print(self, *, why: bool) -> None:
        """Write the answer for people."""
        pods = self.question.counted
        if not self.possible:
            _say(f"{pods}: no number of nodes is enough")
            _say(*self.purchase.impossible, indent=_INDENT)
            return
        bought = self.purchase
        machines = " and ".join(f"{count} {name}" for name, count in bought.nodes)
        certainty = "the fewest" if bought.exact else "an estimate"
        _say(f"{pods}: add {machines} ({certainty})" if bought.total else f"{pods}: the fleet has enough room; no node is needed")
        _say(f"verified: a simulation with first fit places {pods}")
        if why and bought.why:
            less = f"with {bought.total - 1} instead of {bought.total}: " if bought.exact and not bought.why.startswith("an ") else ""
            _say(f"why: {less}{bought.why}")
        if why:
            rows = [(name, node, ", ".join(devices)) for name, node, devices in self._placements()]
            output.put(output.console(), output.table("\nPlacements", [self.question.subject, "NODE", "DEVICES"], rows))

    def _placements(self) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Yield each pod with its node and devices."""
        for (name, _), outcome in zip(self.question.pods, self.purchase.outcomes, strict=True):
            yield from ((name, grant.node.name, grant.names()) for grant in outcome.grants)


def _bought(question: _Question, buy: "Sequence[Group]") -> _Bought:
    from drakit_cluster.simulation.plan import purchase

    with output.progress(lambda: _SEARCHING_NODES.format(" and ".join(machine.label for machine in buy), question.counted)):
        planner = purchase.Planner(question.fleet, buy, [template for _, template in question.pods], question.gates)
        return _Bought(question=question, purchase=planner.plan())


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Moved:
    """The answer to --move; ``reasons`` are why pods do not fit without moves.

    ``homeless`` are the pods of a node to drain that have no place if no other pod moves; none if there is a plan for all.
    """

    question: _Question
    moves: "Moves"
    reasons: Sequence[str]
    verified: bool
    limit: int | None
    """The most moves that were tried; None if more pods cannot move."""
    homeless: Sequence[str] = ()

    @property
    def possible(self) -> bool:
        return self.moves.found

    def document(self) -> Mapping[str, object]:
        """Return the answer as data."""
        return {
            "possible": self.possible,
            "exact": self.moves.exact,
            "verified": self.verified,
            "why": list(self.reasons),
            "moves": [
                {
                    "pod": pod.name,
                    "from": {"node": pod.moved_from, "devices": list(pod.devices_before)},
                    "to": {"node": pod.node, "devices": list(pod.devices)},
                }
                for pod in self.moves.moves
            ],
            "placements": [
                {"pod": pod.name, "node": pod.node, "devices": list(pod.devices)} for pod in self.moves.placed if not pod.moved_from
            ],
            **({"withoutAPlace": list(self.homeless)} if self.question.drained else {}),
        }

    def print(self, *, why: bool) -> None:
        """Write the answer for people."""
        pods = self.question.counted
        if not self.possible:
            plan = "no plan" if self.limit is None else f"no plan with at most {plurals.counted(self.limit, 'move')}"
            none = "no moves make room" if self.limit is None else f"{plan} makes room"
            _say(f"{pods}: {none if self.moves.exact else f'{plan} was found; the search was stopped before all plans were tried'}")
            if self.homeless:
                total = self.question.total
                fit = total - self.question.number(self.homeless)
                _say(f"if no other pod moves, {fit} of {total} fit elsewhere; without a place: {', '.join(self.homeless)}")
            _say(*(self.reasons if why else ()), indent=_INDENT)
            return
        moved = self.moves.moves
        certainty = "the fewest" if self.moves.exact else "an estimate"
        _say(
            f"{pods}: move {plurals.counted(len(moved), 'pod or claim', 'pods or claims')} ({certainty})"
            if moved
            else f"{pods}: all fit on other nodes; no other pod has to move"
            if self.question.drained
            else f"{pods}: the fleet has enough room; no move is needed"
        )
        _say(
            "verified: in a simulation, all moved pods end first, and then every pod gets its devices",
            "Kubernetes gives devices to one pod after the other and may choose others than these; plan again if a pod then waits",
        )
        if why:
            _say(*(f"why: {text}" for text in self.reasons))
        out = output.console()
        rows = [(pod.name, _place(pod.moved_from, pod.devices_before), _place(pod.node, pod.devices)) for pod in moved]
        if rows:
            output.put(out, output.table("\nMoves", ["POD OR CLAIM", "FROM", "TO"], rows))
        new = [(pod.name, pod.node, ", ".join(pod.devices)) for pod in self.moves.placed if not pod.moved_from]
        output.put(out, output.table("\nNew", [self.question.subject, "NODE", "DEVICES"], new))


def _moved(question: _Question, world: "whatif.World", max_moves: int | None) -> _Moved:
    from drakit_cluster.client import pod_claims
    from drakit_cluster.simulation.engine.nodes import Nodes
    from drakit_cluster.simulation.plan import moves
    from drakit_cluster.simulation.report import refusals

    nodes = Nodes(question.fleet, gates=question.gates)
    allocated = list(filter(pod_claims.is_allocated, world.claims))
    holders = moves.pods_of(nodes, allocated, world.pods)
    planner = moves.MovePlanner(nodes, holders)
    movable = plurals.counted(len(holders), "pod or claim", "pods and claims")
    limit = moves.MOVES_MAX if max_moves is None else max_moves
    with output.progress(lambda: _SEARCHING_MOVES.format(planner.moves, movable, question.counted)):
        answer = planner.plan(question.pods, limit)
        homeless = _homeless(planner, question.pods) if answer.moves or not answer.found else []
    stuck = {template for name, template in question.pods if name in homeless}
    reasons = []
    for template in dict.fromkeys(template for _, template in question.pods):
        never = [refusals.why_not(template, placed) for placed in nodes.types]
        if all(never):
            reasons.append(f"{template.name} fits on no node, even an empty one: {never[0]}")
        elif template in stuck:
            reasons.append(moves.why_no_place(nodes, moves.users_of(allocated, world.pods), template))
    return _Moved(
        question=question,
        moves=answer,
        limit=limit if len(holders) > limit else None,
        reasons=reasons,
        verified=answer.found and moves.verified(nodes, answer, holders, question.pods),
        homeless=homeless if question.drained and not answer.found else (),
    )


def _homeless(planner: "MovePlanner", pods: "Sequence[tuple[str, PodTemplate]]") -> list[str]:
    """Return the pods that have no place if the pods before them that have one get devices first and no other pod moves."""
    placed: list[tuple[str, PodTemplate]] = []
    left = []
    for name, template in pods:
        if planner.plan([*placed, (name, template)], max_moves=0).found:
            placed.append((name, template))
        else:
            left.append(name)
    return left


def _cordoned(world: "whatif.World") -> list[str]:
    """Return a line that names the cordoned nodes, if there are any."""
    from drakit_cluster.objects import json_types

    names = [json_types.text(node, "metadata", "name") for node in world.nodes if json_types.at(node, "spec", "unschedulable") is True]
    more = len(names) - _SHOWN_NODES
    shown = ", ".join(names[:_SHOWN_NODES]) + (f" and {more} more" if more > 0 else "")
    return [f"no pod goes to {plurals.counted(len(names), 'cordoned node')}: {shown}"] if names else []


def _place(node: str, devices: Sequence[str]) -> str:
    return f"{node}: {', '.join(devices)}"


def _say(*lines: str, indent: int = 0) -> None:
    out = output.console()
    for line in lines:
        output.say(out, line, indent=indent, hang=_INDENT)
