"""A health service for a plugin: says what the test put on it, in one version of the protocol."""

import queue
from collections.abc import Iterator

import grpc

from drakit._proto import dra_health_v1_pb2 as v1
from drakit._proto import dra_health_v1_pb2_grpc as v1_services
from drakit._proto import dra_health_v1alpha1_pb2 as v1alpha1
from drakit._proto import dra_health_v1alpha1_pb2_grpc as v1alpha1_services


class Health:
    """``say`` sends a report to every stream that is or will be open; ``hang_up`` ends the open ones."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self._last: list[v1.DeviceHealth] = []
        self._streams: list[queue.Queue[list[v1.DeviceHealth] | None]] = []

    def say(self, *devices: v1.DeviceHealth) -> None:
        self._last = list(devices)
        for stream in self._streams:
            stream.put(self._last)

    def hang_up(self) -> None:
        for stream in self._streams:
            stream.put(None)

    def listen(self, version: str, context: grpc.ServicerContext) -> Iterator[list[v1.DeviceHealth]]:
        self.opened.append(version)
        mine: queue.Queue[list[v1.DeviceHealth] | None] = queue.Queue()
        context.add_callback(lambda: mine.put(None))
        self._streams.append(mine)
        yield self._last
        while (devices := mine.get()) is not None:
            yield devices
        self._streams.remove(mine)

    def add_v1(self, server: grpc.Server) -> None:
        v1_services.add_DRAResourceHealthServicer_to_server(_V1(self), server)

    def add_v1alpha1(self, server: grpc.Server) -> None:
        v1alpha1_services.add_DRAResourceHealthServicer_to_server(_V1Alpha1(self), server)


class _V1(v1_services.DRAResourceHealthServicer):
    def __init__(self, health: Health) -> None:
        self._health = health

    def NodeWatchResources(  # noqa: N802 - gRPC's name.
        self, request: v1.NodeWatchResourcesRequest, context: grpc.ServicerContext
    ) -> Iterator[v1.NodeWatchResourcesResponse]:
        for devices in self._health.listen("v1", context):
            yield v1.NodeWatchResourcesResponse(devices=devices)


class _V1Alpha1(v1alpha1_services.DRAResourceHealthServicer):
    def __init__(self, health: Health) -> None:
        self._health = health

    def NodeWatchResources(  # noqa: N802 - gRPC's name.
        self, request: v1alpha1.NodeWatchResourcesRequest, context: grpc.ServicerContext
    ) -> Iterator[v1alpha1.NodeWatchResourcesResponse]:
        for devices in self._health.listen("v1alpha1", context):
            yield v1alpha1.NodeWatchResourcesResponse.FromString(v1.NodeWatchResourcesResponse(devices=devices).SerializeToString())
