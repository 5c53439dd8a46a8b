"""Metrics of API server and scheduler under Kubernetes' names, as Prometheus reads them: the SLIs of KEP-5075. Safe to use from any thread."""

import contextlib
import time
from collections.abc import Iterator

import prometheus_client

MEDIA = prometheus_client.CONTENT_TYPE_PLAIN_0_0_4
PLUGIN = "DynamicResources"
_BUCKETS = tuple(0.00001 * 1.5**step for step in range(20))
"""Upper bounds in seconds, as Kubernetes' scheduler has them."""
_REQUEST_LABELS = ("verb", "group", "version", "resource", "subresource", "scope", "code")
_BODY_LABELS = ("verb", "resource")


class Metrics:
    """The metrics of one cluster."""

    def __init__(self) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        self._requests = prometheus_client.Counter(
            "apiserver_request_total", "Requests by verb, resource and code.", _REQUEST_LABELS, registry=self._registry
        )
        self._received = prometheus_client.Counter(
            "drakit_cluster_request_bytes", "Bytes of request bodies by verb and resource.", _BODY_LABELS, registry=self._registry
        )
        self._sent = prometheus_client.Counter(
            "drakit_cluster_response_bytes", "Bytes of response bodies, watches included.", _BODY_LABELS, registry=self._registry
        )
        waiting = prometheus_client.Gauge(
            "scheduler_unschedulable_pods", "Pods that cannot be scheduled at present.", ("plugin", "profile"), registry=self._registry
        )
        self._durations = prometheus_client.Histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Seconds of a step of scheduling.",
            ("extension_point", "plugin", "status"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._unschedulable: set[str] = set()
        waiting.labels(plugin=PLUGIN, profile="default-scheduler").set_function(lambda: len(self._unschedulable))

    def request(self, **labels: str) -> None:
        """Count a request of the API server by verb, group, version, resource, subresource, scope and code."""
        self._requests.labels(**labels).inc()

    def received(self, verb: str, resource: str, size: int) -> None:
        """Count bytes of a request's body."""
        self._received.labels(verb, resource).inc(size)

    def sent(self, verb: str, resource: str, size: int) -> None:
        """Count bytes of a response's body."""
        self._sent.labels(verb, resource).inc(size)

    @contextlib.contextmanager
    def step(self, extension_point: str) -> Iterator[None]:
        """Measure one step of the scheduler; a step that raises counts with the status Error."""
        begun, status = time.perf_counter(), "Error"
        try:
            yield
            status = "Success"
        finally:
            self._durations.labels(extension_point, PLUGIN, status).observe(time.perf_counter() - begun)

    def unschedulable(self, pod: str, *, is_unschedulable: bool) -> None:
        """Record whether a pod cannot be scheduled at present."""
        (self._unschedulable.add if is_unschedulable else self._unschedulable.discard)(pod)

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return prometheus_client.generate_latest(self._registry).decode()
