"""NVIDIA's Multi-Process Service (MPS) as child processes: one control daemon for each grant that requests MPS.

The files of a daemon are in a folder below ``home`` (see ``daemon_folder``); ``daemon.json`` names its process. A daemon is started in a session of
its own through ``launcher``, which runs it once ``daemon.json`` is on disk. So whenever the driver dies, no unknown daemon runs.

While its claim is prepared, a running daemon is never stopped, even if it does not answer, because containers may use it; only a dead one is
replaced. Unprepare stops it by its own command, then by signals, and succeeds only when every process with its folder in the environment is gone.
This was tested on a stand-in for the daemon, not on hardware.
"""

import contextlib
import dataclasses
import logging
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping

from drakit.core import edits, errors
from drakit_gpu import host, programs
from drakit_gpu.sharing import gpu_settings
from drakit_gpu.sharing.mps import daemon_folder, launcher, processes

CONTROL = processes.CONTROL
PIPE_VARIABLE = daemon_folder.PIPE_VARIABLE
_PIPE, _SHM, _RECORD = daemon_folder.PIPE, daemon_folder.SHM, processes.RECORD
_READY_SECONDS = 15.0
_POLL_SECONDS = 0.05
_FILE = 0o600
_MIB = 1 << 20

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChildDaemons:
    """The control daemons of a node; ``home`` is None where the driver has no folder of its own, and then there are none.

    ``own_shm`` gives each daemon a /dev/shm of its own, in memory, and protects it from files of containers in its folders (see ``launcher``). That
    takes CAP_SYS_ADMIN. ``answer_seconds`` is the time limit for an answer, ``stop_seconds`` that for each of three requests to stop.
    """

    home: pathlib.Path | None = None
    root: host.DriverRoot = dataclasses.field(default_factory=host.DriverRoot)
    own_shm: bool = True
    answer_seconds: float = 5.0
    stop_seconds: float = 5.0
    pause: Callable[[float], None] = time.sleep

    def ensure(self, grant: str, device: str, wanted: gpu_settings.Mps, *, claim: str = "") -> None:
        """Start the MPS daemon of a grant with its limits, on the device with this UUID. Raises HardwareError.

        A running daemon is kept. Its limits are set where an earlier driver died before it set them.
        """
        del claim  # Only pods show it.
        folder = self._folder(grant)
        record = processes.running_daemon(folder)
        if record is not None and record.limited:
            return
        try:
            if record is not None:
                processes.write_record(folder, record)
            # A driver that died may also have left a launcher, which ends by itself.
            if record is None or not self._answers_in_time(folder):
                self._replace(folder, device, wanted)
                if not self._answers_in_time(folder):
                    raise errors.HardwareError(CONTROL, f"ended at once: {_end_of_log(folder)}")
            self._limit(folder, wanted)
            if (record := processes.running_daemon(folder)) is not None:
                processes.write_record(folder, dataclasses.replace(record, limited=True))
        except OSError as error:
            raise errors.HardwareError(CONTROL, f"cannot be started: {error}") from error

    def check(self, grant: str) -> None:
        """Raise HardwareError where a grant's daemon does not run or does not answer; the daemon is left alone."""
        folder = self._folder(grant)
        record = processes.running_daemon(folder)
        if record is None:
            raise errors.HardwareError(CONTROL, "the claim's daemon does not run")
        try:
            self._ping(folder)
        except programs.ProgramError as error:
            fix = "wait, or end the claim's pods, or end that process to have it replaced"
            raise errors.HardwareError(
                CONTROL,
                f"the claim's daemon, process {record.running.pid}, does not answer ({error}); it is left running for its pods: {fix}",
            ) from error

    def stop(self, grant: str) -> None:
        """Stop the daemon of a grant and remove its folder; a missing daemon is success. Raises HardwareError when a process does not end."""
        if self.home is not None and (folder := self._folder(grant)).exists():
            self._remove(folder)

    def running(self) -> Collection[str]:
        """Return the names of the folders of all daemons that run."""
        return () if self.home is None else processes.folders_in_use(self.home)

    def name_of(self, grant: str) -> str:
        """Return the name of the folder of a grant's daemon."""
        return daemon_folder.name_of(grant)

    def end_folder(self, name: str) -> None:
        """Stop the daemon of the folder of this name and remove the folder. Raises HardwareError when a process does not end."""
        if self.home is not None:
            self._remove(self.home / name)

    def _remove(self, folder: pathlib.Path) -> None:
        self._end(folder)
        if not folder.exists():
            return
        try:
            daemon_folder.remove(folder)
        except OSError as error:
            raise errors.HardwareError(CONTROL, f"cannot remove {folder}: {error}") from error

    def sweep(self, claimed: Callable[[], Collection[str]]) -> None:
        """Remove folders without a grant and a process, which a power cut may leave. ``claimed`` is called after the folders are listed."""
        folders = [] if self.home is None or not self.home.is_dir() else [folder for folder in self.home.iterdir() if folder.is_dir()]
        kept = {self._folder(grant) for grant in claimed()} if folders else set()
        for folder in folders:
            if folder not in kept and not processes.live_processes(folder):
                with contextlib.suppress(OSError):
                    daemon_folder.remove(folder)

    def is_alive(self, grant: str) -> bool:
        """Return whether a grant's daemon runs; cheap, because it sends nothing."""
        return self.home is not None and processes.running_daemon(self._folder(grant)) is not None

    def process(self, grant: str) -> processes.Process | None:
        """Return the process of a grant's daemon, None where it does not run."""
        record = processes.running_daemon(self._folder(grant))
        return None if record is None else record.running

    def end(self, grant: str) -> None:
        """Stop every process of a grant's daemon and keep its folder. Raises HardwareError when a process does not end."""
        self._end(self._folder(grant))

    def access(self, grant: str) -> edits.Edits:
        """Return the edits that connect a container to the daemon of a grant."""
        return daemon_folder.access(self._folder(grant))

    def _folder(self, grant: str) -> pathlib.Path:
        if self.home is None:
            raise errors.HardwareError(CONTROL, "this driver has no folder to keep daemons in")
        return daemon_folder.path_of(self.home, grant)

    def _replace(self, folder: pathlib.Path, device: str, wanted: gpu_settings.Mps) -> None:
        """Start a daemon where none runs; the remaining processes of a dead one are stopped first. Raises OSError and HardwareError."""
        self._end(folder)
        program = self.root.program(CONTROL)
        if program is None:
            fix = "install it, it comes with NVIDIA's driver, or correct gpu.driver_root"
            raise errors.HardwareError(CONTROL, f"is not installed below {self.root.path}; MPS needs it: {fix}")
        daemon_folder.create(folder)
        daemon_folder.clear_pipe(folder / _PIPE)
        # Running containers have mounted the folder as its first daemon found it, so a tmpfs is mounted only before that daemon.
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
            daemon = processes.Process.find(pid)
            if daemon is not None:
                processes.write_record(folder, processes.DaemonRecord(running=daemon))
                os.write(opener, b"!")
        except OSError as error:
            raise errors.HardwareError(CONTROL, f"cannot be started: {error}") from error
        finally:
            for descriptor in (closed, opener, log):
                if descriptor >= 0:
                    os.close(descriptor)

    def _launcher_command(self, when: str, folder: pathlib.Path, shm_folder: pathlib.Path | None = None) -> list[str]:
        """Return the command line that starts a program with protected folders."""
        own = [str(folder / _PIPE), str(shm_folder or "-")] if self.own_shm else ["-", "-"]
        return [sys.executable, "-I", launcher.__file__, when, *own]

    def _environment(self, folder: pathlib.Path) -> Mapping[str, str]:
        library_path = [str(place) for place in self.root.library_folders()]
        below = {} if self.root.path == pathlib.Path("/") else {"LD_LIBRARY_PATH": ":".join(library_path)}
        path = ":".join(str(self.root.path / place) for place in host.PROGRAM_FOLDERS)
        return {"PATH": path, PIPE_VARIABLE: str(folder / _PIPE), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"), **below}

    def _answers_in_time(self, folder: pathlib.Path) -> bool:
        """Wait until the recorded daemon answers; return False where it has ended. Raises HardwareError on a timeout; the daemon keeps running."""
        end = time.monotonic() + _READY_SECONDS
        while True:
            with contextlib.suppress(programs.ProgramError):
                self._ping(folder)
                return True
            if processes.has_ended(folder):
                return False
            if time.monotonic() > end:
                raise errors.HardwareError(CONTROL, f"does not answer; see {folder / 'log'}")
            self.pause(_POLL_SECONDS)

    def _limit(self, folder: pathlib.Path, wanted: gpu_settings.Mps) -> None:
        """Set the limits. The daemon sees one device, so its number is 0; the memory limit is in whole mebibytes, rounded down."""
        if wanted.percentage is not None:
            self._send_command(folder, f"set_default_active_thread_percentage {wanted.percentage}")
        if wanted.memory is not None:
            self._send_command(folder, f"set_default_device_pinned_mem_limit 0 {wanted.memory // _MIB}M")

    def _ping(self, folder: pathlib.Path) -> None:
        self._send_command(folder, "get_default_active_thread_percentage")

    def _send_command(self, folder: pathlib.Path, command: str) -> str:
        """Send a command with NVIDIA's own program, if the daemon itself listens, because the program runs as root. Raises ProgramError."""
        program = self.root.program(CONTROL)
        if program is None:
            raise programs.ProgramError(CONTROL, f"is not installed below {self.root.path}")
        pid = daemon_folder.control_listener(folder / _PIPE)
        if pid is None:
            raise programs.ProgramError(CONTROL, "no process listens on the control socket")
        listener = processes.Process.find(pid)
        if listener is None or not listener.has_environment(processes.variable(folder)):
            raise programs.ProgramError(
                CONTROL, "a process other than the daemon listens on the control socket; a pod of the claim put it there"
            )
        before = self._launcher_command("open", folder)
        return programs.run_program(
            program, seconds=self.answer_seconds, env=self._environment(folder), standard_input=f"{command}\n", before=before
        )

    def _end(self, folder: pathlib.Path) -> None:
        """Stop every process of the daemon: by its own command, then by SIGTERM, then by SIGKILL."""
        if not processes.live_processes(folder):
            return
        with contextlib.suppress(programs.ProgramError):
            self._send_command(folder, "quit")
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._wait_for_end(folder):
                process.send(number)
        if living := self._wait_for_end(folder):
            raise errors.HardwareError(CONTROL, f"processes {', '.join(str(process.pid) for process in living)} do not end")

    def _wait_for_end(self, folder: pathlib.Path) -> list[processes.Process]:
        end = time.monotonic() + self.stop_seconds
        while (living := processes.live_processes(folder)) and time.monotonic() < end:
            self.pause(_POLL_SECONDS)
        return living


def _end_of_log(folder: pathlib.Path) -> str:
    """Return the last lines of the start log."""
    with contextlib.suppress(OSError):
        text = (folder / "log" / "start.log").read_text("utf-8", "replace").strip()
        end = text[-300:]
        whole_lines = end.partition("\n")[2] if end != text else end
        return " ".join((whole_lines or end).split())
    return "its log is empty"
