"""Sandboxes and their containers on one node. It outlives the kubelet that drives it, as a real runtime does.

Containers are simulated: nothing is isolated, and device nodes and mounts are recorded but not created. Their paths on the host must exist. In real
mode a container's command runs as a child process with its environment, in which CDI's variables override those of the pod. In isolated mode each pod
also has a network namespace, and the ``createRuntime`` hooks of its containers run (see ``networks``).
"""

import pathlib
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from drakit_cluster.runtime import host_paths, specs
from drakit_cluster.runtime.containers import Config, Container, ContainerView, Identity, Mode, RuntimeFailureError
from drakit_cluster.runtime.edits import Edits, Hook
from drakit_cluster.runtime.networks import Networks
from drakit_cluster.runtime.specs import SpecCache, UnresolvableError

HookRunner: TypeAlias = Callable[[Hook, Identity, str], None]
"""Runs one createRuntime hook for the container of the given name; raises RuntimeFailureError if the hook fails."""

_CREATE_RUNTIME = "createRuntime"


class Runtime:
    """The runtime of one node. Safe to use from several threads.

    ``cdi`` are the CDI directories, lowest precedence first; ``logs`` is where real containers write.
    """

    def __init__(
        self, cdi: Sequence[pathlib.Path], logs: pathlib.Path, *, mode: Mode = Mode.PRETEND, run_hook: HookRunner | None = None
    ) -> None:
        self._specs = SpecCache(cdi)
        self._logs = logs
        self.mode = mode
        self._networks = Networks() if mode is Mode.ISOLATED else None
        self._run_hook = run_hook or (self._networks.run_hook if self._networks else None)
        self._lock = threading.Lock()
        self._sandboxes: dict[str, tuple[Identity, dict[str, Container]]] = {}
        self._listener: Callable[[str], None] | None = None

    def listen(self, listener: Callable[[str], None] | None) -> None:
        """Call ``listener`` with a pod's UID whenever one of its containers exits or its sandbox is removed; None stops the calls."""
        with self._lock:
            self._listener = listener

    def has_sandbox(self, uid: str) -> bool:
        """Return whether the pod has a sandbox."""
        with self._lock:
            return uid in self._sandboxes

    def sandboxes(self) -> list[Identity]:
        """Return the pods that have a sandbox."""
        with self._lock:
            return [identity for identity, _ in self._sandboxes.values()]

    def run_sandbox(self, pod: Identity) -> None:
        """Create a pod's sandbox unless it exists. Raises RuntimeFailureError."""
        if self._networks is not None:
            self._networks.make(pod)
        with self._lock:
            self._sandboxes.setdefault(pod.uid, (pod, {}))

    def start(self, uid: str, config: Config) -> ContainerView:
        """Create and start a container in the pod's sandbox; it replaces an exited container of the same name.

        Raises RuntimeFailureError: CreateContainerError for CDI devices that cannot be resolved or injected, StartError for a mount, hook or command.
        """
        with self._lock:
            if uid not in self._sandboxes:
                raise RuntimeFailureError("CreateContainerError", f"there is no sandbox for pod {uid}")
            pod, containers = self._sandboxes[uid]
            edits = self._edits(config)
            previous = containers.get(config.name)
            restarts = previous.view().restarts + 1 if previous else 0
            container = Container(pod, config, edits, restarts, lambda: self._notify(uid))
            containers[config.name] = container
        try:
            self._launch(pod, config, container, edits)
        except RuntimeFailureError:
            container.fail_to_start()
            raise
        return container.view()

    def containers(self, uid: str) -> list[ContainerView]:
        """Return the pod's containers in the order of their first start."""
        with self._lock:
            _, containers = self._sandboxes.get(uid, (None, {}))
            return [container.view() for container in containers.values()]

    def view(self, namespace: str, pod: str, container: str = "") -> ContainerView:
        """Return the view of a pod's container; without a name, of its only container. Raises KeyError unless exactly one matches."""
        with self._lock:
            views = [
                candidate.view()
                for identity, containers in self._sandboxes.values()
                if (identity.namespace, identity.name) == (namespace, pod)
                for name, candidate in containers.items()
                if container in ("", name)
            ]
        if len(views) != 1:
            raise KeyError(f"pod {namespace}/{pod} has {len(views)} containers{f' named {container!r}' if container else ''}, not one")
        return views[0]

    def stop(self, uid: str, grace: float) -> None:
        """Stop the pod's containers concurrently, each with ``grace`` seconds, and then remove its network."""
        with self._lock:
            _, containers = self._sandboxes.get(uid, (None, {}))
            running = list(containers.values())
        stopping = [threading.Thread(target=container.stop, args=(grace,), daemon=True) for container in running]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        if self._networks is not None:
            self._networks.remove(uid)

    def remove(self, uid: str) -> None:
        """Remove a pod's sandbox and stopped containers."""
        with self._lock:
            self._sandboxes.pop(uid, None)

    def kill_sandbox(self, uid: str) -> None:
        """Kill a sandbox with its containers, as a crash of its first process does."""
        self.stop(uid, 0)
        self.remove(uid)
        self._notify(uid)

    def shut_down(self) -> None:
        """Stop every sandbox; no process is left behind."""
        self.listen(None)
        for pod in self.sandboxes():
            self.kill_sandbox(pod.uid)

    def _edits(self, config: Config) -> Edits:
        prefix = "failed to create containerd container: CDI device injection failed"
        try:
            edits = specs.merge(self._specs.edits(config.cdi_devices))
        except UnresolvableError as error:
            raise RuntimeFailureError("CreateContainerError", f"{prefix}: {error}") from error
        if problem := host_paths.device_problem(edits):
            raise RuntimeFailureError("CreateContainerError", f"{prefix}: failed to inject devices: {problem}")
        return edits

    def _launch(self, pod: Identity, config: Config, container: Container, edits: Edits) -> None:
        if problem := host_paths.start_problem(edits):
            raise RuntimeFailureError("StartError", f"failed to create containerd task: OCI runtime create failed: {problem}")
        if self._run_hook is not None:
            for hook in edits.hooks:
                if hook.name == _CREATE_RUNTIME:
                    self._run_hook(hook, pod, config.name)
        if self.mode is not Mode.PRETEND and config.command:
            prefix = self._networks.command_prefix(pod.uid) if self._networks else ()
            container.run(self._logs / pod.uid / f"{config.name}.log", prefix)
        else:
            container.pretend()

    def _notify(self, uid: str) -> None:
        with self._lock:
            listener = self._listener
        if listener is not None:
            listener(uid)
