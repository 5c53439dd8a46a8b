"""What a node counts and times, for Prometheus; the only importer of its client.

Every metric carries the driver's name. Gauges that mirror a state (live claims, health, what a family counts for itself) are read when somebody
asks, so they cost nothing in between and are never stale. Label values come from fixed sets or from the inventory, never from claims.
"""

import bisect
import dataclasses
import importlib.metadata
import itertools
import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import prometheus_client
from prometheus_client import core as prometheus_core
from prometheus_client import exposition, utils
from prometheus_client import registry as collectors

from drakit.core import advanced, context, inventory, lifecycle
from drakit.serving import checks

PREFIX = "drakit"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 45.0)
CONTENT_TYPE = exposition.CONTENT_TYPE_LATEST

Labels = Mapping[str, str]
Reading = tuple[Labels, float]
Gauge = Callable[[], Iterable[Reading]]
Found = TypeVar("Found")


class Metrics:
    """All metrics of one process; ``of`` gives those of one driver."""

    def __init__(self) -> None:
        # A counter would also export when it began, as a gauge; the library has one switch for the whole process.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = prometheus_client.CollectorRegistry()
        self._mirrors: dict[str, _Mirror] = {}
        self._authors: _Authors | None = None
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
        self.slice_writes = self._counts("drakit_slice_writes", "ResourceSlices created, updated and deleted.")
        self.publish_failures = self._counts("drakit_publish_failures", "Rounds of publishing that failed; the driver retries them.")
        self.watch_restarts = self._counts("drakit_watch_restarts", "Restarts of the watch of ResourceSlices.")
        build = {"version": importlib.metadata.version("drakit"), "python": platform.python_version()}
        self.gauge("drakit_build_info", "Always 1; the labels are the versions of drakit and Python.", tuple(build), lambda: [(build, 1)])

    def of(self, driver: str) -> "DriverMetrics":
        """The metrics of one driver."""
        return DriverMetrics(self, driver)

    def durations(self, name: str, documentation: str, labels: Sequence[str]) -> "Durations":
        """A new histogram of seconds."""
        made = Durations(name, documentation, labels, buckets=BUCKETS)
        self._registry.register(made)
        return made

    def gauge(self, name: str, documentation: str, labels: Sequence[str], read: Gauge) -> None:
        """Ask ``read`` for labels and values whenever metrics are asked for; what it raises leaves its readings out of that answer.

        Several may give readings of one gauge: the first decides documentation and labels.
        """
        with self._guard:
            if name not in self._mirrors:
                self._mirrors[name] = _Mirror(name, documentation, tuple(labels))
                self._registry.register(self._mirrors[name])
            self._mirrors[name].reads.append(read)

    def readings(self, driver: str, read: Callable[[], Sequence[advanced.Metric]], prefix: str) -> None:
        """Ask a driver for readings of its own whenever metrics are asked for; their names begin with ``prefix``."""
        with self._guard:
            if self._authors is None:
                self._authors = _Authors()
                self._registry.register(self._authors)
            self._authors.reads.append((driver, prefix, read))

    def _counts(self, name: str, documentation: str) -> prometheus_client.Counter:
        return prometheus_client.Counter(name, documentation, ["driver"], registry=self._registry)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return exposition.generate_latest(self._registry)


@dataclasses.dataclass(kw_only=True)
class _Held:
    """What was added under one set of label values: how often, by the first bucket that holds it (the last has no bound), and seconds in all."""

    counts: list[int]
    seconds: float = 0.0


