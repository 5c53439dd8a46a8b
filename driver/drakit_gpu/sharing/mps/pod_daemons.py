"""MPS daemons in pods of their own: they keep running when the driver's container ends, and the next driver finds them by their folder.

A pod's name is derived from the node and the folder's path. The pod runs ``supervisor``, which starts the daemon, sets its limits, and answers on a
socket in the folder. The driver itself sends the daemon nothing: the pipe folder is writable for containers, and the process that listens there
can only be checked within the daemon's own PID namespace. While the socket answers, prepare, start and unprepare need no API server.

``sweep`` deletes a pod whose claim is gone (the API server was away, or the driver's folder was removed). It never stops a daemon that serves,
because a driver that lost its journal knows no claims.
"""

import contextlib
import dataclasses
import hashlib
import logging
import pathlib
import time
from collections.abc import Callable, Collection

from drakit.core import edits, errors, ports
from drakit_gpu import host
from drakit_gpu.sharing import gpu_settings
from drakit_gpu.sharing.mps import child_daemons, daemon_folder, supervisor

FOLDER_VARIABLE = "MPS_FOLDER"
NAME_PREFIX = "drakit-mps-"
_COMPONENT = "mps-daemon"
_POLL_SECONDS, _END_POLL_SECONDS = 0.1, 0.3
_POD_CHECK_SECONDS = 1.0

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodDaemons:
    """``daemon_folder.Daemons`` in pods. ``start_seconds`` is how long a pod may take to start, ``end_seconds`` to end where it does not answer.

    ``own_shm`` and ``stop_seconds`` are as in ``child_daemons.ChildDaemons``. The kubelet gives up a prepare after 45 s and retries; the retry finds
    what the first call finished.
    """

    pods: ports.PodStore
    home: pathlib.Path
    root: host.DriverRoot
    own_shm: bool = True
    start_seconds: float = 60.0
    stop_seconds: float = 5.0
    end_seconds: float = 30.0
    pause: Callable[[float], None] = time.sleep

    def ensure(self, grant: str, device: str, wanted: gpu_settings.Mps, *, claim: str = "") -> None:
        """Create the pod unless its daemon serves; raises ApiError, HardwareError."""
        folder = daemon_folder.path_of(self.home, grant)
        if supervisor.is_running(folder):
            return
        try:
            is_new = not folder.exists()
            daemon_folder.create(folder)
            if self.own_shm and is_new:
                daemon_folder.mount_shared_memory(folder)
            supervisor.DaemonSpec(
                grant=grant,
                device=device,
                limits=wanted,
                root=self.root.path,
                folders=self.root.folders,
                own_shm=self.own_shm,
                stop_seconds=self.stop_seconds,
            ).write(folder)
        except OSError as error:
            raise errors.HardwareError(child_daemons.CONTROL, f"cannot be started: {error}") from error
        self._run(self._pod(folder, grant, device, claim))

    def check(self, grant: str) -> None:
        """Wait until the daemon answers; raises HardwareError if it does not, or if its pod does not start."""
        folder = daemon_folder.path_of(self.home, grant)
        end, next_check = time.monotonic() + self.start_seconds, 0.0
        while True:
            with contextlib.suppress(OSError):
                failure = supervisor.send_request(folder, supervisor.CHECK)
                if failure:
                    reason = failure.removeprefix(f"{child_daemons.CONTROL}: ")
                    raise errors.HardwareError(child_daemons.CONTROL, f"pod {self._name(folder)}: {reason}")
                return
            if time.monotonic() >= next_check:
                self._check_pod(folder, is_last=time.monotonic() >= end)
                next_check = time.monotonic() + _POD_CHECK_SECONDS
            self.pause(_POLL_SECONDS)

    def stop(self, grant: str) -> None:
        """End the daemon, delete its pod and remove its folder. Raises HardwareError where the daemon may live on."""
        folder = daemon_folder.path_of(self.home, grant)
        if folder.exists():
            self._remove(folder)

    def running(self) -> Collection[str]:
        """Return the names of the folders whose supervisor answers. A supervisor ends with its folder."""
        folders = [folder for folder in self.home.iterdir() if folder.is_dir()] if self.home.is_dir() else []
        return [folder.name for folder in folders if supervisor.is_running(folder)]

    def name_of(self, grant: str) -> str:
        """Return the name of the folder of a grant's daemon."""
        return daemon_folder.name_of(grant)

    def end_folder(self, name: str) -> None:
        """End the daemon of the folder of this name, delete its pod and remove the folder. Raises HardwareError where the daemon may live on."""
        if (self.home / name).exists():
            self._remove(self.home / name)

    def _remove(self, folder: pathlib.Path) -> None:
        is_stopped = _is_stopped(folder)
        try:
            self.pods.delete(self._name(folder))
            if not is_stopped:
                self._wait_for_end(self._name(folder))
        except errors.ApiError as error:
            if not is_stopped:
                raise errors.HardwareError(
                    child_daemons.CONTROL, f"pod {self._name(folder)} does not answer and cannot be deleted: {error}"
                ) from error
            _log.warning("MPS pod not deleted", extra={"pod": self._name(folder), "error": str(error)})
        try:
            daemon_folder.remove(folder)
        except OSError as error:
            raise errors.HardwareError(child_daemons.CONTROL, f"cannot remove {folder}: {error}") from error

    def sweep(self, claimed: Callable[[], Collection[str]]) -> None:
        """Delete the pods and remove the folders of unknown grants. A pod that still serves is kept; an API error is logged."""
        try:
            names = set(self.pods.names())
        except errors.DrakitError as error:
            _log.warning("listing MPS pods failed", extra={"error": str(error)})
            names = set()
        present = [folder for folder in self.home.iterdir() if folder.is_dir()] if self.home.is_dir() else []
        if not (names or present):
            return
        kept = {daemon_folder.path_of(self.home, grant) for grant in claimed()}
        for folder in present:
            if folder in kept:
                continue
            if supervisor.is_running(folder):
                _log.warning("MPS daemon of an unknown claim left running", extra={"pod": self._name(folder), "path": str(folder)})
                kept.add(folder)
                continue
            with contextlib.suppress(OSError):
                daemon_folder.remove(folder)
        for name in sorted(names - {self._name(folder) for folder in kept}):
            try:
                self.pods.delete(name)
                _log.info("MPS pod of an unknown claim deleted", extra={"pod": name})
            except errors.DrakitError as error:
                _log.warning("MPS pod not deleted", extra={"pod": name, "error": str(error)})

    def is_alive(self, grant: str) -> bool:
        """Return whether the daemon's supervisor runs. It ends with the daemon."""
        return supervisor.is_running(daemon_folder.path_of(self.home, grant))

    def access(self, grant: str) -> edits.Edits:
        """Return the edits that connect a container to the daemon of a grant."""
        return daemon_folder.access(daemon_folder.path_of(self.home, grant))

    def _run(self, pod: ports.PodRequest) -> None:
        """Create the pod unless it exists. A pod that the kubelet will not run is deleted first."""
        try:
            state = self.pods.state(pod.name)
            if state is not None and state.phase is ports.PodPhase.OVER:
                _log.warning("MPS pod is over and is replaced", extra={"pod": pod.name, "reason": state.message})
                self.pods.delete(pod.name)
                self._wait_for_end(pod.name)
                state = None
            if state is not None and state.phase is ports.PodPhase.ENDING:
                self._wait_for_end(pod.name)
                state = None
            if state is None:
                self.pods.create(pod)
        except errors.ApiError as error:
            text = f"the pod of the claim's MPS daemon cannot be created: {error}"
            raise errors.ApiError(text, status=error.status, reason=error.reason) from error

    def _check_pod(self, folder: pathlib.Path, *, is_last: bool) -> None:
        """Raise HardwareError where the pod fails, or still does not serve at the last check."""
        name = self._name(folder)
        try:
            state = self.pods.state(name)
        except errors.ApiError as error:
            state = ports.PodState(phase=ports.PodPhase.STARTING, message=str(error))
        if state is None:
            raise errors.HardwareError(child_daemons.CONTROL, f"the claim's daemon does not run: there is no pod {name}")
        if state.phase in {ports.PodPhase.FAILING, ports.PodPhase.OVER}:
            raise errors.HardwareError(child_daemons.CONTROL, f"pod {name} of the claim's daemon fails: {state.message or 'see its log'}")
        if is_last:
            reason = f": {state.message}" if state.message else ""
            raise errors.HardwareError(
                child_daemons.CONTROL, f"pod {name} of the claim's daemon is {state.phase.value} for {self.start_seconds:g} s{reason}"
            )

    def _wait_for_end(self, name: str) -> None:
        end = time.monotonic() + self.end_seconds
        while self.pods.state(name) is not None:
            if time.monotonic() > end:
                raise errors.HardwareError(child_daemons.CONTROL, f"pod {name} does not end within {self.end_seconds:g} s")
            self.pause(_END_POLL_SECONDS)

    def _name(self, folder: pathlib.Path) -> str:
        """Return the name of a folder's pod. It depends on the node, because an unreachable node may still have a pod for the same claim."""
        return f"{NAME_PREFIX}{hashlib.sha256(f'{self.pods.node}:{folder}'.encode()).hexdigest()[:16]}"

    def _pod(self, folder: pathlib.Path, grant: str, device: str, claim: str) -> ports.PodRequest:
        uid, name, _ = f"{grant}//".split("/", 2)
        return ports.PodRequest(
            name=self._name(folder),
            labels={"app.kubernetes.io/component": _COMPONENT, "drakit.dev/claim-uid": uid, "drakit.dev/device": name},
            annotations={"drakit.dev/claim": claim, "drakit.dev/device-uuid": device},
            environment={FOLDER_VARIABLE: str(folder)},
        )


def _is_stopped(folder: pathlib.Path) -> bool:
    """Send ``stop`` to the supervisor, and return whether the daemon has ended."""
    with contextlib.suppress(OSError):
        failure = supervisor.send_request(folder, supervisor.STOP)
        if failure:
            _log.warning("MPS daemon not ended by its supervisor", extra={"path": str(folder), "error": failure})
        return not failure
    return False
