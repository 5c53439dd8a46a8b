"""The example of docs/howto/claims-for-workloads.md: kubectl on the local cluster, with the GPU driver on mock hardware."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from drakit_cluster.cluster import LocalCluster
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.resources import CLAIM, POD_GROUP, SLICE
from fakes import driver_process, forked_cli, waits
from unit.docs import markdown

PAGE = markdown.ROOT / "docs" / "howto" / "claims-for-workloads.md"
PATH = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
MACHINE, NODE = "dgx-a100-80gb", "node-1"

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("kubectl", path=PATH) is None, reason="kubectl is not on PATH"),
]


@pytest.fixture
def cluster(commands: forked_cli.Commands) -> Iterator[LocalCluster]:
    gates = FeatureGates.of({"DRAWorkloadResourceClaims": True})
    with tempfile.TemporaryDirectory(prefix="dk") as folder, LocalCluster(pathlib.Path(folder), gates=gates) as running:
        root = running.node(NODE).folder.root
        options = ["--mock", MACHINE, "--node", NODE, "--folder", str(root), "--kubeconfig", str(running.driver_kubeconfig(NODE))]
        with driver_process.running(driver_process.drakit("run", *options, "--family", "gpu"), root / "log", commands=commands):
            assert waits.eventually(lambda: running.api.list(SLICE).items != [])
            yield running


def follow(cluster: LocalCluster, name: str) -> None:
    """Run the commands of a block of the page; each must print what the page shows."""
    [block] = [block for block in markdown.blocks(PAGE) if (block.mark, block.value) == ("kubectl", name)]
    for command in markdown.commands(block):
        ran = subprocess.run(
            ["bash", "-c", command.line],
            cwd=cluster.folder,
            env={"PATH": PATH, "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(cluster.folder)},
            capture_output=True,
            text=True,
            timeout=waits.SECONDS,
            check=False,
        )
        assert (ran.returncode, (ran.stdout + ran.stderr).splitlines()) == (0, list(command.output)), command.line


def test_the_pods_of_the_example_share_one_gpu_until_their_group_ends(cluster: LocalCluster) -> None:
    [objects] = [block for block in markdown.blocks(PAGE) if (block.mark, block.value) == ("file", "group.yaml")]
    (cluster.folder / "group.yaml").write_text(objects.text)
    follow(cluster, "share")
    first, second = (cluster.node(NODE).runtime.view("default", pod, "main").cdi_devices for pod in ("train-0", "train-1"))
    assert first == second
    assert [name.partition("=")[0] for name in first] == ["gpu.drakit.dev/claim"]
    follow(cluster, "end")
    assert waits.eventually(lambda: not [*cluster.api.list(POD_GROUP).items, *cluster.api.list(CLAIM).items])
    follow(cluster, "gone")
