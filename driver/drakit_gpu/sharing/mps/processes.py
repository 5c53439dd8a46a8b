"""The processes of an MPS daemon, found by the daemon's record in its folder, or by the folder in their environment.

A process is identified by pid and start time, because pids are reused (proc(5), stat field 22). A process that has ended and is not yet reaped (a
zombie) counts as gone.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
from collections.abc import Iterator

from drakit_gpu.sharing.mps import daemon_folder

CONTROL = "nvidia-cuda-mps-control"

RECORD = "daemon.json"
_FILE = 0o600

_PROC = pathlib.Path("/proc")
_PIDS = "ns/pid"
_STATE, _START = 0, 19  # fields after the name, counted from 0
_ENDED = frozenset("ZX")


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Process:
    """A pid and its start time in ticks since boot."""

    pid: int
    start: int

    @classmethod
    def find(cls, pid: int) -> "Process | None":
        """Return the living process of a pid, or None."""
        try:
            text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
        except OSError:
            return None
        fields = text.rpartition(")")[2].split()
        return None if fields[_STATE] in _ENDED else cls(pid=pid, start=int(fields[_START]))

    def is_alive(self) -> bool:
        """Return whether the process still runs."""
        return Process.find(self.pid) == self

    def has_environment(self, variable: str) -> bool:
        """Return whether the process started with this ``NAME=value`` in its environment; False where that cannot be read.

        A process in another PID namespace, a container's for example, is not counted: it can be started with any environment.
        """
        with contextlib.suppress(OSError):
            folder = _PROC / str(self.pid)
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                return (folder / _PIDS).readlink() == (_PROC / "self" / _PIDS).readlink()
        return False

    def command_line(self) -> tuple[str, ...]:
        """Return the command line; empty where it cannot be read."""
        with contextlib.suppress(OSError):
            return tuple((_PROC / str(self.pid) / "cmdline").read_text("utf-8", "replace").split("\0"))
        return ()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process is gone."""
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.is_alive():
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def with_environment(variable: str) -> Iterator[Process]:
    """Return all living processes that started with this ``NAME=value`` in their environment."""
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and (process := Process.find(int(folder.name))) is not None and process.has_environment(variable):
            yield process


def folders_in_use(home: pathlib.Path) -> frozenset[str]:
    """Return the names of the folders below ``home`` whose daemons have living processes, also where the folder was deleted."""
    prefix, end = f"{daemon_folder.PIPE_VARIABLE}={home}/".encode(), f"/{daemon_folder.PIPE}".encode()
    names = set()
    for folder in (folder for folder in _PROC.iterdir() if folder.name.isdigit()):
        with contextlib.suppress(OSError):
            for variable in (folder / "environ").read_bytes().split(b"\0"):
                name = variable.removeprefix(prefix).removesuffix(end).decode(errors="replace")
                if variable.startswith(prefix) and variable.endswith(end) and "/" not in name and live_processes(home / name):
                    names.add(name)
    return frozenset(names)


def reap(pid: int) -> None:
    """Reap an ended child of this process; do nothing for any other."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DaemonRecord:
    """A daemon's process, and whether its limits are set."""

    running: Process
    limited: bool = False


def write_record(folder: pathlib.Path, record: DaemonRecord) -> None:
    """Write the record durably: before the launcher runs the daemon, and again once its limits are set."""
    file, beside = folder / RECORD, folder / "daemon.new"
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE), "w", encoding="ascii") as stream:
        json.dump({"pid": record.running.pid, "start": record.running.start, "limited": record.limited}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(file)


def read_record(folder: pathlib.Path) -> DaemonRecord | None:
    """Return the recorded process; None for a file that cannot be read."""
    try:
        document = json.loads((folder / RECORD).read_text("ascii"))
        running = Process(pid=int(document["pid"]), start=int(document["start"]))
        return DaemonRecord(running=running, limited=document.get("limited", True) is not False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def variable(folder: pathlib.Path) -> str:
    """Return the ``NAME=value`` that all processes of the folder's daemon have in their environment."""
    return f"{daemon_folder.PIPE_VARIABLE}={folder / daemon_folder.PIPE}"


def running_daemon(folder: pathlib.Path) -> DaemonRecord | None:
    """Return the running daemon. A process of another boot with the same pid and start time does not have its environment.

    Without a readable record it is the process that has the environment and runs the control program as a daemon.
    """
    record = read_record(folder)
    if record is not None:
        return record if _is_alive(record.running) and record.running.has_environment(variable(folder)) else None
    if not folder.exists():
        return None
    return next((DaemonRecord(running=process) for process in live_processes(folder) if _is_daemon(process)), None)


def _is_daemon(running: Process) -> bool:
    arguments = running.command_line()
    return "-f" in arguments and any(pathlib.PurePath(argument).name == CONTROL for argument in arguments)


def has_ended(folder: pathlib.Path) -> bool:
    """Return whether the daemon that was just started has ended. The environment is not checked: it reads as empty during the launcher's exec."""
    record = read_record(folder)
    return record is None or not _is_alive(record.running)


def _is_alive(process: Process) -> bool:
    reap(process.pid)
    return process.is_alive()


def live_processes(folder: pathlib.Path) -> list[Process]:
    """Return the daemon and all processes that it started."""
    if (record := read_record(folder)) is not None:
        reap(record.running.pid)
    return sorted(with_environment(variable(folder)))
