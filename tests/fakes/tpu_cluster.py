"""A local cluster whose nodes are a small TPU node pool: the family's real driver on every node, and the real publisher, in this process."""

import contextlib
import functools
import pathlib
import shutil
import tempfile
import threading
from collections.abc import Iterator

import yaml

from drakit import settings as values
from drakit.cli import composition, options
from drakit.cli.commands import publish, run
from drakit.kube import client
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, POD, SLICE
from fakes import waits
from unit.cluster_kubelet.quick_cluster import QuickCluster

ROOT = pathlib.Path(__file__).parents[2]
DRIVER = CLASS_NAME = "tpu.drakit.dev"
NODES = tuple(f"node-{number}" for number in range(1, 5))
OUTSIDE = "node-9"
MACHINE = """
name: small
description: 16 chips on 4 nodes
tpus: {generation: v5e, pool: tpus, topology: 4x4, host: 2x2, slices: [2x2, 2x4, 4x4], nodePrefix: node-}
"""
_BY_KIND = {one.kind: one for one in resources.ALL}


class TpuCluster:
    """The cluster; ``node-9`` has no TPUs."""

    def __init__(self, cluster: QuickCluster, folder: pathlib.Path) -> None:
        self.quick_cluster = cluster
        self.machine = folder / "small.yaml"
        self.machine.write_text(MACHINE)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for manifest in ("driver/status-rbac.yaml", "deviceclass.yaml"):
            for made in yaml.load_all((ROOT / "examples" / "tpu" / "deploy" / manifest).read_text(), Loader=yaml.CSafeLoader):
                self.quick_cluster.create(_BY_KIND[made["kind"]], made)
        for node in (*NODES, OUTSIDE):
            self._spawn(node, self._serve, node)
        self._spawn("publisher", self._publish)
        self.quick_cluster.until(lambda: self.devices_of_slices() >= {"tpu-2x2-1", "tpu-4x4-1"}, "the slices")
        for node in (*NODES, OUTSIDE):
            usable = functools.partial(self.quick_cluster.cluster.node(node).kubelet.plugins.is_usable, DRIVER)
            self.quick_cluster.until(usable, f"the driver on {node}")

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(waits.SECONDS)

    def clear(self) -> None:
        """Delete all pods and claims, and wait until they are gone."""
        api = self.quick_cluster.api
        for kind in (POD, CLAIM):
            for held in api.list(kind).items:
                api.delete(kind, json_types.text(held, "metadata", "name"), namespace="default", grace_seconds=0 if kind is POD else None)
        self.quick_cluster.until(lambda: not api.list(POD).items and not api.list(CLAIM).items, "the end of all pods and claims")

    def settings(self, node: str = "", kubeconfig: pathlib.Path | None = None) -> values.Settings:
        flags: dict[str, object] = {
            "mock.machine": str(self.machine),
            "node.name": node,
            "api.kubeconfig": kubeconfig or self.quick_cluster.cluster.kubeconfig,
            **options.places(self.quick_cluster.cluster.folder / (node or "publisher")),
        }
        return values.load(flags, environ={})

    def _serve(self, node: str) -> None:
        chosen = self.settings(node, self.quick_cluster.cluster.driver_kubeconfig(node))
        run.serve(chosen, composition.families(chosen, only=["tpu"]), self._stop)

    def _publish(self) -> None:
        chosen = self.settings()
        api = client.connect(chosen.api.kubeconfig)
        publish.Office(chosen, DRIVER, api).serve(composition.cluster_family(chosen, "tpu").pools, self._stop)
        api.close()

    def _spawn(self, name: str, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, name=name, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def devices_of_slices(self) -> set[str]:
        return {
            json_types.text(one, "name")
            for held in self.quick_cluster.api.list(SLICE).items
            for one in json_types.objects(held, "spec", "devices")
        }

    def claim(self, name: str, chips: int) -> None:
        """Create a claim for a slice of so many chips."""
        expression = f"device.capacity['{DRIVER}'].tpus == quantity('{chips}')"
        exactly: Object = {"deviceClassName": CLASS_NAME, "selectors": [{"cel": {"expression": expression}}]}
        made: Object = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "tpu", "exactly": exactly}]}},
        }
        self.quick_cluster.create(CLAIM, made)

    def pod(self, name: str, claim: str, *, workload: str = "", topology: str = "kubernetes.io/hostname", node: str = "") -> None:
        """Create a pod of a shared claim; those of one workload keep apart."""
        spec: Object = {
            "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "tpu"}]}}],
            "resourceClaims": [{"name": "tpu", "resourceClaimName": claim}],
            "terminationGracePeriodSeconds": 0,
            **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
        }
        if workload:
            term: Json = {"labelSelector": {"matchLabels": {"app": workload}}, "topologyKey": topology}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        metadata: Object = {"name": name, "namespace": "default", "labels": {"app": workload or name}}
        self.quick_cluster.create(POD, {"metadata": metadata, "spec": spec})

    def node_of(self, pod: str) -> str:
        return json_types.text(self.quick_cluster.find(POD, pod) or {}, "spec", "nodeName")

    def status(self, claim: str) -> Object:
        """The status of the claim's only device; empty where there is none."""
        found = json_types.objects(self.quick_cluster.claim(claim), "status", "devices")
        return found[0] if found else {}

    def ready(self, claim: str) -> str:
        """The status of the condition Ready, with its message."""
        [condition] = json_types.objects(self.status(claim), "conditions") or [{}]
        return f"{json_types.text(condition, 'status')}: {json_types.text(condition, 'message')}"

    def workers(self, claim: str) -> dict[str, Json]:
        """Which node said that it is which worker."""
        parts = json_types.mapping(self.status(claim), "data", "nodes")
        return {node: json_types.at(part, "values", "worker") for node, part in parts.items()}

    def environment(self, pod: str) -> dict[str, str]:
        """What the container of a running pod was told."""
        view = self.quick_cluster.view(pod, "main", node=self.node_of(pod))
        return dict(view.env)


@contextlib.contextmanager
def running() -> Iterator[TpuCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    cluster = QuickCluster(folder / "c", nodes=(*NODES, OUTSIDE))
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        ending.callback(cluster.stop)
        cluster.start()
        made = TpuCluster(cluster, folder)
        ending.callback(made.stop)
        made.start()
        yield made
