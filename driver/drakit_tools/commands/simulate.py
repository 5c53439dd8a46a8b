"""``drakit simulate``: simulates a workload on a fleet with the scheduler's decisions, without a cluster."""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import pathlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import rich.console
import rich.progress
import typer

from drakit import extras
from drakit.cli import options, output, terminal
from drakit.core import errors
from drakit.telemetry import escaping, plurals
from drakit_tools import fleets, worlds
from drakit_tools import manifests as sources

if TYPE_CHECKING:
    from drakit_cluster.objects.features import FeatureGates
    from drakit_cluster.scheduling.allocator.known_errors import KnownErrors
    from drakit_cluster.scheduling.explain import whatif
    from drakit_cluster.simulation.fleet.groups import Fleet, Group
    from drakit_cluster.simulation.report.results import Provenance, Result
    from drakit_cluster.simulation.report.tables import Table
    from drakit_cluster.simulation.workload.tasks import Workload

_SHOWN_REFUSALS = 5
_SEEDS_MAX = 100


@options.quietly
@sources.answering()
def simulate(
    machines: fleets.Machines = None,
    files: sources.Files = None,
    live: sources.Live = False,
    kubeconfig: sources.Kubeconfig = None,
    workload: Annotated[
        str | None, typer.Option("--workload", "-w", metavar="FILE", help="CSV or YAML file with tasks. Default: synthetic tasks.")
    ] = None,
    tasks: Annotated[int, typer.Option("--tasks", min=1, max=1_000_000, help="Number of synthetic tasks.")] = 1000,
    span: Annotated[str, typer.Option("--span", metavar="TIME", help="Time within which synthetic tasks arrive.")] = "1d",
    duration: Annotated[str, typer.Option("--duration", metavar="TIME", help="Mean duration of synthetic tasks.")] = "1h",
    mix: Annotated[
        str | None,
        typer.Option(
            "--mix", metavar="TEMPLATE:WEIGHT,...", help="Templates of synthetic tasks, with weights. Default: by the devices of the fleet."
        ),
    ] = None,
    gangs: Annotated[
        str,
        typer.Option("--gangs", metavar="PODS:WEIGHT,...", help="Numbers of pods that start together in a synthetic task, with weights."),
    ] = "1:1",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the synthetic tasks; the same seed gives the same tasks.")] = 0,
    seeds: Annotated[
        int,
        typer.Option("--seeds", min=1, max=_SEEDS_MAX, help="Simulate this many seeds, from --seed on, to see how much chance matters."),
    ] = 1,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="CHOICE[,order=ORDER][,layout=PROFILES][,step=BANDWIDTH]",
            help="Policy to compare. May be repeated. Default: first-fit.",
        ),
    ] = None,
    gates: sources.Gates = None,
    kubernetes: sources.Kubernetes = None,
    placements: Annotated[bool, typer.Option("--placements", help="With -o json or yaml: add what ran where.")] = False,
    report: Annotated[
        pathlib.Path | None, typer.Option("--report", metavar="FILE", help="Write a self-contained HTML page with plots, light and dark.")
    ] = None,
    form: options.Output = options.Format.TABLE,
) -> None:
    """Simulate a workload on a fleet, and report waiting times, placements, use and fragmentation of devices, and pods that never fit.

    The fleet consists of mock machines (--mock), of ResourceSlices, Nodes and allocated ResourceClaims in files (-f, as kubectl get -o yaml writes
    them), or of a cluster (--live). The allocator of the local cluster chooses the devices. It decides by the rules of the cluster's
    version, or of Kubernetes 1.37, and without known errors. --kubernetes decides as one version does, with its known errors.

    A workload file has the columns or fields name, arrival, duration, template, count and gang. A template is the name of a ResourceClaimTemplate
    in a file (-f), or shorthand: mig=PROFILE, gpu=COUNT and nic=BANDWIDTH, joined by +. Pods that do not fit wait. When devices are released,
    waiting pods are tried again in the order of their arrival.

    A policy chooses the node (first-fit, most-allocated, least-allocated, least-fragmentation). It may also change the slices: the order of
    devices (published, largest-first, round-robin), the MIG layout (on-demand, or fixed profiles on every GPU) and the bandwidth step.

    With several policies, a conclusion says which is best, by how much and with what doubt. --seeds repeats the simulation with other random tasks.

    The exit status is 0, or 2 for bad input. The same input gives the same output; a report also has its date.

    [bold]Examples[/bold]

      drakit simulate --mock dgx-a100-40gb:100 --tasks 5000 --duration 2h

      drakit simulate -m dgx-h100:20 -m server-a30:50 -w day.csv --report day.html

      drakit simulate -m dgx-h100:20 -p first-fit -p least-fragmentation --seeds 5

      drakit simulate -m dgx-a100-40gb:9 -p first-fit,layout=3g.20gb+1g.5gb*4

      drakit simulate --live --mix gpu=1:1
    """
    extras.require_local_cluster()
    if report is not None:
        extras.require_report()
    repeated = sources.errors_of(kubernetes)
    with fleets.bad_input():
        world, chosen = fleets.known_world(files or [], gates or [], kubernetes, live=live, kubeconfig=kubeconfig)
        made = fleets.groups(fleets.parsed(machines or []))
        fleets.require_nodes(made, world)
        drawn = _Drawn(tasks=tasks, span=span, duration=duration, mix=mix, gangs=gangs, seed=seed)
        if workload is not None and seeds > 1:
            raise errors.ConfigError("--seeds: the tasks of --workload have no seed; leave one out")
        work = fleets.workload_of(workload, world) if workload is not None else _synthetic(drawn, made, world)
        fleet = fleets.assembled(made, world, work.templates)
        fleets.require_profiles(work.templates, fleet.groups)
        runs = [_results(fleet, work, policies or ["first-fit"], chosen, repeated)]
        for number in range(seed + 1, seed + seeds):
            other = _synthetic(dataclasses.replace(drawn, seed=number), made, world)
            runs.append(_results(fleet, other, policies or ["first-fit"], chosen, repeated))
        results = runs[0]
    about = _provenance(workload, drawn, seeds, _weights(drawn, made, world), chosen.version)
    if report is not None:
        _write_report(report, fleet, work, runs, about)
    if form is options.Format.TABLE:
        _print(fleet, work, results)
        _print_conclusion(runs, about.seeds)
        worlds.print_doubts(world)
    else:
        from drakit_cluster.simulation.report import results as reporting

        document = {**reporting.document(fleet, work, results, placements=placements), **_about(runs, about)}
        output.document({**document, **worlds.document_of_notes(world)}, form)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Drawn:
    """The options of a synthetic workload as given on the command line."""

    tasks: int
    span: str
    duration: str
    mix: str | None
    gangs: str
    seed: int


