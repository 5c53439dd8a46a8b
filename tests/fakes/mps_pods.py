"""A kubelet for the pods of MPS daemons: ``core.ports.PodStore`` whose pods are processes with the program of the real ones.

Each pod is a process group of its own. Like the kubelet, it starts a container again after a while, keeps what it last wrote, and ends a deleted
pod by SIGTERM, then SIGKILL. ``away`` makes every call fail as a silent API server does; ``stuck`` keeps new pods from starting, with that reason.
``served`` lets other processes use it, through ``RemotePods``.

The program is forked from a process that has imported it.
"""

import atexit
import contextlib
import dataclasses
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from multiprocessing import connection
from typing import cast

from drakit.core import errors, ports
from drakit_gpu import driver_root
from drakit_gpu.sharing.mps import daemon_folder, pod_daemons, processes, supervisor
from fakes import forked_cli

_POLL_SECONDS = 0.05


@dataclasses.dataclass(kw_only=True)
class Pod:
    """A pod with its one container; ``starts`` counts how often that was started."""

    wanted: ports.PodRequest
    running: forked_cli.Started | None = None
    starts: int = 0
    message: str = ""
    next_start: float = 0.0
    is_ending: bool = False
    is_evicted: bool = False


class FakePods:
    """``log`` holds what containers write; ``grace`` are the seconds between SIGTERM and SIGKILL, ``backoff`` those before a start after an end."""

    def __init__(self, log: pathlib.Path, *, grace: float = 5.0, backoff: float = 0.5) -> None:
        self.pods: dict[str, Pod] = {}
        self.node = "n1"
        self.calls = 0
        self.away = False
        self.stuck = ""
        self._log = log
        self._grace = grace
        self._backoff = backoff
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def create(self, pod: ports.PodRequest) -> None:
        self._called()
        with self._lock:
            self.pods.setdefault(pod.name, Pod(wanted=pod))

    def state(self, name: str) -> ports.PodState | None:
        self._called()
        with self._lock:
            pod = self.pods.get(name)
            if pod is None:
                return None
            if pod.is_ending:
                return ports.PodState(phase=ports.PodPhase.ENDING)
            if pod.is_evicted:
                return ports.PodState(phase=ports.PodPhase.OVER, message="Evicted: the node was low on memory")
            if pod.running is not None:
                return ports.PodState(phase=ports.PodPhase.RUNNING)
            return ports.PodState(
                phase=ports.PodPhase.FAILING if pod.starts else ports.PodPhase.STARTING, message=pod.message or self.stuck
            )

    def delete(self, name: str) -> None:
        self._called()
        with self._lock:
            if (pod := self.pods.get(name)) is not None and not pod.is_ending:
                pod.is_ending = True
                threading.Thread(target=self._end, args=(name, pod), daemon=True).start()

    def names(self) -> Collection[str]:
        self._called()
        with self._lock:
            return [name for name, pod in self.pods.items() if not pod.is_ending]

    def evict(self, name: str) -> None:
        """End a pod as the kubelet does when its node is short of memory: the pod stays, and never runs again."""
        with self._lock:
            pod = self.pods[name]
            pod.is_evicted = True
            self._kill(pod)

    def close(self) -> None:
        """End all pods at once."""
        self._over.set()
        self._thread.join()
        with self._lock:
            for pod in self.pods.values():
                self._kill(pod)

    def _called(self) -> None:
        self.calls += 1
        if self.away:
            raise errors.ApiError("the API server does not answer: connection refused")

    def _run(self) -> None:
        while not self._over.wait(_POLL_SECONDS):
            with self._lock:
                for pod in self.pods.values():
                    if not (pod.is_ending or pod.is_evicted or self.stuck):
                        self._keep(pod)

    def _keep(self, pod: Pod) -> None:
        if pod.running is not None and pod.running.poll() is None:
            return
        if pod.running is not None:
            # The container ends as a whole, with all that its first process started.
            self._kill(pod)
            pod.message = "Error: " + " ".join(self._log.read_text().split("\n")[-2:]).strip()
            pod.next_start = time.monotonic() + self._backoff
        if time.monotonic() < pod.next_start:
            return
        with self._log.open("ab") as log:
            folder = pod.wanted.environment[pod_daemons.FOLDER_VARIABLE]
            pod.running = _programs().start(
                *("-m", supervisor.__name__, folder),
                program="python",
                out=log.fileno(),
                folder=pathlib.Path("/"),
                environment=os.environ,
                session=True,
            )
        pod.starts += 1

    def _end(self, name: str, pod: Pod) -> None:
        running = pod.running
        if running is not None:
            running.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(self._grace)
        with self._lock:
            self._kill(pod)
            self.pods.pop(name, None)

    @staticmethod
    def _kill(pod: Pod) -> None:
        running, pod.running = pod.running, None
        if running is None:
            return
        running.send_signal(signal.SIGKILL)
        running.wait()
        variable = daemon_folder.variable(pathlib.Path(pod.wanted.environment[pod_daemons.FOLDER_VARIABLE]))
        # One that is about to be killed may start another.
        while members := list(processes.with_environment(variable)):
            for member in members:
                member.send(signal.SIGKILL)


@functools.cache
def _programs() -> forked_cli.Commands:
    """Return what starts the programs of this process's pods."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    made = forked_cli.ForkServer(folder, modules=[supervisor.__name__])
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(made.close)
    return made


def living(home: pathlib.Path) -> dict[str, list[processes.Process]]:
    """All processes of the daemons below a home, by the name of the daemon's folder."""
    found = {folder.name: sorted(processes.with_environment(daemon_folder.variable(folder))) for folder in home.glob("*")}
    return {name: running for name, running in found.items() if running}


@contextlib.contextmanager
def daemons(folder: pathlib.Path, root: driver_root.DriverRoot, *, own_shm: bool = False) -> Iterator[pod_daemons.PodDaemons]:
    """Yield daemons whose folders are in ``mps`` below a folder with a short path, because MPS has a socket in it; end them all."""
    kubelet = FakePods(folder / "pods.log", grace=0.5)
    try:
        yield pod_daemons.PodDaemons(pods=kubelet, home=folder / "mps", root=root, own_shm=own_shm, stop_seconds=0.5)
    finally:
        kubelet.close()


@contextlib.contextmanager
def served(kubelet: FakePods, address: pathlib.Path) -> Iterator[None]:
    """Serve a kubelet on a socket."""
    with connection.Listener(str(address)) as listener:
        thread = threading.Thread(target=_serve, args=(kubelet, listener), daemon=True)
        thread.start()
        try:
            yield
        finally:
            with connection.Client(str(address)) as line:
                line.send(None)
            thread.join()


def _serve(kubelet: FakePods, listener: connection.Listener) -> None:
    while True:
        with contextlib.suppress(OSError, EOFError), listener.accept() as line:  # a caller may be killed
            request = line.recv()
            if request is None:
                return
            call, arguments = request
            line.send(getattr(kubelet, call)(*arguments))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemotePods:
    """The pods of a kubelet that another process serves."""

    address: pathlib.Path
    node: str = "n1"

    def create(self, pod: ports.PodRequest) -> None:
        self._call("create", pod)

    def state(self, name: str) -> ports.PodState | None:
        return cast("ports.PodState | None", self._call("state", name))

    def delete(self, name: str) -> None:
        self._call("delete", name)

    def names(self) -> Collection[str]:
        return cast("Collection[str]", self._call("names"))

    def _call(self, name: str, *arguments: object) -> object:
        with connection.Client(str(self.address)) as line:
            line.send((name, arguments))
            return line.recv()
