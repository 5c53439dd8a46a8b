"""The node of a soak: a local cluster, and processes of ``drakit run`` that are killed and replaced while pods come and go."""

import contextlib
import pathlib
import signal
import tempfile
import uuid
from collections.abc import Sequence
from typing import Any

from drakit import testing
from drakit.core import lifecycle
from drakit.journal import inspection, journal
from drakit_cluster.api import apiserver
from drakit_cluster.cluster import LocalCluster
from drakit_cluster.faults import ApiFault, FaultKind
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.runtime import Mode
from fakes import driver_process
from unit.cluster_kubelet import quick_cluster

NODE = "node-1"
AGENT = "drakit"
Object = dict[str, Any]


class SoakNode:
    """A node with one driver. ``pods`` are those that should run; each has a claim of its own name."""

    def __init__(self, folder: pathlib.Path, *, driver: str, mode: Mode, words: Sequence[str]) -> None:
        self.driver, self.pods = driver, set[str]()
        self.starts = 0
        self.log = folder / "driver.log"
        self._words = words
        self.cluster = LocalCluster(folder / "c", nodes=(NODE,), timing=quick_cluster.QUICK, mode=mode)
        self.folder = self.cluster.node(NODE).folder
        self.home = self.folder.plugins / driver
        self._serving: driver_process.Process | None = None
        self._rival: driver_process.Process | None = None

    def start(self) -> None:
        """Start the driver if it does not run."""
        if self._serving is None or self._serving.status is not None:
            self._serving = self._process()

    def kill(self) -> None:
        """End every process of the driver by SIGKILL."""
        for process in (self._serving, self._rival):
            if process is not None:
                process.kill()
        self._serving = self._rival = None

    def stop(self) -> None:
        """Stop the driver as a DaemonSet does. Raise AssertionError if it does not end with status 0."""
        serving, self._serving = self._serving, None
        if serving is not None:
            status = serving.stop()
            assert status in {0, -signal.SIGKILL, -signal.SIGTERM}, f"the driver ended with status {status}"

    def update(self) -> None:
        """Start a second process, as a rolling update does, or stop the first one if there is a second."""
        if self._rival is None:
            self._rival = self._process()
            return
        self.stop()
        self._serving, self._rival = self._rival, None

    def run(self, name: str, claim: Object) -> None:
        """Create a pod with this claim."""
        self.cluster.api.create(resources.CLAIM, claim)
        self.cluster.api.create(resources.POD, testing.pod(name, claims=[name], command=["sleep", "infinity"]))
        self.pods.add(name)

    def delete(self, name: str) -> None:
        """Delete a pod and its claim."""
        self.pods.discard(name)
        for resource in (resources.POD, resources.CLAIM):
            with contextlib.suppress(errors.NotFoundError):
                self.cluster.api.delete(resource, name, namespace="default")

    def disturb_api(self, kind: FaultKind, share: float) -> None:
        """Make the API server answer some of the driver's requests wrongly."""
        self.cluster.server.faults.add(ApiFault(kind=kind, share=share, seconds=0.3, agent=AGENT))

    def calm(self) -> None:
        """End every fault: one driver runs, and API server and kubelet serve."""
        self.cluster.server.faults.clear()
        with contextlib.suppress(apiserver.StartError):
            self.cluster.server.start()
        self.cluster.node(NODE).start_kubelet()
        if self._rival is not None:
            self.update()
        self.start()

    def restart_kubelet(self) -> None:
        """Replace the kubelet."""
        self.cluster.node(NODE).stop_kubelet()
        with contextlib.suppress(errors.ApiError):
            self.cluster.node(NODE).start_kubelet()

    def entries(self) -> tuple[lifecycle.Entry, ...]:
        """Return the journal's entries, read from a copy."""
        if not inspection.exists(self.home):
            return ()
        with tempfile.TemporaryDirectory(prefix="dks") as folder:
            copy = pathlib.Path(folder) / "home"
            inspection.copy(self.home, copy)
            with journal.Journal.open(copy, driver=self.driver, boot_id="soak") as opened:
                return tuple(opened.entries())

    def cdi_files(self) -> set[str]:
        """Return the names of the driver's CDI files."""
        return {path.name for path in self.folder.cdi.glob("*.json")}

    def phases(self) -> dict[str, str]:
        """Return the phase of each pod."""
        pods: list[Any] = list(self.cluster.api.list(resources.POD).items)
        return {json_types.text(pod, "metadata", "name"): json_types.text(pod, "status", "phase") for pod in pods}

    def is_allocated(self, name: str) -> bool:
        """Return whether the claim of a pod is allocated."""
        try:
            claim: Any = self.cluster.api.get(resources.CLAIM, name, namespace="default")
        except errors.NotFoundError:
            return False
        return bool(claim.get("status", {}).get("allocation"))

    def claims(self) -> set[str]:
        """Return the names of all claims."""
        return {json_types.text(claim, "metadata", "name") for claim in self.cluster.api.list(resources.CLAIM).items}

    def usage(self) -> dict[str, int]:
        """Return the driver's resident memory in KiB, its threads and its descriptors."""
        assert self._serving is not None
        process = pathlib.Path("/proc", str(self._serving.pid))
        lines = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return {
            "resident_kib": int(lines["VmRSS"].split()[0]),
            "threads": int(lines["Threads"]),
            "descriptors": sum(1 for _ in (process / "fd").iterdir()),
        }

    def _process(self) -> driver_process.Process:
        self.starts += 1
        places = ["--folder", str(self.folder.root), "--kubeconfig", str(self.cluster.driver_kubeconfig(NODE)), "--node", NODE]
        identity = {"DRAKIT_NODE__POD_UID": str(uuid.uuid4())}
        return driver_process.Process(driver_process.drakit("run", *self._words, *places), self.log, identity)