def _synthetic(drawn: _Drawn, made: "Sequence[Group]", world: "whatif.World") -> "Workload":
    from drakit_cluster.simulation.workload import reading, synthetic

    templates = _weights(drawn, made, world)
    if not templates:
        raise errors.ConfigError("there is no default for --mix: the fleet has no GPU and no shared NIC; add --mix TEMPLATE:WEIGHT")
    mix = synthetic.Mix(
        tasks=drawn.tasks,
        span=reading.seconds(drawn.span),
        mean_duration=reading.seconds(drawn.duration),
        templates=templates,
        gangs={_pods(name): weight for name, weight in synthetic.parse_weights(drawn.gangs).items()},
    )
    return synthetic.make(mix, drawn.seed, reading.Catalogue(world.templates))


def _weights(drawn: _Drawn, made: "Sequence[Group]", world: "whatif.World") -> "Mapping[str, float]":
    """Return the weights of the templates of synthetic tasks."""
    from drakit_cluster.simulation.workload import synthetic

    offered = [*(entry for group in made for entry in group.slices), *world.slices]
    return synthetic.default_weights(offered) if drawn.mix is None else synthetic.parse_weights(drawn.mix)


def _provenance(workload: str | None, drawn: _Drawn, seeds: int, weights: "Mapping[str, float]", kubernetes: object) -> "Provenance":
    from drakit_cluster.simulation.report import results as reporting

    mix = ", ".join(f"{template}:{weight:g}" for template, weight in weights.items())
    synthetic = f"synthetic, {drawn.tasks} within {drawn.span}, {drawn.duration} in the mean; mix {mix}; pods of a task {drawn.gangs}"
    return reporting.Provenance(
        tasks=synthetic if workload is None else f"of {workload}",
        versions=f"drakit {importlib.metadata.version('drakit')}, rules of Kubernetes {kubernetes}",
        seeds=range(drawn.seed, drawn.seed + seeds) if workload is None else (),
        command=shlex.join(["drakit", *sys.argv[1:]]),
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _about(runs: "Sequence[Sequence[Result]]", about: "Provenance") -> dict[str, object]:
    """Return what the document says of all seeds. It has no date, so that the same input gives the same output."""
    from drakit_cluster.simulation.report import conclusion

    found = conclusion.of(runs)
    return {
        "seeds": list(about.seeds),
        "tasks": about.tasks,
        "versions": about.versions,
        "conclusion": {"best": found.best, "text": found.text, "doubt": found.doubt},
    }


def _print_conclusion(runs: "Sequence[Sequence[Result]]", seeds: Sequence[int]) -> None:
    from drakit_cluster.simulation.report import conclusion, tables

    if len(runs) > 1:
        _put("\nSeeds; the tables above are of the first", tables.seeds(runs, seeds))
    if len(runs[0]) > 1:
        found, out = conclusion.of(runs), output.console()
        out.print()
        output.say(out, f"{found.text} {found.doubt}")


def _pods(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise errors.ConfigError(f"--gangs: {text!r} is not a number of pods; write PODS:WEIGHT, separated by commas")
    return int(text)


def _results(fleet: "Fleet", work: "Workload", policies: Sequence[str], gates: "FeatureGates", repeated: "KnownErrors") -> "list[Result]":
    from drakit_cluster.simulation.engine import policies as choosing
    from drakit_cluster.simulation.report import results as reporting

    parsed = [choosing.parse(text) for text in policies]
    results = []
    for policy in parsed:
        with _progress(policy.name, len(work.tasks)) as report:
            results.append(reporting.run(fleet, work, policy, gates=gates, errors=repeated, on_progress=report))
    return results


@contextlib.contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if it is a terminal."""
    shown = terminal.console(stderr=True)
    is_shown = terminal.is_terminal(shown) and not terminal.QUIET.get()
    with rich.progress.Progress(console=shown, transient=True, disable=not is_shown) as bar:
        number = bar.add_task(escaping.escaped(title), total=total)
        yield lambda done: bar.update(number, completed=done)


def _write_report(file: pathlib.Path, fleet: "Fleet", work: "Workload", runs: "Sequence[Sequence[Result]]", about: "Provenance") -> None:
    from drakit_cluster.simulation.report import conclusion, page

    try:
        file.write_text(page.html(fleet, work, runs, conclusion.of(runs), about), "utf-8")
    except OSError as error:
        raise errors.ConfigError(f"--report {file}: cannot be written: {error.strerror}") from error


def _put(title: str, table: "Table") -> None:
    output.put(output.console(), output.table(title, [name.upper() for name in table.head], table.rows))


def _print(fleet: "Fleet", work: "Workload", results: "Sequence[Result]") -> None:
    from drakit_cluster.simulation.report import results as reporting
    from drakit_cluster.simulation.report import tables

    out = output.console()
    last = reporting.duration(max(task.arrival for task in work.tasks))
    output.say(out, f"{fleets.counted_nodes(fleet)}, {plurals.counted(len(work.tasks), 'task')}, the last arrives after {last}")
    _put("\nTasks", tables.tasks(results))
    _put("\nDevices, until the last arrival", tables.models(results))
    for line in _refusals(results):
        out.print()
        output.say(out, line, hang=2)


def _refusals(results: "Sequence[Result]") -> Iterator[str]:
    """Yield why tasks never started; a reason that several policies have in common is yielded once."""
    alike: dict[tuple[str, int, str], list[str]] = {}
    for result in results:
        for refusal in result.refused:
            alike.setdefault((refusal.template, refusal.tasks, refusal.reason), []).append(result.policy.name)
    for (template, tasks, reason), names in list(alike.items())[:_SHOWN_REFUSALS]:
        prefix = f"{', '.join(names)}: " if len(names) < len(results) else ""
        yield f"{prefix}{plurals.counted(tasks, 'task')} of {template} never started: {reason}"
    if len(alike) > _SHOWN_REFUSALS:
        yield f"and {plurals.counted(len(alike) - _SHOWN_REFUSALS, 'more reason')}; see -o json"
