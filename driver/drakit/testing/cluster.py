"""The local cluster with the driver as its kubelet plugin: real gRPC on unix sockets, real HTTPS, the scheduler, and the container's view.

    with testing.Cluster(MyDriver) as cluster:
        cluster.apply(testing.device_class("fpga", driver="fpga.example.com"))
        cluster.apply(testing.claim("one", device_class="fpga"), testing.pod("p", claims=["one"]))
        assert cluster.wait_running("p").env["FPGA"] == "0"
        cluster.delete_pod("p")

It needs the extra ``drakit[cluster]``. Every call that waits has a time limit. Its error names what it waited for, the pods and claims with
their conditions, the last warnings among the events, and the last lines of the driver's log.

What serves the driver is imported where a cluster starts it: its libraries take 100 ms, and most tests with the kit need no cluster.
"""

import collections
import contextlib
import pathlib
import tempfile
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from drakit import extras
from drakit.core import advanced, arguments
from drakit.core import driver as drivers
from drakit.node import local_node
from drakit.telemetry import logs
from drakit.testing import cluster_state
from drakit.testing import node as small
from drakit.testing import report as reports

if TYPE_CHECKING:
    from drakit_cluster import cluster as clusters
    from drakit_cluster.objects import resources

SECONDS = 30.0
LOG_LINES = 5
_Result = TypeVar("_Result")
Object = dict[str, Any]


