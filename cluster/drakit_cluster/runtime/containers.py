"""A container: its configuration and its state, as a real process or simulated."""

import contextlib
import enum
import os
import pathlib
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from drakit_cluster.objects import naming
from drakit_cluster.runtime.edits import Edits

_START_ERROR_CODE = 128
"""The exit code that containerd reports for a container that could not be started."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Mode(enum.Enum):
    """Whether containers with a command run it; ``ISOLATED``: in their pod's network namespace, after their ``createRuntime`` hooks."""

    PRETEND = "pretend"
    REAL = "real"
    ISOLATED = "isolated"


class State(enum.Enum):
    """The states of a container."""

    RUNNING = "running"
    EXITED = "exited"


class RuntimeFailureError(Exception):
    """A container that could not be created or started; ``reason`` is the reason that Kubernetes reports."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The pod that a sandbox is for. ``host_network``: it uses the host's network namespace."""

    namespace: str
    name: str
    uid: str
    host_network: bool = False


@dataclass(frozen=True, kw_only=True)
class Config:
    """The kubelet's request for a container. ``run_seconds`` is how long a simulated container runs; None means until it is stopped."""

    name: str
    env: Mapping[str, str]
    command: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    run_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class ContainerView:
    """A container's configuration and state. ``edits.hooks`` are the hooks that a real runtime would run."""

    pod: Identity
    name: str
    cdi_devices: tuple[str, ...]
    env: Mapping[str, str]
    edits: Edits
    state: State
    exit_code: int | None
    started_at: str
    finished_at: str
    restarts: int
    process_id: int | None
    finite: bool
    """Whether it exits by itself after a simulated run."""


class Container:
    """One running or exited container. ``on_exit`` is called once, from another thread."""

    def __init__(self, pod: Identity, config: Config, edits: Edits, restarts: int, on_exit: Callable[[], None]) -> None:
        self._pod = pod
        self._config = config
        self._edits = edits
        self._restarts = restarts
        self._on_exit = on_exit
        self._env = {**config.env, **dict(_pair(value) for value in edits.env)}
        self._lock = threading.Lock()
        self._started_at = naming.now()
        self._finished_at = ""
        self._exit_code: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._timer: threading.Timer | None = None
        self._exited = threading.Event()

    def pretend(self) -> None:
        """Simulate the container's run, without a process."""
        seconds = self._config.run_seconds
        if seconds is not None:
            self._timer = threading.Timer(seconds, self._exit, (0,))
            self._timer.daemon = True
            self._timer.start()

    def run(self, log: pathlib.Path, prefix: tuple[str, ...] = ()) -> None:
        """Run the command, with the words ``prefix`` before it, as a child process that writes to ``log``; raise RuntimeFailureError."""
        environment = {"PATH": _PATH, "HOME": "/"} | self._env
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    (*prefix, *self._config.command),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise RuntimeFailureError("StartError", f"failed to start {self._config.command[0]!r}: {error}") from error
        threading.Thread(target=self._wait, args=(self._process,), name=f"container-{self._config.name}", daemon=True).start()

    def fail_to_start(self) -> None:
        """Mark the container as exited without having run."""
        self._exit(_START_ERROR_CODE)

    def stop(self, grace: float) -> None:
        """Stop the container: SIGTERM, and after ``grace`` seconds SIGKILL. Returns when it has exited."""
        if self._timer is not None:
            self._timer.cancel()
        if self._process is None:
            self._exit(0)
            return
        self._signal(signal.SIGTERM)
        if not self._exited.wait(grace):
            self._signal(signal.SIGKILL)
            self._exited.wait()

    def view(self) -> ContainerView:
        """Return the container's current state."""
        with self._lock:
            return ContainerView(
                pod=self._pod,
                name=self._config.name,
                cdi_devices=self._config.cdi_devices,
                env=dict(self._env),
                edits=self._edits,
                state=State.RUNNING if self._exit_code is None else State.EXITED,
                exit_code=self._exit_code,
                started_at=self._started_at,
                finished_at=self._finished_at,
                restarts=self._restarts,
                process_id=self._process.pid if self._process else None,
                finite=self._process is None and self._config.run_seconds is not None,
            )

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the container's session, unless its first process has already been reaped."""
        if self._process is not None and not self._exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the first process, then kill the rest of its session before the process id can be reused."""
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        self._exit(code if code >= 0 else 128 - code)

    def _exit(self, code: int) -> None:
        with self._lock:
            if self._exit_code is not None:
                return
            self._exit_code = code
            self._finished_at = naming.now()
        self._exited.set()
        self._on_exit()


def _pair(variable: str) -> tuple[str, str]:
    name, _, value = variable.partition("=")
    return name, value
