"""The Prometheus metrics of a node; this is the only module that imports the Prometheus client.

Every metric has the label ``driver``. Gauges that mirror a state (live claims, health, the driver's own metrics) are read at each scrape, so they
cost nothing in between and are never stale. Label values come from fixed sets or from the inventory, never from claims.
"""

import collections
import functools
import importlib.metadata
import itertools
import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import prometheus_client
from prometheus_client import core as prometheus_core
from prometheus_client import exposition, utils
from prometheus_client import registry as collectors

from drakit.core import advanced, context, errors, inventory, lifecycle
from drakit.node import timing
from drakit.serving import accepting, checks
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

PREFIX = "drakit"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 45.0)
CONTENT_TYPE = exposition.CONTENT_TYPE_LATEST
Histogram = prometheus_client.Histogram

Labels = Mapping[str, str]
Reading = tuple[Labels, float]
Gauge = Callable[[], Iterable[Reading]]
Sample = tuple[str, Labels, float]
Item = TypeVar("Item")


class Metrics:
    """All metrics of one process; ``of`` gives those of one driver."""

    def __init__(self) -> None:
        # A counter would also export its start time as a gauge; the library has one switch for the whole process.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = prometheus_client.CollectorRegistry()
        self._gauges: dict[str, _CallbackGauge] = {}
        self._driver_metrics: _DriverMetricsCollector | None = None
        self._refusals: _RefusalsCollector | None = None
        self._guard = threading.Lock()
        prometheus_client.ProcessCollector(registry=self._registry)
        self.calls = self.durations(
            "drakit_claim_seconds", "Seconds from the kubelet's call for one claim to its answer.", ("driver", "verb", "outcome")
        )
        self.phases = self.durations(
            "drakit_claim_phase_seconds",
            "Seconds of one phase of a claim's prepare or unprepare: fetch, lock, journal, cdi, device_prepare, device_unprepare.",
            ("driver", "phase", "outcome"),
        )
        self.slice_writes = self._counter("drakit_slice_writes", "ResourceSlices created, updated and deleted.")
        self.publish_failures = self._counter("drakit_publish_failures", "Rounds of publishing that failed; the driver retries them.")
        self.watch_restarts = self._counter("drakit_watch_restarts", "Restarts of the watch of ResourceSlices.")
        build = {"version": importlib.metadata.version("drakit"), "python": platform.python_version()}
        self.gauge("drakit_build_info", "Always 1; the labels are the versions of drakit and Python.", tuple(build), lambda: [(build, 1)])

    def of(self, driver: str) -> "DriverMetrics":
        """Return the metrics of one driver."""
        return DriverMetrics(self, driver)

    def durations(self, name: str, documentation: str, labels: Sequence[str]) -> Histogram:
        """Register and return a new histogram of seconds."""
        return Histogram(name, documentation, labels, buckets=BUCKETS, registry=self._registry)

    def gauge(self, name: str, documentation: str, labels: Sequence[str], read: Gauge) -> None:
        """Register a gauge whose labels and values ``read`` returns at each scrape. If ``read`` raises, that scrape has none of its readings,
        and the error is logged when it is new.

        Several functions may read one gauge: the first registration sets documentation and labels.
        """
        with self._guard:
            if name not in self._gauges:
                self._gauges[name] = _CallbackGauge(name, documentation, tuple(labels))
                self._registry.register(self._gauges[name])
            self._gauges[name].add(read)

    def refusals(self, overload: accepting.Overload) -> None:
        """Count the refused connections of one server."""
        with self._guard:
            if self._refusals is None:
                self._refusals = _RefusalsCollector()
                self._registry.register(self._refusals)
            self._refusals.overloads.append(overload)

    def readings(self, driver: str, read: Callable[[], Sequence[advanced.Metric]], prefix: str) -> None:
        """Register a function that returns a driver's own metrics at each scrape; their names get ``prefix``."""
        with self._guard:
            if self._driver_metrics is None:
                self._driver_metrics = _DriverMetricsCollector()
                self._registry.register(self._driver_metrics)
            self._driver_metrics.add(driver, prefix, read)

    def _counter(self, name: str, documentation: str) -> prometheus_client.Counter:
        return prometheus_client.Counter(name, documentation, ["driver"], registry=self._registry)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return exposition.generate_latest(self._registry)


