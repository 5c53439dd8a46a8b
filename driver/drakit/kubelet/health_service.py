"""The health services, versions v1 and v1alpha1: each call streams the snapshots of the health board.

Each open stream occupies a thread of the server, so the board limits their number.
"""

from collections.abc import Iterator, Sequence

import grpc

from drakit._proto import dra_health_v1_pb2 as wire
from drakit._proto import dra_health_v1_pb2_grpc as services
from drakit._proto import dra_health_v1alpha1_pb2 as alpha
from drakit._proto import dra_health_v1alpha1_pb2_grpc as alpha_services
from drakit.core import context as contexts
from drakit.core import errors
from drakit.kubelet import codec, health
from drakit.telemetry import logs

SERVICE_V1 = "v1.DRAResourceHealth"
SERVICE_V1ALPHA1 = "v1alpha1.DRAResourceHealth"
DEVICES_PER_MESSAGE = 1000
"""The number of devices in one message; with the longest texts it is still far below the kubelet's limit of 4 MiB."""

HEALTH = {
    contexts.Health.UNKNOWN: wire.UNKNOWN,
    contexts.Health.HEALTHY: wire.HEALTHY,
    contexts.Health.UNHEALTHY: wire.UNHEALTHY,
}
_log = logs.get_logger(__name__)


class HealthV1Service(services.DRAResourceHealthServicer):
    """The service NodeWatchResources for kubelets since 1.37."""

    def __init__(self, board: health.HealthBoard) -> None:
        self._board = board

    def register(self, server: grpc.Server) -> None:
        """Add the service to a server."""
        services.add_DRAResourceHealthServicer_to_server(self, server)

    def NodeWatchResources(  # noqa: N802 - the wire's name
        self,
        request: wire.NodeWatchResourcesRequest,  # noqa: ARG002 - empty
        context: grpc.ServicerContext,
    ) -> Iterator[wire.NodeWatchResourcesResponse]:
        return stream(self._board, context)


class HealthV1Alpha1Service(alpha_services.DRAResourceHealthServicer):
    """The service NodeWatchResources for kubelets since 1.34."""

    def __init__(self, board: health.HealthBoard) -> None:
        self._board = board

    def register(self, server: grpc.Server) -> None:
        """Add the service to a server."""
        alpha_services.add_DRAResourceHealthServicer_to_server(self, server)

    def NodeWatchResources(  # noqa: N802 - the wire's name
        self,
        request: alpha.NodeWatchResourcesRequest,  # noqa: ARG002 - empty
        context: grpc.ServicerContext,
    ) -> Iterator[alpha.NodeWatchResourcesResponse]:
        return (codec.convert(alpha.NodeWatchResourcesResponse, answer) for answer in stream(self._board, context))


def stream(board: health.HealthBoard, context: grpc.ServicerContext) -> Iterator[wire.NodeWatchResourcesResponse]:
    """Yield messages until the kubelet cancels the call or the board is closed."""
    try:
        with board.watcher() as wake:
            context.add_callback(wake.set)
            _log.info("health stream opened", pool=board.pool)
            for snapshot in board.follow(wake):
                if not context.is_active():
                    return
                yield from encode(snapshot)
    except errors.RetryError as error:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))


def encode(snapshot: Sequence[health.DeviceHealth]) -> Iterator[wire.NodeWatchResourcesResponse]:
    """Yield a snapshot as at least one message, so that the kubelet also gets an answer from a driver without devices."""
    if not snapshot:
        yield wire.NodeWatchResourcesResponse()
    for start in range(0, len(snapshot), DEVICES_PER_MESSAGE):
        yield wire.NodeWatchResourcesResponse(devices=[_device(entry) for entry in snapshot[start : start + DEVICES_PER_MESSAGE]])


def _device(entry: health.DeviceHealth) -> wire.DeviceHealth:
    return wire.DeviceHealth(
        device=wire.DeviceIdentifier(pool_name=entry.pool, device_name=entry.device),
        health=HEALTH[entry.health],
        last_updated_time=entry.updated_at,
        health_check_timeout_seconds=health.VALID_SECONDS,
        message=entry.message,
    )
