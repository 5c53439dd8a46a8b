"""The event queue: tasks arrive, wait, start, and release their devices.

Pods that do not fit wait. When devices are released, waiting tasks are retried in the order of their arrival, as kube-scheduler does with
pods of one priority. A task never waits for an earlier task that needs something else. At equal times, tasks end before others arrive. The
pods of a gang start together or not at all.

One attempt covers all waiting tasks with the same request, so the cost of a retry depends on the number of different requests, not of tasks.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.simulation.engine.nodes import Grant, Nodes
from drakit_cluster.simulation.engine.placer import Observer, Placer
from drakit_cluster.simulation.engine.policies import Fragmentation, Policy
from drakit_cluster.simulation.workload.tasks import Task, Workload
from drakit_cluster.simulation.workload.templates import PodTemplate

_PROGRESS_EVERY = 200


@dataclass(eq=False, slots=True)
class Outcome:
    """The outcome of a task; ``grants`` has one entry for each pod. ``error`` says why the allocator could not decide."""

    task: Task
    started: float | None = None
    grants: Sequence[Grant] = ()
    error: str = ""


class Simulator:
    """One run of a workload on nodes under a policy."""

    def __init__(self, nodes: Nodes, workload: Workload, policy: Policy, observer: Observer | None = None) -> None:
        self._retries_each = nodes.repeats_errors
        self._workload = workload
        self._observer = observer or Observer()
        self._placer = Placer(nodes, policy, Fragmentation(workload.weights()), self._observer)
        self._ends: list[tuple[float, int, Outcome]] = []
        self._numbers = itertools.count()
        self._waiting: dict[tuple[PodTemplate, int], deque[tuple[int, Outcome]]] = {}
        self._stalled: set[tuple[PodTemplate, int]] = set()
        self._waiting_pods = 0

    def run(self, on_progress: Callable[[int], None] | None = None) -> list[Outcome]:
        """Return the outcome of every task, in the order of arrival. ``on_progress`` gets the number of arrived tasks."""
        outcomes = [Outcome(task) for task in self._workload.tasks]
        for number, outcome in enumerate(outcomes):
            self._end_until(outcome.task.arrival)
            self._observer.at(outcome.task.arrival, self._waiting_pods)
            self._arrive(number, outcome)
            if on_progress is not None and number % _PROGRESS_EVERY == 0:
                on_progress(number)
        self._end_until(float("inf"))
        if on_progress is not None:
            on_progress(len(outcomes))
        return outcomes

    def _arrive(self, number: int, outcome: Outcome) -> None:
        key = (outcome.task.template, outcome.task.pods)
        has_room = self._retries_each or self._placer.may_fit(*key)
        if not (has_room and self._start(outcome, outcome.task.arrival)):
            self._waiting.setdefault(key, deque()).append((number, outcome))
            self._waiting_pods += outcome.task.pods

    def _end_until(self, time: float) -> None:
        """Release the devices of all tasks that end by ``time``, and retry the waiting tasks after each end."""
        while self._ends and self._ends[0][0] <= time:
            now = self._ends[0][0]
            self._observer.at(now, self._waiting_pods)
            while self._ends and self._ends[0][0] == now:
                for grant in heapq.heappop(self._ends)[2].grants:
                    self._placer.release(grant)
            self._stalled.clear()
            self._retry(now)

    def _retry(self, now: float) -> None:
        """Try all waiting tasks once, in the order of their arrival."""
        if self._retries_each:
            self._retry_each(now)
            return
        queue = [(waiting[0][0], key) for key, waiting in self._waiting.items() if waiting and self._may_fit(key)]
        heads = [(number, place) for place, (number, _) in enumerate(queue)]
        heapq.heapify(heads)
        while heads:
            _, place = heapq.heappop(heads)
            key = queue[place][1]
            waiting = self._waiting[key]
            if self._may_fit(key) and self._start(waiting[0][1], now):
                waiting.popleft()
                self._waiting_pods -= key[1]
                if waiting:
                    heapq.heappush(heads, (waiting[0][0], place))

    def _retry_each(self, now: float) -> None:
        """Try every waiting task separately: with the known errors of a version, the start of one task may make another one fit."""
        everyone = [(number, key, outcome) for key, waiting in self._waiting.items() for number, outcome in waiting]
        for number, key, outcome in sorted(everyone, key=lambda entry: entry[0]):
            if self._start(outcome, now):
                self._waiting[key].remove((number, outcome))
                self._waiting_pods -= key[1]

    def _may_fit(self, key: tuple[PodTemplate, int]) -> bool:
        return key not in self._stalled and self._placer.may_fit(*key)

    def _start(self, outcome: Outcome, now: float) -> bool:
        """Start a task: allocate the devices of all its pods, or of none. Return whether it started."""
        task = outcome.task
        grants: list[Grant] = []
        try:
            for _ in range(task.pods):
                if (grant := self._placer.place(task.template)) is None:
                    break
                grants.append(grant)
            outcome.error = ""
        except AllocationError as error:
            outcome.error = str(error)
        if len(grants) < task.pods:
            for grant in reversed(grants):
                self._placer.release(grant)
            if grants or outcome.error:
                self._stalled.add((task.template, task.pods))
            return False
        outcome.started, outcome.grants = now, grants
        if task.duration is not None:
            heapq.heappush(self._ends, (now + task.duration, next(self._numbers), outcome))
        return True
