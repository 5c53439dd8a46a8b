"""The demo's cluster: its API over HTTPS, the node, and the driver's process."""

import dataclasses
import time
from collections.abc import Iterable

from drakit_cluster import cluster as clusters
from drakit_cluster.client import api as apis
from drakit_cluster.objects import errors, json_types, resources
from drakit_tools.demo import driver_process, node_view, stage

KINDS = {resource.kind: resource for resource in resources.ALL}

NAMESPACE = "drakit-demo"


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """Everything a chapter needs. Chapters use the cluster only through ``api`` (HTTPS), except for ``cluster.container``."""

    stage: stage.Stage
    cluster: clusters.LocalCluster
    api: apis.Api
    driver: driver_process.DriverProcess
    node: node_view.NodeView
    node_name: str
    page: str = ""
    """The address of the web page; empty without one."""

    def create(self, objects: Iterable[json_types.Object]) -> None:
        """Create objects in this order."""
        for entry in objects:
            self.api.create(KINDS[json_types.text(entry, "kind")], entry)

    def pod(self, name: str) -> json_types.Object | None:
        """Return a pod of the demo's namespace, or None."""
        try:
            return self.api.get(resources.POD, name, NAMESPACE)
        except errors.NotFoundError:
            return None

    def run(self, *names: str) -> float:
        """Wait until the pods run; returns the seconds it took."""
        began = time.monotonic()
        for name in names:
            self.stage.wait(f"pod {name} runs", lambda name=name: phase(self.pod(name)) == "Running")  # type: ignore[misc]
        return time.monotonic() - began

    def pods(self) -> list[str]:
        """Return the names of all pods of the demo's namespace."""
        listing = self.api.list(resources.POD, namespace=NAMESPACE)
        return [json_types.text(pod, "metadata", "name") for pod in listing.items]

    def delete_pods(self) -> None:
        """Delete all pods of the demo's namespace, and wait until they are gone."""
        for name in self.pods():
            self.api.delete(resources.POD, name, namespace=NAMESPACE)
        self.stage.wait("all pods are gone", lambda: not self.pods())

    def claims(self) -> list[json_types.Object]:
        """Return all claims of the demo's namespace."""
        return self.api.list(resources.CLAIM, namespace=NAMESPACE).items

    def claim_of(self, pod: str) -> json_types.Object:
        """Return the only claim of a pod; raises DemoError if it has none yet."""
        pod_object = self.pod(pod) or {}
        for listed in json_types.objects(pod_object, "spec", "resourceClaims"):
            name = json_types.text(listed, "resourceClaimName") or _generated(pod_object, json_types.text(listed, "name"))
            if name:
                return self.api.get(resources.CLAIM, name, NAMESPACE)
        raise stage.DemoError(f"pod {pod} has no claim")

    def state(self) -> list[str]:
        """Return one line for each pod (phase, last warning) and for each claim (its devices)."""
        lines = []
        for pod in self.api.list(resources.POD, namespace=NAMESPACE).items:
            name = json_types.text(pod, "metadata", "name")
            lines.append(f"pod {name}: {phase(pod)} {unschedulable(pod)} {self.warning_about(name)}".rstrip())
        for claim in self.claims():
            devices = ", ".join(json_types.text(result, "device") for result in results(claim))
            lines.append(f"claim {json_types.text(claim, 'metadata', 'name')}: {devices or 'not allocated'}")
        return lines

    def warning_about(self, pod: str) -> str:
        """Return the last Warning event about a pod, empty if there is none."""
        events = self.api.list(resources.EVENT, namespace=NAMESPACE, field_selector=f"involvedObject.name={pod},type=Warning").items
        return f"{json_types.text(events[-1], 'reason')}: {json_types.text(events[-1], 'message')}" if events else ""

    def devices(self, driver: str) -> frozenset[str]:
        """Return the names of the devices that a driver published for the node."""
        slices = self.api.list(resources.SLICE, field_selector=f"spec.driver={driver},spec.nodeName={self.node_name}").items
        return frozenset(json_types.text(device, "name") for entry in slices for device in json_types.objects(entry, "spec", "devices"))


def phase(pod: json_types.Object | None) -> str:
    """Return a pod's phase, empty for None."""
    return json_types.text(pod, "status", "phase")


def unschedulable(pod: json_types.Object | None) -> str:
    """Return why the scheduler cannot place a pod, empty if it has not reported that."""
    for condition in json_types.objects(pod, "status", "conditions"):
        if (json_types.text(condition, "type"), json_types.text(condition, "status")) == ("PodScheduled", "False"):
            return json_types.text(condition, "message")
    return ""


def results(claim: json_types.Object) -> list[json_types.Object]:
    """Return the allocation results of a claim."""
    return json_types.objects(claim, "status", "allocation", "devices", "results")


def _generated(pod: json_types.Object, name: str) -> str:
    for status in json_types.objects(pod, "status", "resourceClaimStatuses"):
        if json_types.text(status, "name") == name:
            return json_types.text(status, "resourceClaimName")
    return ""
