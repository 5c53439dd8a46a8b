"""The board of device health that the driver reports to the kubelet.

A device without a report is healthy while discovery finds it, and unknown after discovery has not answered for a while, so that a hung driver does
not keep reporting health. A report is valid until the next report or the end of the process. A device that changed under a claim is unhealthy,
whatever the driver reports.

The kubelet trusts a report for 30 s and drops a driver's reports when its stream ends. So each watcher gets the full list at once, at every change
and every 10 s.
"""

import contextlib
import dataclasses
import threading
import types
from collections.abc import Iterator, Mapping, Sequence

from drakit.core import context, errors, ports

RESEND_SECONDS = 10.0
VALID_SECONDS = 30
STALE_SECONDS = 300.0
MESSAGE_MAX_BYTES = 1024
WATCHERS_MAX = 8
STALE_MESSAGE = "the driver could not read its hardware for a while"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceHealth:
    """The health of one device of a pool. ``updated_at`` is the Unix time of the report or discovery; ``message`` has at most 1024 bytes."""

    device: str
    pool: str = ""
    health: context.Health
    message: str
    updated_at: int


class HealthBoard:
    """The health of one driver's devices on one node, whose own pool is ``pool``. Thread-safe.

    A device counts as healthy for ``stale_seconds`` after the last call of ``discovered``.
    """

    def __init__(self, pool: str, clock: ports.Clock, *, stale_seconds: float = STALE_SECONDS) -> None:
        self.pool = pool
        self._clock = clock
        self._stale_seconds = stale_seconds
        self._lock = threading.Lock()
        self._devices: Mapping[str, str] = {}
        self._changed: Mapping[str, str] = {}
        self._discovered_at = 0.0
        self._discovered_unix = 0
        self._reports: dict[str, DeviceHealth] = {}
        self._watchers: set[threading.Event] = set()
        self._closed = False

    def discovered(self, devices: Mapping[str, str], changed: Mapping[str, str] = types.MappingProxyType({})) -> None:
        """Set the present devices with the pool of each, and those that changed under a claim with the reason. Call this after every discovery."""
        with self._lock:
            before = self._devices, self._changed
            self._devices, self._changed = dict(devices), dict(changed)
            was_stale = self._discovered_unix == 0 or self._is_stale()
            self._discovered_at, self._discovered_unix = self._clock.monotonic(), self._unix()
            if before != (self._devices, self._changed) or was_stale:
                self._wake()

    def report(self, device: str, health: context.Health, message: str = "") -> None:
        """Set the health of a device; it replaces the last report."""
        report = DeviceHealth(device=device, health=health, message=truncated(message), updated_at=self._unix())
        with self._lock:
            before = self._reports.get(device)
            self._reports[device] = report
            if before is None or (before.health, before.message) != (health, report.message):
                self._wake()

    def snapshot(self) -> Sequence[DeviceHealth]:
        """Return every device that was discovered or reported, in order of name."""
        with self._lock:
            is_stale = self._is_stale()
            default = context.Health.UNKNOWN if is_stale else context.Health.HEALTHY
            message = STALE_MESSAGE if is_stale else ""
            defaults = {
                name: DeviceHealth(device=name, health=default, message=message, updated_at=self._discovered_unix) for name in self._devices
            }
            entries = sorted((defaults | self._reports | self._unhealthy()).items())
            return [dataclasses.replace(health, pool=self._devices.get(name, self.pool)) for name, health in entries]

    def _unhealthy(self) -> dict[str, DeviceHealth]:
        """Return the health of the devices that changed under a claim; the driver's own reason comes first."""
        result: dict[str, DeviceHealth] = {}
        for name, reason in self._changed.items():
            report = self._reports.get(name)
            if report is None or report.health is not context.Health.UNHEALTHY:
                result[name] = DeviceHealth(
                    device=name, health=context.Health.UNHEALTHY, message=truncated(reason), updated_at=self._discovered_unix
                )
        return result

    def counts(self) -> Mapping[context.Health, int]:
        """Return the number of devices in each state."""
        healths = [entry.health for entry in self.snapshot()]
        return {health: healths.count(health) for health in context.Health}

    @contextlib.contextmanager
    def watcher(self) -> Iterator[threading.Event]:
        """Yield an event that is set at every change and at the end. Raises RetryError for too many watchers."""
        wake = threading.Event()
        with self._lock:
            if len(self._watchers) >= WATCHERS_MAX:
                raise errors.RetryError(f"{WATCHERS_MAX} health streams are open already", after=RESEND_SECONDS)
            self._watchers.add(wake)
        try:
            yield wake
        finally:
            with self._lock:
                self._watchers.discard(wake)

    def follow(self, wake: threading.Event) -> Iterator[Sequence[DeviceHealth]]:
        """Yield snapshots for one watcher until the board is closed: at once, at every change, and every 10 s."""
        while not self.closed:
            wake.clear()
            yield self.snapshot()
            self._clock.wait(wake, RESEND_SECONDS)

    @property
    def closed(self) -> bool:
        """Return whether the board is closed."""
        with self._lock:
            return self._closed

    def close(self) -> None:
        """End every stream, so that the kubelet drops all health of this driver. Safe to call twice."""
        with self._lock:
            self._closed = True
            self._wake()

    def _is_stale(self) -> bool:
        return self._discovered_unix != 0 and self._clock.monotonic() - self._discovered_at > self._stale_seconds

    def _unix(self) -> int:
        return int(self._clock.now().timestamp())

    def _wake(self) -> None:
        for wake in self._watchers:
            wake.set()


def truncated(message: str) -> str:
    """Return a message within the kubelet's limit: at most 1024 bytes of valid UTF-8; a longer one ends in three dots."""
    encoded = message.encode("utf-8", "replace")
    if len(encoded) <= MESSAGE_MAX_BYTES:
        return encoded.decode()
    return encoded[: MESSAGE_MAX_BYTES - 3].decode("utf-8", "ignore") + "..."
