"""The control daemon of NVIDIA's Multi-Process Service (MPS), as a child process of ``supervisor`` in the pod of one grant.

Every process of the daemon has the grant's folder in its environment. ``stop`` ends the daemon by its own command, then by signals, and succeeds only
when all these processes are gone. This was tested on a stand-in for the daemon, not on hardware.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import drakit
from drakit_gpu import driver_root, identity, programs
from drakit_gpu.sharing.mps import daemon_folder, launcher, processes

CONTROL = "nvidia-cuda-mps-control"
_READY_SECONDS = 15.0
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.05
_FILE = 0o600
_MIB = 1 << 20


class ControlDaemon:
    """The daemon of a grant's folder.

    ``own_shm`` gives it the folder's ``shm`` as /dev/shm, and protects it from files of containers in its folders (see ``launcher``). That takes
    CAP_SYS_ADMIN. ``stop_seconds`` is the time limit for each of three requests to stop.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        root: driver_root.DriverRoot,
        *,
        own_shm: bool,
        stop_seconds: float = 5.0,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder, self._root, self._own_shm = folder, root, own_shm
        self._stop_seconds, self._pause = stop_seconds, pause
        self._pipe, self._log = folder / daemon_folder.PIPE, folder / daemon_folder.LOG
        self._variable = daemon_folder.variable(folder)
        self._running: subprocess.Popen[bytes] | None = None

    def start(self, device: str, wanted: identity.Mps) -> int:
        """Start the daemon on the device with this UUID, set its limits, and return its pid. Raises HardwareError."""
        self.stop()
        program = self._program()
        if program is None:
            fix = "install it, it comes with NVIDIA's driver, or correct gpu.driver_root"
            raise drakit.HardwareError(CONTROL, f"is not installed below {self._root.path}; MPS needs it: {fix}")
        options = ["-multiuser-server"] if wanted.multi_user else []
        command = [*self._launcher(self._folder / daemon_folder.SHM), str(program), "-f", *options]
        try:
            daemon_folder.clear_pipe(self._pipe)
            with os.fdopen(os.open(self._start_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _FILE), "wb") as log:
                env = {**self._environment(), "CUDA_VISIBLE_DEVICES": device}
                self._running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True)
        except OSError as error:
            raise drakit.HardwareError(CONTROL, f"cannot be started: {error}") from error
        self._wait_until_ready(self._running)
        self._set_limits(wanted)
        return self._running.pid

    def check(self) -> None:
        """Raise HardwareError where the daemon does not answer; it is left alone."""
        try:
            self._ping()
        except programs.ProgramError as error:
            fix = "wait, or end the claim's pods, or delete the daemon's pod to have it replaced"
            text = f"the claim's daemon does not answer ({error}); it is left running for its pods: {fix}"
            raise drakit.HardwareError(CONTROL, text) from error

    def stop(self) -> None:
        """Stop every process of the daemon: by its own command, then by SIGTERM, then by SIGKILL. Raises HardwareError where one does not end."""
        if self._living():
            with contextlib.suppress(programs.ProgramError):
                self._send_command("quit")
            for number in (signal.SIGTERM, signal.SIGKILL):
                for process in self._wait_for_end():
                    process.send(number)
            if living := self._wait_for_end():
                raise drakit.HardwareError(CONTROL, f"processes {', '.join(str(process.pid) for process in living)} do not end")
        if self._running is not None:
            # It has ended or ends now; only its parent can remove it from the process table.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._running.wait(self._stop_seconds)

    @property
    def _start_log(self) -> pathlib.Path:
        return self._log / "start.log"

    def _program(self) -> pathlib.Path | None:
        return self._root.program(CONTROL)

    def _launcher(self, shm: pathlib.Path | None = None) -> Sequence[str]:
        """Return the command line that starts a program with protected folders."""
        return [sys.executable, "-IS", launcher.__file__, str(self._pipe), str(shm or launcher.NO_FOLDER)] if self._own_shm else []

    def _environment(self) -> Mapping[str, str]:
        library_path = [str(place) for place in self._root.library_folders()]
        below = {} if self._root.path == pathlib.Path("/") else {"LD_LIBRARY_PATH": ":".join(library_path)}
        path = ":".join(str(self._root.path / place) for place in driver_root.PROGRAM_FOLDERS)
        return {"PATH": path, daemon_folder.PIPE_VARIABLE: str(self._pipe), "CUDA_MPS_LOG_DIRECTORY": str(self._log), **below}

    def _wait_until_ready(self, running: "subprocess.Popen[bytes]") -> None:
        """Wait until the daemon answers. Raises HardwareError where it ends first, and on a timeout."""
        end = time.monotonic() + _READY_SECONDS
        while True:
            with contextlib.suppress(programs.ProgramError):
                self._ping()
                return
            if running.poll() is not None:
                raise drakit.HardwareError(CONTROL, f"ended at once: {_last_lines(self._start_log)}")
            if time.monotonic() > end:
                raise drakit.HardwareError(CONTROL, f"does not answer; see {self._log}")
            self._pause(_POLL_SECONDS)

    def _set_limits(self, wanted: identity.Mps) -> None:
        """Set the limits. The daemon sees one device, so its number is 0; the memory limit is in whole mebibytes, rounded down."""
        if wanted.percentage is not None:
            self._send_command(f"set_default_active_thread_percentage {wanted.percentage}")
        if wanted.memory is not None:
            self._send_command(f"set_default_device_pinned_mem_limit 0 {wanted.memory // _MIB}M")

    def _ping(self) -> None:
        self._send_command("get_default_active_thread_percentage")

    def _send_command(self, command: str) -> None:
        """Send a command with NVIDIA's own program, if the daemon itself listens, because the program runs as root. Raises ProgramError."""
        program = self._program()
        if program is None:
            raise programs.ProgramError(CONTROL, f"is not installed below {self._root.path}")
        pid = daemon_folder.control_listener(self._pipe)
        if pid is None:
            raise programs.ProgramError(CONTROL, "no process listens on the control socket")
        listener = processes.Process.find(pid)
        if listener is None or not listener.has_environment(self._variable):
            raise programs.ProgramError(
                CONTROL, "a process other than the daemon listens on the control socket; a pod of the claim put it there"
            )
        seconds, env, before = _ANSWER_SECONDS, self._environment(), self._launcher()
        programs.run_program(program, seconds=seconds, env=env, standard_input=f"{command}\n", before=before)

    def _living(self) -> list[processes.Process]:
        if self._running is not None:
            self._running.poll()
        return list(processes.with_environment(self._variable))

    def _wait_for_end(self) -> list[processes.Process]:
        end = time.monotonic() + self._stop_seconds
        while (living := self._living()) and time.monotonic() < end:
            self._pause(_POLL_SECONDS)
        return living


def _last_lines(log: pathlib.Path) -> str:
    with contextlib.suppress(OSError):
        text = log.read_text("utf-8", "replace").strip()
        end = text[-300:]
        whole_lines = end.partition("\n")[2] if end != text else end
        return " ".join((whole_lines or end).split())
    return "its log is empty"
