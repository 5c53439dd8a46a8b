"""The reconciler of one pod on the node, which runs in a thread of its own.

Start: prepare the claims, create the sandbox, run the init containers one after the other, start the containers. End (deleted, finished, or
deleted by force): stop the containers, unprepare the claims, and only then write a terminal status or confirm the deletion. The devices are
therefore free when others see the end of the pod.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from drakit.telemetry import logs
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.backoff import Backoff
from drakit_cluster.client.informer import earliest, key_of, uid_of, version_of
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.kubelet.pods import pod_status
from drakit_cluster.kubelet.pods.pod_status import Phase, PodHealth, Waiting
from drakit_cluster.kubelet.pods.preparation import Preparation, PreparationError
from drakit_cluster.kubelet.timing import Timing
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import POD
from drakit_cluster.runtime import Config, ContainerView, Identity, Runtime, RuntimeFailureError, State


@dataclass(frozen=True, kw_only=True)
class Services:
    """The API with the kubelet's own identity, and the services of the node."""

    api: Api
    recorder: Recorder
    preparation: Preparation
    health: PodHealth
    runtime: Runtime
    timing: Timing


_log = logs.get_logger(__name__)

_API_RETRY_SECONDS = (0.1, 5.0)


class PodWorker:
    """Runs one pod. ``on_end`` is called from its thread when nothing is left to do for the pod."""

    def __init__(self, pod: Object, services: Services, on_end: Callable[["PodWorker"], None]) -> None:
        self.uid = uid_of(pod)
        self._pod = pod
        self._services = services
        self._on_end = on_end
        self._starter = ContainerStarter(services)
        self._deleted = False
        self._ran = False
        self._sent: Object = {}
        self._prepare_backoff = Backoff(*services.timing.prepare_retry, jitter=0.2)
        self._prepare_due = 0.0
        self._api_backoff = Backoff(*_API_RETRY_SECONDS)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pod-{key_of(pod).name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def deleted(self) -> bool:
        """Whether the pod is known to be deleted from the API."""
        with self._lock:
            return self._deleted

    @property
    def pod(self) -> Object:
        """The pod as the worker knows it; not to be changed."""
        with self._lock:
            return self._pod

    @property
    def version(self) -> int:
        """The version of the pod as the worker knows it."""
        with self._lock:
            return version_of(self._pod)

    def update(self, pod: Object, *, deleted: bool = False) -> None:
        """Send the pod's current state in the API to the worker; ``deleted`` says that it was deleted."""
        with self._lock:
            if version_of(pod) > version_of(self._pod):
                self._pod = pod
            self._deleted = self._deleted or deleted
        self._wake.set()

    def poke(self, *, retry: bool = False) -> None:
        """Notify the worker of a change on the node; ``retry``: failed preparations are retried at once."""
        if retry:
            self._prepare_due = 0.0
        self._wake.set()

    def stop(self) -> None:
        """Leave the pod as it is; the thread ends after the current call."""
        self._stopping.set()
        self._wake.set()

    def join(self, seconds: float) -> None:
        """Wait for the thread, at most ``seconds``."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            with self._lock:
                pod, deleted = self._pod, self._deleted
            try:
                if deleted or pod_claims.is_deleting(pod) or pod_claims.is_terminal(pod):
                    self._end(pod, deleted=deleted)
                    break
                delay = self._sync(pod)
                self._api_backoff.reset()
            except (PreparationError, errors.ApiError) as error:
                delay = self._api_backoff.next()
                _log.debug("pod sync failed", pod=key_of(pod).name, error=str(error), retry_in_s=delay)
            self._wake.wait(delay)
        if not self._stopping.is_set():
            self._on_end(self)

    def _sync(self, pod: Object) -> float | None:
        """Bring the pod one step closer to running; return the seconds until the next check, or None to wait for a change."""
        delay = self._make_sandbox(pod)
        if delay is not None:
            return delay
        delay = self._starter.start_missing(pod)
        phase = pod_status.phase_of(pod, self._views())
        if phase in (Phase.SUCCEEDED, Phase.FAILED):
            self._finish(pod, phase)
            return None
        self._write_status(pod, phase)
        if phase is Phase.RUNNING and not self._ran:
            self._ran = True
            self._services.recorder.normal(POD, pod, "Running", "containers run")
        return earliest(delay, self._services.health.due(pod))

    def _make_sandbox(self, pod: Object) -> float | None:
        """Prepare the claims and create the sandbox if there is none; return the delay of a retry, or None."""
        services, key = self._services, key_of(pod)
        if services.runtime.has_sandbox(self.uid):
            return None
        if (remaining := self._prepare_due - time.monotonic()) > 0:
            return remaining
        try:
            prepared = services.preparation.prepare(pod)
        except PreparationError as error:
            services.recorder.warning(POD, pod, "FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {error}")
            delay = self._prepare_backoff.next()
            self._prepare_due = time.monotonic() + delay
            self._write_status(pod, Phase.PENDING)
            return delay
        self._prepare_backoff.reset()
        for text in prepared:
            services.recorder.normal(POD, pod, "PreparedDynamicResources", text)
        host_network = json_types.at(pod, "spec", "hostNetwork") is True
        try:
            services.runtime.run_sandbox(Identity(namespace=key.namespace, name=key.name, uid=self.uid, host_network=host_network))
        except RuntimeFailureError as error:
            services.recorder.warning(POD, pod, "FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}")
            return services.timing.container_retry[1]
        return None

    def _finish(self, pod: Object, phase: Phase) -> None:
        """End a pod whose containers have finished, then write its phase. That change of the pod ends the worker."""
        if self._clean_up(pod, grace=0):
            self._write_status(pod, phase)
            self._services.recorder.normal(POD, pod, "Completed", f"phase {phase.value}")

    def _end(self, pod: Object, *, deleted: bool) -> None:
        """End a pod that is being deleted, deleted or terminal. Raises ApiError if the write fails."""
        deleting = pod_claims.is_deleting(pod) and not deleted
        if not self._clean_up(pod, grace=json_types.number(pod, "metadata", "deletionGracePeriodSeconds") if deleting else 0):
            return
        if deleting:
            self._confirm_deletion(pod)
        self._services.runtime.remove(self.uid)

    def _confirm_deletion(self, pod: Object) -> None:
        views, key = self._views(), key_of(pod)
        try:
            if views and not pod_claims.is_terminal(pod):
                self._write_status(pod, pod_status.final_phase(pod, views))
            self._services.api.delete(POD, key.name, namespace=key.namespace, uid=self.uid, grace_seconds=0)
        except (errors.NotFoundError, errors.ConflictError):
            _log.debug("pod already deleted", pod=key.name)

    def _clean_up(self, pod: Object, *, grace: float) -> bool:
        """Stop the containers and unprepare the claims, with retries; return False if the kubelet stops first."""
        services = self._services
        services.runtime.stop(self.uid, grace)
        backoff = Backoff(*services.timing.unprepare_retry, jitter=0.2)
        while True:
            try:
                for text in services.preparation.unprepare(self.uid):
                    services.recorder.normal(POD, pod, "UnpreparedDynamicResources", text)
            except PreparationError as error:
                delay = backoff.next()
                _log.info("unprepare failed", pod=key_of(pod).name, error=str(error), retry_in_s=delay)
                if self._stopping.wait(delay):
                    return False
            else:
                return not self._stopping.is_set()

    def _views(self) -> dict[str, ContainerView]:
        return {view.name: view for view in self._services.runtime.containers(self.uid)}

    def _write_status(self, pod: Object, phase: Phase) -> None:
        """Write the status if it differs from the last one. The response updates the pod."""
        status = pod_status.status_of(pod, phase, self._views(), self._starter.waiting, self._services.health.statuses(pod))
        if status == self._sent or self._stopping.is_set():
            return
        key = key_of(pod)
        patch: Object = {"metadata": {"uid": self.uid}, "status": status}
        written = self._services.api.patch(POD, key.name, patch, namespace=key.namespace, kind=PatchKind.STRATEGIC, subresource="status")
        with self._lock:
            if version_of(written) > version_of(self._pod):
                self._pod = written
        self._sent = status


class ContainerStarter:
    """Starts the containers that should run and do not. Not thread-safe."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._attempts: dict[str, Backoff] = {}
        self.waiting: dict[str, Waiting] = {}
        """Why containers could not be started, by name."""

    def start_missing(self, pod: Object) -> float | None:
        """Start the first init container that is not done, or if all are, every container that should run.

        Return the seconds until the next attempt, or None to wait for an exit or a change.
        """
        for container in json_types.objects(pod, "spec", "initContainers"):
            delay, done = self._start_init(pod, container)
            if not done:
                return delay
        return earliest(*[self._start_main(pod, container) for container in json_types.objects(pod, "spec", "containers")])

    def _start_init(self, pod: Object, container: Object) -> tuple[float | None, bool]:
        """Return the delay until the next attempt to start the init container, and whether it has succeeded."""
        name, delay = json_types.text(container, "name"), None
        view = self._views(pod).get(name)
        if view is None or (pod_status.has_failed(view) and pod_status.init_restarts(pod)):
            delay = self._start(pod, container, run_seconds=0)
            view = self._views(pod).get(name)
        return delay, view is not None and view.state is State.EXITED and view.exit_code == 0

    def _start_main(self, pod: Object, container: Object) -> float | None:
        view = self._views(pod).get(json_types.text(container, "name"))
        if view is not None and not pod_status.will_restart(pod, view):
            return None
        return self._start(pod, container, run_seconds=_run_seconds(pod))

    def _start(self, pod: Object, container: Object, *, run_seconds: float | None) -> float | None:
        """Start a container unless its backoff still runs; return the seconds until the next attempt, None if it runs."""
        name, now = json_types.text(container, "name"), time.monotonic()
        backoff = self._attempts.setdefault(name, Backoff(*self._services.timing.container_retry))
        if backoff.due > now:
            return backoff.due - now
        delay = backoff.next()
        try:
            self._services.runtime.start(uid_of(pod), self._config(pod, container, run_seconds))
        except RuntimeFailureError as error:
            self.waiting[name] = Waiting(reason=error.reason, message=str(error))
            self._services.recorder.warning(POD, pod, "Failed", f"Error: {error}")
            return delay
        self.waiting.pop(name, None)
        return None

    def _config(self, pod: Object, container: Object, run_seconds: float | None) -> Config:
        command = json_types.strings(container, "command")
        return Config(
            name=json_types.text(container, "name"),
            env={
                json_types.text(variable, "name"): json_types.text(variable, "value") for variable in json_types.objects(container, "env")
            },
            command=(*command, *json_types.strings(container, "args")) if command else (),
            cdi_devices=tuple(self._services.preparation.cdi_ids(pod, container)),
            run_seconds=run_seconds,
        )

    def _views(self, pod: Object) -> Mapping[str, ContainerView]:
        return {view.name: view for view in self._services.runtime.containers(uid_of(pod))}


def _run_seconds(pod: Object) -> float | None:
    """Return the run time of the pod's simulated containers. None, also for an invalid number, means until they are stopped."""
    try:
        seconds = float(json_types.text(pod, "metadata", "annotations", pod_status.RUN_SECONDS))
    except ValueError:
        return None
    return seconds if 0 <= seconds < threading.TIMEOUT_MAX else None