class _CallbackGauge(collectors.Collector):
    """A gauge that is read at each scrape."""

    def __init__(self, name: str, documentation: str, labels: tuple[str, ...]) -> None:
        self._name, self._documentation, self._labels = name, documentation, labels
        self._readers: list[_Reader[tuple[list[str], float]]] = []

    def add(self, read: Gauge) -> None:
        self._readers.append(_Reader(self._name, lambda: [([labels[name] for name in self._labels], value) for labels, value in read()]))

    def describe(self) -> Iterable[prometheus_core.Metric]:
        return [self._family()]

    def collect(self) -> Iterable[prometheus_core.Metric]:
        family = self._family()
        for reader in tuple(self._readers):
            for labels, value in reader.results():
                family.add_metric(labels, value)
        return [family]

    def _family(self) -> prometheus_core.GaugeMetricFamily:
        return prometheus_core.GaugeMetricFamily(self._name, self._documentation, labels=self._labels)


class _RefusalsCollector(collectors.Collector):
    """The refused connections of the process's servers."""

    def __init__(self) -> None:
        self.overloads: list[accepting.Overload] = []

    def describe(self) -> Iterable[prometheus_core.Metric]:
        return [self._family()]

    def collect(self) -> Iterable[prometheus_core.Metric]:
        family = self._family()
        for overload in tuple(self.overloads):
            for cause, count in overload.counts().items():
                family.add_metric([overload.server, cause.value], count)
        return [family]

    def _family(self) -> prometheus_core.CounterMetricFamily:
        documentation = "Connections and requests that a server of this process refused, by cause."
        return prometheus_core.CounterMetricFamily("drakit_connections_refused", documentation, labels=("server", "cause"))


class _DriverMetricsCollector(collectors.Collector):
    """The drivers' own metrics. Drivers choose names and labels, so the families are rebuilt at each scrape."""

    def __init__(self) -> None:
        self._readers: list[tuple[str, str, _Reader[tuple[advanced.Metric, list[Sample]]]]] = []

    def add(self, driver: str, prefix: str, read: Callable[[], Sequence[advanced.Metric]]) -> None:
        self._readers.append(
            (driver, prefix, _Reader(f"metrics of {driver}", lambda: [(metric, list(_samples(metric))) for metric in read()]))
        )

    def describe(self) -> Iterable[prometheus_core.Metric]:
        return []

    def collect(self) -> Iterable[prometheus_core.Metric]:
        families: dict[str, prometheus_core.Metric] = {}
        for driver, prefix, reader in tuple(self._readers):
            for metric, samples in reader.results():
                name = f"{prefix}_{metric.name}"
                if name not in families:
                    families[name] = prometheus_core.Metric(name, metric.documentation, _type_of(metric))
                for suffix, labels, value in samples:
                    families[name].add_sample(name + suffix, {"driver": driver, **labels}, value)
        return list(families.values())


def _type_of(metric: advanced.Metric) -> str:
    if metric.buckets:
        return "histogram"
    return "counter" if metric.total else "gauge"


def _bound(seconds: float) -> str:
    """Return a bucket's bound in the format of Prometheus."""
    return str(utils.floatToGoString(seconds))  # type: ignore[no-untyped-call]


def _samples(metric: advanced.Metric) -> Iterator[Sample]:
    """Yield the samples of a metric: name suffix, labels and value."""
    if not metric.buckets:
        yield "_total" if metric.total else "", metric.labels, metric.value
        return
    for bound, count in metric.buckets:
        yield "_bucket", {**metric.labels, "le": _bound(bound)}, count
    yield "_count", metric.labels, metric.buckets[-1][1]
    yield "_sum", metric.labels, metric.value