class Durations(collectors.Collector):
    """One histogram; ``buckets`` are upper bounds in seconds, rising. Safe between threads; what is collected is true of one moment.

    Every claim adds eight times. The library's own takes a lock for the sum and another for the bucket, and asks itself twice whether it may be
    added to.
    """

    def __init__(self, name: str, documentation: str, labels: Sequence[str], *, buckets: Sequence[float]) -> None:
        self._name, self._documentation, self._labels = name, documentation, tuple(labels)
        self._buckets = tuple(buckets)
        self._bounds = (*map(utils.floatToGoString, self._buckets), "+Inf")
        self._held: dict[tuple[str, ...], _Held] = {}
        self._guard = threading.Lock()

    def begin(self, labels: tuple[str, ...]) -> None:
        """Have samples under these values of the labels, before there is a duration."""
        with self._guard:
            self._held.setdefault(labels, self._none())

    def _none(self) -> _Held:
        return _Held(counts=[0] * len(self._bounds))

    def observe(self, labels: tuple[str, ...], seconds: float) -> None:
        """Add one duration under these values of the labels."""
        bucket = bisect.bisect_left(self._buckets, seconds)
        with self._guard:
            held = self._held.get(labels)
            if held is None:
                held = self._held[labels] = self._none()
            held.counts[bucket] += 1
            held.seconds += seconds

    def describe(self) -> Iterable[prometheus_core.Metric]:
        """The family, without samples."""
        return [self._family()]

    def collect(self) -> Iterable[prometheus_core.Metric]:
        """The family as it is now."""
        with self._guard:
            now = [(labels, tuple(held.counts), held.seconds) for labels, held in self._held.items()]
        family = self._family()
        for labels, counts, seconds in now:
            family.add_metric(labels, list(zip(self._bounds, map(float, itertools.accumulate(counts)), strict=True)), seconds)
        return [family]

    def _family(self) -> prometheus_core.HistogramMetricFamily:
        return prometheus_core.HistogramMetricFamily(self._name, self._documentation, labels=self._labels)


class _Mirror(collectors.Collector):
    """A gauge that is read when it is asked for."""

    def __init__(self, name: str, documentation: str, labels: tuple[str, ...]) -> None:
        self._name, self._documentation, self._labels = name, documentation, labels
        self.reads: list[Gauge] = []

    def describe(self) -> Iterable[prometheus_core.Metric]:
        return [self._family()]

    def collect(self) -> Iterable[prometheus_core.Metric]:
        family = self._family()
        for read in tuple(self.reads):
            for labels, value in _readings(read):
                family.add_metric([labels[name] for name in self._labels], value)
        return [family]

    def _family(self) -> prometheus_core.GaugeMetricFamily:
        return prometheus_core.GaugeMetricFamily(self._name, self._documentation, labels=self._labels)


class _Authors(collectors.Collector):
    """What drivers tell of themselves; names and labels are theirs, so families are made anew at each request."""

    def __init__(self) -> None:
        self.reads: list[tuple[str, str, Callable[[], Sequence[advanced.Metric]]]] = []

    def describe(self) -> Iterable[prometheus_core.Metric]:
        return []

    def collect(self) -> Iterable[prometheus_core.Metric]:
        families: dict[str, prometheus_core.Metric] = {}
        for driver, prefix, read in tuple(self.reads):
            for one in _readings(read):
                name = f"{prefix}_{one.name}"
                if name not in families:
                    families[name] = prometheus_core.Metric(name, one.documentation, _kind(one))
                for suffix, labels, value in _samples(one):
                    families[name].add_sample(name + suffix, {"driver": driver, **labels}, value)
        return list(families.values())


def _kind(reading: advanced.Metric) -> str:
    if reading.buckets:
        return "histogram"
    return "counter" if reading.total else "gauge"


def _bound(seconds: float) -> str:
    """A bucket's bound as Prometheus writes it."""
    return str(utils.floatToGoString(seconds))  # type: ignore[no-untyped-call]


def _samples(reading: advanced.Metric) -> Iterator[tuple[str, Labels, float]]:
    """A reading's samples: the end of the name, labels and value."""
    if not reading.buckets:
        yield "_total" if reading.total else "", reading.labels, reading.value
        return
    for bound, count in reading.buckets:
        yield "_bucket", {**reading.labels, "le": _bound(bound)}, count
    yield "_count", reading.labels, reading.buckets[-1][1]
    yield "_sum", reading.labels, reading.value


def _readings(read: Callable[[], Iterable[Found]]) -> Iterable[Found]:
    try:
        return list(read())
    except Exception:  # noqa: BLE001 - hardware that cannot be read must not take the other metrics away
        return []


