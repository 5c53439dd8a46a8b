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
import pathlib
import time
from collections.abc import Callable, Collection

import drakit
from drakit_gpu import driver_root, identity
from drakit_gpu.sharing.mps import control_daemon, daemon_folder, supervisor

FOLDER_VARIABLE = "MPS_FOLDER"
NAME_PREFIX = "drakit-mps-"
_COMPONENT = "mps-daemon"
_POLL_SECONDS, _END_POLL_SECONDS = 0.1, 0.3
_POD_CHECK_SECONDS = 1.0
_END_SECONDS = 30.0
"""How long a pod that does not answer may take to end."""

_log = drakit.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodDaemons:
    """The MPS daemons of a node. A running daemon is never stopped while its grant is prepared, even if it does not answer.

    Without ``pods`` (no ``gpu.mps_template``) no daemon is started; the folders of grants that an earlier driver prepared are still removed. ``home``
    holds the folders; without one there are no daemons.

    ``start_seconds`` is how long a pod may take to start. ``own_shm`` and ``stop_seconds`` are as in
    ``control_daemon.ControlDaemon``. The kubelet gives up a prepare after 45 s and retries; the retry finds what the first call finished.
    """

    pods: drakit.PodStore | None = None
    home: pathlib.Path | None = None
    root: driver_root.DriverRoot = dataclasses.field(default_factory=driver_root.DriverRoot)
    own_shm: bool = True
    start_seconds: float = 60.0
    stop_seconds: float = 5.0
    pause: Callable[[float], None] = time.sleep

    def require_pods(self) -> drakit.PodStore:
        """Return the store of the pods; raises ConfigError where this node runs no MPS daemons."""
        if self.pods is None or self.home is None:
            raise drakit.ConfigError(
                "MPS is not set up on this node: its daemons run in pods, and gpu.mps_template is not set. Install the PodTemplate of drakit's "
                "manifests (chart: admissionPolicy.enabled) and set gpu.mps_template to its NAMESPACE/NAME",
                field="sharing.strategy",
            )
        return self.pods

    def ensure(self, grant: str, device: str, wanted: identity.Mps, *, claim: str = "") -> None:
        """Create the pod of a grant's daemon, on the device with this UUID, unless the daemon serves. ``claim`` is shown to users.

        The daemon may not answer yet on return: ``check`` waits for it. Raises ConfigError without a store of pods, ApiError, HardwareError.
        """
        pods, folder = self.require_pods(), self._folder(grant)
        if supervisor.is_running(folder):
            return
        try:
            daemon_folder.create(folder)
            # Containers have mounted the folder as its first daemon found it, so a tmpfs is mounted only before that daemon.
            if self.own_shm and not (folder / supervisor.WANTED).exists():
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
            raise drakit.HardwareError(control_daemon.CONTROL, f"cannot be started: {error}") from error
        self._run(pods, _pod(pods, folder, grant, device, claim))

    def check(self, grant: str) -> None:
        """Wait until the daemon answers; raises HardwareError if it does not, or if its pod does not start."""
        pods, folder = self.require_pods(), self._folder(grant)
        end, next_check = time.monotonic() + self.start_seconds, 0.0
        while True:
            with contextlib.suppress(OSError):
                failure = supervisor.send_request(folder, supervisor.CHECK)
                if failure:
                    reason = failure.removeprefix(f"{control_daemon.CONTROL}: ")
                    raise drakit.HardwareError(control_daemon.CONTROL, f"pod {_name(pods, folder)}: {reason}")
                return
            if time.monotonic() >= next_check:
                self._check_pod(pods, folder, is_last=time.monotonic() >= end)
                next_check = time.monotonic() + _POD_CHECK_SECONDS
            self.pause(_POLL_SECONDS)

    def stop(self, grant: str) -> None:
        """End the daemon of a grant, delete its pod and remove its folder; a missing one is success. Raises HardwareError where it may live on."""
        self.end_folder(daemon_folder.name_of(grant))

    def end_folder(self, name: str) -> None:
        """End the daemon of the folder of this name as ``stop`` does."""
        if self.home is None or not (folder := self.home / name).exists():
            return
        is_stopped = _is_stopped(folder)
        if self.pods is not None:
            self._delete(self.pods, folder, is_stopped=is_stopped)
        elif not is_stopped and supervisor.is_running(folder):
            raise drakit.HardwareError(
                control_daemon.CONTROL, "the claim's daemon did not stop, and gpu.mps_template is not set to delete its pod"
            )
        try:
            daemon_folder.remove(folder)
        except OSError as error:
            raise drakit.HardwareError(control_daemon.CONTROL, f"cannot remove {folder}: {error}") from error

    def _delete(self, pods: drakit.PodStore, folder: pathlib.Path, *, is_stopped: bool) -> None:
        """Delete the pod. Raises HardwareError where a daemon that was not stopped may live on."""
        name = _name(pods, folder)
        try:
            pods.delete(name)
            if not is_stopped:
                self._wait_for_end(pods, name)
        except drakit.ApiError as error:
            if not is_stopped:
                raise drakit.HardwareError(control_daemon.CONTROL, f"pod {name} does not answer and cannot be deleted: {error}") from error
            _log.warning("MPS pod not deleted", pod=name, error=str(error))

    def running(self) -> Collection[str]:
        """Return the names of the folders whose supervisor answers. A supervisor ends with its folder."""
        return [folder.name for folder in self._folders() if supervisor.is_running(folder)]

    def sweep(self, claimed: Callable[[], Collection[str]]) -> None:
        """Delete the pods and remove the folders of unknown grants. A pod that still serves is kept; an API error is logged.

        ``claimed`` returns the grants; it is called after pods and folders are listed.
        """
        try:
            names = set() if self.pods is None else set(self.pods.names())
        except drakit.DrakitError as error:
            _log.warning("listing MPS pods failed", error=str(error))
            names = set()
        present = self._folders()
        if not (names or present):
            return
        kept = {self._folder(grant) for grant in claimed()}
        for folder in present:
            if folder in kept:
                continue
            if supervisor.is_running(folder):
                _log.warning("MPS daemon of an unknown claim left running", path=str(folder))
                kept.add(folder)
                continue
            with contextlib.suppress(OSError):
                daemon_folder.remove(folder)
        if self.pods is not None:
            _delete_pods(self.pods, names - {_name(self.pods, folder) for folder in kept})

    def is_alive(self, grant: str) -> bool:
        """Return whether the daemon's supervisor runs. It ends with the daemon."""
        return self.home is not None and supervisor.is_running(self._folder(grant))

    def access(self, grant: str) -> drakit.Edits:
        """Return the edits that connect a container to the daemon of a grant."""
        return daemon_folder.access(self._folder(grant))

    def _folder(self, grant: str) -> pathlib.Path:
        return (self.home or pathlib.Path()) / daemon_folder.name_of(grant)

    def _folders(self) -> list[pathlib.Path]:
        return [folder for folder in self.home.iterdir() if folder.is_dir()] if self.home is not None and self.home.is_dir() else []

    def _run(self, pods: drakit.PodStore, pod: drakit.PodRequest) -> None:
        """Create the pod unless it exists. A pod that the kubelet will not run is deleted first."""
        try:
            state = pods.state(pod.name)
            if state is not None and state.phase is drakit.PodPhase.OVER:
                _log.warning("MPS pod is over and is replaced", pod=pod.name, reason=state.message)
                pods.delete(pod.name)
                self._wait_for_end(pods, pod.name)
                state = None
            if state is not None and state.phase is drakit.PodPhase.ENDING:
                self._wait_for_end(pods, pod.name)
                state = None
            if state is None:
                pods.create(pod)
        except drakit.ApiError as error:
            text = f"the pod of the claim's MPS daemon cannot be created: {error}"
            raise drakit.ApiError(text, status=error.status, reason=error.reason) from error

    def _check_pod(self, pods: drakit.PodStore, folder: pathlib.Path, *, is_last: bool) -> None:
        """Raise HardwareError where the pod fails, or still does not serve at the last check."""
        name = _name(pods, folder)
        try:
            state = pods.state(name)
        except drakit.ApiError as error:
            state = drakit.PodState(phase=drakit.PodPhase.STARTING, message=str(error))
        if state is None:
            raise drakit.HardwareError(control_daemon.CONTROL, f"the claim's daemon does not run: there is no pod {name}")
        if state.phase in {drakit.PodPhase.FAILING, drakit.PodPhase.OVER}:
            raise drakit.HardwareError(control_daemon.CONTROL, f"pod {name} of the claim's daemon fails: {state.message or 'see its log'}")
        if is_last:
            reason = f": {state.message}" if state.message else ""
            raise drakit.HardwareError(
                control_daemon.CONTROL, f"pod {name} of the claim's daemon is {state.phase.value} for {self.start_seconds:g} s{reason}"
            )

    def _wait_for_end(self, pods: drakit.PodStore, name: str) -> None:
        end = time.monotonic() + _END_SECONDS
        while pods.state(name) is not None:
            if time.monotonic() > end:
                raise drakit.HardwareError(control_daemon.CONTROL, f"pod {name} does not end within {_END_SECONDS:g} s")
            self.pause(_END_POLL_SECONDS)


