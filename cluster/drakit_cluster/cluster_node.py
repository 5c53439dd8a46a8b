"""One node of the local cluster: a folder, a runtime that lives as long as the node, and a kubelet that can be exchanged."""

from collections.abc import Callable

from drakit_cluster.client.client import ApiClient
from drakit_cluster.faults import Faults
from drakit_cluster.kubelet import Kubelet, Place, Timing
from drakit_cluster.node_folder import NodeFolder
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.runtime import HookRunner, Mode, Runtime


class ClusterNode:
    """A node. ``connect`` gives the kubelet a client with the node's own identity. ``faults`` hold over restarts of the kubelet."""

    def __init__(
        self,
        name: str,
        folder: NodeFolder,
        connect: Callable[[], ApiClient],
        *,
        timing: Timing,
        mode: Mode = Mode.PRETEND,
        run_hook: HookRunner | None = None,
        gates: FeatureGates | None = None,
    ) -> None:
        self.name = name
        self.folder = folder
        self.faults = Faults()
        self.runtime = Runtime((folder.cdi,), folder.logs, mode=mode, run_hook=run_hook)
        self._connect = connect
        self._timing = timing
        self._gates = gates
        self._running: tuple[ApiClient, Kubelet] | None = None

    @property
    def kubelet(self) -> Kubelet:
        """The kubelet that runs now; RuntimeError if none does."""
        if self._running is None:
            raise RuntimeError(f"no kubelet runs on {self.name}")
        return self._running[1]

    def start_kubelet(self) -> None:
        """Start a kubelet if none runs."""
        if self._running is not None:
            return
        self.folder.make()
        client = self._connect()
        place = Place(
            node=self.name, registry=self.folder.registry, checkpoint=self.folder.checkpoint, pod_resources=self.folder.pod_resources
        )
        try:
            kubelet = Kubelet(client, place, self.runtime, timing=self._timing, faults=self.faults, gates=self._gates)
            self._running = (client, kubelet)
            kubelet.start()
        except BaseException:
            self._running = None
            client.close()
            raise

    def stop_kubelet(self) -> None:
        """Stop the kubelet; pods go on, and so do drivers."""
        running, self._running = self._running, None
        if running is not None:
            client, kubelet = running
            kubelet.stop()
            client.close()

    def restart_kubelet(self) -> None:
        """Exchange the kubelet, as an upgrade does."""
        self.stop_kubelet()
        self.start_kubelet()

    def shut_down(self) -> None:
        """Stop the kubelet, then everything that runs on the node."""
        self.stop_kubelet()
        self.runtime.shut_down()
