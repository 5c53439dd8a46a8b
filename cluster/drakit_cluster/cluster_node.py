"""One node of the local cluster: its folder, a runtime that lives as long as the node, and a kubelet that can restart.

``Components`` holds settings of single components of a cluster, for example for version skew and for shorter timeouts.
"""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from drakit_cluster.client.client import ApiClient
from drakit_cluster.faults import Faults
from drakit_cluster.kubelet import Kubelet, Place, Timing
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.runtime import HookRunner, Mode, Runtime
from drakit_cluster.scheduling.allocator.known_errors import NONE, KnownErrors
from drakit_cluster.scheduling.scheduler import BINDING_SECONDS

_SOCKET_BYTES = 107
"""The longest path that a unix socket can have: sun_path without its final zero."""
_SOCKET_SUFFIX_BYTES = len("/plugins_registry/0123456789abcdef.drakit.dev-12345678-reg.sock")
"""The bytes that a driver with a name below 28 bytes adds to the folder of the node for its longest socket path."""


class FolderError(ValueError):
    """A folder with too long a path for a node."""


@dataclass(frozen=True, kw_only=True)
class NodeFolder:
    """The paths of one node. Raises FolderError if the paths of its sockets would be too long."""

    root: pathlib.Path

    def __post_init__(self) -> None:
        length = len(os.fsencode(self.root))
        if length + _SOCKET_SUFFIX_BYTES > _SOCKET_BYTES:
            raise FolderError(
                f"folder {self.root}: its path has {length} bytes, but sockets in it allow at most {_SOCKET_BYTES - _SOCKET_SUFFIX_BYTES}: "
                "choose a shorter path, or a shorter node name"
            )

    @property
    def plugins(self) -> pathlib.Path:
        """The folder in which each driver's own folder is created."""
        return self.root / "plugins"

    @property
    def registry(self) -> pathlib.Path:
        """Registration sockets."""
        return self.root / "plugins_registry"

    @property
    def cdi(self) -> pathlib.Path:
        """CDI files."""
        return self.root / "cdi"

    @property
    def logs(self) -> pathlib.Path:
        """Output of containers that run a command."""
        return self.root / "logs"

    @property
    def pod_resources(self) -> pathlib.Path:
        """The socket of the PodResources API, which lists the devices of containers."""
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def checkpoint(self) -> pathlib.Path:
        """The kubelet's checkpoint of claims."""
        return self.root / "dra_manager_state"

    @property
    def kubeconfig(self) -> pathlib.Path:
        """The driver's access to the API server."""
        return self.root / "driver.kubeconfig"

    def make(self) -> None:
        """Make the folders, for their owner only; those that exist stay as they are."""
        for path in (self.root, self.plugins, self.registry, self.cdi):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)


class ClusterNode:
    """A node. ``connect`` returns a client with the identity of the node for the kubelet. ``faults`` persist over restarts of the kubelet."""

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
        """The running kubelet. Raises RuntimeError if none runs."""
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
            if self._running is None:
                client.close()
            else:
                self.stop_kubelet()
            raise

    def stop_kubelet(self) -> None:
        """Stop the kubelet; pods and drivers keep running."""
        running, self._running = self._running, None
        if running is not None:
            client, kubelet = running
            kubelet.stop()
            client.close()

    def restart_kubelet(self) -> None:
        """Replace the kubelet, as an upgrade does."""
        self.stop_kubelet()
        self.start_kubelet()

    def shut_down(self) -> None:
        """Stop the kubelet, then everything that runs on the node."""
        self.stop_kubelet()
        self.runtime.shut_down()


@dataclass(frozen=True, kw_only=True)
class Components:
    """Feature gates of components that differ from the API server's, ``kubelets`` by node. None, or no entry,
    means the gates of the API server.

    ``binding_timeout`` is how many seconds the scheduler waits for the binding conditions of devices; ``known_errors`` are the known
    errors of a Kubernetes version that the scheduler repeats. ``state`` is a file in which the API server keeps its objects: a new
    cluster with the same file starts with them, and its nodes start as after a reboot. With None, objects are kept in memory only.
    ``driver_rights`` are the ServiceAccount, roles and bindings of the drivers; by default a driver has all rights that any driver needs.
    """

    scheduler: FeatureGates | None = None
    controllers: FeatureGates | None = None
    kubelets: Mapping[str, FeatureGates] = field(default_factory=dict)
    binding_timeout: float = BINDING_SECONDS
    state: pathlib.Path | None = None
    known_errors: KnownErrors = NONE
    driver_rights: Sequence[tuple[Resource, Object]] = ()

    def __post_init__(self) -> None:
        if self.binding_timeout <= 0:
            raise ValueError(f"binding_timeout: must be more than 0 seconds, not {self.binding_timeout:g}")
