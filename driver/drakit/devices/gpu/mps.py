"""NVIDIA's Multi-Process Service: one control daemon for each grant that wants one, whose life is the grant's and not this process's.

Everything of a daemon is in a folder below ``home``: its ``pipe`` (what clients connect to), its ``shm`` (what it has as /dev/shm, and its clients
too: see ``shm``), its ``log``, and ``daemon.json``, which names the process. The folder's name is made of the grant, so that it can be found again
knowing nothing else. ``home`` and the folder have mode 0700; what lies in them is open to users inside containers, who reach it by mounts alone.

A daemon is started in a session of its own behind a gate (see ``gate``), which opens once ``daemon.json`` is on disk: whenever this process dies,
there is no daemon that nobody knows of. It is stopped by its own command, then by signals, and stopping succeeds only when every process that
has its folder in the environment is seen to be gone. Tried on a stand-in for the daemon, not on hardware.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import pathlib
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping

from drakit.core import edits, errors
from drakit.devices.gpu import gate, processes, programs, roots, sharing, shm

CONTROL = "nvidia-cuda-mps-control"
PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
PIPE_IN_CONTAINER = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks for the daemon; a mount of the claim's own folder
_SHM_IN_CONTAINER = "/dev/shm"  # noqa: S108 - where CUDA shares memory with the daemon; a mount of the claim's own folder
_SHM, _NOTE = "shm", "daemon.json"
_MOUNT = ("rw", "nosuid", "nodev", "bind")
_COMMAND_SECONDS = 5.0
_READY_SECONDS = 15.0
_POLL_SECONDS = 0.05
_PRIVATE, _OPEN, _STICKY, _FILE = 0o700, 0o755, 0o1777, 0o600
_MIB = 1 << 20

_log = logging.getLogger(__name__)

# Lets a daemon run for a grant (whose), of a device (its UUID), on these terms.
Ensure = Callable[[str, str, sharing.Mps], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Daemons:
    """The control daemons of a node; ``home`` is None where this process has no folder of its own, and then there are none.

    ``own_shm`` gives each a /dev/shm of its own, in memory, which takes CAP_SYS_ADMIN. ``stop_seconds`` is how long it may take to follow each of
    three requests to end.
    """

    home: pathlib.Path | None = None
    root: roots.DriverRoot = dataclasses.field(default_factory=roots.DriverRoot)
    own_shm: bool = True
    stop_seconds: float = 5.0
    pause: Callable[[float], None] = time.sleep

    def ensure(self, grant: str, device: str, wanted: sharing.Mps) -> None:
        """Let a daemon run for a grant of a device (its UUID); one that runs already is left. Raises HardwareError; then none is left running."""
        folder = self._folder(grant)
        if _daemon(folder) is not None and _is_limited(folder) and self._answers(folder):
            return
        self._end(folder)
        program = self.root.program(CONTROL)
        if program is None:
            raise errors.HardwareError(CONTROL, f"is not installed below {self.root.path}; MPS needs it")
        try:
            _make(folder)
            self._give_memory(folder)
            self._start(folder, program, device, wanted)
            self._await(folder)
            self._limit(folder, wanted)
            _remember_limits(folder)
        except OSError as error:
            self._end(folder)
            raise errors.HardwareError(CONTROL, f"cannot be started: {error}") from error
        except BaseException:
            self._end(folder)
            raise

    def stop(self, grant: str) -> None:
        """End the daemon of a grant and remove its folder; nothing to stop is success. Raises HardwareError when something of it lives on."""
        if self.home is None:
            return
        folder = self._folder(grant)
        if not folder.exists():
            return
        self._end(folder)
        try:
            _remove(folder)
        except OSError as error:
            raise errors.HardwareError(CONTROL, f"cannot remove {folder}: {error}") from error

    def sweep(self, known: Callable[[], Collection[str]]) -> None:
        """Remove folders without a grant or a process: a power cut may take the last that the journal knew. ``known`` is asked after looking."""
        found = [] if self.home is None or not self.home.is_dir() else [folder for folder in self.home.iterdir() if folder.is_dir()]
        kept = {self._folder(grant) for grant in known()} if found else set()
        for folder in found:
            if folder not in kept and not _living(folder):
                with contextlib.suppress(OSError):
                    _remove(folder)

    def is_running(self, grant: str) -> bool:
        """Whether a grant's daemon is there and answers."""
        folder = self._folder(grant)
        return _daemon(folder) is not None and self._answers(folder)

    def is_alive(self, grant: str) -> bool:
        """Whether a grant's daemon is there; it is not asked anything, so this is cheap. None is where there is no home."""
        return self.home is not None and _daemon(self._folder(grant)) is not None

    def access(self, grant: str) -> edits.Edits:
        """What a container gets to use the daemon of a grant."""
        folder = self._folder(grant)
        places = {"pipe": PIPE_IN_CONTAINER, _SHM: _SHM_IN_CONTAINER}
        mounts = (edits.Mount(host_path=str(folder / name), container_path=place, options=_MOUNT) for name, place in places.items())
        return edits.Edits(env={PIPE_VARIABLE: PIPE_IN_CONTAINER}, mounts=tuple(mounts))

    def _folder(self, grant: str) -> pathlib.Path:
        if self.home is None:
            raise errors.HardwareError(CONTROL, "this driver has no folder to keep daemons in")
        return self.home / hashlib.sha256(grant.encode()).hexdigest()[:16]

    def _give_memory(self, folder: pathlib.Path) -> None:
        """Containers that run have the folder as it was when its first daemon started, so from then on it is left as it is."""
        if not self.own_shm or (folder / _NOTE).exists():
            return
        if not shm.give(folder / _SHM):
            _log.warning("an MPS daemon's shared memory is on the disk: mounts are not shared with the host here: folder=%s", folder / _SHM)

    def _start(self, folder: pathlib.Path, program: pathlib.Path, device: str, wanted: sharing.Mps) -> None:
        options = ["-multiuser-server"] if wanted.multi_user else []
        own = str(folder / _SHM) if self.own_shm else "-"
        command = [sys.executable, "-I", gate.__file__, own, str(program), "-f", *options]
        closed, opener = os.pipe()
        log = os.open(folder / "log" / "start.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _FILE)
        try:
            standard = [(os.POSIX_SPAWN_DUP2, closed, 0), (os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
            env = {**self._environment(folder), "CUDA_VISIBLE_DEVICES": device}
            pid = os.posix_spawn(sys.executable, command, env, file_actions=standard, setsid=True)
            os.close(closed)
            closed = -1
            found = processes.Running.find(pid)
            if found is not None:
                _remember(folder, found)
                os.write(opener, b"!")
        except OSError as error:
            raise errors.HardwareError(CONTROL, f"cannot be started: {error}") from error
        finally:
            for descriptor in (closed, opener, log):
                if descriptor >= 0:
                    os.close(descriptor)

    def _environment(self, folder: pathlib.Path) -> Mapping[str, str]:
        folders = [str(place) for place in self.root.library_folders()]
        below = {} if self.root.path == pathlib.Path("/") else {"LD_LIBRARY_PATH": ":".join(folders)}
        path = ":".join(str(self.root.path / place) for place in roots.PROGRAM_FOLDERS)
        return {"PATH": path, PIPE_VARIABLE: str(folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"), **below}

    def _await(self, folder: pathlib.Path) -> None:
        end = time.monotonic() + _READY_SECONDS
        while not self._answers(folder):
            if _has_ended(folder):
                raise errors.HardwareError(CONTROL, f"ended at once: {_last_words(folder)}")
            if time.monotonic() > end:
                raise errors.HardwareError(CONTROL, f"does not answer; see {folder / 'log'}")
            self.pause(_POLL_SECONDS)

    def _limit(self, folder: pathlib.Path, wanted: sharing.Mps) -> None:
        """The daemon sees one device, so its number is 0; a limit is told in whole mebibytes, rounded down."""
        if wanted.percentage is not None:
            self._tell(folder, f"set_default_active_thread_percentage {wanted.percentage}")
        if wanted.memory is not None:
            self._tell(folder, f"set_default_device_pinned_mem_limit 0 {wanted.memory // _MIB}M")

    def _answers(self, folder: pathlib.Path) -> bool:
        try:
            self._tell(folder, "get_default_active_thread_percentage")
        except programs.ProgramError:
            return False
        return True

    def _tell(self, folder: pathlib.Path, words: str) -> str:
        """A command to the daemon by NVIDIA's own program; raises ProgramError."""
        program = self.root.program(CONTROL)
        if program is None:
            raise programs.ProgramError(CONTROL, f"is not installed below {self.root.path}")
        return programs.run(program, seconds=_COMMAND_SECONDS, env=self._environment(folder), words=f"{words}\n")

    def _end(self, folder: pathlib.Path) -> None:
        """End every process of the daemon, politely first."""
        if not _living(folder):
            return
        with contextlib.suppress(programs.ProgramError):
            self._tell(folder, "quit")
        for number in (signal.SIGTERM, signal.SIGKILL):
            for one in self._wait_for_end(folder):
                one.send(number)
        if living := self._wait_for_end(folder):
            raise errors.HardwareError(CONTROL, f"processes {', '.join(str(one.pid) for one in living)} do not end")

    def _wait_for_end(self, folder: pathlib.Path) -> list[processes.Running]:
        end = time.monotonic() + self.stop_seconds
        while (living := _living(folder)) and time.monotonic() < end:
            self.pause(_POLL_SECONDS)
        return living


def _make(folder: pathlib.Path) -> None:
    folder.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    folder.mkdir(mode=_PRIVATE, exist_ok=True)
    for name, mode in (("pipe", _OPEN), (_SHM, _STICKY), ("log", _PRIVATE)):
        place = folder / name
        place.mkdir(exist_ok=True)
        place.chmod(mode)


def _remove(folder: pathlib.Path) -> None:
    """Remove the folder; raises OSError."""
    shm.take(folder / _SHM)
    shutil.rmtree(folder)


def _remember(folder: pathlib.Path, running: processes.Running, *, limited: bool = False) -> None:
    """Write down the process, durably, before the gate opens, and again once it was told its limits."""
    file, beside = folder / _NOTE, folder / "daemon.new"
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE), "w", encoding="ascii") as stream:
        json.dump({"pid": running.pid, "start": running.start, "limited": limited}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(file)


def _remember_limits(folder: pathlib.Path) -> None:
    running = _daemon(folder)
    if running is not None:
        _remember(folder, running, limited=True)


def _is_limited(folder: pathlib.Path) -> bool:
    """Whether the daemon was told its limits; a driver may have died in between, and a daemon without limits is not what was granted."""
    return json.loads((folder / _NOTE).read_text("ascii")).get("limited", True) is not False


def _remembered(folder: pathlib.Path) -> processes.Running | None:
    """The process that was written down; a file that cannot be read names none, and what lives of the daemon is found by its environment."""
    try:
        told = json.loads((folder / _NOTE).read_text("ascii"))
        return processes.Running(pid=int(told["pid"]), start=int(told["start"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _variable(folder: pathlib.Path) -> str:
    return f"{PIPE_VARIABLE}={folder / 'pipe'}"


def _daemon(folder: pathlib.Path) -> processes.Running | None:
    """The daemon; a process of another boot that happens to have its pid and start does not have its environment."""
    known = _remembered(folder)
    return known if known is not None and _is_alive(known) and known.bears(_variable(folder)) else None


def _has_ended(folder: pathlib.Path) -> bool:
    """Whether the daemon that was just started is gone. Its environment is not asked for: while the gate becomes the program, it reads as empty."""
    known = _remembered(folder)
    return known is None or not _is_alive(known)


def _is_alive(known: processes.Running) -> bool:
    processes.reap(known.pid)
    return known.is_alive()


def _living(folder: pathlib.Path) -> list[processes.Running]:
    """The daemon, and all it started."""
    _daemon(folder)
    return sorted(processes.bearing(_variable(folder)))


def _last_words(folder: pathlib.Path) -> str:
    with contextlib.suppress(OSError):
        return " ".join((folder / "log" / "start.log").read_text("utf-8", "replace").split())[-300:]
    return "it said nothing"
