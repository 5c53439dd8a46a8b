"""Force deletion, lost drivers, lost nodes."""

import time

from drakit_cluster.client import informer
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import CLAIM, NODE, POD, SLICE
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER, UNPREPARE
from unit.cluster_kubelet.town import QUICK, Town


def test_a_pod_deleted_by_force_is_stopped_and_unprepared(town: Town) -> None:
    plugin = town.plugin()
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))
    town.delete("p", force=True)
    assert town.find(POD, "p") is None
    town.until(lambda: plugin.uids(UNPREPARE) == [town.uid("c")], "Unprepare")
    town.until(lambda: town.cluster.node(objects.NODE).runtime.sandboxes() == [], "the end of the sandbox")


def test_a_new_claim_of_the_same_name_waits_until_the_old_one_is_unprepared(town: Town) -> None:
    plugin = town.plugin()
    blocked = [True]

    def block(response: object, context: object) -> None:
        if blocked:
            raise RuntimeError("not yet")

    plugin.on_unprepare = block
    town.offer("gpu-0", "gpu-1")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))
    old = town.uid("c")
    town.delete("p", force=True)
    town.until(lambda: town.devices("c") == [], "deallocation")
    town.api.delete(CLAIM, "c", namespace="default")
    town.gone(CLAIM, "c")
    town.create(CLAIM, objects.claim("c"))
    town.create(POD, objects.pod("p", claim="c"))
    town.until(lambda: town.events("FailedPrepareDynamicResources"), "an event")
    assert f"different UID {old} still exists" in town.events("FailedPrepareDynamicResources")[0]
    blocked.clear()
    town.phase("p", "Running")
    assert set(plugin.uids(UNPREPARE)) == {old}


def test_a_driver_that_restarts_in_time_keeps_its_slices(town: Town) -> None:
    plugin = town.plugin()
    town.offer("gpu-0")
    plugins = town.cluster.node(objects.NODE).kubelet.plugins
    plugin.stop_service()
    town.until(lambda: not plugins.is_usable(DRIVER), "the loss")
    plugin.serve()
    town.until(lambda: plugins.is_usable(DRIVER), "the return")
    time.sleep(QUICK.wipe_delay * 1.5)
    assert len(town.slices()) == 1
    assert len(plugin.statuses) == 1


def test_a_driver_that_is_away_too_long_loses_its_slices_and_no_others(town: Town) -> None:
    plugin = town.plugin()
    town.plugin(name="nic.example.com")
    town.offer("gpu-0")
    town.create(SLICE, objects.resource_slice(objects.device("eth0"), driver="nic.example.com"))
    began = time.monotonic()
    plugin.stop()
    town.until(lambda: len(town.slices()) == 1, "the wipe")
    assert time.monotonic() - began >= QUICK.wipe_delay
    town.until(lambda: town.events("SlicesDeleted"), "an event")
    plugin.start()
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))


def test_running_pods_do_not_notice_that_their_driver_restarts(town: Town) -> None:
    plugin = town.plugin()
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))
    plugin.stop()
    plugin.start()
    town.until(lambda: len(plugin.statuses) == 2, "registration")
    assert town.view("p").restarts == 0
    assert plugin.count(UNPREPARE) == 0
    town.delete("p")
    town.gone(POD, "p")
    assert plugin.uids(UNPREPARE) == [town.uid("c")]


def _owner(uid: str) -> json_types.Object:
    return {"apiVersion": "v1", "kind": "Node", "name": objects.NODE, "uid": uid}


def test_a_deleted_node_takes_the_slices_that_it_owns_with_it(town: Town) -> None:
    node = town.api.get(NODE, objects.NODE)
    owned = objects.resource_slice(objects.device("gpu-0"))
    json_types.child(owned, "metadata")["ownerReferences"] = [_owner(informer.uid_of(node))]
    town.create(SLICE, owned)
    town.offer("gpu-1")
    town.api.delete(NODE, objects.NODE)
    town.until(lambda: len(town.slices()) == 1, "collection")


def test_a_slice_of_a_node_that_is_another_one_now_is_collected(town: Town) -> None:
    owned = objects.resource_slice(objects.device("gpu-0"))
    owned["metadata"] = {"name": "old", "ownerReferences": [_owner("of-an-earlier-life")]}
    town.create(SLICE, owned)
    town.gone(SLICE, "old")
