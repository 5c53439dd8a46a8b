"""The health of devices as their drivers report it.

Source: the kubelet's healthinfo.go. A report counts for as long as it says, 30 s if it says nothing; when a driver's stream ends all that it said is
forgotten. What is not known, or too old, is Unknown.

The health streams of drivers: one for each registered instance, opened again a while after it ended.

A real kubelet of 1.36 asks every plugin for v1alpha1, whether advertised or not; one of 1.37 prefers v1 where it is advertised. This one does
both. A plugin without the service answers UNIMPLEMENTED, is asked again, and its devices are Unknown.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import grpc

from drakit._proto import dra_health_v1_pb2 as v1
from drakit._proto import dra_health_v1_pb2_grpc as v1_services
from drakit._proto import dra_health_v1alpha1_pb2 as v1alpha1
from drakit._proto import dra_health_v1alpha1_pb2_grpc as v1alpha1_services
from drakit.telemetry import logs
from drakit_cluster.kubelet.plugins.endpoint import Endpoint
from drakit_cluster.kubelet.pods.records import PreparedDevice

UNKNOWN = "Unknown"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
MESSAGE_MAX_BYTES = 1024
_DeviceKey = tuple[str, str]
"""Pool and name."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A driver's report on one device. ``seconds`` is how long it is valid; 0 or less: the kubelet's default."""

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
        """Record a driver's reports; devices without one keep theirs. Return whether anything changed."""
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


SERVICE = "v1.DRAResourceHealth"
_NAMES = {v1.UNKNOWN: UNKNOWN, v1.HEALTHY: HEALTHY, v1.UNHEALTHY: UNHEALTHY}

_log = logs.get_logger(__name__)


class HealthStreams:
    """The streams of all instances. ``on_change`` is called, from another thread, with a driver whose devices changed."""

    def __init__(self, table: HealthTable, retry: float, on_change: Callable[[str], None]) -> None:
        self._table = table
        self._retry = retry
        self._on_change = on_change
        self._lock = threading.Lock()
        self._streams: dict[Endpoint, _Stream] = {}

    def begin(self, driver: str, endpoint: Endpoint, services: Sequence[str]) -> None:
        """Listen to an instance of a driver that advertises ``services``."""
        stream = _Stream(endpoint, self._retry, is_v1=SERVICE in services)
        with self._lock:
            self._streams[endpoint] = stream
        threading.Thread(target=self._run, args=(driver, stream), name=f"health-{driver}", daemon=True).start()

    def end(self, endpoint: Endpoint) -> None:
        """Listen to an instance no more."""
        with self._lock:
            stream = self._streams.pop(endpoint, None)
        if stream is not None:
            stream.end()

    def _run(self, driver: str, stream: "_Stream") -> None:
        while not stream.ended:
            try:
                for reports in stream.listen():
                    if self._table.update(driver, reports):
                        self._on_change(driver)
            except grpc.RpcError as error:
                _log.debug("no health stream", driver=driver, error=str(error.code() if isinstance(error, grpc.Call) else error))
            if self._table.forget(driver):
                self._on_change(driver)
            stream.pause()


class _Stream:
    """The health stream of one instance."""

    def __init__(self, endpoint: Endpoint, retry: float, *, is_v1: bool) -> None:
        self._endpoint = endpoint
        self._retry = retry
        self._is_v1 = is_v1
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._call: grpc.Call | None = None

    @property
    def ended(self) -> bool:
        return self._ending.is_set()

    def listen(self) -> Iterator[list[Report]]:
        """Yield what the driver says until the stream ends. Raise RpcError."""
        with self._lock:
            if self.ended:
                return
            messages, services = (v1, v1_services) if self._is_v1 else (v1alpha1, v1alpha1_services)
            self._call = self._endpoint.call(
                lambda channel: services.DRAResourceHealthStub(channel).NodeWatchResources(messages.NodeWatchResourcesRequest())
            )
        for response in self._call:
            yield _reports(response.devices)

    def pause(self) -> None:
        """Wait before the next attempt."""
        self._ending.wait(self._retry)

    def end(self) -> None:
        """End the stream and all attempts."""
        with self._lock:
            self._ending.set()
            if self._call is not None:
                self._call.cancel()


def _reports(devices: Iterable[v1.DeviceHealth]) -> list[Report]:
    return [
        Report(
            pool=device.device.pool_name,
            device=device.device.device_name,
            health=_NAMES.get(device.health, UNKNOWN),
            message=device.message,
            seconds=device.health_check_timeout_seconds,
        )
        for device in devices
    ]
