"""The note of what was found, durable before the first change, and the place where it lies with all else the demo needs on disk.

One demo at a time has an interface, and one a place. Both are held by what the kernel releases when a process dies: a name in the interface's network
namespace (an abstract unix socket), and a lock on a file of the place.
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
class Note:
    """An interface as it was found. ``cookie`` is its network namespace's, ``boot`` the boot's id, ``pid`` the demo's that wrote it."""

    interface: str
    ifindex: int
    mac: str
    cookie: int
    boot: str
    pid: int
    lines: tuple[str, ...]

    def to_json(self) -> str:
        """As it is kept; the cookie is text, because 64 bits do not fit every reader's number."""
        return json.dumps({"version": _VERSION, **dataclasses.asdict(self), "cookie": f"{self.cookie:x}"}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The note that was kept; raises ValueError for anything else."""
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
                told = tuple(map(str, lines))
                return cls(interface=interface, ifindex=ifindex, mac=mac, cookie=int(cookie, 16), boot=boot, pid=pid, lines=told)
        raise ValueError("it is no note of this version")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """A folder for one interface; ``is_given`` says that the user chose it, and keeps what is in it."""

    folder: pathlib.Path
    is_given: bool = False

    @classmethod
    def of(cls, interface: str, given: pathlib.Path | None) -> Self:
        """The place of an interface: the one given, else one that the next start finds again."""
        if given is not None:
            return cls(folder=given.absolute(), is_given=True)
        return cls(folder=STATE / interface)

    @property
    def node(self) -> pathlib.Path:
        """Where the driver keeps its journal, its socket and the CDI files."""
        return self.folder / "node"

    @property
    def log(self) -> pathlib.Path:
        """The driver's log."""
        return self.folder / "driver.log"

    @property
    def file(self) -> pathlib.Path:
        """Where the note lies."""
        return self.folder / FILE

    def read(self) -> Note | None:
        """The note that an earlier demo left; None where there is none. Raises SettingsError for what cannot be read."""
        try:
            return Note.from_json(self.file.read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            reason = f"cannot be read ({error}); it tells how an interface was before a demo changed it. Remove it when the interface is in order"
            raise errors.SettingsError(reason, key=str(self.file)) from error

    def write(self, note: Note) -> None:
        """Remember; when this returns, a power cut does not forget it. Raises SettingsError."""
        fresh = self.folder / f"{FILE}.new"
        try:
            with fresh.open("w", encoding="utf-8") as file:
                file.write(note.to_json())
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(self.file)
            files.sync_directory(self.folder)
            files.sync_directory(self.folder.parent)
        except OSError as error:
            raise errors.SettingsError(f"cannot be written: {error.strerror}", key=str(self.file)) from error

    def forget(self) -> None:
        """The interface is as it was: the note goes."""
        self.file.unlink(missing_ok=True)
        files.sync_directory(self.folder)

    def check(self) -> None:
        """Raise SettingsError where the demo could not work in it: a folder that was given has something in it, or its path is too long."""
        if self.is_given and any(entry.name != LOCK for entry in self.folder.iterdir()):
            raise errors.SettingsError(f"{self.folder} is not empty, and the demo begins with an empty node; give a new folder", key=_KEY)
        if len(os.fsencode(self.folder)) > _PATH_MAX:
            raise errors.SettingsError(f"{self.folder} has more than {_PATH_MAX} bytes, and sockets need short paths", key=_KEY)

    def clear(self) -> None:
        """Remove what an earlier demo kept here beside the note."""
        shutil.rmtree(self.node, ignore_errors=True)
        self.log.unlink(missing_ok=True)

    def leave(self) -> None:
        """Remove the folder, and those above that nothing else is in; one that was given stays."""
        if self.is_given:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            for folder in (STATE, STATE.parent):
                folder.rmdir()


@contextlib.contextmanager
def held(place: Place) -> Iterator[None]:
    """The place, made where it is missing, for its owner only; raises SettingsError where another demo is at work in it."""
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


def _lock(descriptor: int, place: Place) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise errors.SettingsError(f"another demo is at work in {place.folder}; wait for its end", key="--nic") from error


@contextlib.contextmanager
def alone_on(interface: str, ifindex: int) -> Iterator[None]:
    """The interface; raises SettingsError that names the demo which is at work on it."""
    name = _NAMED.format(ifindex)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mine:
        try:
            mine.bind(name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            reason = f"another demo is at work on {interface}{_owner(name)}; wait for its end"
            raise errors.SettingsError(reason, key="--nic") from error
        mine.listen()
        yield


def _owner(name: str) -> str:
    """The process that holds a name, for people; empty where it cannot be told."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.connect(name)
        pid, _, _ = _CREDENTIALS.unpack(other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        return f" (pid {pid})"
    return ""
