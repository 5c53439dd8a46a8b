"""Force deletion, lost drivers, lost nodes."""

import dataclasses
import pathlib
import time
from collections.abc import Iterator

import pytest

from drakit_cluster.client import informer
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import CLAIM, NODE, POD, SLICE
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER, UNPREPARE
from unit.cluster_kubelet.quick_cluster import QUICK, QuickCluster


def test_a_pod_deleted_by_force_is_stopped_and_unprepared(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.delete("p", force=True)
    assert cluster.find(POD, "p") is None
    cluster.until(lambda: plugin.uids(UNPREPARE) == [cluster.uid("c")], "Unprepare")
    cluster.until(lambda: cluster.cluster.node(objects.NODE).runtime.sandboxes() == [], "the end of the sandbox")


def test_a_new_claim_of_the_same_name_waits_until_the_old_one_is_unprepared(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    blocked = [True]

    def block(response: object, context: object) -> None:
        if blocked:
            raise RuntimeError("not yet")

    plugin.on_unprepare = block
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    old = cluster.uid("c")
    cluster.delete("p", force=True)
    cluster.until(lambda: cluster.devices("c") == [], "deallocation")
    cluster.api.delete(CLAIM, "c", namespace="default")
    cluster.gone(CLAIM, "c")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("p", claim="c"))
    cluster.until(lambda: cluster.events("FailedPrepareDynamicResources"), "an event")
    assert f"different UID {old} still exists" in cluster.events("FailedPrepareDynamicResources")[0]
    blocked.clear()
    cluster.phase("p", "Running")
    assert set(plugin.uids(UNPREPARE)) == {old}


@pytest.fixture
def patient(folder: pathlib.Path) -> Iterator[QuickCluster]:
    """A cluster that leaves a restart time enough on a slow machine too."""
    running = QuickCluster(folder, timing=dataclasses.replace(QUICK, wipe_delay=5 * QUICK.wipe_delay)).start()
    yield running
    running.stop()


def test_a_driver_that_restarts_in_time_keeps_its_slices(patient: QuickCluster) -> None:
    cluster, plugin = patient, patient.plugin()
    cluster.offer("gpu-0")
    plugins = cluster.cluster.node(objects.NODE).kubelet.plugins
    plugin.stop_service()
    cluster.until(lambda: not plugins.is_usable(DRIVER), "the loss")
    plugin.serve()
    cluster.until(lambda: plugins.is_usable(DRIVER), "the return")
    time.sleep(5 * QUICK.wipe_delay * 1.2)
    assert len(cluster.slices()) == 1
    assert len(plugin.statuses) == 1


def test_a_driver_stopped_longer_than_the_wipe_delay_loses_its_slices_only(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    cluster.plugin(name="nic.example.com")
    cluster.offer("gpu-0")
    cluster.create(SLICE, objects.resource_slice(objects.device("eth0"), driver="nic.example.com"))
    began = time.monotonic()
    plugin.stop()
    cluster.until(lambda: len(cluster.slices()) == 1, "the wipe")
    assert time.monotonic() - began >= QUICK.wipe_delay
    cluster.until(lambda: cluster.events("SlicesDeleted"), "an event")
    plugin.start()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))


def test_running_pods_do_not_notice_that_their_driver_restarts(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    plugin.stop()
    plugin.start()
    cluster.until(lambda: len(plugin.statuses) == 2, "registration")
    assert cluster.view("p").restarts == 0
    assert plugin.count(UNPREPARE) == 0
    cluster.delete("p")
    cluster.gone(POD, "p")
    assert plugin.uids(UNPREPARE) == [cluster.uid("c")]


def _owner(uid: str) -> json_types.Object:
    return {"apiVersion": "v1", "kind": "Node", "name": objects.NODE, "uid": uid}


def test_a_deleted_node_takes_the_slices_that_it_owns_with_it(cluster: QuickCluster) -> None:
    node = cluster.api.get(NODE, objects.NODE)
    owned = objects.resource_slice(objects.device("gpu-0"))
    json_types.child(owned, "metadata")["ownerReferences"] = [_owner(informer.uid_of(node))]
    cluster.create(SLICE, owned)
    cluster.offer("gpu-1")
    cluster.api.delete(NODE, objects.NODE)
    cluster.until(lambda: len(cluster.slices()) == 1, "collection")


def test_a_slice_of_a_recreated_node_is_garbage_collected(cluster: QuickCluster) -> None:
    owned = objects.resource_slice(objects.device("gpu-0"))
    owned["metadata"] = {"name": "old", "ownerReferences": [_owner("of-an-earlier-life")]}
    cluster.create(SLICE, owned)
    cluster.gone(SLICE, "old")
