"""The health of devices as their drivers report it.

Source: the kubelet's healthinfo.go. A report is valid for the time that it states, by default 30 s. When the stream of a driver ends, all
its reports are dropped. A device without a valid report is Unknown.
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
    """A driver's report on one device. ``seconds`` is how long it is valid; 0 or less means the kubelet's default."""

    pool: str
    device: str
    health: str
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A report, and the time at which it expires."""

    report: Report
    expires: float


class HealthTable:
    """The health of all devices that drivers reported. Safe to use from several threads. ``seconds`` is the default validity of a report."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._lock = threading.Lock()
        self._drivers: dict[str, dict[_DeviceKey, _Entry]] = {}

    def update(self, driver: str, reports: Iterable[Report]) -> bool:
        """Record a driver's reports; other devices keep theirs. Return whether anything changed."""
        now = self._now()
        with self._lock:
            entries, changed = self._drivers.setdefault(driver, {}), False
            for report in reports:
                key = (report.pool, report.device)
                entry = entries.get(key)
                changed |= entry is None or entry.expires <= now or entry.report != report
                entries[key] = _Entry(report=report, expires=now + (report.seconds if report.seconds > 0 else self._seconds))
            return changed

    def remove(self, driver: str) -> bool:
        """Remove all reports of a driver; return whether there were any."""
        with self._lock:
            return bool(self._drivers.pop(driver, {}))

    def of(self, driver: str, device: PreparedDevice) -> tuple[str, str, float | None]:
        """Return a device's health, its message, and the seconds until it becomes Unknown, None if it already is."""
        now = self._now()
        with self._lock:
            entry = self._drivers.get(driver, {}).get((device.pool, device.device))
        if entry is None or entry.expires <= now:
            return UNKNOWN, "", None
        return entry.report.health, cut(entry.report.message), entry.expires - now


def cut(message: str) -> str:
    """Return a message as the kubelet stores it: at most 1024 bytes, with three dots at the end of a shortened one."""
    encoded = message.encode()
    return message if len(encoded) <= MESSAGE_MAX_BYTES else encoded[: MESSAGE_MAX_BYTES - 3].decode(errors="ignore") + "..."
