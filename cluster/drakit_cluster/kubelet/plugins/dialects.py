"""The versions of the DRA service that this kubelet speaks: v1 within, v1beta1 by translation, which has no share ids.

Both versions have the same field numbers, so a message of one is read as the other; what the other does not know is dropped.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from drakit._proto import dra_v1_pb2 as v1
from drakit._proto import dra_v1_pb2_grpc as v1_services
from drakit._proto import dra_v1beta1_pb2 as v1beta1
from drakit._proto import dra_v1beta1_pb2_grpc as v1beta1_services

_Message = TypeVar("_Message", bound=Message)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The two calls of one version, in v1's messages; the last argument is the deadline in seconds."""

    prepare: Callable[[grpc.Channel, v1.NodePrepareResourcesRequest, float], v1.NodePrepareResourcesResponse]
    unprepare: Callable[[grpc.Channel, v1.NodeUnprepareResourcesRequest, float], v1.NodeUnprepareResourcesResponse]


def _prepare_v1beta1(channel: grpc.Channel, request: v1.NodePrepareResourcesRequest, timeout: float) -> v1.NodePrepareResourcesResponse:
    stub = v1beta1_services.DRAPluginStub(channel)
    answer = stub.NodePrepareResources(_as(v1beta1.NodePrepareResourcesRequest, request), timeout=timeout)
    return _as(v1.NodePrepareResourcesResponse, answer)


def _unprepare_v1beta1(
    channel: grpc.Channel, request: v1.NodeUnprepareResourcesRequest, timeout: float
) -> v1.NodeUnprepareResourcesResponse:
    stub = v1beta1_services.DRAPluginStub(channel)
    answer = stub.NodeUnprepareResources(_as(v1beta1.NodeUnprepareResourcesRequest, request), timeout=timeout)
    return _as(v1.NodeUnprepareResourcesResponse, answer)


def _as(kind: type[_Message], message: Message) -> _Message:
    message.DiscardUnknownFields()
    return kind.FromString(message.SerializeToString())


DIALECTS: Mapping[str, Dialect] = {
    "v1.DRAPlugin": Dialect(
        prepare=lambda channel, request, timeout: v1_services.DRAPluginStub(channel).NodePrepareResources(request, timeout=timeout),
        unprepare=lambda channel, request, timeout: v1_services.DRAPluginStub(channel).NodeUnprepareResources(request, timeout=timeout),
    ),
    "v1beta1.DRAPlugin": Dialect(prepare=_prepare_v1beta1, unprepare=_unprepare_v1beta1),
}
"""By the name under which drivers advertise it; a driver's own order decides."""
