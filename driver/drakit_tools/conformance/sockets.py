"""The client of a driver's two sockets, as in a kubelet: registration (pluginregistration v1) and the DRA service."""

import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence

import grpc

from drakit._proto import pluginregistration_v1_pb2 as wire
from drakit._proto import pluginregistration_v1_pb2_grpc as services
from drakit_cluster.faults import Faults
from drakit_cluster.kubelet import Timing
from drakit_cluster.kubelet.plugins import endpoint as endpoints

GET_INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0
POLL_SECONDS = 0.1


class UnreachableError(Exception):
    """No driver answers on the sockets. The text names the paths."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Info:
    """A driver's answer to GetInfo; ``seconds`` is the duration of the call."""

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]
    seconds: float
    socket: pathlib.Path

    @property
    def service(self) -> pathlib.Path:
        """The socket of the DRA service; the kubelet takes an empty endpoint for the registration socket itself."""
        return pathlib.Path(self.endpoint) if self.endpoint else self.socket

    @property
    def has_service(self) -> bool:
        """Whether the driver offers the DRA service that the kubelet calls."""
        return endpoints.SERVICE in self.versions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """A registration socket, or a folder of sockets in which ``driver`` selects one. ``ended`` returns how the driver's process ended, if it did."""

    path: pathlib.Path
    driver: str = ""
    ended: Callable[[], str] = str

    def find(self, seconds: float) -> Info:
        """Return the driver's answer to GetInfo. Retry for ``seconds`` or until the process ended, then raise UnreachableError."""
        deadline = time.monotonic() + seconds
        while True:
            ended = self.ended()
            try:
                return self._find()
            except UnreachableError as error:
                if ended:
                    raise UnreachableError(f"{ended}; {error}") from error
                if time.monotonic() >= deadline:
                    raise
            time.sleep(POLL_SECONDS)

    def _find(self) -> Info:
        if not self.path.exists():
            raise UnreachableError(f"{self.path} does not exist; give the driver's registration socket, or the folder plugins_registry")
        answers, silent = [], []
        for socket in self._sockets():
            try:
                answers.append(get_info(socket))
            except grpc.RpcError as error:
                silent.append(f"{socket.name}: {reason(error)}")
        wanted = [info for info in answers if self.driver in ("", info.name)] if self.path.is_dir() else answers
        names = sorted({info.name for info in wanted})
        if len(names) > 1:
            raise UnreachableError(f"{self.path} has the sockets of several drivers ({', '.join(names)}); name one by --driver")
        if not wanted:
            raise UnreachableError(
                f"no driver{f' {self.driver}' if self.driver else ''} answers on {self.path}: {'; '.join(silent) or 'no socket'}"
            )
        return max(wanted, key=lambda info: info.socket.stat().st_mtime)

    def _sockets(self) -> Sequence[pathlib.Path]:
        if self.path.is_dir():
            return sorted(path for path in self.path.rglob("*") if path.is_socket() and not path.name.startswith("."))
        return [self.path]


def get_info(socket: pathlib.Path) -> Info:
    """Call GetInfo; raises grpc.RpcError."""
    with _channel(socket) as channel:
        began = time.monotonic()
        answer = services.RegistrationStub(channel).GetInfo(wire.InfoRequest(), timeout=NOTIFY_SECONDS)
        return Info(
            type=answer.type,
            name=answer.name,
            endpoint=answer.endpoint,
            versions=tuple(answer.supported_versions),
            seconds=time.monotonic() - began,
            socket=socket,
        )


def notify(socket: pathlib.Path) -> None:
    """Notify the driver that it is registered. Raises grpc.RpcError."""
    with _channel(socket) as channel:
        services.RegistrationStub(channel).NotifyRegistrationStatus(wire.RegistrationStatus(plugin_registered=True), timeout=NOTIFY_SECONDS)


@contextlib.contextmanager
def service(path: pathlib.Path, seconds: float) -> Iterator[endpoints.Endpoint]:
    """Yield the DRA service. Each call waits for ``seconds``."""
    opened = endpoints.Endpoint(path, Timing(call=seconds), Faults(), _ignore)
    try:
        yield opened
    finally:
        opened.close()


def code(error: endpoints.CallError) -> grpc.StatusCode | None:
    """Return the gRPC status of a failed call."""
    cause = error.__cause__
    return cause.code() if isinstance(cause, grpc.Call) else None


def reason(error: grpc.RpcError) -> str:
    """Return a failed call's code and details."""
    return f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else str(error)


@contextlib.contextmanager
def _channel(path: pathlib.Path) -> Iterator[grpc.Channel]:
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost"))
    with grpc.insecure_channel(f"unix:{path}", options=options) as channel:
        yield channel


_ignore: Callable[[], None] = lambda: None  # noqa: E731 - a callback that does nothing