@arguments.checked_methods
class Cluster:
    """A cluster whose nodes all run the driver that ``make`` returns. Use it as a context manager, which removes everything at its end.

    ``rbac`` is a manifest of the driver's service account with its roles and bindings, such as ``deploy/rbac.yaml``. The API server then refuses
    what they do not grant. Raises AssertionError at the start if they lack a right without which the driver does not work, such as that of a
    ``drakit.Binder`` to watch claims. By default the driver has the rights that any driver needs.
    """

    def __init__(
        self,
        make: small.DriverFactory,
        *,
        node_names: Sequence[str] = ("node-1",),
        rescan_seconds: float = 1.0,
        rbac: pathlib.Path | None = None,
    ) -> None:
        self._make = make
        self._rbac = rbac
        self._log: collections.deque[str] = collections.deque(maxlen=LOG_LINES)
        self._names = tuple(node_names)
        self._rescan = rescan_seconds
        self._closing = contextlib.ExitStack()
        self._cluster: clusters.LocalCluster | None = None
        self._running: dict[str, contextlib.ExitStack] = {}
        self.drivers: dict[str, drivers.Driver[Any]] = {}

    def __enter__(self) -> Self:
        extras.require_local_cluster()
        from drakit_cluster import cluster as clusters  # noqa: PLC0415 - an extra that the smaller parts of the kit do without
        from drakit_cluster import cluster_node  # noqa: PLC0415

        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drk-", dir="/tmp")))
            stack.enter_context(logs.copied(self._log.append))
            components = cluster_node.Components(driver_rights=() if self._rbac is None else tuple(self._rights(self._rbac)))
            self._cluster = stack.enter_context(clusters.LocalCluster(folder, nodes=self._names, components=components))
            self._check_rights()
            for name in self._names:
                self._running[name] = stack.enter_context(contextlib.ExitStack())
                self._start_driver(name, self._running[name])
            self._publish_pools()
            self._closing = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        self._closing.close()

    @property
    def local(self) -> "clusters.LocalCluster":
        """The local cluster, for calls that this class does not have."""
        if self._cluster is None:
            raise RuntimeError("the cluster is not started; use it in a with statement")
        return self._cluster

    def apply(self, *objects: Object) -> None:
        """Create objects as a user. Raises ValueError for a kind or version that the cluster does not serve.

        The scheduler knows device classes and taint rules before the next object is created. In a real cluster it may see a later pod first.
        """
        from drakit_cluster.objects import resources  # noqa: PLC0415

        for item in objects:
            kind = _kind_of(item)
            namespace = item["metadata"].get("namespace", "default") if kind.namespaced else ""
            self.local.api.create(kind, {**item, "apiVersion": kind.api_version}, namespace=namespace)
            if kind in (resources.CLASS, resources.TAINT_RULE):
                self._wait(self.local.is_scheduler_current, what="the scheduler to know all objects")

    def apply_file(self, path: pathlib.Path) -> None:
        """Create the objects of a YAML file, in order. Raises ValueError if it is not YAML."""
        from drakit.inputs import documents  # noqa: PLC0415 - see the module's docstring

        self.apply(*(item for item in documents.load_all(path.read_text("utf-8")) if item is not None))

    def pod(self, name: str, *, namespace: str = "default") -> Object:
        """Return the present state of a pod."""
        from drakit_cluster.objects import resources  # noqa: PLC0415

        return dict(self.local.api.get(resources.POD, name, namespace=namespace))

    def claim(self, name: str, *, namespace: str = "default") -> Object:
        """Return the present state of a claim."""
        from drakit_cluster.objects import resources  # noqa: PLC0415

        return dict(self.local.api.get(resources.CLAIM, name, namespace=namespace))

    def slices(self) -> list[Object]:
        """Return the published ResourceSlices."""
        from drakit_cluster.objects import resources  # noqa: PLC0415

        return [dict(item) for item in self.local.api.list(resources.SLICE).items]

    def restart_driver(self, node: str = "") -> None:
        """Restart the driver of a node, by default of the first: a new driver object recovers from the journal."""
        name = node or self._names[0]
        self._running[name].close()
        self._start_driver(name, self._running[name])

    def check_plugin(
        self, *device_classes: str, exclusive: Sequence[str] = (), node: str = "", junit: pathlib.Path | None = None
    ) -> reports.Report:
        """Run the conformance suite on the driver of a node, with claims of these classes, and return the report.

        ``exclusive`` names variables and device nodes of parts that only one claim may have, as in ``check_driver``.
        """
        extras.require_tools()
        from drakit.kube import client  # noqa: PLC0415 - see the module's docstring
        from drakit_tools.conformance import api_objects, restarts, suite  # noqa: PLC0415

        name = node or self._names[0]
        folder = self.local.node(name).folder
        with contextlib.closing(client.connect(self.local.kubeconfig, seconds=SECONDS)) as api:
            objects = api_objects.Objects(api, node=name)
            with objects.made(device_classes, "default") as make:
                subject = suite.Subject(
                    path=folder.registry,
                    claims=make,
                    published=objects.slices,
                    server=lambda: objects.server,
                    cdi=folder.cdi,
                    exclusive=tuple(exclusive),
                    restarter=restarts.Restarter(call=lambda: self.restart_driver(name)),
                )
                return suite.check_plugin(subject, junit=junit)

    def wait_allocated(self, name: str, *, namespace: str = "default", seconds: float = SECONDS) -> list[str]:
        """Wait until a claim is allocated, and return its devices."""

        def allocated() -> list[str]:
            allocation = self.claim(name, namespace=namespace).get("status", {}).get("allocation") or {}
            return [str(result["device"]) for result in allocation.get("devices", {}).get("results", ())]

        return self._wait(allocated, seconds=seconds, what=f"the allocation of claim {name}")

    def wait_published(self, devices: int, *, seconds: float = SECONDS) -> None:
        """Wait until complete pools have this number of devices."""
        self._wait(
            lambda: published_devices(self.slices()) == devices,
            seconds=seconds,
            what=f"{devices} published devices",
        )

    def wait_taint(self, device: str, key: str, *, node: str = "", seconds: float = SECONDS) -> Object:
        """Wait until a device, that of a node where one is named, is published with a taint of this key; return the taint."""

        def taints() -> list[Object]:
            specs = [item["spec"] for item in self.slices() if not node or item["spec"].get("nodeName") == node]
            found = (item for spec in specs for item in spec.get("devices", ()) if item["name"] == device)
            return [dict(taint) for item in found for taint in item.get("taints", ()) if taint["key"] == key]

        return self._wait(taints, seconds=seconds, what=f"the taint {key} of device {device}")[0]

    def wait_running(
        self, name: str, *, container: str = "main", namespace: str = "default", seconds: float = SECONDS
    ) -> small.ContainerView:
        """Wait until a pod's containers are started, and return the view of one of them."""
        self._wait(lambda: self._phase(name, namespace) in ("Running", "Succeeded"), seconds=seconds, what=f"pod {name} to run")
        node = self.local.node(self.pod(name, namespace=namespace)["spec"]["nodeName"])
        view = node.runtime.view(namespace, name, container)
        return small.ContainerView(
            env=view.env,
            device_nodes=tuple(item.path for item in view.edits.device_nodes),
            mounts=tuple((item.host_path, item.container_path) for item in view.edits.mounts),
        )

    def wait_events(self, reason: str, *, containing: str = "", seconds: float = SECONDS) -> list[str]:
        """Wait for events with this reason whose message contains a text, and return their messages."""
        from drakit_cluster.objects import resources  # noqa: PLC0415

        def found() -> list[str]:
            events = self.local.api.list(resources.EVENT).items
            messages = [str(item.get("message", "")) for item in events if item.get("reason") == reason]
            return [message for message in messages if containing in message]

        return self._wait(found, seconds=seconds, what=f"an event {reason} {containing}")

    def delete_pod(self, name: str, *, namespace: str = "default", seconds: float = SECONDS) -> None:
        """Delete a pod, and wait until it is gone and its devices are released."""
        from drakit_cluster.objects import resources  # noqa: PLC0415

        self.local.api.delete(resources.POD, name, namespace=namespace)
        self.wait_gone(name, namespace=namespace, seconds=seconds)

    def wait_gone(self, name: str, *, namespace: str = "default", seconds: float = SECONDS) -> None:
        """Wait until a pod that a taint evicts is gone and its devices are released."""
        from drakit_cluster.objects import errors  # noqa: PLC0415

        def gone() -> bool:
            try:
                self.pod(name, namespace=namespace)
            except errors.NotFoundError:
                return True
            return False

        self._wait(gone, seconds=seconds, what=f"the end of pod {name}")

    def _rights(self, manifest: pathlib.Path) -> "list[tuple[resources.Resource, Object]]":
        """Return the objects of the manifest, after the namespaces that they are in."""
        from drakit.inputs import documents  # noqa: PLC0415
        from drakit_cluster.objects import resources  # noqa: PLC0415

        objects = [(_kind_of(item), item) for item in documents.load_all(manifest.read_text("utf-8")) if item is not None]
        spaces = dict.fromkeys(item["metadata"]["namespace"] for kind, item in objects if kind.namespaced)
        return [*((resources.NAMESPACE, {"metadata": {"name": name}}) for name in spaces), *objects]

    def _check_rights(self) -> None:
        """Raise AssertionError if the manifest lacks a right that the driver needs, because pods would wait in vain."""
        if self._rbac is None:
            return
        from drakit.testing import cluster_driver  # noqa: PLC0415 - see the module's docstring

        made = drivers.made_by(self._make)
        rule = cluster_driver.missing_rule(made, self.local.driver_kubeconfig(self._names[0]))
        if rule:
            raise AssertionError(f"{self._rbac} does not grant what {made.name} needs {rule}")

    def _wait(self, probe: Callable[[], _Result | None], *, what: str, seconds: float = SECONDS) -> _Result:
        """Return the first true result of ``probe``. Raises TimeoutError with ``what``, and with all that may be the reason."""
        from drakit_cluster.objects import resources  # noqa: PLC0415

        try:
            return self.local.wait_for(probe, timeout=seconds, what=what)
        except TimeoutError as error:
            pods, claims, events = (
                [dict(item) for item in self.local.api.list(kind).items] for kind in (resources.POD, resources.CLAIM, resources.EVENT)
            )
            raise TimeoutError("\n  ".join([str(error), *cluster_state.describe(pods, claims, events, self._log)])) from None

    def _phase(self, name: str, namespace: str) -> str:
        return str(self.pod(name, namespace=namespace).get("status", {}).get("phase", ""))

    def _publish_pools(self) -> None:
        """Publish the driver's cluster pools, as the command ``publish`` does."""
        made = drivers.made_by(self._make)
        pools = advanced.cluster_pools(made)
        if not pools:
            return
        from drakit.testing import cluster_driver  # noqa: PLC0415

        cluster_driver.publish(made, pools, self.local.kubeconfig)

    def _start_driver(self, name: str, stack: contextlib.ExitStack) -> None:
        from drakit.testing import cluster_driver  # noqa: PLC0415

        made = drivers.made_by(self._make)
        self.drivers[name] = made
        folder = self.local.node(name).folder
        stack.enter_context(
            cluster_driver.running(
                made,
                self.local.driver_kubeconfig(name),
                node=name,
                registry=folder.registry,
                folders=local_node.Folders(home=folder.plugins / made.name, cdi=folder.cdi),
                rescan_seconds=self._rescan,
            )
        )


def _kind_of(item: Object) -> "resources.Resource":
    """Return the stored kind of an object. Raises ValueError if the cluster does not serve it."""
    from drakit_cluster.objects import resources  # noqa: PLC0415

    served = {(kind.api_version, kind.kind): resources.stored(kind) for kind in resources.SERVED}
    kind = served.get((item["apiVersion"], item["kind"]))
    if kind is None:
        raise ValueError(f"the local cluster has no {item['kind']} of {item['apiVersion']}")
    return kind


def published_devices(published: Sequence[Object]) -> int:
    """Return the number of devices in complete pools: schedulers ignore other pools.

    The slice by which a driver finds out what the API server stores is incomplete on purpose.
    """
    pools: dict[str, list[Object]] = collections.defaultdict(list)
    for item in published:
        pools[str(item["spec"]["pool"]["name"])].append(item["spec"])
    total = 0
    for specs in pools.values():
        newest = max(spec["pool"]["generation"] for spec in specs)
        current = [spec for spec in specs if spec["pool"]["generation"] == newest]
        if len(current) == current[0]["pool"]["resourceSliceCount"]:
            total += sum(len(spec.get("devices", ())) for spec in current)
    return total
