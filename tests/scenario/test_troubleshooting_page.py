"""The events, findings and answers that the page of symptoms shows are those of the driver and of the local cluster."""

import contextlib
import pathlib
import re
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping

import pytest

from drakit import testing
from drakit_cluster import cluster as clusters
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Object
from e2e import gpu_fault
from fakes import driver_process, forked_cli, waits
from unit.docs import markdown

pytestmark = pytest.mark.timeout(240)
PAGE = markdown.ROOT / "docs" / "howto" / "troubleshoot.md"
MACHINE, NODE = "dgx-a100-80gb", "node-1"
FIRST_WHOLE = 4
"""The first GPU of that machine without MIG mode, which a claim for a whole GPU gets."""
GPU, NIC = "gpu.drakit.dev", "nic.drakit.dev"


def shown(mark: str, name: str) -> list[str]:
    """The lines of the page's block with this remark."""
    (block,) = [block for block in markdown.blocks(PAGE) if (block.mark, block.value) == (mark, name)]
    return block.text.splitlines()


class Node:
    """A node of a local cluster with drivers that may be stopped."""

    def __init__(self, cluster: clusters.LocalCluster, commands: forked_cli.Commands) -> None:
        self._commands = commands
        self.api = cluster.api
        self.root = cluster.node(NODE).folder.root
        self.kubeconfig = cluster.driver_kubeconfig(NODE)
        for family in (GPU, NIC):
            self.create(resources.CLASS, testing.device_class(family, driver=family))

    def create(self, kind: resources.Resource, item: Object) -> None:
        """Create an object in the namespace of the page."""
        self.api.create(kind, item, namespace="default" if kind.namespaced else "")

    def run(self, claim: Object) -> None:
        """Create a claim and a pod ``p`` that uses it."""
        self.create(resources.CLAIM, claim)
        self.create(resources.POD, testing.pod("p", claims=[json_types.text(claim, "metadata", "name")]))

    def phase(self) -> str:
        """The phase of the pod."""
        return json_types.text(self.api.get(resources.POD, "p", namespace="default"), "status", "phase")

    def events(self) -> set[tuple[str, ...]]:
        """Type, reason and message of each event of the pod."""
        found = self.api.list(resources.EVENT, namespace="default", field_selector="involvedObject.name=p").items
        return {tuple(json_types.text(event, key) for key in ("type", "reason", "message")) for event in found}

    def publishes(self) -> bool:
        """Whether both families have slices."""
        return {json_types.text(item, "spec", "driver") for item in self.api.list(resources.SLICE).items} == {GPU, NIC}

    def driver(self, **settings: str) -> contextlib.AbstractContextManager[driver_process.Process]:
        """Run the drivers of the node inside the block; ``kubeconfig`` may name another file than the node's own."""
        kubeconfig = settings.pop("kubeconfig", str(self.kubeconfig))
        command = driver_process.drakit("run", *self.options(), "--kubeconfig", kubeconfig)
        command += [word for key, value in settings.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
        return driver_process.running(command, self.root / "log", commands=self._commands)

    def options(self) -> list[str]:
        """The options by which each command finds the node."""
        return ["--mock", MACHINE, "--node", NODE, "--folder", str(self.root)]


@pytest.fixture
def node(commands: forked_cli.Commands) -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="dk") as folder, clusters.LocalCluster(pathlib.Path(folder)) as cluster:
        yield Node(cluster, commands)


def page_events(name: str) -> set[tuple[str, ...]]:
    return {tuple(re.split(r" {2,}", line)) for line in shown("event", name)}


def wrong_parameters() -> Mapping[str, object]:
    return {"apiVersion": "nic.drakit.dev/v1", "kind": "NicConfig", "interfacename": "fast0"}


def test_a_wrong_parameter_is_in_the_event_of_the_pod(node: Node) -> None:
    with node.driver():
        assert waits.eventually(node.publishes)
        node.run(testing.claim("storage", device_class=NIC, parameters=wrong_parameters(), driver=NIC))
        assert waits.eventually(lambda: page_events("wrong-parameter") <= node.events())


def test_a_driver_that_does_not_run_is_in_the_event_of_the_pod(node: Node) -> None:
    with node.driver():
        assert waits.eventually(node.publishes)
    node.run(testing.claim("storage", device_class=NIC))
    assert waits.eventually(lambda: page_events("no-driver") <= node.events())


@pytest.mark.long
def test_a_deleted_pod_ends_only_when_its_driver_runs_again(node: Node) -> None:
    with node.driver():
        assert waits.eventually(node.publishes)
        node.run(testing.claim("storage", device_class=NIC))
        assert waits.eventually(lambda: node.phase() == "Running")
    api = node.api
    api.delete(resources.POD, "p", namespace="default")
    time.sleep(3)
    assert json_types.text(api.get(resources.POD, "p", namespace="default"), "metadata", "deletionTimestamp")
    with node.driver():
        assert waits.eventually(lambda: not api.list(resources.POD, namespace="default").items)


def test_a_lost_gpu_is_in_the_events_and_in_the_findings_of_the_doctor(node: Node, commands: forked_cli.Commands) -> None:
    with node.driver():
        assert waits.eventually(node.publishes)
        node.run(testing.claim("training", device_class=GPU, expression=f'device.attributes["{GPU}"].type == "gpu"'))
        assert waits.eventually(lambda: node.phase() == "Running")
        gpu_fault.main(MACHINE, str(node.root / "mock"), NODE, "lose", str(FIRST_WHOLE))
        assert waits.eventually(lambda: page_events("gpu-lost") <= node.events())
        found = commands.run("doctor", *node.options(), "--family", "gpu", "--no-api")
    assert found.returncode == 1
    assert "\n".join(shown("doctor", "gpu-lost")) in found.stdout


def test_readyz_gives_the_reason_why_a_lost_journal_is_not_restored(node: Node) -> None:
    with node.driver():
        assert waits.eventually(node.publishes)
        node.run(testing.claim("training", device_class=GPU))
        assert waits.eventually(lambda: node.phase() == "Running")
    (node.root / "plugins" / GPU / "journal.db").write_bytes(b"not a database" * 100)
    away = node.root / "away.kubeconfig"
    away.write_text(re.sub(r"server: .*", "server: https://127.0.0.1:9", node.kubeconfig.read_text()))
    probe = node.root / "serve.sock"
    with node.driver(kubeconfig=str(away), serve__socket=str(probe)):
        assert waits.eventually(lambda: agree(shown("readyz", "lost-journal"), readyz(probe)))


def agree(page: list[str], answer: list[str]) -> bool:
    """Whether every line of the page is in the answer, as far as the ellipsis."""
    return all(any(line.startswith(wanted.removesuffix("...")) for line in answer) for wanted in page)


def readyz(path: pathlib.Path) -> list[str]:
    """The lines of the answer to a readiness probe; none while nobody serves."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(waits.SECONDS)
        try:
            asking.connect(str(path))
        except OSError:
            return []
        asking.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: asking.recv(4096), b"")).decode().splitlines()
