"""``drakit allocate``: the devices that claims would get, and why a claim does not fit."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drakit import exits, extras
from drakit.cli import composition, options, output
from drakit.core import errors
from drakit.telemetry import plurals
from drakit_tools import driver_checks, worlds
from drakit_tools import manifests as sources

if TYPE_CHECKING:
    from drakit_cluster.objects.features import FeatureGates
    from drakit_cluster.scheduling.allocator.known_errors import KnownErrors
    from drakit_cluster.scheduling.explain import obstacles, whatif

_SHOWN_DEVICES = 3
_SHOWN_NODES = 3
_INDENT = 2
_UPDATE_WAITS = (
    "an update of {} would wait: it starts a new pod before it ends an old one, and no node fits one more beside these; "
    "write maxSurge: 0 and maxUnavailable: 1 in spec.strategy.rollingUpdate, or strategy: {{type: Recreate}}"
)
_SEARCHING = (
    "still searching devices for {}, in all combinations that may fit; --node NODE searches one node, and --kubernetes 1.36 gives up "
    "where that scheduler does"
)
_Indented = tuple[int, str]
"""The indent of a line, and the line."""


@options.quietly
@sources.answering()
def allocate(
    given: sources.Given = None,
    files: sources.Files = None,
    nodes: Annotated[
        list[str] | None, typer.Option("--node", metavar="NAME", help="Use only this node. May be repeated. Default: all known nodes.")
    ] = None,
    live: sources.Live = False,
    kubeconfig: sources.Kubeconfig = None,
    gates: sources.Gates = None,
    kubernetes: sources.Kubernetes = None,
    why: Annotated[bool, typer.Option("--why", help="Show why a claim does not fit: the reason for each device, grouped.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="With --why, print a line for each device.")] = False,
    config: options.Config = None,
    assignments: options.Set = None,
    form: options.Output = options.Format.TABLE,
) -> None:
    """Show which devices claims would get, by the rules of Kubernetes' scheduler, without a cluster.

    Files may contain ResourceSlices, DeviceClasses, ResourceClaims, ResourceClaimTemplates, DeviceTaintRules, Nodes, Pods, and Deployments,
    ReplicaSets, StatefulSets, Jobs and CronJobs, whose pods are decided. They get the checks and defaults of an API server. Without --live, drakit's
    own DeviceClasses need not be in the files. Pods are decided first, then claims and templates that no pod uses. Each decision occupies its devices
    for the next one. The scheduler does not read the parameters of drivers: a warning names those that drakit's drivers refuse, by the settings of
    --config and --set.

    Without --kubernetes, the decisions are correct by the rules of the server's version (--live) or of 1.37. Kubernetes' own schedulers have known
    errors: --why shows where they decide differently, and --kubernetes repeats those of one version.

    Exit status is 0 if everything fits, 1 if something does not, and 2 for invalid input.

    [bold]Examples[/bold]

      drakit allocate slices.yaml claims.yaml --why

      drakit slices --mock dgx-a100-40gb -o yaml | drakit allocate - claims.yaml

      drakit allocate --live claims.yaml --node node-1 -o json
    """
    rules = composition.opaque_rules(options.read(config=config, assignments=assignments, local=True))
    wanted = [*(given or []), *(files or [])]
    extras.require_local_cluster()
    is_live = live or kubeconfig is not None
    if not wanted and not is_live:
        raise errors.ConfigError("there are no claims; add FILE, -f FILE, or --live")
    world, chosen, version = worlds.read(wanted, gates, kubernetes, is_live=is_live, kubeconfig=kubeconfig, workloads=True)
    if not is_live:
        world = worlds.with_drakits_classes(world)
    repeated, compared = sources.errors_of(kubernetes), sources.compared_errors(version)
    decisions, full = _decide(world, nodes or [], chosen, repeated, compared, must_decide=bool(wanted))
    refusals = driver_checks.of_decisions(world, decisions, rules)
    if form is options.Format.TABLE:
        _print(decisions, world.workloads, why=why, verbose=verbose)
        _print_warnings([*map(_refusal_text, refusals), *map(_UPDATE_WAITS.format, full)])
        worlds.print_doubts(world)
    else:
        document = {"fits": all(decision.fits for decision in decisions), "decisions": [_document(decision) for decision in decisions]}
        if full:
            document["waitingUpdates"] = full
        if refusals:
            document["refusals"] = [_document_of_refusal(refusal) for refusal in refusals]
        output.document(document | worlds.document_of_notes(world), form)
    if not all(decision.fits for decision in decisions):
        raise typer.Exit(exits.Exit.NEGATIVE)


def _decide(
    world: "whatif.World",
    nodes: Sequence[str],
    gates: "FeatureGates",
    repeated: "KnownErrors",
    compared: "KnownErrors",
    *,
    must_decide: bool,
) -> "tuple[list[whatif.Decision], list[str]]":
    """Return the decisions, and the Deployments whose updates wait for devices: none with nodes given, because others may have room.

    With ``must_decide``, raises ConfigError if nothing waits.
    """
    from drakit_cluster.scheduling.explain import whatif

    scheduler = whatif.Scheduler(world, gates, worlds.nodes_of(world, nodes), repeated, compared)
    with output.progress(lambda: _SEARCHING.format(scheduler.subject)):
        decisions = list(scheduler.decide())
        full = [] if nodes else scheduler.full(decisions)
    if not decisions and must_decide:
        raise errors.ConfigError("there is nothing to allocate: the input has no pod without a node, no pending claim and no template")
    return decisions, full


def _print(decisions: "Sequence[whatif.Decision]", workloads: Mapping[str, str], *, why: bool, verbose: bool) -> None:
    out = output.console()
    if not decisions:
        output.say(out, "no pod and no claim waits for devices")
    rows = [row for decision in decisions for row in _rows(decision)]
    if rows:
        output.put(out, output.table("", ["CLAIM", "NODE", "FOR", "REQUEST", "DEVICE", "CONSUMES"], rows))
    refused = itertools.groupby((decision for decision in decisions if not decision.fits), key=lambda decision: _alike(decision, workloads))
    for number, alike in enumerate(list(group) for _, group in refused):
        decision, more = alike[0], len(alike) - 1
        subject = f"{decision.subject} and {more} more do" if more else f"{decision.subject} does"
        head = f"{subject} not fit" + ("" if why else f": {decision.message}")
        if rows or number:
            out.print()
        output.say(out, head, hang=_INDENT)
        for indent, line in _why_lines(decision, verbose=verbose) if why else ():
            output.say(out, line, indent=indent, hang=_INDENT)
    for number, decision in enumerate(decision for decision in decisions if why and decision.difference):
        if not number:
            out.print()
        output.say(out, f"warning: {decision.subject}: {decision.difference}", hang=_INDENT)


def _print_warnings(warnings: Sequence[str]) -> None:
    out = output.console()
    if warnings:
        out.print()
    for warning in warnings:
        output.say(out, f"warning: {warning}", hang=_INDENT)


def _refusal_text(refusal: driver_checks.Refusal) -> str:
    more = f" and {refusal.more} more" if refusal.more else ""
    return f"the driver refuses {refusal.subject}{more}: {refusal.error}"


def _document_of_refusal(refusal: driver_checks.Refusal) -> Mapping[str, object]:
    return {"object": refusal.subject, "more": refusal.more, "field": refusal.error.field, "message": refusal.error.reason}


def _alike(decision: "whatif.Decision", workloads: Mapping[str, str]) -> tuple[str, str]:
    """Return what pods of one workload that do not fit for one reason have in common; no other decisions have it in common."""
    workload = workloads.get(decision.subject.removeprefix("pod "))
    if workload is None:
        return decision.subject, ""
    return workload, f"{decision.message} {decision.why}".replace(decision.subject.rpartition("/")[2], "")


def _rows(decision: "whatif.Decision") -> Iterator[tuple[str, ...]]:
    from drakit_cluster.objects import json_types

    subject = "" if decision.subject.startswith("claim ") else decision.subject
    if decision.fits and not decision.given:
        yield (decision.subject.removeprefix("claim "), decision.node, "", "", decision.message, "")
    for given in decision.given:
        results = json_types.objects(given.allocation, "devices", "results")
        if not results:
            yield (given.claim, decision.node, subject, "", "requests no devices", "")
        for result in results:
            device = "/".join(json_types.text(result, field) for field in ("driver", "pool", "device"))
            consumed = ", ".join(f"{name} {amount}" for name, amount in json_types.mapping(result, "consumedCapacity").items())
            admin = "admin access" if result.get("adminAccess") is True else ""
            yield (given.claim, decision.node, subject, json_types.text(result, "request"), device, consumed or admin)


def _why_lines(decision: "whatif.Decision", *, verbose: bool) -> "Iterator[_Indented]":
    """Yield the obstacles by node. Nodes with the same obstacles are listed together."""
    alike: dict[tuple[_Indented, ...], list[str]] = {}
    for node, obstacles_of_node in decision.why.items():
        alike.setdefault(
            tuple(line for obstacle in obstacles_of_node for line in _obstacle_lines(obstacle, node, verbose=verbose)), []
        ).append(node)
    if not alike:
        yield _INDENT, decision.message
    for lines, nodes in alike.items():
        more = len(nodes) - _SHOWN_NODES
        rest = f" and {plurals.counted(more, 'more node')}" if more > 0 else ""
        yield _INDENT, f"on {', '.join(nodes[:_SHOWN_NODES])}{rest}:"
        yield from lines


def _obstacle_lines(obstacle: "obstacles.Obstacle", node: str, *, verbose: bool) -> "Iterator[_Indented]":
    subject = f"{obstacle.claim}, request {obstacle.request}: " if obstacle.request else f"{obstacle.claim}: " if obstacle.claim else ""
    yield 2 * _INDENT, f"{subject}{obstacle.text}"
    for group in obstacle.groups:
        names = [device.removeprefix(f"{device.split('/')[0]}/{node}/") for device in group.devices]
        if verbose:
            yield from ((3 * _INDENT, f"{name}: {group.text}") for name in names)
            continue
        more = len(names) - _SHOWN_DEVICES
        shown = ", ".join(names[:_SHOWN_DEVICES]) + (", ..." if more > 0 else "")
        yield 3 * _INDENT, f"{plurals.counted(len(names), 'device')}: {group.text} ({shown})"


def _document(decision: "whatif.Decision") -> Mapping[str, object]:
    made: dict[str, object] = {"asked": decision.subject, "fits": decision.fits}
    if decision.difference:
        made["difference"] = decision.difference
    if decision.fits:
        claims = [{"claim": grant.claim, "allocation": grant.allocation} for grant in decision.given]
        return made | {"node": decision.node, "claims": claims} | ({"message": decision.message} if decision.message else {})
    why = {node: [_obstacle(obstacle) for obstacle in listed] for node, listed in decision.why.items()}
    return made | {"message": decision.message, "why": why}


def _obstacle(obstacle: "obstacles.Obstacle") -> dict[str, object]:
    groups = [{"text": group.text, "devices": list(group.devices)} for group in obstacle.groups]
    made = {"claim": obstacle.claim, "request": obstacle.request, "text": obstacle.text, "devices": groups}
    return {name: value for name, value in made.items() if value}
