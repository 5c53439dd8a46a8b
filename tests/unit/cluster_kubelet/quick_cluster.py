"""A local cluster with short waits, seen from a test: one node unless more are asked for, and what tests ask of it again and again."""

import contextlib
import pathlib
from collections.abc import Callable

from drakit_cluster.client.api import Api
from drakit_cluster.cluster import LocalCluster
from drakit_cluster.cluster_node import Components
from drakit_cluster.kubelet import Timing
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, CLASS, EVENT, POD, SLICE, Resource
from drakit_cluster.runtime import ContainerView, Mode
from fakes import waits
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER, Plugin

QUICK = Timing(
    registration_tick=0.02,
    dial=2.0,
    registration_retry=(0.05, 0.2),
    call=2.0,
    reconnect=(0.1, 0.1),
    wipe_delay=0.4,
    wipe_retry=(0.05, 0.2),
    prepare_retry=(0.05, 0.2),
    unprepare_retry=(0.05, 0.2),
    container_retry=(0.05, 0.2),
    reconcile=0.2,
)


class QuickCluster:
    """The cluster under test."""

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        nodes: tuple[str, ...] = (objects.NODE,),
        timing: Timing = QUICK,
        mode: Mode = Mode.PRETEND,
        gates: FeatureGates | None = None,
        components: Components | None = None,
        https: bool = False,
    ) -> None:
        """``https``: the test itself speaks to the cluster as the administrator over HTTPS, not to the registry in this process."""
        self.cluster = LocalCluster(folder, nodes=nodes, timing=timing, mode=mode, gates=gates, components=components)
        self.api: Api = self.cluster.api
        self._https = https
        self._ending = contextlib.ExitStack()
        self.plugins: list[Plugin] = []

    def start(self) -> "QuickCluster":
        self.cluster.start()
        if self._https:
            client = self.cluster.client()
            self._ending.callback(client.close)
            self.api = client
        with contextlib.suppress(errors.AlreadyExistsError):  # A cluster that goes on with what another one kept has it.
            self.api.create(CLASS, objects.device_class())
        return self

    def stop(self) -> None:
        self._ending.close()
        self.cluster.stop()
        for plugin in self.plugins:
            plugin.stop()

    def plugin(self, *, node: str = objects.NODE, name: str = DRIVER, instance: str = "", register: bool = True) -> Plugin:
        """Start a plugin on a node, and wait until the kubelet can use it."""
        plugin = self.new_plugin(node=node, name=name, instance=instance)
        if register:
            plugin.start()
            self.until(lambda: plugin.statuses, "registration")
            self.until(lambda: self.cluster.node(node).kubelet.plugins.is_usable(name), "the plugin's connection")
        return plugin

    def new_plugin(self, *, node: str = objects.NODE, name: str = DRIVER, instance: str = "") -> Plugin:
        plugin = Plugin(self.api, self.cluster.node(node).folder, name=name, instance=instance)
        self.plugins.append(plugin)
        return plugin

    def offer(self, *names: str, node: str = objects.NODE) -> None:
        """Publish plain devices."""
        self.api.create(SLICE, objects.resource_slice(*(objects.device(name) for name in names), node=node))

    def create(self, resource: Resource, obj: Object) -> Object:
        """Create an object; a pod only when the scheduler knows what was created before it."""
        if resource is POD:
            self.until(self.cluster.is_scheduler_current, "the scheduler to know all objects")
        return self.api.create(resource, obj)

    def lose(self, plugin: Plugin, node: str = objects.NODE) -> None:
        """Stop a plugin, and wait until the kubelet has noticed."""
        plugin.stop()
        self.until(lambda: not self.cluster.node(node).kubelet.plugins.is_registered(plugin.name), "the loss")

    def run(self, pod: Object) -> Object:
        """Create a pod and wait until it runs."""
        self.create(POD, pod)
        return self.phase(json_types.text(pod, "metadata", "name"), "Running")

    def until(self, probe: Callable[[], object], what: str, timeout: float = waits.SECONDS) -> None:
        self.cluster.wait_for(lambda: probe() or None, timeout=timeout, what=what)

    def phase(self, pod: str, phase: str) -> Object:
        """Wait until a pod is in a phase; return it."""

        def probe() -> Object | None:
            found = self.find(POD, pod)
            return found if found and json_types.text(found, "status", "phase") == phase else None

        return self.cluster.wait_for(probe, timeout=waits.SECONDS, what=f"phase {phase} of pod {pod}")

    def gone(self, resource: Resource, name: str) -> None:
        """Wait until an object is not there any more."""
        self.until(lambda: self.find(resource, name) is None, f"the end of {resource.kind} {name}")

    def find(self, resource: Resource, name: str) -> Object | None:
        try:
            return self.api.get(resource, name, "default" if resource.namespaced else "")
        except errors.NotFoundError:
            return None

    def claim(self, name: str) -> Object:
        return self.api.get(CLAIM, name, "default")

    def uid(self, claim: str) -> str:
        return json_types.text(self.claim(claim), "metadata", "uid")

    def devices(self, claim: str) -> list[str]:
        """Return the devices that a claim has now."""
        results = json_types.objects(self.claim(claim), "status", "allocation", "devices", "results")
        return [json_types.text(result, "device") for result in results]

    def delete(self, pod: str, *, force: bool = False) -> None:
        self.api.delete(POD, pod, namespace="default", grace_seconds=0 if force else None)

    def view(self, pod: str, container: str = "", node: str = objects.NODE) -> ContainerView:
        return self.cluster.node(node).runtime.view("default", pod, container)

    def events(self, reason: str) -> list[str]:
        """Return the messages of events of one reason."""
        return [json_types.text(one, "message") for one in self.api.list(EVENT).items if json_types.text(one, "reason") == reason]

    def slices(self) -> list[Object]:
        return self.api.list(SLICE).items

    def scheduling_message(self, pod: str) -> str:
        """Return why a pod waits."""
        found = self.find(POD, pod) or {}
        conditions = json_types.objects(found, "status", "conditions")
        waiting = [one for one in conditions if one.get("type") == "PodScheduled" and one.get("status") == "False"]
        return json_types.text(waiting[0], "message") if waiting else ""
