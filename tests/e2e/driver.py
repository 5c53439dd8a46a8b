"""drakit on the cluster under test: installed from the mock overlay, in pods; or started by somebody else on a local cluster."""

import dataclasses
import os
import pathlib
import tempfile

import yaml

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from e2e import gpu_fault
from e2e.api import Api

NAMESPACE = "drakit-system"
DRIVERS = ("gpu.drakit.dev", "nic.drakit.dev")
_NAME = "app.kubernetes.io/name=drakit"
_LABELS = f"{_NAME},app.kubernetes.io/component"
ROOT = pathlib.Path(__file__).resolve().parents[2]
MACHINE = "dgx-a100-40gb-2gpu"
_START_SECONDS = 120


@dataclasses.dataclass(frozen=True, kw_only=True)
class Driver:
    """drakit under test. ``local`` is the folder of its node where it does not run in a pod."""

    api: Api
    node: str
    image: str
    local: pathlib.Path | None = None

    def apply(self, overlay: str, image: str = "", environment: dict[str, str] | None = None) -> None:
        """Apply an overlay with an image, the one under test unless another is given, and wait until its pods are up to date."""
        with tempfile.TemporaryDirectory(prefix="e2e") as folder:
            self.api.kubectl("apply", "-k", _kustomization(pathlib.Path(folder), overlay, image or self.image, environment or {}))
        self.settled()

    def make_classes(self) -> None:
        """Create the DeviceClasses that an overlay would bring."""
        for family in ("gpu", "nic"):
            for item in yaml.safe_load_all((ROOT / "daemonset" / family / "deviceclasses.yaml").read_text()):
                if self.api.find("DeviceClass", item["metadata"]["name"]) is None:
                    self.api.create(item)

    def delete(self, overlay: str) -> None:
        """Delete what an overlay made, and wait until it is gone."""
        with tempfile.TemporaryDirectory(prefix="e2e") as folder:
            place = _kustomization(pathlib.Path(folder), overlay, self.image, {})
            self.api.kubectl("delete", "-k", place, "--ignore-not-found", "--wait=true")

    def settled(self) -> None:
        """Wait until each DaemonSet of drakit has one pod on the node, up to date and ready. Other nodes are not looked at."""
        self.api.wait(f"drakit up to date on {self.node}", self._is_settled, seconds=_START_SECONDS)

    def _is_settled(self) -> bool:
        daemonsets, pods = self.daemonsets(), self.api.list("Pod", NAMESPACE, labels=_NAME, fields=f"spec.nodeName={self.node}")
        newest = {self._revision(one) for one in daemonsets}
        return len(pods) == len(daemonsets) > 0 and {_revision_of(pod) for pod in pods} == newest and all(_is_ready(pod) for pod in pods)

    def _revision(self, daemonset: Object) -> str:
        """Return the hash of the revision that has a DaemonSet's template; empty while its controller has not seen its last change.

        By the template and not by number: a controller whose watch is behind, as after an API server that was away, gives two revisions one number.
        """
        if json_types.number(daemonset, "status", "observedGeneration") != json_types.number(daemonset, "metadata", "generation"):
            return ""
        uid, template = json_types.text(daemonset, "metadata", "uid"), _bare(json_types.at(daemonset, "spec", "template"))
        found = [
            one
            for one in self.api.list("ControllerRevision", NAMESPACE)
            if uid in {json_types.text(owner, "uid") for owner in json_types.objects(one, "metadata", "ownerReferences")}
            and _bare(json_types.at(one, "data", "spec", "template")) == template
        ]
        return _revision_of(found[0]) if found else ""

    def offers(self, *drivers: str) -> None:
        """Wait until the node has devices of these drivers."""
        self.api.wait(f"devices of {drivers} on {self.node}", lambda: all(self.devices(name) for name in drivers), seconds=_START_SECONDS)

    def daemonsets(self) -> list[Object]:
        """Return drakit's DaemonSets."""
        return self.api.list("DaemonSet", NAMESPACE, labels=_NAME)

    def pods(self, *drivers: str) -> list[Object]:
        """Return drakit's pods on the node that are not ending, of some drivers or of both."""
        families = ",".join(name.partition(".")[0] for name in drivers or DRIVERS)
        found = self.api.list("Pod", NAMESPACE, labels=f"{_LABELS} in ({families})", fields=f"spec.nodeName={self.node}")
        return [pod for pod in found if not json_types.text(pod, "metadata", "deletionTimestamp")]

    def pod_of(self, driver: str) -> str:
        """Return the name of the newest pod that serves a driver on the node."""
        pods = sorted(self.pods(driver), key=lambda pod: json_types.text(pod, "metadata", "creationTimestamp"))
        assert pods, f"no pod of {driver} on {self.node}"
        return json_types.text(pods[-1], "metadata", "name")

    def execute(self, driver: str, *words: str, check: bool = True) -> str:
        """Run a command in the pod of a driver and return what it prints."""
        return self.api.kubectl("exec", "-n", NAMESPACE, self.pod_of(driver), "--", *words, check=check)

    def slices(self, driver: str) -> list[Object]:
        """Return the slices of a driver on the node."""
        found = self.api.list("ResourceSlice", fields=f"spec.nodeName={self.node},spec.driver={driver}")
        return [one for one in found if json_types.text(one, "spec", "pool", "name") == self.node]

    def devices(self, driver: str) -> list[Object]:
        """Return the devices of a driver on the node."""
        return [device for one in self.slices(driver) for device in json_types.objects(one, "spec", "devices")]

    def device(self, driver: str, name: str) -> Object:
        """Return one device, empty where it is not published."""
        return next((one for one in self.devices(driver) if one.get("name") == name), {})

    def logs(self) -> str:
        """Return the end of the logs of drakit's pods on the node."""
        if self.local is not None:
            return ""
        names = [json_types.text(pod, "metadata", "name") for pod in self.pods()]
        return "\n".join(f"-- {name}\n{self.api.kubectl('logs', '-n', NAMESPACE, name, '--tail=25', check=False)}" for name in names)

    def gpu(self, call: str, index: int = 0, *words: int) -> None:
        """Let something happen to a GPU of the mock machine: ``report_xid``, ``lose``, ``reset``."""
        numbers = [str(index), *(str(word) for word in words)]
        if self.local is not None:
            gpu_fault.main(MACHINE, str(self.local / "mock"), self.node, call, *numbers)
            return
        folder = f"/var/lib/kubelet/plugins/mock/{MACHINE}"
        text = pathlib.Path(gpu_fault.__file__).read_text("utf-8")
        self.execute("gpu.drakit.dev", "python3", "-c", text, MACHINE, folder, self.node, call, *numbers)


