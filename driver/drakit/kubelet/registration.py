"""Register the driver with the kubelet.

The kubelet watches ``plugins_registry``. When a socket appears, it calls GetInfo (timeout 1 s), connects to the driver's own socket, and reports the
result by NotifyRegistrationStatus (timeout 5 s). It unregisters the driver only when the registration socket disappears. So:

- The socket is created last, when the driver is ready to serve.
- Its name is new at every start, because the kubelet backs off for minutes from a path that failed once. The two processes of a rolling update have
  different names for the same reason; the name contains the pod's UID where the process knows it.
- Sockets that earlier processes of the driver left are removed first: while one exists, the kubelet keeps the old registration, and rejects a second
  one with the same endpoint.
- If a program deletes the socket of a running driver, ``check`` creates a new one; otherwise the driver would stay unregistered. The owner of the
  registrar calls ``check`` at intervals.
- ``unregistered_for`` returns for how long the driver has not been registered, because devices that are offered then cannot be prepared.
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
CHECKS_PER_SWEEP = 30
"""The number of checks of the own socket between two removals of stale sockets."""
_THREADS = 4

_log = logs.get_logger(__name__)


class State(enum.Enum):
    """The kubelet's last answer."""

    UNKNOWN = "unknown"
    REGISTERED = "registered"
    REFUSED = "refused"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """The kubelet's last answer, with the error of a refusal."""

    state: State = State.UNKNOWN
    error: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plugin:
    """The content of a registration: the driver's name, the path of its service socket, and the services on it in order of preference.

    ``instance`` is the pod's UID where two processes may serve at once (a rolling update); it becomes part of the socket's name.
    """

    name: str
    endpoint: pathlib.Path
    services: Sequence[str]
    instance: str = ""


class Registrar:
    """The registration of one driver with the kubelet, from ``start`` to ``stop``."""

    def __init__(self, plugin: Plugin, folder: pathlib.Path, clock: ports.Clock) -> None:
        self._service = _RegistrationService(plugin)
        self._plugin = plugin
        self._folder = folder
        self._clock = clock
        self._lost_at = clock.monotonic()
        self._changing = threading.Lock()
        self._stopped = False
        self._checks = 0
        self._server = self._new_server()

    @property
    def status(self) -> Status:
        """Return the kubelet's last answer."""
        return self._service.status

    @property
    def socket(self) -> pathlib.Path:
        """Return the path of the registration socket."""
        return self._server.path

    def start(self) -> None:
        """Create the registration socket. Raises SettingsError when the folder is missing or cannot be written."""
        sockets.clear_registry(self._folder, self._plugin.name)
        self._server.start()

    def wait_registered(self, seconds: float) -> bool:
        """Wait until the kubelet has registered the driver, at most ``seconds``; return whether it has."""
        return self._service.wait_registered(seconds)

    def unregistered_for(self) -> float:
        """Return the seconds since the driver was last registered, or since the start.

        Return 0 while it is registered or another instance of it runs.
        """
        now = self._clock.monotonic()
        if self.status.state is State.REGISTERED or self.has_another():
            self._lost_at = now
        return now - self._lost_at

    def has_another(self) -> bool:
        """Return whether another instance of the driver has a registration socket on this node, as in a rolling update."""
        return sockets.has_living(self._folder, self._plugin.name, besides=self.socket)

    def is_succeeded(self) -> bool:
        """Return whether a younger instance of the driver has a registration socket; the kubelet prefers the younger one."""
        return sockets.has_younger(self._folder, self._plugin.name, than=self.socket)

    def stop(self) -> None:
        """Remove the socket, so that the kubelet unregisters the driver. Safe to call twice."""
        with self._changing:
            self._stopped = True
            self._server.stop(grace=1.0)

    def check(self) -> None:
        """Create the socket again if it was deleted, and sometimes remove those of dead instances. Do nothing after ``stop``."""
        with self._changing:
            if self._stopped:
                return
            if not self._server.is_at_path():
                self._recreate_socket()
            self._checks += 1
            if self._checks % CHECKS_PER_SWEEP == 0:
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

    def _recreate_socket(self) -> None:
        """Serve on a new socket in place of the deleted one; after a failure the next check retries."""
        _log.warning("registration socket deleted by another process", path=str(self._server.path))
        self._service.reset()
        self._server.stop(grace=0)
        replacement = self._new_server()
        try:
            replacement.start()
        except (errors.SettingsError, OSError) as error:
            _log.warning("creating registration socket failed", error=str(error))
        self._server = replacement


class _RegistrationService(services.RegistrationServicer):
    """The registration service. It answers from memory, so a busy driver does not delay it."""

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

    def reset(self) -> None:
        self._set_status(Status())

    def wait_registered(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._status.state is State.REGISTERED, seconds)

    def GetInfo(self, request: wire.InfoRequest, context: grpc.ServicerContext) -> wire.PluginInfo:  # noqa: ARG002, N802 - the wire's shape
        return self._plugin_info

    def NotifyRegistrationStatus(  # noqa: N802 - the wire's name
        self, request: wire.RegistrationStatus, context: grpc.ServicerContext
    ) -> wire.RegistrationStatusResponse:
        if request.plugin_registered:
            self._set_status(Status(state=State.REGISTERED))
            _log.info("driver registered")
            return wire.RegistrationStatusResponse()
        self._set_status(Status(state=State.REFUSED, error=request.error))
        _log.error("registration refused by the kubelet", error=request.error)
        context.set_code(grpc.StatusCode.UNKNOWN)
        context.set_details(f"registration failed: {request.error}")
        return wire.RegistrationStatusResponse()

    def _set_status(self, status: Status) -> None:
        with self._changed:
            self._status = status
            self._changed.notify_all()
