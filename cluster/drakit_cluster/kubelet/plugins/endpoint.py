"""One gRPC connection to a driver's service socket: watched, so that the kubelet knows without a call whether the driver is there.

The versions of the DRA service that this kubelet speaks: v1 within, v1beta1 by translation, which has no share ids.

Both versions have the same field numbers, so a message of one is read as the other; what the other does not know is dropped.
"""

import contextlib
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from drakit._proto import dra_v1_pb2
from drakit._proto import dra_v1_pb2 as v1
from drakit._proto import dra_v1_pb2_grpc as v1_services
from drakit._proto import dra_v1beta1_pb2 as v1beta1
from drakit._proto import dra_v1beta1_pb2_grpc as v1beta1_services
from drakit_cluster.faults import Faults
from drakit_cluster.kubelet.pods.records import PreparedDevice
from drakit_cluster.kubelet.timing import Timing

_CLOSE_SECONDS = 1.0
"""The library's thread that watches a channel fails if the channel closes under it, and ends by itself within this time before."""
_Response = TypeVar("_Response")


class CallError(Exception):
    """A call that brought no usable answer."""


@dataclass(frozen=True, kw_only=True)
class ClaimId:
    """A claim on the wire."""

    namespace: str
    name: str
    uid: str

    def encode(self) -> dra_v1_pb2.Claim:
        """Return the message."""
        return dra_v1_pb2.Claim(namespace=self.namespace, name=self.name, uid=self.uid)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A driver's answer about one claim."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


def open_channel(path: pathlib.Path, timing: Timing) -> grpc.Channel:
    """Return a channel to a unix socket that shares no connection with others and reconnects by itself."""
    first, longest = (int(seconds * 1000) for seconds in timing.reconnect)
    return grpc.insecure_channel(
        f"unix:{path}",
        options=(
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.default_authority", "localhost"),
            ("grpc.initial_reconnect_backoff_ms", first),
            ("grpc.min_reconnect_backoff_ms", first),
            ("grpc.max_reconnect_backoff_ms", longest),
        ),
    )


class Endpoint:
    """One registered instance of a driver, called in ``version`` of the DRA service.

    ``on_change`` is called, from another thread, when the connection comes or goes.
    """

    def __init__(
        self, path: pathlib.Path, timing: Timing, faults: Faults, on_change: Callable[[], None], *, version: str = "v1.DRAPlugin"
    ) -> None:
        self.path = path
        self._dialect = DIALECTS[version]
        self._timing = timing
        self._faults = faults
        self._on_change = on_change
        self._lock = threading.Lock()
        self._connected = False
        self._closed = False
        self._channel = open_channel(path, timing)

    def connect(self) -> None:
        """Begin to connect, and to watch the connection."""
        self._channel.subscribe(self._observe, try_to_connect=True)

    @property
    def connected(self) -> bool:
        """Whether the driver is there."""
        with self._lock:
            return self._connected

    def prepare(self, claims: Sequence[ClaimId]) -> dict[str, Answer]:
        """Call NodePrepareResources; return the answers by claim UID. Raise CallError."""
        request = dra_v1_pb2.NodePrepareResourcesRequest(claims=[claim.encode() for claim in claims])
        if self._faults.unprepare_first:
            self.unprepare(claims)
        response = self._call("NodePrepareResources", lambda channel: self._dialect.prepare(channel, request, self._timing.call))
        return {uid: Answer(devices=tuple(map(_device, one.devices)), error=one.error) for uid, one in response.claims.items()}

    def unprepare(self, claims: Sequence[ClaimId]) -> dict[str, Answer]:
        """Call NodeUnprepareResources; return the answers by claim UID. Raise CallError."""
        request = dra_v1_pb2.NodeUnprepareResourcesRequest(claims=[claim.encode() for claim in claims])
        response = self._call("NodeUnprepareResources", lambda channel: self._dialect.unprepare(channel, request, self._timing.call))
        return {uid: Answer(error=one.error) for uid, one in response.claims.items()}

    def call(self, call: Callable[[grpc.Channel], _Response]) -> _Response:
        """Make another kind of call on the connection."""
        return call(self._channel)

    def close(self) -> None:
        """End for good. Calls that still run have a second to finish."""
        with self._lock:
            self._closed, self._connected = True, False
        self._channel.unsubscribe(self._observe)
        closing = threading.Timer(_CLOSE_SECONDS, self._channel.close)
        closing.daemon = True
        closing.start()

    def _call(self, name: str, call: Callable[[grpc.Channel], _Response]) -> _Response:
        """Make one call, with the faults that are switched on."""
        try:
            if self._faults.take_drop():
                with self._breaking_channel() as channel:
                    return call(channel)
            if self._faults.call_twice:
                return self._twice(call)
            return call(self._channel)
        except grpc.RpcError as error:
            raise CallError(f"{name}: {_reason(error)}") from error
        except ValueError as error:  # The library's word for a channel that was closed meanwhile.
            raise CallError(f"{name}: {error}") from error

    def _twice(self, call: Callable[[grpc.Channel], _Response]) -> _Response:
        with futures.ThreadPoolExecutor(max_workers=2) as pool:
            first, second = pool.submit(call, self._channel), pool.submit(call, self._channel)
            futures.wait((first, second))
            return first.result()

    @contextlib.contextmanager
    def _breaking_channel(self) -> Iterator[grpc.Channel]:
        """Yield a connection that is closed while the call on it runs."""
        channel = open_channel(self.path, self._timing)
        breaking = threading.Timer(self._faults.drop_after, channel.close)
        breaking.start()
        try:
            yield channel
        finally:
            breaking.cancel()
            channel.close()

    def _observe(self, state: grpc.ChannelConnectivity) -> None:
        with self._lock:
            if self._closed:
                return
            before, self._connected = self._connected, state is grpc.ChannelConnectivity.READY
            changed = before is not self._connected
        if state is grpc.ChannelConnectivity.IDLE:
            self._channel.subscribe(_ignore, try_to_connect=True)
            self._channel.unsubscribe(_ignore)
        if changed:
            self._on_change()


def _ignore(_state: grpc.ChannelConnectivity) -> None:
    """Take no notice: subscribing is the only way to make an idle channel connect."""


def _reason(error: grpc.RpcError) -> str:
    """Return a failed call's code and details."""
    return f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else str(error)


def _device(device: dra_v1_pb2.Device) -> PreparedDevice:
    return PreparedDevice(
        requests=tuple(device.request_names),
        pool=device.pool_name,
        device=device.device_name,
        cdi_ids=tuple(device.cdi_device_ids),
        share_id=device.share_id if device.HasField("share_id") else None,
    )


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
