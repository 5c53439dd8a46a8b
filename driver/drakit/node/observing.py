"""What operators see of a node: its gauges, and the checks behind /healthz, /readyz and gRPC health."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from drakit.core import inventory, lifecycle
from drakit.core import site as sites
from drakit.node import metrics
from drakit.serving import checks


class Shown(Protocol):
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

    def device_health(self) -> dict[sites.Health, int]:
        """How many devices are in each state of health, as the kubelet is told."""

    def measure(self) -> Sequence[sites.Reading]:
        """The author's own readings."""


class Observed(Protocol):
    """Where gauges are registered (``metrics.DriverMetrics``)."""

    def gauge(self, name: str, documentation: str, labels: Sequence[str], read: metrics.Gauge) -> None:
        """A gauge, read when asked for."""

    def measure(self, read: Callable[[], Sequence[sites.Reading]]) -> None:
        """The author's own readings."""


def gauges(node: Shown, meter: Observed) -> None:
    """Register the gauges of one driver."""
    meter.gauge("claims", "Claims that the journal knows, by state.", ("state",), lambda: _by_state(node))
    meter.gauge("devices", "Devices offered, by whether they are tainted.", ("tainted",), lambda: _by_taint(node.devices()))
    meter.gauge("device_health", "Devices by the health that the kubelet is told.", ("health",), lambda: _by_health(node))
    meter.gauge("registered", "Whether the kubelet knows the driver.", (), lambda: [({}, float(not node.registration()))])
    meter.gauge("published", "Whether devices were published since the start.", (), lambda: [({}, float(node.is_published()))])
    meter.measure(node.measure)


def live(driver: str, node: Shown, into: checks.Checks) -> None:
    """Add what makes a restart worth while."""
    into.add(f"{driver} parts", lambda: "a part of the driver died; see the log" if node.failed.is_set() else "")


def ready(driver: str, node: Shown, into: checks.Checks) -> None:
    """Add what must be true before pods can get devices: the kubelet knows the driver, and devices are published."""
    into.add(f"{driver} registered", node.registration)
    into.add(f"{driver} published", lambda: "" if node.is_published() else "no ResourceSlice is published yet")


def _by_state(node: Shown) -> Iterable[metrics.Reading]:
    found = node.claims()
    return [({"state": state.value}, found.get(state, 0)) for state in lifecycle.State if state is not lifecycle.State.ABSENT]


def _by_taint(offered: inventory.Inventory) -> Iterable[metrics.Reading]:
    tainted = sum(bool(item.taints) for item in offered.devices)
    return [({"tainted": "true"}, tainted), ({"tainted": "false"}, len(offered.devices) - tainted)]


def _by_health(node: Shown) -> Iterable[metrics.Reading]:
    found = node.device_health()
    return [({"health": health.value}, found.get(health, 0)) for health in sites.Health]
