"""What drivers say of the health of their devices.

Source: the kubelet's healthinfo.go. A report counts for as long as it says, 30 s if it says nothing; when a driver's stream ends all that it said is
forgotten. What is not known, or too old, is Unknown.
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from drakit_cluster.kubelet.pods.records import PreparedDevice

UNKNOWN = "Unknown"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
MESSAGE_MAX_BYTES = 1024
_DeviceKey = tuple[str, str]
"""Pool and name."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a driver says of one device. ``seconds`` is how long that may be believed; 0 or less: the kubelet's own time."""

    pool: str
    device: str
    health: str
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Known:
    """A report, and when it ends to count."""

    report: Report
    until: float


class HealthTable:
    """The health of all devices that drivers reported. Safe to use from several threads. ``seconds`` is how long a report counts by default."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._lock = threading.Lock()
        self._drivers: dict[str, dict[_DeviceKey, _Known]] = {}

    def update(self, driver: str, reports: Iterable[Report]) -> bool:
        """Take in what a driver says; what it does not mention stays as it was. Return whether something shows differently now."""
        now = self._now()
        with self._lock:
            known, changed = self._drivers.setdefault(driver, {}), False
            for report in reports:
                key = (report.pool, report.device)
                before = known.get(key)
                changed |= before is None or before.until <= now or before.report != report
                known[key] = _Known(report=report, until=now + (report.seconds if report.seconds > 0 else self._seconds))
            return changed

    def forget(self, driver: str) -> bool:
        """Forget all that a driver said; return whether it had said anything."""
        with self._lock:
            return bool(self._drivers.pop(driver, {}))

    def of(self, driver: str, device: PreparedDevice) -> tuple[str, str, float | None]:
        """Return a device's health, the message with it, and after how many seconds it will be Unknown; None: it is."""
        now = self._now()
        with self._lock:
            known = self._drivers.get(driver, {}).get((device.pool, device.device))
        if known is None or known.until <= now:
            return UNKNOWN, "", None
        return known.report.health, cut(known.report.message), known.until - now


def cut(message: str) -> str:
    """Return a message as the kubelet keeps it: 1024 bytes, the end of a longer one replaced by three dots."""
    whole = message.encode()
    return message if len(whole) <= MESSAGE_MAX_BYTES else whole[: MESSAGE_MAX_BYTES - 3].decode(errors="ignore") + "..."
