"""What a running driver reports of its devices' health, asked on its own socket as the kubelet asks."""

import pathlib
from collections.abc import Mapping

import grpc

from drakit._proto import dra_health_v1_pb2 as wire
from drakit._proto import dra_health_v1_pb2_grpc as services
from drakit.core import context as contexts
from drakit.kubelet import health, health_service, sockets

ANSWER_SECONDS = 2.0

_HEALTH = {number: state for state, number in health_service.HEALTH.items()}


def ask(folder: pathlib.Path) -> Mapping[str, health.DeviceHealth]:
    """Return the health of each device by the driver that serves in its own ``folder``, the youngest of several; empty where none answers."""
    for path in sockets.services(folder):
        with grpc.insecure_channel(f"unix:{path}") as channel:
            try:
                return {entry.device: entry for entry in _snapshot(channel)}
            except grpc.RpcError:
                continue
    return {}


def _snapshot(channel: grpc.Channel) -> list[health.DeviceHealth]:
    """The first snapshot of the stream: messages that are full, and one that is not. After an exact number of full ones nothing follows."""
    stream = services.DRAResourceHealthStub(channel).NodeWatchResources(wire.NodeWatchResourcesRequest(), timeout=ANSWER_SECONDS)
    devices: list[health.DeviceHealth] = []
    try:
        for message in stream:
            devices += map(_device, message.devices)
            if len(message.devices) < health_service.PART:
                break
    except grpc.RpcError:
        if not devices:
            raise
    stream.cancel()
    return devices


def _device(told: wire.DeviceHealth) -> health.DeviceHealth:
    state = _HEALTH.get(told.health, contexts.Health.UNKNOWN)
    return health.DeviceHealth(device=told.device.device_name, health=state, message=told.message, found=told.last_updated_time)
