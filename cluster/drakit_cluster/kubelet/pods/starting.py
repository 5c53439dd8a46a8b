"""Starting the containers of one pod, in order, and again where its restart policy says so."""

import threading
import time
from collections.abc import Mapping

from drakit_cluster.client.informer import Backoff, uid_of
from drakit_cluster.kubelet.pods import pod_status
from drakit_cluster.kubelet.pods.pod_status import Waiting
from drakit_cluster.kubelet.services import Services
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import POD
from drakit_cluster.runtime import Config, ContainerView, RuntimeFailureError, State


class ContainerStarter:
    """Starts what should run and does not. Used by one thread."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._attempts: dict[str, tuple[Backoff, float]] = {}
        self.waiting: dict[str, Waiting] = {}
        """Why containers could not be started, by name."""

    def start_missing(self, pod: Object) -> float | None:
        """Start the first init container that is not done, or if all are, every container that should run.

        Return after how many seconds to come again; None where an exit or a change will tell.
        """
        for container in json_types.objects(pod, "spec", "initContainers"):
            delay, done = self._start_init(pod, container)
            if not done:
                return delay
        delays = [self._start_main(pod, container) for container in json_types.objects(pod, "spec", "containers")]
        return min((delay for delay in delays if delay is not None), default=None)

    def _start_init(self, pod: Object, container: Object) -> tuple[float | None, bool]:
        """Return the delay until the init container can be tried again, and whether it has succeeded."""
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
        """Start a container unless it is too early for that; return after how many seconds to try, None if it runs."""
        name, now = json_types.text(container, "name"), time.monotonic()
        backoff, due = self._attempts.get(name) or (Backoff(*self._services.timing.container_retry), now)
        if due > now:
            return due - now
        delay = backoff.next()
        self._attempts[name] = (backoff, now + delay)
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
            env={json_types.text(one, "name"): json_types.text(one, "value") for one in json_types.objects(container, "env")},
            command=(*command, *json_types.strings(container, "args")) if command else (),
            cdi_devices=tuple(self._services.preparation.cdi_ids(pod, container)),
            run_seconds=run_seconds,
        )

    def _views(self, pod: Object) -> Mapping[str, ContainerView]:
        return {view.name: view for view in self._services.runtime.containers(uid_of(pod))}


def _run_seconds(pod: Object) -> float | None:
    """Return how long the pod's pretended containers run; None, also for what is no number, means until they are stopped."""
    try:
        seconds = float(json_types.text(pod, "metadata", "annotations", pod_status.RUN_SECONDS))
    except ValueError:
        return None
    return seconds if 0 <= seconds < threading.TIMEOUT_MAX else None
