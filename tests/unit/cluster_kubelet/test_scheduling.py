"""Who gets which node and devices, and who waits why."""

import itertools
import pathlib
from collections.abc import Callable

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.storage.watching import Event
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLASS, NODE, POD, SLICE
from fakes import waits
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER
from unit.cluster_kubelet.quick_cluster import QuickCluster

FINALIZER = "resource.kubernetes.io/delete-protection"


def test_allocation_and_reservation_are_written_together_under_a_finalizer(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0", "gpu-1")
    claim = cluster.create(CLAIM, objects.claim("c"))
    seen = [event.object for event in _changes(cluster, claim, lambda: cluster.run(objects.pod("p", claim="c")))]
    for one in seen:
        allocated = json_types.at(one, "status", "allocation") is not None
        assert allocated is bool(json_types.items(one, "status", "reservedFor"))
        assert not allocated or json_types.strings(one, "metadata", "finalizers") == [FINALIZER]
    final = cluster.claim("c")
    allocation = json_types.mapping(final, "status", "allocation")
    [term] = json_types.objects(allocation, "nodeSelector", "nodeSelectorTerms")
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    assert json_types.text(allocation, "allocationTimestamp")
    [reservation] = json_types.objects(final, "status", "reservedFor")
    assert (reservation["resource"], reservation["name"]) == ("pods", "p")


def _changes(cluster: QuickCluster, claim: Object, act: Callable[[], object]) -> list[Event]:
    version = json_types.text(claim, "metadata", "resourceVersion")
    act()
    return list(cluster.api.watch(CLAIM, since=version, timeout=0.1))


def test_a_pod_waits_for_devices_and_starts_when_another_one_ends(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0")
    for name in ("a", "b"):
        cluster.create(CLAIM, objects.claim(name))
    cluster.run(objects.pod("a", claim="a"))
    cluster.create(POD, objects.pod("b", claim="b"))
    reason = "claim default/b, request gpu: needs 1 device, none available (1x in use), taken by claim default/a of pod a"
    message = f"0/1 nodes are available: node-1: {reason}"
    cluster.until(
        lambda: cluster.scheduling_message("b") == message, "the reason"
    )  # Before the scheduler sees the claim there is another one.
    cluster.until(lambda: cluster.events("FailedScheduling").count(message) == 1, "an event")
    cluster.delete("a")
    cluster.phase("b", "Running")
    assert cluster.devices("b") == ["gpu-0"]
    assert cluster.devices("a") == []
    assert cluster.scheduling_message("b") == ""


def test_a_pod_waits_for_capacity_of_a_shared_device(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.create(SLICE, objects.resource_slice(objects.nic("eth0", "10G")))
    for name, amount in (("a", "6G"), ("b", "4G"), ("c", "1G")):
        cluster.create(CLAIM, objects.claim(name, objects.request(capacity={"requests": {"bandwidth": amount}})))
    cluster.run(objects.pod("a", claim="a"))
    cluster.run(objects.pod("b", claim="b"))
    cluster.create(POD, objects.pod("c", claim="c"))
    message = cluster.cluster.wait_for(lambda: cluster.scheduling_message("c"), timeout=waits.SECONDS, what="a reason")
    assert "bandwidth: 1G needed, none of 10G left" in message
    cluster.delete("b")
    cluster.phase("c", "Running")


def test_a_distinct_attribute_keeps_two_requests_apart(cluster: QuickCluster) -> None:
    cluster.plugin()
    devices = [objects.nic(name) | {"attributes": {"port": {"string": port}}} for name, port in (("a", "1"), ("b", "1"), ("c", "2"))]
    cluster.create(SLICE, objects.resource_slice(*devices))
    constraint: Object = {"distinctAttribute": f"{DRIVER}/port"}
    cluster.create(CLAIM, objects.claim("c", objects.request("one"), objects.request("two"), constraints=[constraint]))
    cluster.run(objects.pod("p", claim="c"))
    assert cluster.devices("c") == ["a", "c"]


def test_a_matched_attribute_keeps_two_requests_together(cluster: QuickCluster) -> None:
    cluster.plugin()
    devices = [objects.device(name, parent=parent) for name, parent in (("a", "x"), ("b", "y"), ("c", "y"))]
    cluster.create(SLICE, objects.resource_slice(*devices))
    constraint: Object = {"matchAttribute": f"{DRIVER}/parent"}
    cluster.create(CLAIM, objects.claim("c", objects.request("one"), objects.request("two"), constraints=[constraint]))
    cluster.run(objects.pod("p", claim="c"))
    assert cluster.devices("c") == ["b", "c"]


def test_overlapping_partitions_are_not_allocated_together(cluster: QuickCluster) -> None:
    cluster.plugin()
    counters: Json = {"name": "gpu-0", "counters": {"slices": {"value": "4"}}}
    pool: Json = {"name": objects.NODE, "generation": 1, "resourceSliceCount": 2}
    partitions: list[Json] = [
        {"name": name, "consumesCounters": [{"counterSet": "gpu-0", "counters": {"slices": {"value": value}}}]}
        for name, value in (("half-0", "2"), ("half-1", "2"), ("whole", "4"))
    ]
    contents: dict[str, Object] = {"0-counters": {"sharedCounters": [counters]}, "1-devices": {"devices": partitions}}
    for name, content in contents.items():
        spec: Object = {"driver": DRIVER, "nodeName": objects.NODE, "pool": pool}
        cluster.create(SLICE, {"metadata": {"name": name}, "spec": spec | content})
    for name in ("a", "b", "c"):
        cluster.create(CLAIM, objects.claim(name))
    cluster.run(objects.pod("a", claim="a"))
    cluster.run(objects.pod("b", claim="b"))
    assert (cluster.devices("a"), cluster.devices("b")) == (["half-0"], ["half-1"])
    cluster.create(POD, objects.pod("c", claim="c"))
    message = cluster.cluster.wait_for(lambda: cluster.scheduling_message("c"), timeout=waits.SECONDS, what="a reason")
    assert "counter slices of gpu-0: 4 needed, none of 4 left" in message


def test_nodes_fill_in_order_and_pods_follow_their_allocated_claim(pair: QuickCluster) -> None:
    for node in ("node-2", "node-1"):
        pair.offer(f"gpu-of-{node}", node=node)
    pair.create(CLAIM, objects.claim("probe"))
    pair.run(objects.pod("probe", claim="probe", nodeSelector={"kubernetes.io/hostname": "node-1"}))
    pair.delete("probe")
    pair.until(lambda: not pair.devices("probe"), "the scheduler knows both slices, and both devices are free")
    for name in ("a", "b"):
        pair.create(CLAIM, objects.claim(name))
        pair.run(objects.pod(name, claim=name))
    assert (pair.devices("a"), pair.devices("b")) == (["gpu-of-node-1"], ["gpu-of-node-2"])
    second = pair.run(objects.pod("b2", claim="b"))
    assert json_types.text(second, "spec", "nodeName") == "node-2"


def test_a_pod_goes_only_where_its_node_selector_and_the_nodes_allow(pair: QuickCluster) -> None:
    pair.api.patch(NODE, "node-1", {"spec": {"unschedulable": True}}, kind=PatchKind.MERGE)
    numbers = itertools.count()

    def refused() -> bool:
        """The scheduler hears of nodes and pods by different ways, so it may learn of the cordon after a pod."""
        name = f"probe-{next(numbers)}"
        pair.create(POD, objects.pod(name, nodeSelector={"kubernetes.io/hostname": "node-1"}))
        pair.until(lambda: pair.scheduling_message(name) or json_types.text(pair.find(POD, name), "spec", "nodeName"), "a decision")
        return "node-1: is unschedulable" in pair.scheduling_message(name)

    pair.until(refused, "the cordon")
    pod = pair.run(objects.pod("a"))
    assert json_types.text(pod, "spec", "nodeName") == "node-2"
    pair.create(POD, objects.pod("b", nodeSelector={"disk": "fast"}))
    message = pair.cluster.wait_for(lambda: pair.scheduling_message("b"), timeout=waits.SECONDS, what="a reason")
    assert message == ("0/2 nodes are available: node-1: is unschedulable; node-2: lacks the labels disk=fast of the pod's nodeSelector")
    pair.api.patch(NODE, "node-2", {"metadata": {"labels": {"disk": "fast"}}}, kind=PatchKind.MERGE)
    pair.phase("b", "Running")


def test_a_pod_kept_out_by_its_claims_node_has_a_message_with_that_node(pair: QuickCluster) -> None:
    pair.offer("gpu-0", node="node-2")
    pair.create(CLAIM, objects.claim("c"))
    pair.run(objects.pod("a", claim="c"))
    pair.create(POD, objects.pod("b", claim="c", nodeSelector={"kubernetes.io/hostname": "node-1"}))
    message = pair.cluster.wait_for(lambda: pair.scheduling_message("b"), timeout=waits.SECONDS, what="a reason")
    assert "node-1: claim c is allocated on another node" in message


def test_a_pod_names_a_missing_object_and_starts_once_it_exists(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.create(POD, objects.pod("p", claim="c"))
    cluster.until(lambda: cluster.scheduling_message("p") == "claim default/c not found", "the first reason")
    cluster.create(CLAIM, objects.claim("c", {"name": "gpu", "exactly": {"deviceClassName": "special"}}))
    wanted = "allocation is impossible: claim default/c, request gpu: there is no DeviceClass special"
    cluster.until(lambda: cluster.scheduling_message("p") == wanted, "the second reason")
    cluster.create(CLASS, objects.device_class("special"))
    cluster.until(lambda: "needs 1 device, none available" in cluster.scheduling_message("p"), "the third reason")
    cluster.offer("gpu-0")
    cluster.phase("p", "Running")


def test_a_claim_that_is_being_deleted_takes_no_new_pod(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.api.delete(CLAIM, "c", namespace="default")
    cluster.create(POD, objects.pod("q", claim="c"))
    cluster.until(lambda: cluster.scheduling_message("q") == "claim default/c is being deleted", "a reason")
    cluster.delete("p")
    cluster.until(lambda: cluster.scheduling_message("q") == "claim default/c not found", "the claim's end")


def test_gated_pods_and_pods_of_another_scheduler_are_ignored(cluster: QuickCluster) -> None:
    cluster.create(POD, objects.pod("other", schedulerName="another"))
    cluster.create(POD, objects.pod("gated", schedulingGates=[{"name": "example.com/wait"}]))
    cluster.run(objects.pod("mine"))
    for name in ("other", "gated"):
        assert json_types.text(cluster.find(POD, name), "spec", "nodeName") == ""


def test_a_gate_that_is_off_is_off_for_the_scheduler_too(folder: pathlib.Path) -> None:
    running = QuickCluster(folder, gates=FeatureGates.of({"DRAConsumableCapacity": False})).start()
    try:
        running.plugin()
        running.create(SLICE, objects.resource_slice(objects.nic("eth0")))
        for name in ("a", "b"):
            running.create(CLAIM, objects.claim(name))
        running.run(objects.pod("a", claim="a"))
        running.create(POD, objects.pod("b", claim="b"))
        running.until(lambda: "1x in use" in running.scheduling_message("b"), "a reason")
    finally:
        running.stop()


def test_every_reason_is_in_the_message_and_rare_ones_are_shortened(cluster: QuickCluster) -> None:
    cluster.plugin()
    small = [objects.nic(f"nic-{size}", f"{size}G") for size in (2, 2, 3, 4, 5, 6)]
    devices = [one | {"name": f"nic-{place}"} for place, one in enumerate(small)]
    tainted = objects.device("gpu-0") | {"taints": [{"key": "broken", "effect": "NoSchedule"}]}
    cluster.create(SLICE, objects.resource_slice(*devices, tainted))
    cluster.create(CLAIM, objects.claim("c", objects.request(capacity={"requests": {"bandwidth": "10G"}})))
    cluster.create(POD, objects.pod("p", claim="c"))
    shown = "2x capacity bandwidth: 10G needed, 2G of 2G left; 1x capacity bandwidth: 10G needed, 3G of 3G left; 1x "
    rest = "4G of 4G left; 3x for other reasons)"
    cluster.until(lambda: shown in cluster.scheduling_message("p"), "the reasons")
    assert cluster.scheduling_message("p").endswith(rest)


def test_devices_nearest_to_fitting_come_first_in_the_message(cluster: QuickCluster) -> None:
    cluster.plugin()
    nics = [objects.nic(f"nic-{size}", f"{size}G") for size in (2, 3, 4)]
    tainted = objects.nic("nic-20", "20G") | {"taints": [{"key": "broken", "effect": "NoSchedule"}]}
    cluster.create(SLICE, objects.resource_slice(*nics, tainted))
    others = [objects.device(f"other-{number}") for number in range(8)]
    cluster.create(SLICE, objects.resource_slice(*others, driver="other.example.com"))
    cluster.create(CLAIM, objects.claim("c", objects.request(capacity={"requests": {"bandwidth": "10G"}})))
    cluster.create(POD, objects.pod("p", claim="c"))
    cluster.until(lambda: "9x for other reasons)" in cluster.scheduling_message("p"), "the reasons")
    _, _, reasons = cluster.scheduling_message("p").partition("none available ")
    assert reasons == (
        "(1x capacity bandwidth: 10G needed, 2G of 2G left; 1x capacity bandwidth: 10G needed, 3G of 3G left; "
        "1x capacity bandwidth: 10G needed, 4G of 4G left; 9x for other reasons)"
    )
