"""Many pods for few devices on two nodes, with a driver that fails now and then: all get their turn, and no device has two users."""

import collections
import pathlib
import random
import shutil
import tempfile
import threading
from collections.abc import Iterator

import grpc
import pytest

from drakit._proto import dra_v1_pb2 as dra
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, POD
from fakes import waits
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE, UNPREPARE, Plugin
from unit.cluster_kubelet.quick_cluster import QuickCluster

NODES = ("node-1", "node-2")
PODS = 24
"""Three for each device."""


class Ledger:
    """Who holds which device, as the drivers see it; a second holder of a device is noted."""

    def __init__(self, seed: int) -> None:
        self.conflicts: list[str] = []
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._holders: dict[tuple[str, str], str] = {}

    def watch(self, plugin: Plugin) -> None:
        plugin.on_prepare, plugin.on_unprepare = self._prepare, self._unprepare

    def _prepare(self, response: dra.NodePrepareResourcesResponse, _context: grpc.ServicerContext) -> None:
        with self._lock:
            for uid, answer in response.claims.items():
                for device in answer.devices:
                    holder = self._holders.setdefault((device.pool_name, device.device_name), uid)
                    if holder != uid:
                        self.conflicts.append(f"{device.device_name} of {holder} is given to {uid}")
                if self._random.random() < 0.1:
                    answer.error = "now and then"

    def _unprepare(self, response: dra.NodeUnprepareResourcesResponse, _context: grpc.ServicerContext) -> None:
        with self._lock:
            for uid, answer in response.claims.items():
                if self._random.random() < 0.1:
                    answer.error = "now and then"
                else:
                    self._holders = {device: holder for device, holder in self._holders.items() if holder != uid}

    @property
    def held(self) -> int:
        with self._lock:
            return len(self._holders)


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = QuickCluster(folder, nodes=NODES).start()
    yield running
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)


def test_every_pod_gets_its_turn_and_no_device_has_two_users(cluster: QuickCluster) -> None:
    ledger = Ledger(seed=7)
    plugins = [cluster.plugin(node=node) for node in NODES]
    for plugin, node in zip(plugins, NODES, strict=True):
        ledger.watch(plugin)
        cluster.offer(*(f"gpu-{index}" for index in range(4)), node=node)
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    for index in range(PODS):
        cluster.create(POD, objects.pod(f"p{index}", template="t", run_seconds=0.02))

    def phases() -> collections.Counter[str]:
        return collections.Counter(json_types.text(pod, "status", "phase") for pod in cluster.api.list(POD).items)

    cluster.until(lambda: phases()["Succeeded"] == PODS, "the end of all pods", timeout=waits.SECONDS)
    cluster.until(lambda: not cluster.api.list(CLAIM).items, "the end of all claims")
    assert ledger.conflicts == []
    assert ledger.held == 0
    for plugin in plugins:
        assert set(plugin.uids(PREPARE)) == set(plugin.uids(UNPREPARE))
    assert sum(len(set(plugin.uids(PREPARE))) for plugin in plugins) == PODS
