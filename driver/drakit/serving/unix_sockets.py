"""Inspect and lock the paths of unix sockets, and remove the sockets of dead processes.

A path may have 107 bytes. The holder of the flock on ``.<name>.lock`` beside a socket serves it; a path with a listener is never taken over.
"""

import contextlib
import enum
import errno
import fcntl
import os
import pathlib
import re
import socket
import stat
import time
from collections.abc import Iterator

from drakit.core import errors
from drakit.telemetry import logs

PATH_MAX_BYTES = 107
_PROBE_SECONDS = 1.0
_BINDING_SECONDS = 1.0
"""The time that a socket may be bound without listening; gRPC listens right after binding."""

Identity = tuple[int, int]
"""Device and inode of a file."""

_log = logs.get_logger(__name__)


class Occupant(enum.Enum):
    """The kind of file at a path."""

    NOTHING = "nothing"
    STALE = "stale socket"
    LISTENER = "listening socket"
    OTHER = "file that is not a socket"


class OccupiedError(errors.SettingsError):
    """The path of a socket has a file of another program, which is never replaced."""

    def __init__(self, path: pathlib.Path, present: Occupant) -> None:
        if present is Occupant.LISTENER:
            message = f"another process serves {path}; stop it, or give this driver a folder of its own"
        else:
            message = f"{path} exists and is not a socket; remove it"
        super().__init__(message, key="socket path")


def check_path(path: pathlib.Path, key: str = "socket path") -> None:
    """Raise SettingsError, which names the setting ``key``, for a socket path that is too long for the kernel."""
    length = len(os.fsencode(path))
    if length > PATH_MAX_BYTES:
        raise errors.SettingsError(f"{path} has {length} bytes and the kernel takes {PATH_MAX_BYTES}; use a shorter folder", key=key)


def fits(path: pathlib.Path) -> bool:
    """Return whether the kernel takes a socket path, also without symbolic links, as a program that resolves them uses it."""
    return max(len(os.fsencode(path)), len(os.fsencode(os.path.realpath(path)))) <= PATH_MAX_BYTES


def real_path_problem(path: pathlib.Path) -> str:
    """Return why a program that uses a socket's path without symbolic links cannot connect; empty if it can."""
    real = os.path.realpath(path)
    if fits(path):
        return ""
    length = len(os.fsencode(real))
    return (
        f"the socket {path} is {real} without symbolic links, a path of {length} bytes, of which the kernel takes {PATH_MAX_BYTES}; "
        "if the kubelet's root directory is the long path, move it to a shorter one (--root-dir), or mount it there"
    )


@contextlib.contextmanager
def connectable(path: pathlib.Path) -> Iterator[str]:
    """Yield a path by which this process can connect to a socket, however long the path of its folder is. Raises OSError."""
    if len(os.fsencode(path)) <= PATH_MAX_BYTES:
        yield os.fspath(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def occupant(path: pathlib.Path) -> Occupant:
    """Return the kind of file at a path; a socket is tested by a connection."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return Occupant.NOTHING
    if not stat.S_ISSOCK(mode):
        return Occupant.OTHER
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        with connectable(path) as short:
            status = probe.connect_ex(short)
    return {errno.ECONNREFUSED: Occupant.STALE, errno.ENOENT: Occupant.NOTHING}.get(status, Occupant.LISTENER)


def refuse_occupied(path: pathlib.Path) -> None:
    """Raise OccupiedError if a process listens at a path, or if a file at the path is not a socket."""
    present = occupant(path)
    if present in {Occupant.LISTENER, Occupant.OTHER}:
        raise OccupiedError(path, present)


class PathLock:
    """The flock that says which process serves a path; the kernel drops it when the process dies.

    The file is removed by its holder only; whoever opened it before sees that the name is gone and makes a new one.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._served = path
        self._path = lock_path(path)
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take the lock. Raises SettingsError when another process holds it."""
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
        """Return whether the locked file is still at its path, where other processes lock."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(self._path.lstat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def drop(self) -> None:
        """Release the lock. Safe to call twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def remove(self) -> None:
        """Remove the lock file, if it is still the locked one."""
        if self.is_at_path():
            self._path.unlink(missing_ok=True)


def lock_path(path: pathlib.Path) -> pathlib.Path:
    """Return the path of a socket's lock file."""
    return path.with_name(f".{path.name}.lock")


def clear_stale(path: pathlib.Path) -> bool:
    """Remove a socket that no living process serves, and its lock file; return whether there was such a socket."""
    lock = PathLock(path)
    try:
        lock.take()
    except errors.SettingsError:
        return False
    try:
        state = occupant(path)
        if state is Occupant.STALE:
            path.unlink(missing_ok=True)
            _log.info("stale socket removed", path=str(path))
        if state in {Occupant.STALE, Occupant.NOTHING}:
            lock.remove()
        return state is Occupant.STALE
    finally:
        lock.drop()


def clear_unfinished(folder: pathlib.Path, label: str = "") -> None:
    """Remove hidden sockets that servers of this label bound and never renamed, because their process was killed. Raises OSError.

    Where there is one on which nobody listens, this waits for as long as a living process may need to listen on it.
    """
    name = re.compile(rf"\.{re.escape(label)}[0-9a-f]{{8}}")
    stale = [path for path in folder.iterdir() if name.fullmatch(path.name) and occupant(path) is Occupant.STALE]
    if stale:
        time.sleep(_BINDING_SECONDS)
    for path in stale:
        if occupant(path) is Occupant.STALE:
            path.unlink(missing_ok=True)
            _log.info("unfinished socket removed", path=str(path))


def identity(path: pathlib.Path) -> Identity | None:
    """Return the identity of the file at a path, None if there is none."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
