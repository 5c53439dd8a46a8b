"""The tables of a comparison of policies, for the terminal and the page: each column says its figure by itself. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from drakit_cluster.simulation.report import results
from drakit_cluster.simulation.report.results import Result


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table: its first ``texts`` columns have text, the others numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    texts: int


def tasks(runs: Sequence[Result]) -> Table:
    """Return how many tasks started with each policy, and how long these waited."""
    return Table(
        head=("Policy", "Started", "After waiting", "Never started", "Mean wait", "p50 wait", "p95 wait", "Max wait"),
        rows=[
            (
                run.policy.name,
                run.started,
                run.delayed,
                len(run.outcomes) - run.started,
                *map(results.duration, (run.waits.mean, run.waits.p50, run.waits.p95, run.waits.longest)),
            )
            for run in runs
        ],
        texts=1,
    )


def models(runs: Sequence[Result]) -> Table:
    """Return the use and the fragmentation of each model with each policy."""
    return Table(
        head=("Model", "Policy", "Devices", "Mean use", "Peak use", "Mean fragmented", "Peak fragmented"),
        rows=[
            (
                model.model,
                run.policy.name,
                model.count,
                *(
                    f"{share:.1%}"
                    for share in (results.mean(model.used), max(model.used), results.mean(model.fragmented), max(model.fragmented))
                ),
            )
            for number in range(len(runs[0].series.models))
            for run in runs
            for model in [run.series.models[number]]
        ],
        texts=2,
    )


def seeds(runs: Sequence[Sequence[Result]], numbers: Sequence[int]) -> Table:
    """Return what the conclusion compares: each seed with each policy, and below the mean of all seeds."""
    rows: list[Sequence[object]] = []
    for number, listed in zip(numbers, runs, strict=True):
        rows += [
            (number, run.policy.name, run.started, len(run.outcomes) - run.started, results.duration(run.waits.mean)) for run in listed
        ]
    for place, run in enumerate(runs[0]):
        started = results.mean([listed[place].started for listed in runs])
        missed = results.mean([len(listed[place].outcomes) - listed[place].started for listed in runs])
        wait = results.duration(results.mean([listed[place].waits.mean for listed in runs]))
        rows.append(("mean", run.policy.name, f"{started:.4g}", f"{missed:.4g}", wait))
    return Table(head=("Seed", "Policy", "Started", "Never started", "Mean wait"), rows=rows, texts=2)
