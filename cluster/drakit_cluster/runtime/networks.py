"""A network namespace for each pod, and its ``createRuntime`` hooks, as containerd and runc run them.

A namespace lives as long as an idle process in it (the pause container of real runtimes) or any process of the pod. Hooks run on the host,
in its namespaces, with the container's bundle as working directory and only the environment that they define; they read the OCI state from
standard input. Observed on containerd 2.4 with runc 1.5. This needs root, and ``unshare`` and ``nsenter`` of util-linux.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time

from drakit_cluster.runtime.containers import Identity, RuntimeFailureError
from drakit_cluster.runtime.edits import Hook

DEFAULT_TIMEOUT = 120
"""Seconds that a hook without a timeout of its own may run before the runtime fails the container."""
_SETTLE_SECONDS = 30.0
_POLL_SECONDS = 0.002
_OWN = pathlib.Path("/proc/self/ns/net")


class Networks:
    """The namespaces of one node's pods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pauses: dict[str, subprocess.Popen[bytes]] = {}

    def make(self, pod: Identity) -> None:
        """Create the pod's namespace, unless it has one or uses the host's. Raises RuntimeFailureError."""
        with self._lock:
            if not pod.host_network and pod.uid not in self._pauses:
                self._pauses[pod.uid] = _pause()

    def process_id(self, uid: str) -> int:
        """Return the id of a process in the pod's namespace; the id of this process where the pod uses the host's namespace."""
        with self._lock:
            pause = self._pauses.get(uid)
        return os.getpid() if pause is None else pause.pid

    def remove(self, uid: str) -> None:
        """Stop the idle process of the pod's namespace; the kernel removes the namespace with the last process in it."""
        with self._lock:
            pause = self._pauses.pop(uid, None)
        if pause is not None:
            pause.kill()
            pause.wait()

    def command_prefix(self, uid: str) -> tuple[str, ...]:
        """Return the words before a command that run it in the pod's namespace."""
        return ("nsenter", f"--net=/proc/{self.process_id(uid)}/ns/net", "--")

    def run_hook(self, hook: Hook, pod: Identity, container: str) -> None:
        """Run a createRuntime hook for a container that is being created; raise RuntimeFailureError with its output if it fails."""
        with tempfile.TemporaryDirectory(prefix="bundle-") as bundle:
            state = json.dumps(_state(pod, container, self.process_id(pod.uid), bundle)).encode()
            environment = dict(variable.split("=", 1) for variable in hook.env)
            try:
                completed = subprocess.run(
                    hook.args or (hook.path,),
                    executable=hook.path,
                    input=state,
                    capture_output=True,
                    cwd=bundle,
                    env=environment,
                    timeout=hook.timeout or DEFAULT_TIMEOUT,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise RuntimeFailureError("StartError", f"error running createRuntime hook {hook.path}: {error}") from error
        if completed.returncode:
            output = f"exit status {completed.returncode}, stdout: {_text(completed.stdout)}, stderr: {_text(completed.stderr)}"
            raise RuntimeFailureError("StartError", f"error running createRuntime hook {hook.path}: {output}")


def _pause() -> subprocess.Popen[bytes]:
    """Start a process in a namespace of its own, and wait until it has entered it."""
    try:
        pause = subprocess.Popen(("unshare", "--net", "sleep", "infinity"), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise RuntimeFailureError("CreatePodSandboxError", f"failed to make a network namespace: {error}") from error
    deadline, own = time.monotonic() + _SETTLE_SECONDS, _OWN.readlink()
    while time.monotonic() < deadline and pause.poll() is None:
        if pathlib.Path(f"/proc/{pause.pid}/ns/net").readlink() != own:
            return pause
        time.sleep(_POLL_SECONDS)
    pause.kill()
    pause.wait()
    raise RuntimeFailureError("CreatePodSandboxError", "failed to make a network namespace; it needs root")


def _state(pod: Identity, container: str, process: int, bundle: str) -> dict[str, object]:
    """Return the OCI state of a container that is being created, annotated as containerd does."""
    prefix = "io.kubernetes.cri."
    annotations = {
        f"{prefix}container-name": container,
        f"{prefix}container-type": "container",
        f"{prefix}sandbox-id": f"{pod.uid.replace('-', '')}{process:x}",
        f"{prefix}sandbox-name": pod.name,
        f"{prefix}sandbox-namespace": pod.namespace,
        f"{prefix}sandbox-uid": pod.uid,
    }
    identity = f"{pod.uid}-{container}"
    return {"ociVersion": "1.3.0", "id": identity, "status": "creating", "pid": process, "bundle": bundle, "annotations": annotations}


def _text(output: bytes) -> str:
    return output.decode(errors="replace").strip()
