"""One gRPC server on one unix socket, safe against stale files, second processes and other owners.

Invariants:

- A socket becomes visible at its path at once, complete and with mode 0600: gRPC binds it under a hidden name (which the kubelet ignores),
  then it is renamed. gRPC on its own would replace a living server's socket without a word, and on stop remove whatever lies at the path.
- Two living processes never serve one path: an flock beside the socket decides, and a path on which anybody listens is refused.
- ``stop`` removes the file only while it is the one this server made.
- A socket that somebody deleted is made again by ``renew``, and calls on the old one finish.
- A process killed between binding and renaming leaves the hidden socket. Its name starts with the server's ``label``, by which ``clear_unfinished``
  finds it.
"""

import contextlib
import dataclasses
import enum
import errno
import fcntl
import os
import pathlib
import re
import secrets
import socket
import stat
import threading
import time
from collections.abc import Callable
from concurrent import futures

import grpc

from drakit.core import errors
from drakit.telemetry import logs

PATH_MAX_BYTES = 107
FOLDER_MODE = 0o750
SOCKET_MODE = 0o600
_PROBE_SECONDS = 1.0
_BINDING_SECONDS = 1.0
"""How long a socket may be bound without listening: gRPC does one right after the other."""

STOP_SECONDS = 5.0
"""How long a stop waits for gRPC after the grace of running calls."""
_OPTIONS = [("grpc.so_reuseport", 0)]

Identity = tuple[int, int]
Register = Callable[[grpc.Server], None]
"""Adds services to a gRPC server."""

_log = logs.get_logger(__name__)


class Occupant(enum.Enum):
    """What lies at a path."""

    NOTHING = "nothing"
    STALE = "stale socket"
    LISTENER = "listening socket"
    OTHER = "something that is no socket"


class SocketServer:
    """A gRPC server on a unix socket, with threads of its own so that no other service can starve it.

    ``register`` adds the services. With ``exclusive`` an flock on ``.<name>.lock`` beside the socket is held while serving. ``make_folder``
    creates the socket's folder with mode 0750 where it is missing. ``label`` says whose hidden sockets are, in a folder that several drivers share.
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
        self._lock = _PathLock(path) if exclusive else None
        self._make_folder = make_folder
        self._label = label
        self._serving: _Serving | None = None
        self._retired: list[_Serving] = []
        self._changing = threading.Lock()

    def start(self) -> None:
        """Bind and serve; raises SettingsError, and leaves nothing behind, when the path cannot be used."""
        check_path(self.path)
        with contextlib.ExitStack() as undo:
            _prepare_folder(self.path.parent, create=self._make_folder)
            if self._lock is not None:
                self._lock.take()
                undo.callback(self._lock.drop)
            self._serving = self._serve()
            undo.pop_all()
        _log.info("serving", path=str(self.path), threads=self._threads)

    def renew(self, grace: float) -> None:
        """Serve on a new socket in place of the one that was deleted; calls on the old one have ``grace`` seconds to finish.

        Nothing happens once it is stopped. Raises SettingsError, and changes nothing, when something else is at the path now or the whole folder was
        replaced.
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
        _log.warning("socket was deleted and has been made again", path=str(self.path))

    def stop(self, grace: float) -> None:
        """Remove the socket if it is still ours, refuse new calls, and give running ones ``grace`` seconds. Safe to call twice."""
        with self._changing:
            if self._serving is not None:
                self._stop(self._serving, grace)

    def _stop(self, serving: "_Serving", grace: float) -> None:
        # While the socket is bound its inode cannot be given to another file, so this is the time to ask whose file it is.
        if self.is_at_path():
            self.path.unlink(missing_ok=True)
        ending = [*self._retired, serving]
        end = time.monotonic() + grace + STOP_SECONDS
        if not all(stopped.wait(max(0.0, end - time.monotonic())) for stopped in [one.server.stop(grace) for one in ending]):
            _log.warning("gRPC server did not stop in time", path=str(self.path), duration_ms=1000 * (grace + STOP_SECONDS))
        for one in ending:
            one.pool.shutdown(wait=False)
        self._serving = None
        self._retired.clear()
        if self._lock is not None:
            self._lock.remove()
            self._lock.drop()
        _log.info("stopped", path=str(self.path))

    def is_at_path(self) -> bool:
        """Whether the file at the path is the socket this server made."""
        serving = self._serving  # Whoever stops the server takes it away, maybe in between.
        return serving is not None and _identity(self.path) == serving.identity

    def _serve(self) -> "_Serving":
        _refuse_occupied(self.path)
        hidden = self.path.with_name(f".{self._label}{secrets.token_hex(4)}")
        check_path(hidden)
        with contextlib.ExitStack() as undo:
            pool = futures.ThreadPoolExecutor(max_workers=self._threads, thread_name_prefix=self.path.stem)
            undo.callback(pool.shutdown, wait=False)
            server = self._bind(pool, hidden)
            undo.callback(lambda: server.stop(0).wait(STOP_SECONDS))
            hidden.chmod(SOCKET_MODE)
            serving = _Serving(server=server, pool=pool, identity=_identity(hidden))
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
    identity: Identity | None


