"""Synthetic workloads: seeded, so that the same arguments always give the same tasks.

Arrivals are a Poisson process whose rate follows the hour of the day (half at night, one and a half times at noon); durations are
log-normal, so that a few tasks run very long.
"""

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.simulation.workload import tasks
from drakit_cluster.simulation.workload.reading import Catalogue
from drakit_cluster.simulation.workload.tasks import Task, Workload
from drakit_cluster.simulation.workload.templates import WorkloadError

DAY = 86400.0
_SPREAD = 1.0
"""The standard deviation of the logarithm of durations."""


@dataclass(frozen=True, kw_only=True)
class Mix:
    """The distribution of random tasks. ``templates`` are weights by template text, ``gangs`` weights by number of pods; times are in seconds."""

    tasks: int
    span: float = DAY
    mean_duration: float = 3600.0
    templates: Mapping[str, float]
    gangs: Mapping[int, float] = field(default_factory=lambda: {1: 1.0})

    def __post_init__(self) -> None:
        if self.tasks < 1 or self.span <= 0 or self.mean_duration <= 0:
            raise WorkloadError("a synthetic workload needs at least one task, and times above 0")
        if not self.templates or any(weight <= 0 for weight in (*self.templates.values(), *self.gangs.values())):
            raise WorkloadError("the weights of a synthetic workload must be above 0")


def parse_weights(text: str) -> dict[str, float]:
    """Return weights of a text such as ``mig=1g.5gb:6,gpu=1:1``. Raises WorkloadError."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.strip().rpartition(":") if ":" in part else (part.strip(), "", "1")
        try:
            weights[name] = float(weight)
        except ValueError:
            raise WorkloadError(f"{part}: {weight!r} is not a weight; write TEMPLATE:WEIGHT, separated by commas") from None
    return weights


def make(mix: Mix, seed: int, catalogue: Catalogue) -> Workload:
    """Return the random tasks of a seed."""
    source = random.Random(seed)  # noqa: S311 - not used for secrets
    names, weights = list(mix.templates), list(mix.templates.values())
    sizes, size_weights = list(mix.gangs), list(mix.gangs.values())
    location = math.log(mix.mean_duration) - _SPREAD**2 / 2
    arrivals = sorted(_arrival(source, mix.span) for _ in range(mix.tasks))
    return tasks.ordered(
        [
            Task(
                name=f"task-{number}",
                template=catalogue.template(source.choices(names, weights)[0]),
                arrival=round(arrival, 3),
                duration=round(source.lognormvariate(location, _SPREAD), 3),
                pods=source.choices(sizes, size_weights)[0],
            )
            for number, arrival in enumerate(arrivals)
        ]
    )


def _arrival(source: random.Random, span: float) -> float:
    """Return one arrival. Rejection sampling makes the rate follow the hour of the day."""
    while True:
        time = source.uniform(0, span)
        rate = 1 - 0.5 * math.cos(2 * math.pi * (time % DAY) / DAY)
        if source.uniform(0, 1.5) < rate:
            return time


def default_weights(slices: Iterable[Object]) -> dict[str, float]:
    """Return weights by the devices of some slices: every MIG profile by its size, full GPUs, and shared bandwidth."""
    weights: dict[str, float] = {}
    for device in (listed for entry in slices for listed in json_types.objects(entry, "spec", "devices")):
        attributes = json_types.mapping(device, "attributes")
        profile, kind = json_types.text(attributes, "profile", "string"), json_types.text(attributes, "type", "string")
        if profile and "+" not in profile:
            weights[f"mig={profile}"] = round(4 / max(1, json_types.number(attributes, "placementSize", "int")), 2)
        elif kind == "gpu":
            weights["gpu=1"] = 0.5
        elif "bandwidth" in json_types.mapping(device, "capacity") and device.get("allowMultipleAllocations") is True:
            weights["nic=1G"] = 1.0
    return weights
