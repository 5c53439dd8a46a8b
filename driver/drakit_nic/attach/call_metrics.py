"""The metrics of the container runtimes' calls for an interface."""

import bisect
import itertools
import math
import threading
from collections.abc import Iterator

import drakit
from drakit_nic.attach import server

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, math.inf)
"""The histogram's upper bounds in seconds. A runtime waits ten seconds for the hook."""


class Calls:
    """The counters of one process's calls, safe between threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._counts = {outcome: [0] * len(BOUNDS) for outcome in ("ok", "refused")}
        self._seconds = dict.fromkeys(self._counts, 0.0)
        self._refused = dict.fromkeys(server.Reason, 0)

    def attached(self, seconds: float) -> None:
        """Count a successful call, also one whose attachment existed already."""
        self._add("ok", seconds)

    def refused(self, reason: server.Reason, seconds: float) -> None:
        """Count a failed attachment."""
        self._add("refused", seconds)
        with self._guard:
            self._refused[reason] += 1

    def readings(self) -> Iterator[drakit.Metric]:
        """Yield all metrics, also those that are zero."""
        with self._guard:
            refused = dict(self._refused)
            histograms = {outcome: (tuple(counts), self._seconds[outcome]) for outcome, counts in self._counts.items()}
        for outcome, (counts, seconds) in histograms.items():
            yield drakit.Metric(
                name="nic_attach_seconds",
                documentation="Seconds from a container runtime's call for an interface to its answer.",
                value=seconds,
                labels={"outcome": outcome},
                buckets=tuple(zip(BOUNDS, itertools.accumulate(counts), strict=True)),
            )
        for reason, count in refused.items():
            yield drakit.Metric(
                name="nic_attach_refusals",
                documentation="Calls of container runtimes for an interface that were refused.",
                value=float(count),
                labels={"reason": reason.value},
                total=True,
            )

    def _add(self, outcome: str, seconds: float) -> None:
        with self._guard:
            self._counts[outcome][bisect.bisect_left(BOUNDS, seconds)] += 1
            self._seconds[outcome] += seconds
