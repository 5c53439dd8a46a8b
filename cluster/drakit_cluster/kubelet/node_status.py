"""What a kubelet reports of its node: labels, status, and the lease that shows that it runs.

Capacity is that of this host. Allocatable equals it, because this kubelet reserves nothing, and the scheduler does not count CPU and memory.
"""

import os
import pathlib
import platform
import shutil
import threading

from drakit.telemetry import logs
from drakit_cluster.api.http import discovery
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client.api import Api
from drakit_cluster.objects import errors, json_types, naming
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import LEASE, NODE
from drakit_cluster.runtime import Mode

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
"""How long a lease is valid; the default of nodeLeaseDurationSeconds. The kubelet renews it after a quarter of that."""
MAX_PODS = 110
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
"""Go's names of architectures by those of ``uname``, where they differ."""
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
_JOIN_SECONDS = 2.0

_log = logs.get_logger(__name__)


def register(api: Api, name: str, further_labels: dict[str, str], *, mode: Mode, version: str) -> Object:
    """Create the node, or mark an existing one as ready; return it. ``mode`` is how its runtime runs containers."""
    info = _node_info(mode, version)
    labels: Object = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": info["operatingSystem"],
        "kubernetes.io/arch": info["architecture"],
        **further_labels,
    }
    resources, now = _capacity(), naming.now()
    status: Object = {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, status, reason, message in _HEALTHY
        ],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
        "nodeInfo": info,
    }
    try:
        return api.create(NODE, {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status})
    except errors.AlreadyExistsError:
        api.patch(NODE, name, {"metadata": {"labels": labels}}, kind=PatchKind.MERGE)
        return api.patch(NODE, name, {"status": status}, kind=PatchKind.STRATEGIC, subresource="status")


def _capacity() -> Object:
    """Return CPUs, memory and disk of this host, as a kubelet writes them."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{pages * page_bytes // 1024}Ki",
        "ephemeral-storage": f"{shutil.disk_usage('/').total // 1024}Ki",
        "pods": str(MAX_PODS),
    }


def _node_info(mode: Mode, version: str) -> Object:
    """Return the fields of V1NodeSystemInfo of a Kubernetes version."""
    system = platform.uname()
    try:
        image = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        image = system.system
    machine = _line("/etc/machine-id")
    return {
        "architecture": _ARCHITECTURES.get(system.machine, system.machine),
        "bootID": _line("/proc/sys/kernel/random/boot_id"),
        "containerRuntimeVersion": f"drakit://{mode.value}",
        "kernelVersion": system.release,
        "kubeProxyVersion": "",
        "kubeletVersion": discovery.git_version(version),
        "machineID": machine,
        "operatingSystem": system.system.lower(),
        "osImage": image,
        "systemUUID": _line("/sys/class/dmi/id/product_uuid") or machine,
    }


def _line(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


class NodeLease:
    """The node's lease in kube-node-lease. A thread renews it until :meth:`stop`; a renewal that fails is tried again at the next turn."""

    def __init__(self, api: Api, name: str, *, renew_seconds: float = LEASE_SECONDS / 4) -> None:
        self._api = api
        self._name = name
        self._owner: Object = {}
        self._renew_seconds = renew_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease-{self._name}", daemon=True)

    def start(self, node: Object) -> None:
        """Write the node's lease once, and renew it from now on."""
        self._owner = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": json_types.text(node, "metadata", "uid")}
        self._renew()
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing; the lease stays and becomes old."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while not self._stopping.wait(self._renew_seconds):
            self._renew()

    def _renew(self) -> None:
        spec: Object = {"holderIdentity": self._name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": naming.now_micro()}
        try:
            try:
                self._api.patch(LEASE, self._name, {"spec": spec}, namespace=LEASE_NAMESPACE, kind=PatchKind.MERGE)
            except errors.NotFoundError:
                metadata: Object = {"name": self._name, "ownerReferences": [self._owner]}
                self._api.create(LEASE, {"metadata": metadata, "spec": spec}, namespace=LEASE_NAMESPACE)
        except errors.ApiError as error:
            _log.info("lease renewal failed", node=self._name, error=str(error))
