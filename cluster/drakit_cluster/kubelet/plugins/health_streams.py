"""The health streams of drivers: each registered instance has one, which is reopened after a delay if it ends.

A real kubelet of 1.36 calls v1alpha1 on every plugin, whether advertised or not; one of 1.37 prefers v1 where it is advertised. This kubelet
does both. A plugin without the service answers UNIMPLEMENTED; the call is repeated, and its devices are Unknown.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import grpc

from drakit._proto import dra_health_v1_pb2 as v1
from drakit._proto import dra_health_v1_pb2_grpc as v1_services
from drakit._proto import dra_health_v1alpha1_pb2 as v1alpha1
from drakit._proto import dra_health_v1alpha1_pb2_grpc as v1alpha1_services
from drakit.telemetry import logs
from drakit_cluster.kubelet.plugins.endpoint import Endpoint
from drakit_cluster.kubelet.plugins.health import HEALTHY, UNHEALTHY, UNKNOWN, HealthTable, Report

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
        """Stop listening to an instance."""
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
                _log.debug("health stream ended", driver=driver, error=str(error.code() if isinstance(error, grpc.Call) else error))
            if self._table.remove(driver):
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
        """Yield the reports of the driver until the stream ends. Raises RpcError."""
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
