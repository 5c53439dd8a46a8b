"""Processes of two families serve one node, as the DaemonSets drakit-gpu and drakit-nic do, and neither disturbs the other."""

import pathlib
import signal
import socket
import tempfile
from collections.abc import Iterator

import pytest

from drakit_cluster import cluster as clusters
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import POD, SLICE
from drakit_tools.demo import demo_cluster, samples
from fakes import driver_process, forked_cli, waits

FAMILIES = ("gpu", "nic")
BY_KIND = {resource.kind: resource for resource in resources.ALL}


class Node:
    """A node of a local cluster on which each family can have a process."""

    def __init__(self, cluster: clusters.LocalCluster, commands: forked_cli.Commands) -> None:
        self.cluster, self._commands = cluster, commands
        self.folder = cluster.node("node-1").folder
        self._processes: dict[str, driver_process.Process] = {}

    def start(self, family: str) -> None:
        """Start a process for one family, or for all by the name ``all``."""
        only = [] if family == "all" else ["--family", family]
        command = driver_process.drakit("run", "--mock", "dgx-a100-40gb-2gpu", "--node", "node-1", *only)
        places = ["--folder", str(self.folder.root), "--kubeconfig", str(self.cluster.driver_kubeconfig("node-1"))]
        self._processes[family] = driver_process.Process([*command, *places], self.folder.root / f"{family}.log", {}, self._commands)

    def said(self, family: str) -> str:
        return self._processes[family].said()

    def kill(self, family: str) -> None:
        self._processes.pop(family).kill()

    def stop(self) -> None:
        for process in self._processes.values():
            process.send(signal.SIGTERM)
        assert {family: process.wait() for family, process in self._processes.items()} == dict.fromkeys(self._processes, 0)

    def close(self) -> None:
        """Leave no process, whatever became of the test."""
        for process in self._processes.values():
            process.kill()

    def drivers_with_slices(self) -> set[str]:
        return {json_types.text(one, "spec", "driver") for one in self.cluster.api.list(SLICE).items}

    def serves(self, family: str) -> bool:
        return self.cluster.node("node-1").kubelet.plugins.is_usable(f"{family}.drakit.dev")

    def phases(self) -> dict[str, str]:
        pods = self.cluster.api.list(POD, namespace=demo_cluster.NAMESPACE).items
        return {json_types.text(pod, "metadata", "name"): json_types.text(pod, "status", "phase") for pod in pods}

    def vendors_of_cdi_files(self) -> set[str]:
        return {file.name.partition("-")[0] for file in self.folder.cdi.iterdir() if file.suffix == ".json"}


@pytest.fixture
def node(commands: forked_cli.Commands) -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="dk") as folder, clusters.LocalCluster(pathlib.Path(folder)) as cluster:
        made = Node(cluster, commands)
        for item in (
            *samples.classes(),
            *samples.load("00-namespace"),
            *samples.load("60-one-partition"),
            *samples.load("30-shared-nic"),
        ):
            cluster.api.create(BY_KIND[json_types.text(item, "kind")], item)
        cluster.api.create(POD, pod_of_both())
        try:
            yield made
            made.stop()
        finally:
            made.close()


def pod_of_both() -> Object:
    """A pod with a GPU partition and a share of a NIC, each by the driver of its own process."""
    named: list[Json] = [
        {"name": "gpu", "resourceClaimTemplateName": "one-partition"},
        {"name": "net", "resourceClaimName": "metrics-traffic"},
    ]
    wanted: list[Json] = [{"name": "gpu"}, {"name": "net"}]
    containers: list[Json] = [{"name": "main", "image": "none", "resources": {"claims": wanted}}]
    spec: Object = {"resourceClaims": named, "containers": containers, "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": "both", "namespace": demo_cluster.NAMESPACE}, "spec": spec}


def test_one_of_two_families_on_a_node_restarts_without_the_other(node: Node) -> None:
    for family in FAMILIES:
        node.start(family)
    wait = node.cluster.wait_for
    wait(lambda: node.phases() and set(node.phases().values()) == {"Running"}, timeout=waits.SECONDS, what="all pods to run")
    assert "both" in node.phases()
    assert node.drivers_with_slices() == node.vendors_of_cdi_files() == {f"{family}.drakit.dev" for family in FAMILIES}
    assert {path.parent.name for path in node.folder.plugins.glob("*/journal.db")} == {f"{family}.drakit.dev" for family in FAMILIES}

    node.kill("gpu")
    node.cluster.api.delete(POD, "metrics", namespace=demo_cluster.NAMESPACE)
    wait(lambda: "metrics" not in node.phases(), timeout=waits.SECONDS, what="the NIC driver to go on while the GPU driver is dead")
    node.start("gpu")
    wait(lambda: node.serves("gpu"), timeout=waits.SECONDS, what="the GPU driver to be back")
    assert set(node.phases().values()) == {"Running"}
    for pod in node.phases():
        node.cluster.api.delete(POD, pod, namespace=demo_cluster.NAMESPACE)
    wait(lambda: not node.phases() and not node.vendors_of_cdi_files(), timeout=waits.SECONDS, what="no pod and no CDI file")


def put(path: pathlib.Path, kind: str) -> socket.socket | None:
    """Put a foreign file at a path: a file, a folder, or the socket of a living program, which is returned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "file":
            path.write_text("notes")
        case "folder":
            path.mkdir()
        case _:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            listener.listen()
            return listener
    return None


@pytest.mark.long
@pytest.mark.parametrize("kind", ["file", "folder", "socket"])
def test_a_foreign_file_at_the_socket_of_one_family_delays_only_that_one(node: Node, kind: str) -> None:
    path = node.folder.plugins / "gpu.drakit.dev" / "dra.sock"
    foreign = put(path, kind)
    inode = path.lstat().st_ino
    node.start("all")
    node.cluster.wait_for(lambda: node.serves("nic"), timeout=waits.SECONDS, what="the NIC driver to serve")
    said = node.said("all")
    assert str(path) in said
    assert "family not started: retrying" in said
    assert path.lstat().st_ino == inode, "the foreign file is never replaced"
    if foreign is not None:
        foreign.close()
    path.rmdir() if kind == "folder" else path.unlink()
    node.cluster.wait_for(lambda: node.serves("gpu"), timeout=waits.SECONDS, what="the GPU driver to serve once the file is gone")
