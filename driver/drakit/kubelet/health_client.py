"""Read the device health that a running driver reports, on its service socket as the kubelet does."""

import pathlib
from collections.abc import Mapping

import grpc

from drakit._proto import dra_health_v1_pb2 as wire
from drakit._proto import dra_health_v1_pb2_grpc as services
from drakit.core import context as contexts
from drakit.kubelet import health, health_service, sockets

ANSWER_SECONDS = 2.0

_HEALTH = {number: state for state, number in health_service.HEALTH.items()}


def read(folder: pathlib.Path) -> Mapping[str, health.DeviceHealth]:
    """Return the health of each device from the youngest driver process that serves in ``folder``; empty where none answers."""
    for path in sockets.services(folder):
        with grpc.insecure_channel(f"unix:{path}") as channel:
            try:
                return {entry.device: entry for entry in _snapshot(channel)}
            except grpc.RpcError:
                continue
    return {}


def _snapshot(channel: grpc.Channel) -> list[health.DeviceHealth]:
    """Return the first snapshot of the stream, which ends with a message that is not full.

    If all its messages are full, no further message follows, and the call times out.
    """
    stream = services.DRAResourceHealthStub(channel).NodeWatchResources(wire.NodeWatchResourcesRequest(), timeout=ANSWER_SECONDS)
    devices: list[health.DeviceHealth] = []
    try:
        for message in stream:
            devices += map(_device, message.devices)
            if len(message.devices) < health_service.DEVICES_PER_MESSAGE:
                break
    except grpc.RpcError:
        if not devices:
            raise
    stream.cancel()
    return devices


def _device(reported: wire.DeviceHealth) -> health.DeviceHealth:
    state = _HEALTH.get(reported.health, contexts.Health.UNKNOWN)
    return health.DeviceHealth(
        device=reported.device.device_name, health=state, message=reported.message, updated_at=reported.last_updated_time
    )
