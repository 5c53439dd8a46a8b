"""A node comes back without NVIDIA's driver: pods end all the same, so that an installer which waits for them can go on."""

import pathlib
import signal
import tempfile

import pytest

from drakit_cluster import cluster as clusters
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.resources import POD, SLICE
from drakit_gpu import host
from drakit_tools.demo import demo_cluster, samples
from fakes import driver_process, forked_cli, waits

DRIVER = "gpu.drakit.dev"
BY_KIND = {resource.kind: resource for resource in resources.ALL}


@pytest.mark.skipif(host.Host(pathlib.Path("/")).has_driver(), reason="this machine has NVIDIA's driver")
@pytest.mark.parametrize("families", [("--family", "gpu"), ("--set", "nic.enabled=false")], ids=["asked for", "left"])
def test_pods_end_and_stale_slices_go_without_nvml(commands: forked_cli.Commands, families: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(prefix="dk") as folder, clusters.LocalCluster(pathlib.Path(folder)) as cluster:
        for item in (*samples.classes(), *samples.load("00-namespace"), *samples.load("60-one-partition")):
            cluster.api.create(BY_KIND[json_types.text(item, "kind")], item)
        root = cluster.node("node-1").folder.root
        places = ("--node", "node-1", "--folder", str(root), "--kubeconfig", str(cluster.driver_kubeconfig("node-1")))
        mock = ("--mock", "dgx-a100-40gb-2gpu", "--family", "gpu", *places)
        none = ("--set", "gpu.library=/nowhere/libnvidia-ml.so.1", "--set", f"serve.socket={root}/health.sock", *families, *places)

        def phases() -> list[str]:
            return [json_types.text(pod, "status", "phase") for pod in cluster.api.list(POD, namespace=demo_cluster.NAMESPACE).items]

        def devices() -> int:
            slices = [stored for stored in cluster.api.list(SLICE).items if json_types.text(stored, "spec", "driver") == DRIVER]
            return sum(len(json_types.items(stored, "spec", "devices")) for stored in slices)

        with driver_process.running(driver_process.drakit("run", *mock), root / "mock.log", commands=commands) as before:
            cluster.wait_for(lambda: phases() == ["Running"], timeout=waits.SECONDS, what="the pod to run")
            assert before.stop(signal.SIGTERM) == 0
        assert devices() > 0, "slices stay when a driver stops"
        for pod in cluster.api.list(POD, namespace=demo_cluster.NAMESPACE).items:
            cluster.api.delete(POD, json_types.text(pod, "metadata", "name"), namespace=demo_cluster.NAMESPACE)
        with driver_process.running(driver_process.drakit("run", *none), root / "none.log", commands=commands) as after:
            cluster.wait_for(lambda: not phases(), timeout=waits.SECONDS, what="the pod to end")
            cluster.wait_for(lambda: devices() == 0, timeout=waits.SECONDS, what="no device to be offered")
            assert "hardware not ready: no devices offered" in after.said()
            assert after.stop(signal.SIGTERM) == 0