class DriverMetrics:
    """Counts and times for one driver; ``core.ports.Meter``. Its cost is microseconds and it never fails."""

    def __init__(self, metrics: Metrics, driver: str) -> None:
        self._metrics = metrics
        self._driver = driver
        for counts in (metrics.slice_writes, metrics.publish_failures, metrics.watch_restarts):
            counts.labels(driver)
        for verb, result in itertools.product(("prepare", "unprepare"), ("ok", "error")):
            metrics.calls.begin((driver, verb, result))

    def answered(self, verb: str, *, ok: bool, seconds: float) -> None:
        """One claim was answered; ``verb`` is prepare or unprepare."""
        self._metrics.calls.observe((self._driver, verb, "ok" if ok else "error"), seconds)

    def phase(self, phase: str, *, ok: bool, seconds: float) -> None:
        """One phase of a claim's way is over; ``ok`` is that of its call."""
        self._metrics.phases.observe((self._driver, phase, "ok" if ok else "error"), seconds)

    def published(self, writes: int) -> None:
        """A round of publishing wrote so many slices."""
        self._metrics.slice_writes.labels(self._driver).inc(writes)

    def failed_to_publish(self) -> None:
        """A round of publishing failed."""
        self._metrics.publish_failures.labels(self._driver).inc()

    def watch_restarted(self) -> None:
        """The watch broke and was started anew."""
        self._metrics.watch_restarts.labels(self._driver).inc()

    def gauge(self, name: str, documentation: str, labels: Sequence[str], read: Gauge) -> None:
        """A gauge of this driver, named ``drakit_<name>``; ``labels`` come beside ``driver``."""

        def with_driver() -> Iterable[Reading]:
            return [({"driver": self._driver, **found}, value) for found, value in read()]

        self._metrics.gauge(f"drakit_{name}", documentation, ("driver", *labels), with_driver)

    def measure(self, read: Callable[[], Sequence[advanced.Metric]], prefix: str = PREFIX) -> None:
        """Ask an author's driver for its own readings whenever metrics are asked for."""
        self._metrics.readings(self._driver, read, prefix)


class ObservedNode(Protocol):
    """What is asked of a node (``node.Node``)."""

    failed: threading.Event

    def registration(self) -> str:
        """Empty when the kubelet knows the driver, else what it said or that it has not come."""

    def is_published(self) -> bool:
        """Whether devices were published since the start."""

    def devices(self) -> inventory.Inventory:
        """What is offered now, flat, with all taints."""

    def claims(self) -> dict[lifecycle.State, int]:
        """How many claims are in each state."""

    def device_health(self) -> dict[context.Health, int]:
        """How many devices are in each state of health, as the kubelet is told."""

    @property
    def metrics_prefix(self) -> str:
        """What the names of the author's own metrics begin with."""

    def driver_metrics(self) -> Sequence[advanced.Metric]:
        """The author's own readings."""


class GaugeRegistry(Protocol):
    """Where add_gauges are registered (``metrics.DriverMetrics``)."""

    def gauge(self, name: str, documentation: str, labels: Sequence[str], read: Gauge) -> None:
        """A gauge, read when asked for."""

    def measure(self, read: Callable[[], Sequence[advanced.Metric]], prefix: str) -> None:
        """The author's own readings."""


def add_gauges(node: ObservedNode, meter: GaugeRegistry) -> None:
    """Register the add_gauges of one driver."""
    meter.gauge("claims", "Claims in the journal, by state.", ("state",), lambda: _by_state(node))
    meter.gauge("devices", "Devices offered, by whether they are tainted.", ("tainted",), lambda: _by_taint(node.devices()))
    meter.gauge("device_health", "Devices by the health that is reported to the kubelet.", ("health",), lambda: _by_health(node))
    meter.gauge("registered", "Whether the driver is registered with the kubelet.", (), lambda: [({}, float(not node.registration()))])
    meter.gauge("published", "Whether devices were published since the start.", (), lambda: [({}, float(node.is_published()))])
    meter.measure(node.driver_metrics, node.metrics_prefix)


def add_liveness(driver: str, node: ObservedNode, into: checks.Checks) -> None:
    """Add what makes a restart worth while."""
    into.add(f"{driver} parts", lambda: "a part of the driver died; see the log" if node.failed.is_set() else "")


def add_readiness(driver: str, node: ObservedNode, into: checks.Checks) -> None:
    """Add what must be true before pods can get devices: the kubelet knows the driver, and devices are published."""
    into.add(f"{driver} registered", node.registration)
    into.add(f"{driver} published", lambda: "" if node.is_published() else "no ResourceSlice is published yet")


def _by_state(node: ObservedNode) -> Iterable[Reading]:
    found = node.claims()
    return [({"state": state.value}, found.get(state, 0)) for state in lifecycle.State if state is not lifecycle.State.ABSENT]


def _by_taint(offered: inventory.Inventory) -> Iterable[Reading]:
    tainted = sum(bool(item.taints) for item in offered.devices)
    return [({"tainted": "true"}, tainted), ({"tainted": "false"}, len(offered.devices) - tainted)]


def _by_health(node: ObservedNode) -> Iterable[Reading]:
    found = node.device_health()
    return [({"health": health.value}, found.get(health, 0)) for health in context.Health]