def check_path(path: pathlib.Path) -> None:
    """Refuse a socket path that the kernel could not bind; raises SettingsError."""
    length = len(os.fsencode(path))
    if length > PATH_MAX_BYTES:
        raise errors.SettingsError(
            f"socket path {path} has {length} bytes and the kernel takes {PATH_MAX_BYTES}; use a shorter folder", key="socket path"
        )


def occupant(path: pathlib.Path) -> Occupant:
    """What lies at a path now; a socket is asked by connecting to it."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return Occupant.NOTHING
    if not stat.S_ISSOCK(mode):
        return Occupant.OTHER
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        status = probe.connect_ex(os.fspath(path))
    return {errno.ECONNREFUSED: Occupant.STALE, errno.ENOENT: Occupant.NOTHING}.get(status, Occupant.LISTENER)


def _refuse_occupied(path: pathlib.Path) -> None:
    found = occupant(path)
    if found is Occupant.LISTENER:
        raise errors.SettingsError(f"another process serves {path}; stop it, or give this driver a folder of its own", key="socket path")
    if found is Occupant.OTHER:
        raise errors.SettingsError(f"{path} is in the way and no socket; remove it", key="socket path")


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
            f"anybody may write to {folder}, and so replace the socket; take that right away (chmod o-w)", key="socket path"
        )


class _PathLock:
    """The flock that says which process serves a path; the kernel drops it when the process dies.

    The file is removed by its holder only; whoever opened it before sees that the name is gone and makes a new one.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._served = path
        self._path = lock_path(path)
        self._descriptor: int | None = None

    def take(self) -> None:
        """Raises SettingsError when another process holds it."""
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(descriptor)
                raise errors.SettingsError(
                    f"another drakit process serves {self._served} (it holds {self._path.name})", key="socket path"
                ) from error
            self._descriptor = descriptor
            if self.is_at_path():
                return
            self.drop()

    def is_at_path(self) -> bool:
        """Whether the file that is locked is still the one that others would lock."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(self._path.lstat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def drop(self) -> None:
        """Let others have it. Safe to call twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def remove(self) -> None:
        """Remove the file, if it is still the one that is held."""
        if self.is_at_path():
            self._path.unlink(missing_ok=True)


def lock_path(path: pathlib.Path) -> pathlib.Path:
    """The lock file of a socket."""
    return path.with_name(f".{path.name}.lock")


def clear_stale(path: pathlib.Path) -> bool:
    """Remove a socket that no living process serves, and its lock file; whether there was such a socket."""
    lock = _PathLock(path)
    try:
        lock.take()
    except errors.SettingsError:
        return False
    try:
        found = occupant(path)
        if found is Occupant.STALE:
            path.unlink(missing_ok=True)
            _log.info("stale socket removed", path=str(path))
        if found in {Occupant.STALE, Occupant.NOTHING}:
            lock.remove()
        return found is Occupant.STALE
    finally:
        lock.drop()


def clear_unfinished(folder: pathlib.Path, label: str = "") -> None:
    """Remove hidden sockets that servers of this label bound and never renamed, because their process was killed. Raises OSError.

    Where there is one on which nobody listens, this waits for as long as a living process may need to listen on it.
    """
    name = re.compile(rf"\.{re.escape(label)}[0-9a-f]{{8}}")
    found = [path for path in folder.iterdir() if name.fullmatch(path.name) and occupant(path) is Occupant.STALE]
    if found:
        time.sleep(_BINDING_SECONDS)
    for path in found:
        if occupant(path) is Occupant.STALE:
            path.unlink(missing_ok=True)
            _log.info("unfinished socket removed", path=str(path))


def _identity(path: pathlib.Path) -> Identity | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
