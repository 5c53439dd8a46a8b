"""NVIDIA's Multi-Process Service: one control daemon for each grant that wants one, whose life is the grant's and not this process's.

Everything of a daemon is in a folder below ``home``: its ``pipe`` (what clients connect to), its ``shm`` (what it has as /dev/shm, and its clients
too: see ``shm``), its ``log``, and ``daemon.json``, which names the process. The folder's name is made of the grant, so that it can be found again
knowing nothing else. ``home`` and the folder have mode 0700; what lies in them is open to users inside containers, who reach it by mounts alone.
What containers may put into ``pipe`` is not trusted (see ``pipes``).

A daemon is started in a session of its own behind a gate (see ``gate``), which opens once ``daemon.json`` is on disk: whenever this process dies,
there is no daemon that nobody knows of. While its claim is prepared, a daemon that runs is never ended, however slow it is, because containers may
use it; only a dead one is replaced. When the claim is unprepared it is stopped by its own command, then by signals, and stopping succeeds only
when every process that has its folder in the environment is seen to be gone. Tried on a stand-in for the daemon, not on hardware.
"""

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping

from drakit.core import edits, errors
from drakit.devices.gpu.cdi import driver_root
from drakit.devices.gpu.sharing import gpu_settings
from drakit.devices.gpu.sharing.mps import daemon_folder, launcher, processes