def _name(pods: drakit.PodStore, folder: pathlib.Path) -> str:
    """Return the name of a folder's pod. It depends on the node, because an unreachable node may still have a pod for the same claim."""
    return f"{NAME_PREFIX}{hashlib.sha256(f'{pods.node}:{folder}'.encode()).hexdigest()[:16]}"


def _pod(pods: drakit.PodStore, folder: pathlib.Path, grant: str, device: str, claim: str) -> drakit.PodRequest:
    uid, name, _ = f"{grant}//".split("/", 2)
    return drakit.PodRequest(
        name=_name(pods, folder),
        labels={"app.kubernetes.io/component": _COMPONENT, "drakit.dev/claim-uid": uid, "drakit.dev/device": name},
        annotations={"drakit.dev/claim": claim, "drakit.dev/device-uuid": device},
        environment={FOLDER_VARIABLE: str(folder)},
    )


def _delete_pods(pods: drakit.PodStore, names: Collection[str]) -> None:
    """Delete the pods of unknown grants; an API error is logged."""
    for name in sorted(names):
        try:
            pods.delete(name)
            _log.info("MPS pod of an unknown claim deleted", pod=name)
        except drakit.DrakitError as error:
            _log.warning("MPS pod not deleted", pod=name, error=str(error))


def _is_stopped(folder: pathlib.Path) -> bool:
    """Send ``stop`` to the supervisor, and return whether the daemon has ended."""
    with contextlib.suppress(OSError):
        failure = supervisor.send_request(folder, supervisor.STOP)
        if failure:
            _log.warning("MPS daemon not ended by its supervisor", path=str(folder), error=failure)
        return not failure
    return False
