"""Metrics of API server and scheduler under Kubernetes' names, as Prometheus reads them. Safe to use from any thread.

Names: the SLIs of KEP-5075, which are those of Kubernetes' own components. There are no others.
"""

import bisect
import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
PLUGIN = "DynamicResources"
_REQUESTS = "apiserver_request_total"
_UNSCHEDULABLE = "scheduler_unschedulable_pods"
_DURATION = "scheduler_plugin_execution_duration_seconds"
_BUCKETS = tuple(0.00001 * 1.5**step for step in range(20))
"""Upper bounds in seconds, as Kubernetes' scheduler has them."""
_Labels: TypeAlias = tuple[tuple[str, str], ...]


class _Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect.bisect_left(_BUCKETS, value)] += 1
        self.sum += value


class Metrics:
    """What is counted in one cluster."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[_Labels, int] = defaultdict(int)
        self._durations: dict[_Labels, _Histogram] = defaultdict(_Histogram)
        self._unschedulable: set[str] = set()

    def request(self, **labels: str) -> None:
        """Count a request of the API server by verb, group, version, resource, subresource, scope and code."""
        with self._lock:
            self._requests[tuple(labels.items())] += 1

    @contextlib.contextmanager
    def step(self, extension_point: str) -> Iterator[None]:
        """Measure one step of the scheduler; one that raises counts with the status Error."""
        begun, status = time.perf_counter(), "Error"
        try:
            yield
            status = "Success"
        finally:
            labels = (("extension_point", extension_point), ("plugin", PLUGIN), ("status", status))
            with self._lock:
                self._durations[labels].observe(time.perf_counter() - begun)

    def unschedulable(self, pod: str, *, is_so: bool) -> None:
        """Note whether a pod cannot be scheduled at present."""
        with self._lock:
            (self._unschedulable.add if is_so else self._unschedulable.discard)(pod)

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _head(_REQUESTS, "counter", "Requests by verb, resource and code.")
        for labels, count in sorted(self._requests.items()):
            yield f"{_REQUESTS}{_shown(labels)} {count}"
        yield from _head(_UNSCHEDULABLE, "gauge", "Pods that cannot be scheduled at present.")
        yield f"{_UNSCHEDULABLE}{_shown((('plugin', PLUGIN), ('profile', 'default-scheduler')))} {len(self._unschedulable)}"
        yield from _head(_DURATION, "histogram", "Seconds of a step of scheduling.")
        for labels, found in sorted(self._durations.items(), key=lambda one: one[0]):
            total = 0
            for bound, count in zip((*_BUCKETS, "+Inf"), found.counts, strict=True):
                total += count
                le = bound if isinstance(bound, str) else f"{bound:.6g}"
                yield f"{_DURATION}_bucket{_shown((*labels, ('le', le)))} {total}"
            yield f"{_DURATION}_sum{_shown(labels)} {found.sum:.9f}"
            yield f"{_DURATION}_count{_shown(labels)} {total}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _shown(labels: _Labels) -> str:
    """Return labels as they are written. Their values are names of Kubernetes' own, which need no escapes."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}"