class _Reader(Generic[Item]):
    """A function that is read at each scrape. If it fails, that scrape lacks its results, because it must not remove the other metrics.

    A failure is logged when its error is new, not at every scrape.
    """

    def __init__(self, name: str, read: Callable[[], Iterable[Item]]) -> None:
        self._name = name
        self._read = read
        self._error = ""

    def results(self) -> Sequence[Item]:
        try:
            results = list(self._read())
        except Exception as error:  # noqa: BLE001 - any error of hardware or of an author's code
            text = f"{type(error).__name__}: {error}"
            if text != self._error:
                _log.warning("reading metric failed", metric=self._name, error=text, exc_info=not isinstance(error, errors.DrakitError))
            self._error = text
            return []
        self._error = ""
        return results


class DriverMetrics(timing.ClaimTimer):
    """The ``core.ports.Meter`` of one driver. A call takes microseconds and never fails."""

    def __init__(self, metrics: Metrics, driver: str) -> None:
        super().__init__()
        self._metrics = metrics
        self._driver = driver
        for counter in (metrics.slice_writes, metrics.publish_failures, metrics.watch_restarts):
            counter.labels(driver)
        # Finding the histogram of some labels takes longer than an observation, and every claim has a dozen.
        self._call = functools.cache(lambda verb, ok: metrics.calls.labels(driver, verb, "ok" if ok else "error"))
        self._phase = functools.cache(lambda phase, ok: metrics.phases.labels(driver, phase, "ok" if ok else "error"))
        for verb, ok in itertools.product(("prepare", "unprepare"), (True, False)):
            self._call(verb, ok)

    def observe_claim(self, verb: str, *, ok: bool, seconds: float) -> None:
        """Observe the duration of one claim; ``verb`` is prepare or unprepare."""
        self._call(verb, ok).observe(seconds)

    def observe_phase(self, phase: str, *, ok: bool, seconds: float) -> None:
        """Observe the duration of one phase of a claim; ``ok`` is the outcome of its claim."""
        self._phase(phase, ok).observe(seconds)

    def published(self, writes: int) -> None:
        """Count the slices that one reconciliation wrote."""
        self._metrics.slice_writes.labels(self._driver).inc(writes)

    def failed_to_publish(self) -> None:
        """Count one failed reconciliation."""
        self._metrics.publish_failures.labels(self._driver).inc()

    def watch_restarted(self) -> None:
        """Count one restart of the watch."""
        self._metrics.watch_restarts.labels(self._driver).inc()

    def gauge(self, name: str, documentation: str, labels: Sequence[str], read: Gauge) -> None:
        """Register a gauge of this driver, named ``drakit_<name>``; the label ``driver`` is added to ``labels``."""

        def with_driver() -> Iterable[Reading]:
            return [({"driver": self._driver, **label_values}, value) for label_values, value in read()]

        self._metrics.gauge(f"drakit_{name}", documentation, ("driver", *labels), with_driver)

    def measure(self, read: Callable[[], Sequence[advanced.Metric]], prefix: str = PREFIX) -> None:
        """Register a function that returns the driver's own metrics at each scrape."""
        self._metrics.readings(self._driver, read, prefix)


class ObservedNode(Protocol):
    """The part of a node (``node.Node``) that its gauges and health checks read."""

    failed: threading.Event

    def registration(self) -> str:
        """Return an empty string when the driver is registered with the kubelet, else the reason why not."""

    def not_ready(self) -> str:
        """Return why the driver's hardware is not ready, so that no devices are offered; empty where it is."""

    def is_published(self) -> bool:
        """Return whether devices were published since the start."""

    def devices(self) -> inventory.Inventory:
        """Return the offered inventory, flat, with all taints."""

    def claims(self) -> dict[lifecycle.State, int]:
        """Return the number of claims in each state."""

    def device_health(self) -> dict[context.Health, int]:
        """Return the number of devices in each state of health, as reported to the kubelet."""

    def unclaimed(self) -> Sequence[advanced.Leftover] | None:
        """Return the hardware state that no claim has; None while that is unknown, because a lost journal is not restored."""

    def oldest_verb_seconds(self) -> float:
        """Return for how long the oldest running verb has run, 0 where none runs."""

    def unrecovered(self) -> int:
        """Return the number of claims that are not recovered yet."""

    def note(self) -> str:
        """Return what an operator should know although the driver serves, empty where there is nothing."""

    @property
    def metrics_prefix(self) -> str:
        """Return the prefix of the names of the driver's own metrics."""

    def driver_metrics(self) -> Sequence[advanced.Metric]:
        """Return the driver's own metrics."""


