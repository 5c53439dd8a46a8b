"""The program of an MPS daemon's pod: ``python -I -m drakit_gpu.sharing.mps.supervisor FOLDER``.

It starts the daemon that the driver described in ``FOLDER/daemon-wanted.json``, sets its limits, and then answers the driver on the socket
``FOLDER/supervisor``: ``check`` pings the daemon, ``stop`` stops it. It exits with an error when the daemon dies, so the kubelet restarts both.

It keeps serving after SIGTERM: a drain ends all pods of a node at once, and the clients need their daemon until they have ended. Then the driver
sends ``stop``; the kubelet kills a pod that was not stopped. Once stopped, or where the folder is gone, the program only waits for its end, because
the kubelet would restart it. If the pod could not be deleted, the same claim may need it again: when the driver writes a new description, the
program exits, and the kubelet restarts it for that daemon.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import signal
import socket
import sys
import threading
import types
from typing import Annotated

import drakit
from drakit import wire
from drakit_gpu import driver_root, identity
from drakit_gpu.sharing.mps import control_daemon

SOCKET = "supervisor"
CHECK, STOP = "check", "stop"
WANTED = "daemon-wanted.json"
_FILE = 0o600
_FOLDER_CHECK_SECONDS, _IDLE_SECONDS = 5.0, 1.0
_REQUEST_SECONDS = 5.0
_CONNECT_SECONDS = 2.0
_ANSWER_SECONDS = 30.0
_MESSAGE_MAX = 4096
_FORMAT = wire.Format(ignore_unknown=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DaemonSpec:
    """The daemon that a pod runs: its grant, device, limits, driver root and its library folders; driver and pod see the same paths."""

    grant: str
    device: str
    limits: identity.Mps
    root: Annotated[pathlib.Path, wire.Converter(pathlib.Path, str)]
    own_shm: Annotated[bool, wire.Field(name="own_shm")]
    stop_seconds: Annotated[float, wire.Field(name="stop_seconds")]
    folders: tuple[str, ...] = ()

    def write(self, folder: pathlib.Path) -> None:
        """Write the description for the pod. Raises OSError."""
        beside = folder / f"{WANTED}.new"
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE), "w", encoding="utf-8") as stream:
            json.dump(_FORMAT.encode(self), stream)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(folder / WANTED)

    @classmethod
    def read(cls, folder: pathlib.Path) -> "DaemonSpec":
        """Return the description that the driver wrote. Raises OSError, ValueError, ConfigError."""
        return _FORMAT.decode(cls, json.loads((folder / WANTED).read_text("utf-8")))


def is_running(folder: pathlib.Path) -> bool:
    """Return whether a supervisor serves the folder; nothing is sent."""
    with contextlib.suppress(OSError), _connected(folder):
        return True
    return False


def send_request(folder: pathlib.Path, request: str) -> str:
    """Send a request and return the error of the answer, empty for success. Raises OSError where no supervisor answers."""
    with _connected(folder) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.sendall(f"{request}\n".encode())
        with connection.makefile("rb") as answers:
            answer = answers.readline(_MESSAGE_MAX)
    if not answer.endswith(b"\n"):
        raise ConnectionResetError("the supervisor of the MPS daemon ended without an answer")
    return answer.decode("utf-8", "replace").rstrip("\n")


def _connected(folder: pathlib.Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(str(folder / SOCKET))
    except OSError:
        connection.close()
        raise
    return connection


class Supervisor:
    """One run of the program, with one daemon."""

    def __init__(self, folder: pathlib.Path, wanted: DaemonSpec) -> None:
        self._folder = folder
        self._wanted = wanted
        root = driver_root.DriverRoot(path=wanted.root, folders=wanted.folders)
        self._daemon = control_daemon.ControlDaemon(folder, root, own_shm=wanted.own_shm, stop_seconds=wanted.stop_seconds)
        self._stopped = False

    def run(self) -> int:
        """Start the daemon and serve; return an exit status. Raises HardwareError where the daemon cannot be started, OSError."""
        own, daemon = self._folder.stat().st_ino, os.pidfd_open(self._daemon.start(self._wanted.device, self._wanted.limits))
        place = self._folder / SOCKET
        place.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place))
            place.chmod(_FILE)
            listener.listen()
            while not self._stopped:
                ready, _, _ = select.select([listener.fileno(), daemon], [], [], _FOLDER_CHECK_SECONDS)
                if daemon in ready:
                    raise drakit.HardwareError(control_daemon.CONTROL, "the daemon ended; see its log")
                if listener.fileno() in ready:
                    self._serve(listener)
                if not _is_same_folder(self._folder, own):
                    self._daemon.stop()
                    self._stopped = True
        return 0

    def _serve(self, listener: socket.socket) -> None:
        """Answer one request. A connection without a request only checks that the supervisor runs."""
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(_REQUEST_SECONDS)
                with connection.makefile("rb") as requests:
                    request = requests.readline(_MESSAGE_MAX).decode("utf-8", "replace").strip()
                if request:
                    connection.sendall(f"{self._answer(request)}\n".encode())

    def _answer(self, request: str) -> str:
        try:
            match request:
                case "check":
                    self._daemon.check()
                case "stop":
                    self._daemon.stop()
                    self._stopped = True
                    (self._folder / WANTED).unlink(missing_ok=True)
                case _:
                    return f"unknown request {request!r}"
        except (drakit.DrakitError, OSError) as error:
            return " ".join(str(error).split())
        return ""


def _is_same_folder(folder: pathlib.Path, inode: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return folder.stat().st_ino == inode
    return False


def main(folder: pathlib.Path) -> int:
    """Run the program. If the daemon cannot run, the last line of the container's output is the error."""
    is_ending = threading.Event()

    def end(number: int, frame: types.FrameType | None) -> None:
        del number, frame
        is_ending.set()

    signal.signal(signal.SIGTERM, end)
    try:
        Supervisor(folder, DaemonSpec.read(folder)).run()
    except FileNotFoundError as error:
        sys.stderr.write(f"nothing to run: {error}\n")
    except (drakit.DrakitError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    while not (is_ending.wait(_IDLE_SECONDS) or (folder / WANTED).exists()):
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
