"""``drakit plan``: finds the nodes to add, or the claims to move, so that pods fit; also those of a node to drain."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drakit import exits, extras
from drakit.cli import options, output
from drakit.core import errors
from drakit.telemetry import plurals
from drakit_tools import fleets, questions, worlds
from drakit_tools import manifests as sources

if TYPE_CHECKING:
    from drakit_cluster.scheduling.explain import whatif
    from drakit_cluster.simulation.fleet.groups import Group
    from drakit_cluster.simulation.plan.moves import MovePlanner, Placed
    from drakit_cluster.simulation.plan.moves import Plan as Moves
    from drakit_cluster.simulation.plan.purchase import Purchase
    from drakit_cluster.simulation.workload.templates import PodTemplate

_INDENT = 2
_SHOWN_NODES = 3
_SEARCHING_MOVES = "still searching: all ways to move {} of {} with devices, to make room for {}; --max-moves N moves at most N"
_SEARCHING_NODES = "still searching: the fewest nodes of {} for {}; fewer pods, or one --buy at a time, end the search earlier"


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
        list[str] | None,
        typer.Option(
            "--drain",
            metavar="NODE",
            help="Ask whether the pods with devices on this node fit elsewhere; with --move by default. May be repeated.",
        ),
    ] = None,
    gates: sources.Gates = None,
    kubernetes: sources.Kubernetes = None,
    why: Annotated[bool, typer.Option("--why", help="Print the proof of the answer, and the devices of every pod.")] = False,
    form: options.Output = options.Format.TABLE,
) -> None:
    """Plan capacity: the smallest number of nodes to add, or the fewest claims to move, so that pods fit.

    The pods are those of --ask and --workload, and pending ResourceClaims in files (-f). The fleet is described as for drakit simulate: --live adds
    the nodes and allocated claims of a cluster; without --ask, --workload and claims in files, its pending claims are the question. The pending
    claims of a pod stay together, and its node selector and tolerations count. Allocated claims keep their devices, except with --move. Pods and
    claims that fit on no node, even an empty one, are listed apart; the plan is for the others.

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
    is_asked = bool(ask) or workload is not None or bool(drain)
    if drain and (ask or workload is not None):
        raise errors.ConfigError("--drain asks for the pods of a node; leave out --ask and --workload")
    move = move or (bool(drain) and not buy)
    _require_one_way(buy or [], move=move, max_moves=max_moves, is_asked=is_asked or bool(files), is_live=live or kubeconfig is not None)
    with fleets.bad_input():
        world, chosen = fleets.known_world(files or [], gates or [], kubernetes, live=live, kubeconfig=kubeconfig, pending=not is_asked)
        if drain:
            left, question = questions.drained(machines or [], world, chosen, list(dict.fromkeys(drain)))
        else:
            left, question = world, questions.asked(machines or [], workload, ask or [], world, chosen)
        bought = fleets.groups([(name, 1) for name in dict.fromkeys(buy or [])])
        fleets.require_profiles([template for _, template in question.pods], [*question.fleet.groups, *bought])
        if move and question.pods and not question.fleet.size:
            raise errors.ConfigError(fleets.NO_NODES)
        never = _never(question, bought)
        question = question.without(never)
        answer = None if never and not question.pods else _moved(question, left, max_moves) if move else _bought(question, bought)
    if form is options.Format.TABLE:
        if not question.pods and not never:
            _say(question.nothing)
        elif answer is not None:
            answer.print(why=why)
        if question.ending:
            _say(f"these need no place, because they end already: {', '.join(question.ending)}")
        if question.staying:
            _say(f"a drain does not end pods of a DaemonSet; on {' and '.join(question.drained)} stay: {', '.join(question.staying)}")
        _say(*(f"{name} can never be allocated: {reason}" for name, reason in never.items()))
        _say(*_cordoned(world) if why else ())
        worlds.print_doubts(world)
    else:
        apart = {"never": [_never_document(question, name, reason) for name, reason in never.items()]} if never else {}
        planned = answer.document() if answer is not None else {"possible": False}
        output.document({**planned, **apart, **worlds.document_of_notes(world)}, form)
    if never or answer is None or not answer.possible:
        raise typer.Exit(exits.Exit.NEGATIVE)


def _require_one_way(buy: Sequence[str], *, move: bool, max_moves: int | None, is_asked: bool, is_live: bool) -> None:
    """Raise ConfigError unless either nodes to add or moves are searched, and for some pods."""
    if bool(buy) == move:
        needs = "" if is_asked or buy else ", and what needs room: --ask TEMPLATE:COUNT, --workload FILE, or -f FILE with claims"
        raise errors.ConfigError(f"add either --buy MACHINE or --move{needs}")
    if max_moves is not None and not move:
        raise errors.ConfigError("--max-moves limits the search of --move; leave it out with --buy")
    if not is_asked and not is_live:
        raise errors.ConfigError("there are no pods; add --ask TEMPLATE:COUNT, --workload FILE, --live, or -f FILE with claims")


