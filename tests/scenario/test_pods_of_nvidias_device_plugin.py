"""Pods written for NVIDIA's device plugin run unchanged on the local cluster, with the classes that the Helm chart renders."""

import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator

import pytest
import yaml

from drakit_cluster import cluster as clusters
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, CLASS, POD
from fakes import driver_process, forked_cli, manifests, waits

pytestmark = pytest.mark.skipif(shutil.which("helm") is None, reason="helm renders the chart and is not installed")
RESOURCES = {"gpu": "nvidia.com/gpu", "mig": ["1g.5gb", "1g.5gb+me", "3g.20gb"]}


def classes() -> list[Object]:
    """Return the DeviceClasses of the chart."""
    given = f"gpu.deviceClasses.extendedResources={json.dumps(RESOURCES)}"
    command = ["helm", "template", "drakit", "daemonset/chart", "--show-only", "templates/deviceclasses.yaml", "--set-json", given]
    ran = subprocess.run(command, cwd=manifests.ROOT, capture_output=True, text=True, check=True)
    return [item for item in yaml.safe_load_all(ran.stdout) if item is not None]


def pod(name: str, **limits: int) -> Object:
    """Return a pod as users of the device plugin write it: limits, and nothing else of GPUs."""
    wanted: Object = {resource: str(amount) for resource, amount in limits.items()}
    container: Object = {"name": "main", "image": "registry.example.com/train:1", "resources": {"limits": wanted}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "restartPolicy": "Never"}}


@pytest.fixture
def cluster(commands: forked_cli.Commands) -> Iterator[clusters.LocalCluster]:
    with tempfile.TemporaryDirectory(prefix="dk") as folder, clusters.LocalCluster(pathlib.Path(folder)) as running:
        for device_class in classes():
            running.api.create(CLASS, device_class)
        root = running.node("node-1").folder.root
        command = driver_process.drakit("run", "--mock", "dgx-a100-40gb-2gpu", "--node", "node-1", "--family", "gpu")
        places = ["--folder", str(root), "--kubeconfig", str(running.driver_kubeconfig("node-1"))]
        process = driver_process.Process([*command, *places], root / "gpu.log", {}, commands)
        try:
            assert waits.eventually(lambda: running.node("node-1").kubelet.plugins.is_usable("gpu.drakit.dev"))
            assert waits.eventually(lambda: running.api.list(resources.SLICE).items)
            yield running
            process.send(signal.SIGTERM)
            assert process.wait() == 0
        finally:
            process.kill()


def phase(cluster: clusters.LocalCluster, name: str) -> str:
    return json_types.text(cluster.api.get(POD, name, "default"), "status", "phase")


def devices(cluster: clusters.LocalCluster, name: str) -> list[str]:
    """Return the devices of the claim that the scheduler made for a pod."""
    claim_name = json_types.text(cluster.api.get(POD, name, "default"), "status", "extendedResourceClaimStatus", "resourceClaimName")
    claim = cluster.api.get(CLAIM, claim_name, "default")
    return [json_types.text(result, "device") for result in json_types.objects(claim, "status", "allocation", "devices", "results")]


def test_a_pod_that_asks_for_a_profile_or_a_gpu_of_the_device_plugin_runs(cluster: clusters.LocalCluster) -> None:
    cluster.api.create(POD, pod("small", **{"nvidia.com/mig-1g.5gb": 1}), namespace="default")
    cluster.api.create(POD, pod("media", **{"nvidia.com/mig-1g.5gb.me": 1, "nvidia.com/mig-3g.20gb": 1}), namespace="default")
    cluster.api.create(POD, pod("whole", **{"nvidia.com/gpu": 1}), namespace="default")
    for name in ("small", "media", "whole"):
        assert waits.eventually(lambda name=name: phase(cluster, name) == "Running"), name  # type: ignore[misc]
    (small,) = devices(cluster, "small")
    assert "-mig-1g5gb-19-" in small
    assert sorted(name.split("-mig-")[1][:6] for name in devices(cluster, "media")) == ["1g5gb-", "3g20gb"]
    assert devices(cluster, "whole") in (["gpu-0"], ["gpu-1"])
    visible = cluster.node("node-1").runtime.view("default", "small", "main").env
    assert any(name.startswith("GPU_DEVICE_") and value.startswith("MIG-") for name, value in visible.items()), visible


def test_a_second_pod_for_the_last_media_engines_waits(cluster: clusters.LocalCluster) -> None:
    for name in ("one", "two", "three"):
        cluster.api.create(POD, pod(name, **{"nvidia.com/mig-1g.5gb.me": 1}), namespace="default")
    assert waits.eventually(lambda: sorted(phase(cluster, name) for name in ("one", "two", "three")) == ["Pending", "Running", "Running"])
