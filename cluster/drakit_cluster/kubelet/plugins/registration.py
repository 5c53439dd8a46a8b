"""Registration of plugins by their sockets, and removal when the socket disappears.

The folder is searched recursively; names that begin with a dot, and files that are not sockets, are ignored. A replaced
socket is a new plugin. A failed registration is retried with a backoff that belongs to the path, so a new plugin at the path of a dead one
inherits its delay. The connection to the service does not matter here.
"""

import os
import pathlib
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc

from drakit._proto import pluginregistration_v1_pb2 as wire
from drakit._proto import pluginregistration_v1_pb2_grpc as services
from drakit.telemetry import logs
from drakit_cluster.client.backoff import Backoff
from drakit_cluster.kubelet.plugins.endpoint import Endpoint, open_channel
from drakit_cluster.kubelet.plugins.plugins import PluginFacts, Plugins, RegistrationError
from drakit_cluster.kubelet.timing import Timing

_log = logs.get_logger(__name__)

_JOIN_SECONDS = 5.0
_Identity = tuple[int, int, int]
"""Device, inode and modification time. A change of the mode of a socket changes none of them."""


@dataclass(kw_only=True)
class _Attempt:
    """The registration of one socket: running, done (``endpoint`` is set), or withdrawn because the socket disappeared."""

    identity: _Identity
    name: str = ""
    endpoint: Endpoint | None = None
    running: bool = True
    withdrawn: bool = False


class Registrar:
    """Keeps ``plugins`` in step with the sockets in ``folder``. ``on_register`` is called with the name of each registered driver."""

    def __init__(self, folder: pathlib.Path, plugins: Plugins, timing: Timing, on_register: Callable[[str], None]) -> None:
        self._folder = folder
        self._plugins = plugins
        self._timing = timing
        self._on_register = on_register
        self._lock = threading.Lock()
        self._attempts: dict[pathlib.Path, _Attempt] = {}
        self._backoffs: dict[pathlib.Path, Backoff] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registration", daemon=True)

    def start(self) -> None:
        """Start to scan the folder."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; plugins stay registered."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while True:
            self._scan()
            if self._stopping.wait(self._timing.registration_tick):
                return

    def _scan(self) -> None:
        present = dict(_sockets(self._folder))
        with self._lock:
            removed = [path for path, attempt in self._attempts.items() if present.get(path) != attempt.identity]
        for path in removed:
            self._withdraw(path)
        now = time.monotonic()
        for path, identity in present.items():
            with self._lock:
                if path in self._attempts or (path in self._backoffs and self._backoffs[path].due > now):
                    continue
                attempt = self._attempts[path] = _Attempt(identity=identity)
            threading.Thread(target=self._attempt, args=(path, attempt), name="register", daemon=True).start()

    def _withdraw(self, path: pathlib.Path) -> None:
        """Unregister the plugin of a removed socket. If its registration is still running, unregister it when the registration ends."""
        with self._lock:
            attempt = self._attempts.get(path)
            if attempt is None:  # The registration has failed since.
                return
            attempt.withdrawn = True
            if attempt.running:
                return
            del self._attempts[path]
        self._remove(attempt, path)

    def _remove(self, attempt: _Attempt, path: pathlib.Path) -> None:
        if attempt.endpoint is not None:
            self._plugins.remove(attempt.name, attempt.endpoint)
            _log.info("driver unregistered", driver=attempt.name, path=str(path))

    def _attempt(self, path: pathlib.Path, attempt: _Attempt) -> None:
        failure = ""
        try:
            self._register(path, attempt)
        except (RegistrationError, grpc.RpcError, OSError) as error:
            failure = str(error) if not isinstance(error, grpc.Call) else f"{error.code().name}: {error.details()}"
        with self._lock:
            attempt.running = False
            if failure or attempt.withdrawn:
                self._attempts.pop(path, None)
            if not failure:
                self._backoffs.pop(path, None)
            else:
                delay = self._backoffs.setdefault(path, Backoff(*self._timing.registration_retry)).next()
        if failure:
            _log.warning("registration failed", path=str(path), error=failure, retry_in_s=delay)
        if failure or attempt.withdrawn:
            self._remove(attempt, path)
        elif not self._stopping.is_set():
            self._on_register(attempt.name)

    def _register(self, path: pathlib.Path, attempt: _Attempt) -> None:
        """Get the plugin's info, add it, and notify it. A plugin that does not answer is not added."""
        channel = open_channel(path, self._timing)
        try:
            stub = services.RegistrationStub(channel)
            answer = self._get_info(stub)
            endpoint = pathlib.Path(answer.endpoint) if answer.endpoint else path
            facts = PluginFacts(type=answer.type, name=answer.name, endpoint=endpoint, versions=tuple(answer.supported_versions))
            try:
                facts.check()
                attempt.name, attempt.endpoint = facts.name, self._plugins.add(facts)
            except RegistrationError as error:
                stub.NotifyRegistrationStatus(
                    wire.RegistrationStatus(plugin_registered=False, error=str(error)), timeout=self._timing.notify
                )
                raise
            stub.NotifyRegistrationStatus(wire.RegistrationStatus(plugin_registered=True), timeout=self._timing.notify)
        finally:
            channel.close()

    def _get_info(self, stub: services.RegistrationStub) -> wire.PluginInfo:
        """Wait for the connection, then call GetInfo. Both have their own deadline, as in a real kubelet."""
        connected_by = time.monotonic() + self._timing.dial
        while True:
            began = time.monotonic()
            try:
                return stub.GetInfo(wire.InfoRequest(), timeout=self._timing.get_info)
            except grpc.RpcError as error:
                unconnected = isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAVAILABLE
                if not unconnected or time.monotonic() >= connected_by:
                    raise
            pause = max(0.0, self._timing.reconnect[0] - (time.monotonic() - began))
            if self._stopping.wait(pause):
                raise RegistrationError("the kubelet is stopping")


def _sockets(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, _Identity]]:
    try:
        with os.scandir(folder) as entries:
            sorted_entries = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    for entry in sorted_entries:
        if entry.name.startswith("."):
            continue
        try:
            state = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(state.st_mode):
            yield from _sockets(pathlib.Path(entry.path))
        elif stat.S_ISSOCK(state.st_mode):
            yield pathlib.Path(entry.path), (state.st_dev, state.st_ino, state.st_mtime_ns)
