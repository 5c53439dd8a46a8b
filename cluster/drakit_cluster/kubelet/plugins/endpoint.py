"""One gRPC connection to a driver's service socket: watched, so that the kubelet knows without a call whether the driver is connected."""

import contextlib
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from drakit._proto import dra_v1_pb2 as v1
from drakit._proto import dra_v1_pb2_grpc as v1_services
from drakit_cluster.faults import Faults
from drakit_cluster.kubelet.pods.records import PreparedDevice
from drakit_cluster.kubelet.timing import Timing

SERVICE = "v1.DRAPlugin"
"""The name under which a driver advertises the DRA service."""
_CLOSE_SECONDS = 1.0
"""gRPC's watcher thread of a channel fails if the channel closes while it runs. It ends within this time after unsubscribe()."""
_Response = TypeVar("_Response")


class CallError(Exception):
    """A call without a usable answer."""


@dataclass(frozen=True, kw_only=True)
class ClaimId:
    """A claim on the wire."""

    namespace: str
    name: str
    uid: str

    def encode(self) -> v1.Claim:
        """Return the message."""
        return v1.Claim(namespace=self.namespace, name=self.name, uid=self.uid)


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
    """One registered instance of a driver. ``on_change`` is called, from another thread, when the connection is made or lost."""

    def __init__(self, path: pathlib.Path, timing: Timing, faults: Faults, on_change: Callable[[], None]) -> None:
        self.path = path
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
        """Whether the driver is connected."""
        with self._lock:
            return self._connected

    def prepare(self, claims: Sequence[ClaimId]) -> dict[str, Answer]:
        """Call NodePrepareResources; return the answers by claim UID. Raises CallError."""
        request = v1.NodePrepareResourcesRequest(claims=[claim.encode() for claim in claims])
        if self._faults.unprepare_first:
            self.unprepare(claims)
        response = self._call("NodePrepareResources", request)
        return {uid: Answer(devices=tuple(map(_device, answer.devices)), error=answer.error) for uid, answer in response.claims.items()}

    def unprepare(self, claims: Sequence[ClaimId]) -> dict[str, Answer]:
        """Call NodeUnprepareResources; return the answers by claim UID. Raises CallError."""
        request = v1.NodeUnprepareResourcesRequest(claims=[claim.encode() for claim in claims])
        response = self._call("NodeUnprepareResources", request)
        return {uid: Answer(error=answer.error) for uid, answer in response.claims.items()}

    def call(self, call: Callable[[grpc.Channel], _Response]) -> _Response:
        """Call another service on the connection."""
        return call(self._channel)

    def close(self) -> None:
        """Close the connection. Running calls have one second to finish."""
        with self._lock:
            self._closed, self._connected = True, False
        self._channel.unsubscribe(self._observe)
        closing = threading.Timer(_CLOSE_SECONDS, self._channel.close)
        closing.daemon = True
        closing.start()

    def _call(self, name: str, request: Message) -> Any:
        """Make one call, with the faults that are switched on."""

        def call(channel: grpc.Channel) -> Any:
            return getattr(v1_services.DRAPluginStub(channel), name)(request, timeout=self._timing.call)

        try:
            if self._faults.take_drop():
                with self._breaking_channel() as channel:
                    return call(channel)
            if self._faults.call_twice:
                return self._twice(call)
            return call(self._channel)
        except grpc.RpcError as error:
            raise CallError(f"{name}: {_reason(error)}") from error
        except ValueError as error:  # gRPC raises ValueError on a channel that was closed in the meantime.
            raise CallError(f"{name}: {error}") from error

    def _twice(self, call: Callable[[grpc.Channel], _Response]) -> _Response:
        with futures.ThreadPoolExecutor(max_workers=2) as pool:
            first, second = pool.submit(call, self._channel), pool.submit(call, self._channel)
            futures.wait((first, second))
            return first.result()

    @contextlib.contextmanager
    def _breaking_channel(self) -> Iterator[grpc.Channel]:
        """Yield a connection that closes while the call runs."""
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
            was_connected, self._connected = self._connected, state is grpc.ChannelConnectivity.READY
            changed = was_connected is not self._connected
        if state is grpc.ChannelConnectivity.IDLE:
            self._channel.subscribe(_ignore, try_to_connect=True)
            self._channel.unsubscribe(_ignore)
        if changed:
            self._on_change()


def _ignore(_state: grpc.ChannelConnectivity) -> None:
    """Do nothing: subscribing is the only way to make an idle channel connect."""


def _reason(error: grpc.RpcError) -> str:
    return f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else str(error)


def _device(device: v1.Device) -> PreparedDevice:
    return PreparedDevice(
        requests=tuple(device.request_names),
        pool=device.pool_name,
        device=device.device_name,
        cdi_ids=tuple(device.cdi_device_ids),
        share_id=device.share_id if device.HasField("share_id") else None,
    )
