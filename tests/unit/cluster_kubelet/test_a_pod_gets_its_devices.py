"""From a claim to what the container sees."""

import grpc

from drakit._proto import dra_v1_pb2 as dra
from drakit_cluster.kubelet.pods.records import PreparedDevice
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import CLAIM, POD, SLICE
from drakit_cluster.runtime import State
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER, PREPARE, UNPREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster


def test_a_pod_with_a_claim_runs_with_the_device_in_its_environment(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    pod = cluster.run(objects.pod("p", claim="c"))
    assert cluster.view("p").env == {"DEVICE_GPU": "gpu-0"}
    assert json_types.text(pod, "spec", "nodeName") == objects.NODE
    ready = [one for one in json_types.objects(pod, "status", "conditions") if one["type"] == "Ready"]
    assert [one["status"] for one in ready] == ["True"]
    assert plugin.uids(PREPARE) == [cluster.uid("c")]
    assert plugin.uids(UNPREPARE) == []


def test_a_pod_without_claims_runs(cluster: QuickCluster) -> None:
    cluster.run(objects.pod("p"))
    assert cluster.view("p").env == {}


def test_each_container_gets_only_the_requests_that_it_names(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(CLAIM, objects.claim("c", objects.request("one"), objects.request("two")))
    containers = [
        objects.container("first", objects.use("one")),
        objects.container("second", objects.use("two")),
        objects.container("both", objects.use()),
        objects.container("none"),
    ]
    cluster.run(objects.pod("p", claim="c", containers=containers))
    seen = {name: dict(cluster.view("p", name).env) for name in ("first", "second", "both", "none")}
    one, two = {"DEVICE_ONE": "gpu-0"}, {"DEVICE_TWO": "gpu-1"}
    assert seen == {"first": one, "second": two, "both": one | two, "none": {}}


def test_a_device_listed_twice_reaches_the_runtime_twice(cluster: QuickCluster) -> None:
    def list_again(response: dra.NodePrepareResourcesResponse, _context: grpc.ServicerContext) -> None:
        for answer in response.claims.values():
            answer.devices.append(answer.devices[0])

    cluster.plugin().on_prepare = list_again
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(CLAIM, objects.claim("c", objects.request("one"), objects.request("two")))
    pod = cluster.run(objects.pod("p", claim="c"))
    preparation = cluster.cluster.node(objects.NODE).kubelet.preparation
    [container] = json_types.objects(pod, "spec", "containers")
    names = [f"example.com/gpu={cluster.uid('c')}-{index}" for index in (0, 1)]
    assert preparation.cdi_ids(pod, container) == [*names, names[0]]
    assert [device.cdi_ids for _, _, device in preparation.uses(pod, container)] == [(names[0],), (names[1],)]
    assert cluster.view("p", "main").env == {"DEVICE_ONE": "gpu-0", "DEVICE_TWO": "gpu-1"}


def test_a_device_without_request_names_reaches_every_container_of_the_claim(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()

    def forget_requests(response: dra.NodePrepareResourcesResponse, _context: grpc.ServicerContext) -> None:
        for answer in response.claims.values():
            for device in answer.devices:
                device.ClearField("request_names")

    plugin.on_prepare = forget_requests
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(CLAIM, objects.claim("c", objects.request("one"), objects.request("two")))
    cluster.run(objects.pod("p", claim="c", containers=[objects.container("first", objects.use("one"))]))
    assert cluster.view("p").env == {"DEVICE_ONE": "gpu-0", "DEVICE_TWO": "gpu-1"}


def test_a_claim_is_prepared_though_no_container_uses_it(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c", containers=[objects.container()]))
    assert plugin.uids(PREPARE) == [cluster.uid("c")]
    assert cluster.view("p").cdi_devices == ()


def test_share_ids_reach_the_driver_and_return_in_its_answer(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.create(SLICE, objects.resource_slice(objects.nic("eth0")))
    cluster.create(CLAIM, objects.claim("a", objects.request(capacity={"requests": {"bandwidth": "2500M"}})))
    cluster.create(CLAIM, objects.claim("b"))
    for name in ("a", "b"):
        cluster.run(objects.pod(name, claim=name))
    preparation = cluster.cluster.node(objects.NODE).kubelet.preparation
    shares = set()
    for name, consumed in (("a", "3G"), ("b", "1G")):
        [result] = json_types.objects(cluster.claim(name), "status", "allocation", "devices", "results")
        assert result["consumedCapacity"] == {"bandwidth": consumed}
        [device] = preparation.devices("default", name)[DRIVER]
        assert device == PreparedDevice(
            requests=("gpu",),
            pool=objects.NODE,
            device="eth0",
            cdi_ids=(f"example.com/gpu={cluster.uid(name)}-0",),
            share_id=json_types.text(result, "shareID"),
        )
        shares.add(device.share_id)
    assert len(shares) == 2


def test_a_container_with_an_unknown_cdi_device_waits_with_an_event(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()

    def lose_file(response: dra.NodePrepareResourcesResponse, _context: grpc.ServicerContext) -> None:
        for uid in response.claims:
            plugin.cdi_file(uid).unlink()

    plugin.on_prepare = lose_file
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("p", claim="c"))
    cluster.until(lambda: cluster.events("Failed"), "an event")
    name = f"example.com/gpu={cluster.uid('c')}-0"
    assert f"unresolvable CDI devices {name}" in cluster.events("Failed")[0]
    waiting = ("status", "containerStatuses", 0, "state", "waiting", "reason")
    cluster.until(lambda: json_types.text(cluster.find(POD, "p"), *waiting) == "CreateContainerError", "the container's state")
    cluster.phase("p", "Pending")
    plugin._write_cdi(cluster.uid("c"), [{"request": "gpu", "device": "gpu-0"}])
    cluster.phase("p", "Running")
    assert plugin.count(PREPARE) == 1


def test_init_containers_run_first_one_after_the_other_and_get_devices_too(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    inits = [objects.container("first", objects.use()), objects.container("second")]
    cluster.run(objects.pod("p", claim="c", inits=inits))
    assert cluster.view("p", "first").env == {"DEVICE_GPU": "gpu-0"}
    states = {name: cluster.view("p", name).state for name in ("first", "second", "main")}
    assert states == {"first": State.EXITED, "second": State.EXITED, "main": State.RUNNING}


def test_the_path_of_a_pod_can_be_followed_by_its_events(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c", run_seconds=0.05))
    cluster.phase("p", "Succeeded")
    wanted = ["DriverRegistered", "Allocated", "Scheduled", "PreparedDynamicResources", "Running", "UnpreparedDynamicResources"]
    cluster.until(lambda: all(cluster.events(reason) for reason in (*wanted, "Completed", "Deallocated")), "all events")
    assert cluster.events("Allocated") == [f"on node-1: gpu gets {DRIVER}/gpu-0"]
    assert cluster.events("PreparedDynamicResources") == [f"claim default/c: {DRIVER}/gpu-0"]
