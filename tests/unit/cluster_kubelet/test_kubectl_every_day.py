"""The kubectl commands of every day, on a whole local cluster with devices."""

import os
import pathlib
import shutil
import subprocess
from collections.abc import Callable
from typing import TypeAlias

import pytest

from fakes import waits
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QuickCluster

Kubectl: TypeAlias = Callable[..., str]

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")


@pytest.fixture
def kubectl(cluster: QuickCluster, folder: pathlib.Path) -> Kubectl:
    environment = {"KUBECONFIG": str(cluster.cluster.kubeconfig), "HOME": str(folder), "PATH": os.environ["PATH"]}

    def run(line: str, text: str = "", code: int = 0) -> str:
        done = subprocess.run(
            ["kubectl", *line.split()],
            env=environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=waits.SECONDS,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_a_described_node_has_capacity_a_lease_and_sane_percentages(kubectl: Kubectl) -> None:
    kubectl("apply -f -", text=POD)
    kubectl("wait --for=condition=Ready pod/p --timeout=60s")
    described = kubectl(f"describe node {objects.NODE}")
    assert "%" in described
    assert "-92233" not in described
    for word in ("MemoryPressure", "HolderIdentity:  node-1", "Capacity:", "Allocatable:", "ephemeral-storage:", "pods:"):
        assert word in described
    capacity = kubectl(f"get node {objects.NODE} -o jsonpath={{.status.allocatable}}")
    assert f'"cpu":"{os.cpu_count()}"' in capacity


POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: main, image: none, resources: {requests: {cpu: 100m}}}]}
"""