def add_gauges(node: ObservedNode, meter: DriverMetrics) -> None:
    """Register the gauges of one node."""
    meter.gauge("claims", "Claims in the journal, by state.", ("state",), lambda: _by_state(node))
    meter.gauge("devices", "Devices offered, by whether they are tainted.", ("tainted",), lambda: _by_taint(node.devices()))
    meter.gauge("device_health", "Devices by the health that is reported to the kubelet.", ("health",), lambda: _by_health(node))
    meter.gauge("registered", "Whether the driver is registered with the kubelet.", (), lambda: [({}, float(not node.registration()))])
    meter.gauge("published", "Whether devices were published since the start.", (), lambda: [({}, float(node.is_published()))])
    meter.gauge(
        "unclaimed",
        "Shares, instances, interfaces and daemons that no claim has, by whether a mark proves that the driver made them.",
        ("marked",),
        lambda: _by_mark(node),
    )
    meter.gauge(
        "hardware_ready",
        "Whether the driver's hardware is ready; while it is not, no devices are offered.",
        (),
        lambda: [({}, float(not node.not_ready()))],
    )
    meter.gauge(
        "oldest_verb_seconds",
        "Seconds that the oldest running verb of the driver has run; 0 where none runs.",
        (),
        lambda: [({}, node.oldest_verb_seconds())],
    )
    meter.gauge("claims_unrecovered", "Claims that are not recovered since the start; retried.", (), lambda: [({}, node.unrecovered())])
    meter.measure(node.driver_metrics, node.metrics_prefix)


def add_liveness(driver: str, node: ObservedNode, into: checks.Checks) -> None:
    """Add the liveness check: it fails once a background thread died, because then only a restart helps."""
    into.add(f"{driver} parts", lambda: "a part of the driver died; see the log" if node.failed.is_set() else "")


def add_readiness(driver: str, node: ObservedNode, into: checks.Checks) -> None:
    """Add the readiness checks: the driver is registered with the kubelet, its hardware is ready, and its devices are published."""
    into.add(f"{driver} registered", node.registration)
    into.add(f"{driver} hardware", node.not_ready)
    into.add(f"{driver} published", lambda: "" if node.is_published() else "no ResourceSlice is published yet")
    into.add_note(driver, node.note)


def _by_state(node: ObservedNode) -> Iterable[Reading]:
    counts = node.claims()
    return [({"state": state.value}, counts.get(state, 0)) for state in lifecycle.State if state is not lifecycle.State.ABSENT]


def _by_taint(offered: inventory.Inventory) -> Iterable[Reading]:
    tainted = sum(bool(device.taints) for device in offered.devices)
    return [({"tainted": "true"}, tainted), ({"tainted": "false"}, len(offered.devices) - tainted)]


def _by_health(node: ObservedNode) -> Iterable[Reading]:
    counts = node.device_health()
    return [({"health": health.value}, counts.get(health, 0)) for health in context.Health]


def _by_mark(node: ObservedNode) -> Iterable[Reading]:
    unclaimed = node.unclaimed()
    if unclaimed is None:
        return []
    counts = collections.Counter(leftover.is_marked for leftover in unclaimed)
    return [({"marked": "true"}, counts[True]), ({"marked": "false"}, counts[False])]