CONTROL = "nvidia-cuda-mps-control"
PIPE_VARIABLE = daemon_folder.PIPE_VARIABLE
_PIPE, _SHM, _RECORD = daemon_folder.PIPE, daemon_folder.SHM, "daemon.json"
_READY_SECONDS = 15.0
_POLL_SECONDS = 0.05
_FILE = 0o600
_MIB = 1 << 20

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChildDaemons:
    """The control daemons of a node; ``home`` is None where this process has no folder of its own, and then there are none.

    ``own_shm`` gives each a /dev/shm of its own, in memory, and guards it against what containers put into its folders (see ``gate``), which takes
    CAP_SYS_ADMIN. ``answer_seconds`` is how long it may take to answer a command, ``stop_seconds`` to follow each of three requests to end.
    """

    home: pathlib.Path | None = None
    root: driver_root.DriverRoot = dataclasses.field(default_factory=driver_root.DriverRoot)
    own_shm: bool = True
    answer_seconds: float = 5.0
    stop_seconds: float = 5.0
    pause: Callable[[float], None] = time.sleep

    def ensure(self, grant: str, device: str, wanted: gpu_settings.Mps, *, claim: str = "") -> None:
        """Start the MPS daemon of a grant with its limits, on the device with this UUID. Raises HardwareError.

        A running daemon is left alone. Its limits are set if they were not, because an earlier driver may have died before it set them.
        """
        del claim  # nobody sees it of a process
        folder = self._folder(grant)
        record = _running_daemon(folder)
        if record is not None and record.limited:
            return
        try:
            if record is not None:
                _write_record(folder, record)
            # What a driver that died had started may also be a gate, which ends by itself.
            if record is None or not self._answers_in_time(folder):
                self._replace(folder, device, wanted)
                if not self._answers_in_time(folder):
                    raise errors.HardwareError(CONTROL, f"ended at once: {_end_of_log(folder)}")
            self._limit(folder, wanted)
            self._record_limits(folder)
        except OSError as error:
            raise errors.HardwareError(CONTROL, f"cannot be started: {error}") from error

    def check(self, grant: str) -> None:
        """Raise HardwareError where a grant's daemon does not run or does not answer; it is left as it is."""
        folder = self._folder(grant)
        record = _running_daemon(folder)
        if record is None:
            raise errors.HardwareError(CONTROL, "the claim's daemon does not run")
        try:
            self._ping(folder)
        except driver_root.ProgramError as error:
            fix = "wait, or end the claim's pods, or end that process to have it replaced"
            raise errors.HardwareError(
                CONTROL,
                f"the claim's daemon, process {record.running.pid}, does not answer ({error}); it is left running for its pods: {fix}",
            ) from error

    def stop(self, grant: str) -> None:
        """End the daemon of a grant and remove its folder; nothing to stop is success. Raises HardwareError when something of it lives on."""
        if self.home is None:
            return
        folder = self._folder(grant)
        if not folder.exists():
            return
        self._end(folder)
        try:
            daemon_folder.remove(folder)
        except OSError as error:
            raise errors.HardwareError(CONTROL, f"cannot remove {folder}: {error}") from error

    def sweep(self, known: Callable[[], Collection[str]]) -> None:
        """Remove folders without a grant or a process: a power cut may take the last that the journal knew. ``known`` is asked after looking."""
        found = [] if self.home is None or not self.home.is_dir() else [folder for folder in self.home.iterdir() if folder.is_dir()]
        kept = {self._folder(grant) for grant in known()} if found else set()
        for folder in found:
            if folder not in kept and not _live_processes(folder):
                with contextlib.suppress(OSError):
                    daemon_folder.remove(folder)

    def is_alive(self, grant: str) -> bool:
        """Whether a grant's daemon is there; it is not asked anything, so this is cheap. None is where there is no home."""
        return self.home is not None and _running_daemon(self._folder(grant)) is not None

    def process(self, grant: str) -> processes.Process | None:
        """Return the process of a grant's daemon, None where it does not run."""
        record = _running_daemon(self._folder(grant))
        return None if record is None else record.running

    def end(self, grant: str) -> None:
        """End every process of a grant's daemon, and leave its folder. Raises HardwareError when something of it lives on."""
        self._end(self._folder(grant))

    def access(self, grant: str) -> edits.Edits:
        """What a container gets to use the daemon of a grant."""
        return daemon_folder.access(self._folder(grant))

    def _folder(self, grant: str) -> pathlib.Path:
        if self.home is None:
            raise errors.HardwareError(CONTROL, "this driver has no folder to keep daemons in")
        return daemon_folder.path_of(self.home, grant)

    def _replace(self, folder: pathlib.Path, device: str, wanted: gpu_settings.Mps) -> None:
        """Start a daemon where none runs; what a dead one left is ended first. Raises OSError and HardwareError."""
        self._end(folder)
        program = self.root.program(CONTROL)
        if program is None:
            fix = "install it, it comes with NVIDIA's driver, or correct gpu.driver_root"
            raise errors.HardwareError(CONTROL, f"is not installed below {self.root.path}; MPS needs it: {fix}")
        daemon_folder.create(folder)
        daemon_folder.clear_pipe(folder / _PIPE)
        # Containers that run have the folder as it was when its first daemon started, so from then on it is left as it is.
        if self.own_shm and not (folder / _RECORD).exists():
            daemon_folder.mount_shared_memory(folder)
        self._start(folder, program, device, wanted)

    def _start(self, folder: pathlib.Path, program: pathlib.Path, device: str, wanted: gpu_settings.Mps) -> None:
        options = ["-multiuser-server"] if wanted.multi_user else []
        command = [*self._launcher_command("shut", folder, folder / _SHM), str(program), "-f", *options]
        closed, opener = os.pipe()
        log = os.open(folder / "log" / "start.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _FILE)
        try:
            standard = [(os.POSIX_SPAWN_DUP2, closed, 0), (os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
            env = {**self._environment(folder), "CUDA_VISIBLE_DEVICES": device}
            pid = os.posix_spawn(sys.executable, command, env, file_actions=standard, setsid=True)
            os.close(closed)
            closed = -1
            found = processes.Process.find(pid)
            if found is not None:
                _write_record(folder, _DaemonRecord(running=found))
                os.write(opener, b"!")
        except OSError as error:
            raise errors.HardwareError(CONTROL, f"cannot be started: {error}") from error
        finally:
            for descriptor in (closed, opener, log):
                if descriptor >= 0:
                    os.close(descriptor)

    def _launcher_command(self, when: str, folder: pathlib.Path, shm_folder: pathlib.Path | None = None) -> list[str]:
        """The words before those of a program that sees the folders guarded."""
        own = [str(folder / _PIPE), str(shm_folder or "-")] if self.own_shm else ["-", "-"]
        return [sys.executable, "-I", launcher.__file__, when, *own]

    def _environment(self, folder: pathlib.Path) -> Mapping[str, str]:
        library_path = [str(place) for place in self.root.library_folders()]
        below = {} if self.root.path == pathlib.Path("/") else {"LD_LIBRARY_PATH": ":".join(library_path)}
        path = ":".join(str(self.root.path / place) for place in driver_root.PROGRAM_FOLDERS)
        return {"PATH": path, PIPE_VARIABLE: str(folder / _PIPE), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"), **below}

    def _answers_in_time(self, folder: pathlib.Path) -> bool:
        """Wait until the daemon that is remembered answers; False where it has ended. Raises HardwareError where it does neither; it is left."""
        end = time.monotonic() + _READY_SECONDS
        while not self._answers(folder):
            if _has_ended(folder):
                return False
            if time.monotonic() > end:
                raise errors.HardwareError(CONTROL, f"does not answer; see {folder / 'log'}")
            self.pause(_POLL_SECONDS)
        return True

    def _limit(self, folder: pathlib.Path, wanted: gpu_settings.Mps) -> None:
        """The daemon sees one device, so its number is 0; a limit is told in whole mebibytes, rounded down."""
        if wanted.percentage is not None:
            self._send_command(folder, f"set_default_active_thread_percentage {wanted.percentage}")
        if wanted.memory is not None:
            self._send_command(folder, f"set_default_device_pinned_mem_limit 0 {wanted.memory // _MIB}M")

    def _answers(self, folder: pathlib.Path) -> bool:
        try:
            self._ping(folder)
        except driver_root.ProgramError:
            return False
        return True

    def _ping(self, folder: pathlib.Path) -> None:
        self._send_command(folder, "get_default_active_thread_percentage")

    def _send_command(self, folder: pathlib.Path, words: str) -> str:
        """A command to the daemon by NVIDIA's own program, which runs as root and so talks to nobody else. Raises ProgramError."""
        program = self.root.program(CONTROL)
        if program is None:
            raise driver_root.ProgramError(CONTROL, f"is not installed below {self.root.path}")
        pid = daemon_folder.control_listener(folder / _PIPE)
        if pid is None:
            raise driver_root.ProgramError(CONTROL, "nobody listens on the control socket")
        listener = processes.Process.find(pid)
        if listener is None or not listener.has_environment(_variable(folder)):
            raise driver_root.ProgramError(
                CONTROL, "a process other than the daemon listens on the control socket; a pod of the claim put it there"
            )
        before = self._launcher_command("open", folder)
        return driver_root.run(program, seconds=self.answer_seconds, env=self._environment(folder), words=f"{words}\n", before=before)

    def _record_limits(self, folder: pathlib.Path) -> None:
        record = _running_daemon(folder)
        if record is not None:
            _write_record(folder, dataclasses.replace(record, limited=True))

    def _end(self, folder: pathlib.Path) -> None:
        """End every process of the daemon, politely first."""
        if not _live_processes(folder):
            return
        with contextlib.suppress(driver_root.ProgramError):
            self._send_command(folder, "quit")
        for number in (signal.SIGTERM, signal.SIGKILL):
            for one in self._wait_for_end(folder):
                one.send(number)
        if living := self._wait_for_end(folder):
            raise errors.HardwareError(CONTROL, f"processes {', '.join(str(one.pid) for one in living)} do not end")

    def _wait_for_end(self, folder: pathlib.Path) -> list[processes.Process]:
        end = time.monotonic() + self.stop_seconds
        while (living := _live_processes(folder)) and time.monotonic() < end:
            self.pause(_POLL_SECONDS)
        return living


@dataclasses.dataclass(frozen=True, kw_only=True)
class _DaemonRecord:
    """A daemon's process, and whether it was told its limits: one without them is not what was granted."""

    running: processes.Process
    limited: bool = False


def _write_record(folder: pathlib.Path, record: _DaemonRecord) -> None:
    """Write down the process, durably, before the gate opens, and again once it was told its limits."""
    file, beside = folder / _RECORD, folder / "daemon.new"
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE), "w", encoding="ascii") as stream:
        json.dump({"pid": record.running.pid, "start": record.running.start, "limited": record.limited}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(file)


def _read_record(folder: pathlib.Path) -> _DaemonRecord | None:
    """The process that was written down; None for a file that cannot be read."""
    try:
        told = json.loads((folder / _RECORD).read_text("ascii"))
        running = processes.Process(pid=int(told["pid"]), start=int(told["start"]))
        return _DaemonRecord(running=running, limited=told.get("limited", True) is not False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _variable(folder: pathlib.Path) -> str:
    return f"{PIPE_VARIABLE}={folder / _PIPE}"


def _running_daemon(folder: pathlib.Path) -> _DaemonRecord | None:
    """The daemon that runs. A process of another boot that happens to have its pid and start does not have its environment.

    Without a record that can be read it is the process that has the environment and is the control program as a daemon.
    """
    record = _read_record(folder)
    if record is not None:
        return record if _is_alive(record.running) and record.running.has_environment(_variable(folder)) else None
    if not folder.exists():
        return None
    return next((_DaemonRecord(running=one) for one in _live_processes(folder) if _is_daemon(one)), None)


def _is_daemon(running: processes.Process) -> bool:
    words = running.command_line()
    return "-f" in words and any(pathlib.PurePath(word).name == CONTROL for word in words)


def _has_ended(folder: pathlib.Path) -> bool:
    """Whether the daemon that was just started is gone. Its environment is not asked for: while the gate becomes the program, it reads as empty."""
    record = _read_record(folder)
    return record is None or not _is_alive(record.running)


def _is_alive(known: processes.Process) -> bool:
    processes.reap(known.pid)
    return known.is_alive()


def _live_processes(folder: pathlib.Path) -> list[processes.Process]:
    """The daemon, and all it started."""
    if (record := _read_record(folder)) is not None:
        processes.reap(record.running.pid)
    return sorted(processes.with_environment(_variable(folder)))


def _end_of_log(folder: pathlib.Path) -> str:
    """Return the end of the log of starts, from the begin of a line where it has several."""
    with contextlib.suppress(OSError):
        said = (folder / "log" / "start.log").read_text("utf-8", "replace").strip()
        end = said[-300:]
        whole_lines = end.partition("\n")[2] if end != said else end
        return " ".join((whole_lines or end).split())
    return "it said nothing"
