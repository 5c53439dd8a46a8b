"""Tasks: pods that arrive together at one time and use their devices for some time."""

from collections.abc import Sequence
from dataclasses import dataclass

from drakit_cluster.simulation.workload.templates import PodTemplate


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Task:
    """``pods`` pods of one template. They start together or not at all; times are in seconds. Without ``duration`` they never end."""

    name: str
    template: PodTemplate
    arrival: float
    duration: float | None = None
    pods: int = 1


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Tasks in the order of their arrival; tasks with the same arrival keep the order of the file."""

    tasks: Sequence[Task]

    @property
    def templates(self) -> list[PodTemplate]:
        """The templates in the order of first use."""
        return list(dict.fromkeys(task.template for task in self.tasks))

    def weights(self) -> dict[PodTemplate, float]:
        """Return the share of all pods of each template, which is the probability that the next pod has it."""
        counts: dict[PodTemplate, float] = {}
        for task in self.tasks:
            counts[task.template] = counts.get(task.template, 0.0) + task.pods
        total = sum(counts.values())
        return {template: count / total for template, count in counts.items()}


def ordered(tasks: Sequence[Task]) -> Workload:
    """Return the tasks as a workload."""
    return Workload(tasks=sorted(tasks, key=lambda task: task.arrival))
