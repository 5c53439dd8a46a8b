"""Registration: how the kubelet learns that the driver is there, and the driver that the kubelet knows.

The kubelet watches ``plugins_registry``. When a socket appears it asks GetInfo (it waits 1 s), connects to the driver's own socket, and reports back
by NotifyRegistrationStatus (5 s). It unregisters only when that registration socket disappears. So:

- The socket appears last, when the driver is ready to serve.
- Its name is new at every start, because the kubelet backs off for minutes from a path on which it once failed. The two processes of a rolling
  update have different names for the same reason, and those that know their pod's UID say it in the name.
- Sockets of our own earlier lives that nobody serves any more are removed first: while one lies there the kubelet holds on to the old registration,
  and refuses a second one of the same endpoint.
- A socket somebody deleted while the driver lives is made again; without it the kubelet would keep the driver unregistered for ever. Whoever runs
  the registrar calls ``look`` again and again for that.
- How long the kubelet has not known the driver is told by ``unregistered_for``: what is offered then cannot be prepared.
"""

import contextlib
import dataclasses
import enum
import pathlib
import secrets
import threading
from collections.abc import Sequence

import grpc

from drakit._proto import pluginregistration_v1_pb2 as wire
from drakit._proto import pluginregistration_v1_pb2_grpc as services
from drakit.core import errors, ports
from drakit.kubelet import server, sockets
from drakit.telemetry import logs

PLUGIN_TYPE = "DRAPlugin"
SWEEP_LOOKS = 30
"""Looks at the own socket between two for sockets that others left when they died."""
_THREADS = 4

_log = logs.get_logger(__name__)


class State(enum.Enum):
    """What the kubelet last said."""

    UNKNOWN = "unknown"
    REGISTERED = "registered"
    REFUSED = "refused"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """What the kubelet last said, and why it refused."""

    state: State = State.UNKNOWN
    error: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plugin:
    """What the kubelet is told: the driver's name, the path of its own socket, and the services on it, most wanted first.

    ``instance`` is the pod's UID where two processes may serve at once (a rolling update); it becomes part of the socket's name.
    """

    name: str
    endpoint: pathlib.Path
    services: Sequence[str]
    instance: str = ""


class Registrar:
    """Keeps the driver registered with the kubelet, from ``start`` to ``stop``."""

    def __init__(self, plugin: Plugin, folder: pathlib.Path, clock: ports.Clock) -> None:
        self._service = _RegistrationService(plugin)
        self._plugin = plugin
        self._folder = folder
        self._clock = clock
        self._lost_at = clock.monotonic()
        self._changing = threading.Lock()
        self._stopped = False
        self._looks = 0
        self._server = self._new_server()

    @property
    def status(self) -> Status:
        """What the kubelet last said."""
        return self._service.status

    @property
    def socket(self) -> pathlib.Path:
        """Path of the registration socket."""
        return self._server.path

    def start(self) -> None:
        """Show the socket to the kubelet; raises SettingsError when the folder is missing or cannot be written."""
        sockets.clear_registry(self._folder, self._plugin.name)
        self._server.start()

    def wait_registered(self, seconds: float) -> bool:
        """Wait until the kubelet has registered the driver; whether it has."""
        return self._service.wait_registered(seconds)

    def unregistered_for(self) -> float:
        """Seconds since the kubelet last knew the driver, or since the start; 0 while it does, or another instance of the driver is there."""
        now = self._clock.monotonic()
        if self.status.state is State.REGISTERED or self.has_another():
            self._lost_at = now
        return now - self._lost_at

    def has_another(self) -> bool:
        """Whether another instance of the driver offers itself to the kubelet of this node, as in a rolling update."""
        return sockets.has_living(self._folder, self._plugin.name, besides=self.socket)

    def is_succeeded(self) -> bool:
        """Whether a younger instance of the driver offers itself to the kubelet, which prefers it."""
        return sockets.has_younger(self._folder, self._plugin.name, than=self.socket)

    def stop(self) -> None:
        """Take the socket away, upon which the kubelet unregisters the driver. Safe to call twice."""
        with self._changing:
            self._stopped = True
            self._server.stop(grace=1.0)

    def look(self) -> None:
        """Make the socket again if somebody deleted it, and now and then remove those of instances that died; cheap, and never after ``stop``."""
        with self._changing:
            if self._stopped:
                return
            if not self._server.is_at_path():
                self._reappear()
            self._looks += 1
            if self._looks % SWEEP_LOOKS == 0:
                with contextlib.suppress(errors.SettingsError):
                    sockets.clear_registry(self._folder, self._plugin.name)

    def _new_server(self) -> server.SocketServer:
        path = sockets.registration_path(self._folder, self._plugin.name, secrets.token_hex(4), self._plugin.instance)
        return server.SocketServer(
            path,
            self._service.register,
            threads=_THREADS,
            exclusive=False,
            make_folder=False,
            label=sockets.label(self._plugin.name),
        )

    def _reappear(self) -> None:
        """Serve on a new socket in place of the one that was deleted; on failure the next look tries again."""
        _log.warning("registration socket deleted by another process", path=str(self._server.path))
        self._service.forget()
        self._server.stop(grace=0)
        replacement = self._new_server()
        try:
            replacement.start()
        except (errors.SettingsError, OSError) as error:
            _log.warning("creating registration socket failed", error=str(error))
        self._server = replacement


class _RegistrationService(services.RegistrationServicer):
    """Answers from memory at once, whatever the rest of the driver is busy with."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin_info = wire.PluginInfo(
            type=PLUGIN_TYPE, name=plugin.name, endpoint=str(plugin.endpoint), supported_versions=plugin.services
        )
        self._changed = threading.Condition()
        self._status = Status()

    def register(self, grpc_server: grpc.Server) -> None:
        services.add_RegistrationServicer_to_server(self, grpc_server)

    @property
    def status(self) -> Status:
        with self._changed:
            return self._status

    def forget(self) -> None:
        self._tell(Status())

    def wait_registered(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._status.state is State.REGISTERED, seconds)

    def GetInfo(self, request: wire.InfoRequest, context: grpc.ServicerContext) -> wire.PluginInfo:  # noqa: ARG002, N802 - the wire's shape
        return self._plugin_info

    def NotifyRegistrationStatus(  # noqa: N802 - the wire's name
        self, request: wire.RegistrationStatus, context: grpc.ServicerContext
    ) -> wire.RegistrationStatusResponse:
        if request.plugin_registered:
            self._tell(Status(state=State.REGISTERED))
            _log.info("driver registered")
            return wire.RegistrationStatusResponse()
        self._tell(Status(state=State.REFUSED, error=request.error))
        _log.error("registration refused by the kubelet", error=request.error)
        context.set_code(grpc.StatusCode.UNKNOWN)
        context.set_details(f"registration failed: {request.error}")
        return wire.RegistrationStatusResponse()

    def _tell(self, status: Status) -> None:
        with self._changed:
            self._status = status
            self._changed.notify_all()