def _never(question: questions.Question, bought: "Sequence[Group]") -> Mapping[str, str]:
    """Return the waiting pods and claims that fit on no node, present or bought, even an empty one, with the reason on the first."""
    from drakit_cluster.simulation.engine.nodes import Nodes
    from drakit_cluster.simulation.report import refusals

    if not question.waiting:
        return {}
    nodes = Nodes(dataclasses.replace(question.fleet, groups=[*question.fleet.groups, *bought]), gates=question.gates)
    reasons = {
        name: [refusals.why_not(template, placed) for placed in nodes.types] for name, template in question.pods if name in question.waiting
    }
    return {name: found[0].removeprefix(f"{name}, ") for name, found in reasons.items() if all(found)}


def _never_document(question: questions.Question, name: str, reason: str) -> Mapping[str, str]:
    return {"pod" if name in question.sizes else "claim": name, "why": reason}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Bought:
    """The answer to --buy."""

    question: questions.Question
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
            fewer = f"with {bought.total - 1} instead of {bought.total}: " if bought.total > 1 else "without it: "
            less = fewer if bought.exact and not bought.why.startswith("an ") else ""
            _say(f"why: {less}{bought.why}")
        if why:
            rows = [(name, node, ", ".join(devices)) for name, node, devices in self._placements()]
            output.put(output.console(), output.table("\nPlacements", [self.question.subject, "NODE", "DEVICES"], rows))

    def _placements(self) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Yield each pod with its node and devices."""
        for (name, _), outcome in zip(self.question.pods, self.purchase.outcomes, strict=True):
            yield from ((name, grant.node.name, grant.names()) for grant in outcome.grants)


def _bought(question: questions.Question, buy: "Sequence[Group]") -> _Bought:
    from drakit_cluster.simulation.plan import purchase

    with output.progress(lambda: _SEARCHING_NODES.format(" and ".join(machine.label for machine in buy), question.counted)):
        planner = purchase.Planner(question.fleet, buy, [template for _, template in question.pods], question.gates)
        return _Bought(question=question, purchase=planner.plan())


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Moved:
    """The answer to --move; ``reasons`` are why pods do not fit without moves.

    ``homeless`` are the pods of a node to drain that have no place if no other pod moves; none if there is a plan for all.
    """

    question: questions.Question
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
            f"verified: in a simulation, {'all moved pods end first, and then ' if moved else ''}every pod gets its devices",
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


def _moved(question: questions.Question, world: "whatif.World", max_moves: int | None) -> _Moved:
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
        homeless, kept = _homeless(planner, question.pods) if answer.moves or not answer.found else ([], [])
    stuck = {template for name, template in question.pods if name in homeless}
    reasons = []
    with moves.placed(nodes, kept, dict(question.pods)) as before:
        for template in dict.fromkeys(template for _, template in question.pods):
            never = [refusals.why_not(template, placed) for placed in nodes.types]
            if all(never):
                reasons.append(f"{template.name} fits on no node, even an empty one: {never[0]}")
            elif template in stuck:
                reasons.append(moves.why_no_place(nodes, moves.users_of(allocated, world.pods), template, before))
    return _Moved(
        question=question,
        moves=answer,
        limit=limit if len(holders) > limit else None,
        reasons=reasons,
        verified=answer.found and moves.verified(nodes, answer, holders, question.pods),
        homeless=homeless if question.drained and not answer.found else (),
    )


def _homeless(planner: "MovePlanner", pods: "Sequence[tuple[str, PodTemplate]]") -> "tuple[list[str], Sequence[Placed]]":
    """Return the pods that have no place if no other pod moves, and the places of the others.

    The pods get devices one after the other, in two orders: as they are, and with those first that then have no place. The better order counts.
    """
    tried = _one_by_one(planner, pods)
    if tried[0]:
        last = set(tried[0])
        tried = min(tried, _one_by_one(planner, sorted(pods, key=lambda pod: pod[0] not in last)), key=lambda answer: len(answer[0]))
    return tried


def _one_by_one(planner: "MovePlanner", pods: "Sequence[tuple[str, PodTemplate]]") -> "tuple[list[str], Sequence[Placed]]":
    """Return the pods that have no place beside those before them that have one, and the places of these."""
    fitting: list[tuple[str, PodTemplate]] = []
    left: list[str] = []
    places: Sequence[Placed] = ()
    for name, template in pods:
        plan = planner.plan([*fitting, (name, template)], max_moves=0)
        if plan.found:
            fitting.append((name, template))
            places = plan.placed
        else:
            left.append(name)
    return left, places


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
