"""Where a check works: one namespace and one node, pods and claims in them, and what their containers see."""

import dataclasses
import functools
import pathlib

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from e2e.api import Api, ApiError
from e2e.inspection import ContainerView

NAMESPACE = "drakit-e2e"
LABELLED = "drakit-e2e-admin"
_LABELS: dict[str, dict[str, Json]] = {NAMESPACE: {}, LABELLED: {"resource.kubernetes.io/admin-access": "true"}}
_DEVICES_AWAY_SECONDS = 60
_UNALLOCATABLE = ("cannot allocate all claims", "none available")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workspace:
    """Pods and claims of one check on ``node``. ``logs`` is where a local cluster keeps the output of containers."""

    api: Api
    node: str
    image: str
    logs: pathlib.Path | None = None
    namespace: str = NAMESPACE

    def make(self) -> None:
        """Make the namespaces of the suite, and wait until pods can be created in them."""
        for name, labels in _LABELS.items():
            if self.api.find("Namespace", name) is None:
                item: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
                self.api.create(item)
        for name in _LABELS:
            self.api.wait(f"the default account of {name}", functools.partial(self.api.find, "ServiceAccount", "default", name))

    def remove(self) -> None:
        """Remove the namespaces."""
        for name in _LABELS:
            self.api.delete("Namespace", name)
        self.api.wait("the end of the namespaces", lambda: not any(self.api.find("Namespace", name) for name in _LABELS), seconds=120)

    def clear(self) -> None:
        """Remove what a check left in the namespaces, and wait until its devices are free."""
        for namespace in _LABELS:
            self.clear_namespace(namespace)

    def clear_namespace(self, namespace: str) -> None:
        """Remove pods, claims and templates of one namespace, and wait until they are gone."""
        is_empty = True
        for kind in ("Pod", "ResourceClaim", "ResourceClaimTemplate"):
            for item in self.api.list(kind, namespace):
                self.api.delete(kind, json_types.text(item, "metadata", "name"), namespace, grace=1 if kind == "Pod" else None)
                is_empty = False
        if is_empty:
            return
        self.api.wait(
            f"the end of every pod and claim in {namespace}",
            lambda: not self.api.list("Pod", namespace) and not self.api.list("ResourceClaim", namespace),
            seconds=_DEVICES_AWAY_SECONDS,
        )

    def within(self, namespace: str) -> "Workspace":
        """Return the same in another namespace."""
        return dataclasses.replace(self, namespace=namespace)

    def create(self, *items: Object) -> Object:
        """Create objects in the namespace, pods with the image and on the node of this run; return the last as it was stored."""
        found: Object = {}
        for item in items:
            made = json_types.copy_object(item)
            if made.get("kind") != "DeviceClass":
                json_types.child(made, "metadata").setdefault("namespace", self.namespace)
            if made.get("kind") == "Pod":
                self._fit(made)
            found = self.api.create(made)
        return found

    def _fit(self, pod: Object) -> None:
        spec = json_types.child(pod, "spec")
        if "nodeName" not in spec:
            json_types.child(spec, "nodeSelector")["kubernetes.io/hostname"] = self.node
        spec.setdefault("tolerations", [{"operator": "Exists"}])
        for container in (*json_types.objects(spec, "initContainers"), *json_types.objects(spec, "containers")):
            container["image"] = self.image
            container["imagePullPolicy"] = "IfNotPresent"

    def pod(self, name: str) -> Object:
        """Return a pod."""
        return self.api.get("Pod", name, self.namespace)

    def claim(self, name: str) -> Object:
        """Return a claim."""
        return self.api.get("ResourceClaim", name, self.namespace)

    def running(self, *names: str, seconds: float | None = None) -> None:
        """Wait until pods run with all of their containers."""
        for name in names:
            self.api.wait(f"pod {name} running", functools.partial(self._runs, name), seconds=seconds)

    def _runs(self, name: str) -> bool:
        return is_running(self.pod(name))

    def run(self, *items: Object) -> None:
        """Create objects and wait until the pods among them run."""
        self.create(*items)
        self.running(*(json_types.text(item, "metadata", "name") for item in items if item.get("kind") == "Pod"))

    def pending(self, name: str, *containing: str) -> str:
        """Wait until the scheduler says that a pod has no place, in words that contain one of ``containing``; return its words.

        Without any, those are that no devices can be allocated to a claim, of Kubernetes and of the local cluster.
        """
        wanted = containing or _UNALLOCATABLE

        def explanation() -> str:
            conditions = json_types.objects(self.pod(name), "status", "conditions")
            words = [json_types.text(one, "message") for one in conditions if json_types.text(one, "type") == "PodScheduled"]
            return next((text for text in words if any(part in text for part in wanted)), "")

        return self.api.wait(f"pod {name} waiting because {wanted!r}", explanation)

    def end(self, *names: str) -> None:
        """Delete pods and wait until they are gone."""
        for name in names:
            self.api.delete("Pod", name, self.namespace, grace=1)
        for name in names:
            self.api.wait_gone("Pod", name, self.namespace)

    def claim_of(self, pod: str, reference: str = "") -> Object:
        """Return the claim that was made for a pod from a template, or for its extended resources; the only one, unless named."""
        status = json_types.mapping(self.pod(pod), "status")
        made = {json_types.text(one, "name"): one for one in json_types.objects(status, "resourceClaimStatuses")}
        entry = made[reference or next(iter(made))] if made else json_types.mapping(status, "extendedResourceClaimStatus")
        return self.claim(json_types.text(entry, "resourceClaimName"))

    def events(self, reason: str, pod: str) -> list[str]:
        """Return the messages of a pod's events of one reason."""
        uid = json_types.text(self.pod(pod), "metadata", "uid")
        return [
            json_types.text(one, "message")
            for one in self.api.list("Event", self.namespace)
            if json_types.text(one, "reason") == reason and json_types.text(one, "involvedObject", "uid") == uid
        ]

    def event(self, reason: str, pod: str, containing: str = "") -> str:
        """Wait for an event of a pod and return its message."""

        def message() -> str:
            return next((text for text in self.events(reason, pod) if containing in text), "")

        return self.api.wait(f"event {reason} of pod {pod} that says {containing!r}", message)

    def output(self, pod: str, container: str = "main") -> str:
        """Return what a container printed so far."""
        if self.logs is not None:
            file = self.logs / json_types.text(self.pod(pod), "metadata", "uid") / f"{container}.log"
            return file.read_text() if file.exists() else ""
        return self.api.log(pod, self.namespace, container)

    def view(self, pod: str, container: str = "main") -> ContainerView:
        """Return what a container sees; it runs the program of ``inspection``."""

        def line() -> str:
            text = self.output(pod, container)
            return text.partition("\n")[0] if "\n" in text else ""

        return ContainerView.of(self.api.wait(f"the view of {pod}/{container}", line))

    def execute(self, pod: str, *words: str, container: str = "main", check: bool = True) -> str:
        """Run a command in a container and return what it prints."""
        return self.api.kubectl("exec", "-n", self.namespace, pod, "-c", container, "--", *words, check=check)

    def refused(self, item: Object) -> str:
        """Create an object that the server must refuse, and return its words."""
        try:
            self.create(item)
        except ApiError as error:
            return str(error)
        raise AssertionError(f"the server took {json_types.text(item, 'kind')} {json_types.text(item, 'metadata', 'name')}")


def is_running(pod: Object) -> bool:
    """Return whether a pod runs with all of its containers."""
    statuses = json_types.objects(pod, "status", "containerStatuses")
    started = [json_types.mapping(one, "state", "running") for one in statuses]
    return json_types.text(pod, "status", "phase") == "Running" and bool(started) and all(started)


def results(claim: Object) -> list[Object]:
    """Return the devices that a claim was given."""
    return json_types.objects(claim, "status", "allocation", "devices", "results")


def devices(claim: Object) -> list[str]:
    """Return the names of the devices that a claim was given."""
    return [json_types.text(one, "device") for one in results(claim)]


def reserved_for(claim: Object) -> list[str]:
    """Return the names of the pods that may use a claim."""
    return [json_types.text(one, "name") for one in json_types.objects(claim, "status", "reservedFor")]
