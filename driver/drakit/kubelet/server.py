"""A gRPC server on a unix socket that handles stale files, second processes and foreign files.

Invariants:

- A socket appears at its path atomically with mode 0600: gRPC binds it under a hidden name (which the kubelet ignores), then it is renamed. gRPC on
  its own would silently replace the socket of a living server, and on stop remove any file at the path.
- Two living processes never serve one path: an flock beside the socket decides, and a path with a listener is rejected.
- ``stop`` removes the file only if this server created it.
- ``renew`` creates a deleted socket again, and calls on the old one finish.
- A process that is killed between binding and renaming leaves the hidden socket. Its name starts with the server's ``label``, by which
  ``clear_unfinished`` finds it.
"""

import contextlib
import dataclasses
import pathlib
import secrets
import stat
import threading
import time
from collections.abc import Callable
from concurrent import futures

import grpc

from drakit.core import errors
from drakit.serving import unix_sockets, worker_threads
from drakit.telemetry import logs

FOLDER_MODE = 0o750
SOCKET_MODE = 0o600
STOP_SECONDS = 5.0
"""The time that a stop waits for gRPC after the grace period of running calls."""
_OPTIONS = [("grpc.so_reuseport", 0)]

Register = Callable[[grpc.Server], None]
"""A function that adds services to a gRPC server."""

_log = logs.get_logger(__name__)


class SocketServer:
    """A gRPC server on a unix socket, with threads of its own so that no other service can starve it.

    ``register`` adds the services. With ``exclusive`` an flock on ``.<name>.lock`` beside the socket is held while serving. ``make_folder``
    creates a missing folder of the socket with mode 0750. ``label`` is the prefix of this driver's hidden sockets in a shared folder.
    """

    def __init__(
        self,
        path: pathlib.Path,
        register: Register,
        *,
        threads: int,
        exclusive: bool = True,
        make_folder: bool = True,
        label: str = "",
    ) -> None:
        self.path = path
        self._register = register
        self._threads = threads
        self._lock = unix_sockets.PathLock(path) if exclusive else None
        self._make_folder = make_folder
        self._label = label
        self._serving: _Serving | None = None
        self._retired: list[_Serving] = []
        self._changing = threading.Lock()

    def start(self) -> None:
        """Bind and serve. Raises SettingsError, with nothing left behind, when the path cannot be used."""
        unix_sockets.check_path(self.path)
        with contextlib.ExitStack() as undo:
            _prepare_folder(self.path.parent, create=self._make_folder)
            if self._lock is not None:
                self._lock.take()
                undo.callback(self._lock.drop)
            self._serving = self._serve()
            undo.pop_all()
        _log.info("gRPC server started", path=str(self.path), threads=self._threads)

    def renew(self, grace: float) -> None:
        """Serve on a new socket in place of a deleted one; calls on the old one have ``grace`` seconds to finish. Do nothing after ``stop``.

        Raises SettingsError, with nothing changed, when another file is at the path or the whole folder was replaced.
        """
        with self._changing:
            if self._serving is not None:
                self._renew(self._serving, grace)

    def _renew(self, former: "_Serving", grace: float) -> None:
        if self._lock is not None and not self._lock.is_at_path():
            raise errors.SettingsError(f"the folder of {self.path} was emptied or replaced while it was served", key="socket path")
        self._serving = self._serve()
        self._retired.append(former)
        former.server.stop(grace)
        _log.warning("socket recreated after a deletion", path=str(self.path))

    def stop(self, grace: float) -> None:
        """Remove the socket if this server created it, reject new calls, and wait ``grace`` seconds for running ones. Safe to call twice."""
        with self._changing:
            if self._serving is not None:
                self._stop(self._serving, grace)

    def _stop(self, serving: "_Serving", grace: float) -> None:
        # While the socket is bound, the kernel cannot reuse its inode, so the identity of the file is reliable only before the stop.
        if self.is_at_path():
            self.path.unlink(missing_ok=True)
        ending = [*self._retired, serving]
        deadline = time.monotonic() + grace + STOP_SECONDS
        stops = [stopping.server.stop(grace) for stopping in ending]
        if not all(stopped.wait(max(0.0, deadline - time.monotonic())) for stopped in stops):
            _log.warning("gRPC server did not stop in time", path=str(self.path), duration_ms=1000 * (grace + STOP_SECONDS))
        for ended in ending:
            ended.pool.shutdown(wait=False)
        self._serving = None
        self._retired.clear()
        if self._lock is not None:
            self._lock.remove()
            self._lock.drop()
        _log.info("gRPC server stopped", path=str(self.path))

    def is_at_path(self) -> bool:
        """Return whether the file at the path is the socket that this server created."""
        serving = self._serving  # Another thread may stop the server meanwhile.
        return serving is not None and unix_sockets.identity(self.path) == serving.identity

    def _serve(self) -> "_Serving":
        unix_sockets.refuse_occupied(self.path)
        hidden = self.path.with_name(f".{self._label}{secrets.token_hex(4)}")
        unix_sockets.check_path(hidden)
        with contextlib.ExitStack() as undo:
            pool = worker_threads.started(self._threads, self.path.stem)
            undo.callback(pool.shutdown, wait=False)
            server = self._bind(pool, hidden)
            undo.callback(lambda: server.stop(0).wait(STOP_SECONDS))
            hidden.chmod(SOCKET_MODE)
            serving = _Serving(server=server, pool=pool, identity=unix_sockets.identity(hidden))
            server.start()
            hidden.replace(self.path)
            undo.pop_all()
        return serving

    def _bind(self, pool: futures.ThreadPoolExecutor, path: pathlib.Path) -> grpc.Server:
        bound = grpc.server(pool, options=_OPTIONS)
        self._register(bound)
        try:
            bound.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise errors.SettingsError(f"cannot bind {path}; is its folder writable?", key="socket path") from error
        return bound


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Serving:
    """One gRPC server with its threads and the identity of its socket file."""

    server: grpc.Server
    pool: futures.ThreadPoolExecutor
    identity: unix_sockets.Identity | None


def _prepare_folder(folder: pathlib.Path, *, create: bool) -> None:
    try:
        if create:
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise errors.SettingsError(f"cannot use folder {folder}: {error.strerror}", key="socket path") from error
    if not stat.S_ISDIR(status.st_mode):
        raise errors.SettingsError(f"{folder} is not a folder", key="socket path")
    if status.st_mode & stat.S_IWOTH:
        raise errors.SettingsError(
            f"every user may write to {folder}, and so replace the socket; remove that permission (chmod o-w)", key="socket path"
        )
