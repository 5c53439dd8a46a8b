"""KEP-4815: a Deployment makes the pods that share a device of several nodes."""

import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, DEPLOYMENT, POD, SLICE
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER
from unit.cluster_kubelet.quick_cluster import QuickCluster

NODES = ("node-1", "node-2", "node-3")


@contextlib.contextmanager
def cluster() -> Iterator[QuickCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = QuickCluster(folder, nodes=NODES)
    try:
        running.start()
        for node in NODES:
            running.plugin(node=node)
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


def shared_slice(*nodes: str) -> Object:
    requirement: Json = {"key": "kubernetes.io/hostname", "operator": "In", "values": [*nodes]}
    selector: Object = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    pool: Object = {"name": "tpus", "generation": 1, "resourceSliceCount": 1}
    devices: list[Json] = [{"name": "tpu-2x4", "nodeSelector": selector}]
    spec: Object = {"driver": DRIVER, "pool": pool, "perDeviceNodeSelection": True, "devices": devices}
    return {"metadata": {"name": "tpus"}, "spec": spec}


def test_a_deployment_makes_the_pods_of_a_shared_claim_on_the_nodes_of_its_device() -> None:
    with cluster() as running:
        running.create(SLICE, shared_slice("node-1", "node-2"))
        running.create(CLAIM, objects.claim("tpu"))
        labels: Object = {"app": "consumer"}
        template: Object = {"metadata": {"labels": labels}, "spec": objects.pod("x", claim="tpu")["spec"]}
        spec: Object = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
        running.create(DEPLOYMENT, {"metadata": {"name": "consumer", "namespace": "default"}, "spec": spec})
        running.until(lambda: json_types.number(running.find(DEPLOYMENT, "consumer") or {}, "status", "readyReplicas") == 3, "its pods")
        assert {json_types.text(pod, "spec", "nodeName") for pod in running.api.list(POD).items} <= {"node-1", "node-2"}
        assert len(json_types.items(running.claim("tpu"), "status", "reservedFor")) == 3