def _bare(item: object) -> object:
    """Return a template without what a revision and a DaemonSet write differently: nulls, and how a patch is to be applied."""
    if isinstance(item, dict):
        return {key: _bare(value) for key, value in item.items() if value is not None and key != "$patch"}
    return [_bare(one) for one in item] if isinstance(item, list | tuple) else item


def _revision_of(item: Object) -> str:
    return json_types.text(item, "metadata", "labels", "controller-revision-hash")


def _is_ready(pod: Object) -> bool:
    conditions = {json_types.text(one, "type"): json_types.text(one, "status") for one in json_types.objects(pod, "status", "conditions")}
    return conditions.get("Ready") == "True" and not json_types.text(pod, "metadata", "deletionTimestamp")


def _kustomization(folder: pathlib.Path, overlay: str, image: str, environment: dict[str, str]) -> str:
    """Write a kustomization of an overlay with an image and variables of the driver's container, and return its folder."""
    name, tag = _split(image)
    patch = [
        {"op": "add", "path": "/spec/template/spec/containers/0/imagePullPolicy", "value": "IfNotPresent"},
        *(
            {"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": key, "value": value}}
            for key, value in environment.items()
        ),
    ]
    found: dict[str, object] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(ROOT / "daemonset" / "overlays" / overlay, folder.resolve())],
        "images": [{"name": "drakit", "newName": name, **tag}],
        "patches": [{"target": {"kind": "DaemonSet"}, "patch": yaml.safe_dump(patch)}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(found))
    return str(folder)


def _split(image: str) -> tuple[str, dict[str, str]]:
    """Return an image's name, and its digest or tag as kustomize calls them."""
    name, at, digest = image.partition("@")
    if at:
        return name, {"digest": digest}
    path, colon, tag = image.rpartition(":")
    return (path, {"newTag": tag}) if colon and "/" not in tag else (image, {"newTag": "latest"})
