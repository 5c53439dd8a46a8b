"""The state of an interface before the first change, durable on disk, and the folder that holds it with the demo's other files.

Only one demo at a time uses an interface, and only one a folder. The kernel releases both locks when the process dies: an abstract unix socket in the
interface's network namespace, and a lock on a file of the folder.
"""

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import pathlib
import shutil
import socket
import struct
from collections.abc import Iterator
from typing import Self

from drakit.core import errors
from drakit.journal import files

STATE = pathlib.Path("/var/lib/drakit/demo")
FILE, LOCK = "found.json", ".lock"
_VERSION = 1
_KEY = "--folder"
_PATH_MAX = 63
_NAMED = "\0drakit demo on interface {}"
_CREDENTIALS = struct.Struct("=iII")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedState:
    """The state of an interface. ``cookie`` is that of its network namespace, ``boot`` the boot id, ``pid`` the demo that wrote it."""

    interface: str
    ifindex: int
    mac: str
    cookie: int
    boot: str
    pid: int
    lines: tuple[str, ...]

    def to_json(self) -> str:
        """Encode; the cookie is text, because 64 bits do not fit the number of every JSON reader."""
        return json.dumps({"version": _VERSION, **dataclasses.asdict(self), "cookie": f"{self.cookie:x}"}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Decode; raises ValueError."""
        match json.loads(text):
            case {
                "version": 1,
                "interface": str(interface),
                "ifindex": int(ifindex),
                "mac": str(mac),
                "cookie": str(cookie),
                "boot": str(boot),
                "pid": int(pid),
                "lines": [*lines],
            }:
                return cls(
                    interface=interface, ifindex=ifindex, mac=mac, cookie=int(cookie, 16), boot=boot, pid=pid, lines=tuple(map(str, lines))
                )
        raise ValueError("not a saved state of this version")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateFolder:
    """The demo's folder for one interface; ``is_given``: the user chose it, so its files are kept."""

    folder: pathlib.Path
    is_given: bool = False

    @classmethod
    def of(cls, interface: str, given: pathlib.Path | None) -> Self:
        """Return the folder of an interface: the given one, else a fixed one that the next start finds."""
        if given is not None:
            return cls(folder=given.absolute(), is_given=True)
        return cls(folder=STATE / interface)

    @property
    def node(self) -> pathlib.Path:
        """Return the folder of the driver's journal, its socket and the CDI files."""
        return self.folder / "node"

    @property
    def log(self) -> pathlib.Path:
        """Return the path of the driver's log."""
        return self.folder / "driver.log"

    @property
    def file(self) -> pathlib.Path:
        """Return the path of the saved state."""
        return self.folder / FILE

    def read(self) -> SavedState | None:
        """Return the state that an earlier demo saved, or None. Raises SettingsError if it cannot be read."""
        try:
            return SavedState.from_json(self.file.read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            reason = f"cannot be read ({error}); it has an interface's state from before a demo. Check the interface, then remove the file"
            raise errors.SettingsError(reason, key=str(self.file)) from error

    def write(self, state: SavedState) -> None:
        """Save the state; it is durable when this returns. Raises SettingsError."""
        fresh = self.folder / f"{FILE}.new"
        try:
            with fresh.open("w", encoding="utf-8") as file:
                file.write(state.to_json())
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(self.file)
            files.sync_directory(self.folder)
            files.sync_directory(self.folder.parent)
        except OSError as error:
            raise errors.SettingsError(f"cannot be written: {error.strerror}", key=str(self.file)) from error

    def remove(self) -> None:
        """Remove the saved state: the interface is restored."""
        self.file.unlink(missing_ok=True)
        files.sync_directory(self.folder)

    def check(self) -> None:
        """Raise SettingsError if a given folder is not empty or the path is too long for sockets."""
        if self.is_given and any(entry.name != LOCK for entry in self.folder.iterdir()):
            raise errors.SettingsError(f"{self.folder} is not empty, but the demo needs an empty folder; choose a new one", key=_KEY)
        if len(os.fsencode(self.folder)) > _PATH_MAX:
            raise errors.SettingsError(
                f"{self.folder} has more than {_PATH_MAX} bytes, which is too long for sockets; choose a shorter path", key=_KEY
            )

    def clear(self) -> None:
        """Remove an earlier demo's files, except the saved state."""
        shutil.rmtree(self.node, ignore_errors=True)
        self.log.unlink(missing_ok=True)

    def leave(self) -> None:
        """Remove the folder and its empty parents; a given folder stays."""
        if self.is_given:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            for folder in (STATE, STATE.parent):
                folder.rmdir()


@contextlib.contextmanager
def held(place: StateFolder) -> Iterator[None]:
    """Create and lock the folder, with access for its owner only; raises SettingsError if another demo uses it."""
    try:
        place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(place.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise errors.SettingsError(f"cannot use {place.folder}: {error.strerror}", key=_KEY) from error
    try:
        _lock(descriptor, place)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, place: StateFolder) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise errors.SettingsError(f"another demo uses {place.folder}; wait until it ends", key="--nic") from error


@contextlib.contextmanager
def alone_on(interface: str, ifindex: int) -> Iterator[None]:
    """Lock the interface inside the block; raises SettingsError with the PID of the demo that uses it."""
    name = _NAMED.format(ifindex)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mine:
        try:
            mine.bind(name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            reason = f"another demo uses {interface}{_owner(name)}; wait until it ends"
            raise errors.SettingsError(reason, key="--nic") from error
        mine.listen()
        yield


def _owner(name: str) -> str:
    """Return the PID of the process that holds a name, as text; empty if it is unknown."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.connect(name)
        pid, _, _ = _CREDENTIALS.unpack(other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        return f" (pid {pid})"
    return ""
