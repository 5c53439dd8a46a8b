"""The result of one simulation, as values and as a document for JSON and YAML."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.scheduling.allocator import known_errors
from drakit_cluster.scheduling.allocator.known_errors import KnownErrors
from drakit_cluster.simulation.engine.nodes import Nodes
from drakit_cluster.simulation.engine.policies import Policy
from drakit_cluster.simulation.engine.simulator import Outcome, Simulator
from drakit_cluster.simulation.fleet.groups import Fleet
from drakit_cluster.simulation.report import refusals
from drakit_cluster.simulation.report.measures import ModelSeries, Recorder, Series
from drakit_cluster.simulation.report.refusals import Refusal
from drakit_cluster.simulation.workload.tasks import Workload


@dataclass(frozen=True, kw_only=True)
class Waits:
    """The waiting times in seconds of tasks that started."""

    p50: float
    p95: float
    longest: float
    mean: float

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Waits":
        """Return the waiting times of the tasks that started; zeros if none started."""
        waits = sorted(outcome.started - outcome.task.arrival for outcome in outcomes if outcome.started is not None)
        if not waits:
            return cls(p50=0.0, p95=0.0, longest=0.0, mean=0.0)
        return cls(p50=_percentile(waits, 50), p95=_percentile(waits, 95), longest=waits[-1], mean=sum(waits) / len(waits))


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of the workload with one policy."""

    policy: Policy
    outcomes: Sequence[Outcome]
    waits: Waits
    refused: Sequence[Refusal]
    series: Series

    @property
    def started(self) -> int:
        """Return the number of tasks that started."""
        return sum(outcome.started is not None for outcome in self.outcomes)

    @property
    def delayed(self) -> int:
        """Return the number of tasks that waited before they started."""
        return sum(outcome.started is not None and outcome.started > outcome.task.arrival for outcome in self.outcomes)


def run(
    fleet: Fleet,
    workload: Workload,
    policy: Policy,
    *,
    gates: FeatureGates | None = None,
    errors: KnownErrors = known_errors.NONE,
    on_progress: Callable[[int], None] | None = None,
) -> Result:
    """Simulate a workload with a policy and return the result. Raises WorkloadError for a policy that does not fit the fleet."""
    nodes = Nodes(fleet, gates=gates, errors=errors, variant=policy.variant)
    recorder = Recorder(workload)
    outcomes = Simulator(nodes, workload, policy, recorder).run(on_progress)
    return Result(
        policy=policy,
        outcomes=outcomes,
        waits=Waits.of(outcomes),
        refused=refusals.of_outcomes(outcomes, nodes),
        series=recorder.series(),
    )


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """How a simulation came about. ``command`` and ``date`` are for reports only, because documents of equal input are equal."""

    tasks: str
    """The mix of synthetic tasks, or the file of tasks, in words."""
    versions: str
    """The versions of drakit and of the Kubernetes rules."""
    seeds: Sequence[int] = ()
    """The seeds of synthetic tasks; none for tasks of a file."""
    command: str = ""
    date: str = ""


def document(fleet: Fleet, workload: Workload, results: Sequence[Result], *, placements: bool) -> Object:
    """Return all results as JSON; ``placements`` adds the nodes and devices of each task."""
    groups: list[Json] = [{"label": group.label, "nodes": len(group.names)} for group in fleet.groups]
    last = max((task.arrival for task in workload.tasks), default=0.0)
    return {
        "fleet": {"nodes": fleet.size, "groups": groups},
        "workload": {"tasks": len(workload.tasks), "pods": sum(task.pods for task in workload.tasks), "lastArrivalSeconds": last},
        "policies": [_policy(result, placements=placements) for result in results],
    }


def mean(values: Sequence[float]) -> float:
    """Return the mean, 0 for no values."""
    return sum(values) / len(values) if values else 0.0


def duration(seconds: float) -> str:
    """Return a duration as text, such as 1h30m, rounded to seconds."""
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{value}{unit}" for value, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (seconds_left, "s")) if value]
    return "".join(parts) or "0s"


def _policy(result: Result, *, placements: bool) -> Json:
    waits = result.waits
    encoded: Object = {
        "policy": result.policy.name,
        "started": result.started,
        "delayed": result.delayed,
        "neverStarted": len(result.outcomes) - result.started,
        "waitSeconds": {
            "p50": round(waits.p50, 3),
            "p95": round(waits.p95, 3),
            "max": round(waits.longest, 3),
            "mean": round(waits.mean, 3),
        },
        "refused": [
            {"template": refusal.template, "tasks": refusal.tasks, "fitsOnAnEmptyNode": refusal.possible, "reason": refusal.reason}
            for refusal in result.refused
        ],
        "models": [_model(model) for model in result.series.models],
        "times": _numbers(result.series.times),
        "waitingPods": _numbers(result.series.waiting),
    }
    if placements:
        encoded["placements"] = [_placement(outcome) for outcome in result.outcomes]
    return encoded


def _model(series: ModelSeries) -> Json:
    return {
        "model": series.model,
        "count": series.count,
        "usedMean": round(mean(series.used), 5),
        "usedPeak": max(series.used, default=0.0),
        "fragmentedMean": round(mean(series.fragmented), 5),
        "fragmentedPeak": max(series.fragmented, default=0.0),
        "used": _numbers(series.used),
        "fragmented": _numbers(series.fragmented),
    }


def _placement(outcome: Outcome) -> Json:
    task = outcome.task
    pods: list[Json] = [{"node": grant.node.name, "devices": json_types.from_strings(grant.names())} for grant in outcome.grants]
    ended = None if outcome.started is None or task.duration is None else round(outcome.started + task.duration, 3)
    return {
        "task": task.name,
        "template": task.template.name,
        "arrival": task.arrival,
        "started": outcome.started,
        "ended": ended,
        "pods": pods,
    }


def _numbers(values: Sequence[float]) -> list[Json]:
    """Return numbers as a JSON list."""
    return list(values)


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the nearest-rank percentile of sorted values."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
