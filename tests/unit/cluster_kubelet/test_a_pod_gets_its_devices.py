"""From a claim to what the container sees."""

import grpc

from drakit._proto import dra_v1_pb2 as dra
from drakit_cluster.kubelet.pods.records import PreparedDevice
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import CLAIM, POD, SLICE
from drakit_cluster.runtime import State
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER, PREPARE, UNPREPARE
from unit.cluster_kubelet.town import Town


def test_a_pod_with_a_claim_runs_with_the_device_in_its_environment(town: Town) -> None:
    plugin = town.plugin()
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    pod = town.run(objects.pod("p", claim="c"))
    assert town.view("p").env == {"DEVICE_GPU": "gpu-0"}
    assert json_types.text(pod, "spec", "nodeName") == objects.NODE
    ready = [one for one in json_types.objects(pod, "status", "conditions") if one["type"] == "Ready"]
    assert [one["status"] for one in ready] == ["True"]
    assert plugin.uids(PREPARE) == [town.uid("c")]
    assert plugin.uids(UNPREPARE) == []


def test_a_pod_without_claims_just_runs(town: Town) -> None:
    town.run(objects.pod("p"))
    assert town.view("p").env == {}


def test_each_container_gets_only_the_requests_that_it_names(town: Town) -> None:
    town.plugin()
    town.offer("gpu-0", "gpu-1")
    town.create(CLAIM, objects.claim("c", objects.request("one"), objects.request("two")))
    containers = [
        objects.container("first", objects.use("one")),
        objects.container("second", objects.use("two")),
        objects.container("both", objects.use()),
        objects.container("none"),
    ]
    town.run(objects.pod("p", claim="c", containers=containers))
    seen = {name: dict(town.view("p", name).env) for name in ("first", "second", "both", "none")}
    one, two = {"DEVICE_ONE": "gpu-0"}, {"DEVICE_TWO": "gpu-1"}
    assert seen == {"first": one, "second": two, "both": one | two, "none": {}}


def test_what_a_container_lists_twice_reaches_its_runtime_twice(town: Town) -> None:
    town.plugin()
    town.offer("gpu-0", "gpu-1")
    town.create(CLAIM, objects.claim("c", objects.request("one"), objects.request("two")))
    pod = town.run(objects.pod("p", claim="c", containers=[objects.container("main", objects.use("one"), objects.use())]))
    preparation = town.cluster.node(objects.NODE).kubelet.preparation
    [container] = json_types.objects(pod, "spec", "containers")
    names = [f"example.com/gpu={town.uid('c')}-{index}" for index in (0, 1)]
    assert preparation.cdi_ids(pod, container) == [names[0], *names]
    assert [device.cdi_ids for _, _, device in preparation.uses(pod, container)] == [(names[0],), (names[1],)]
    assert town.view("p", "main").env == {"DEVICE_ONE": "gpu-0", "DEVICE_TWO": "gpu-1"}


def test_a_device_without_request_names_reaches_every_container_of_the_claim(town: Town) -> None:
    plugin = town.plugin()

    def forget_requests(response: dra.NodePrepareResourcesResponse, _context: grpc.ServicerContext) -> None:
        for answer in response.claims.values():
            for device in answer.devices:
                device.ClearField("request_names")

    plugin.on_prepare = forget_requests
    town.offer("gpu-0", "gpu-1")
    town.create(CLAIM, objects.claim("c", objects.request("one"), objects.request("two")))
    town.run(objects.pod("p", claim="c", containers=[objects.container("first", objects.use("one"))]))
    assert town.view("p").env == {"DEVICE_ONE": "gpu-0", "DEVICE_TWO": "gpu-1"}


def test_a_claim_is_prepared_though_no_container_uses_it(town: Town) -> None:
    plugin = town.plugin()
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c", containers=[objects.container()]))
    assert plugin.uids(PREPARE) == [town.uid("c")]
    assert town.view("p").cdi_devices == ()


def test_shares_of_one_device_have_ids_that_travel_to_the_driver_and_back(town: Town) -> None:
    town.plugin()
    town.create(SLICE, objects.resource_slice(objects.nic("eth0")))
    town.create(CLAIM, objects.claim("a", objects.request(capacity={"requests": {"bandwidth": "2500M"}})))
    town.create(CLAIM, objects.claim("b"))
    for name in ("a", "b"):
        town.run(objects.pod(name, claim=name))
    preparation = town.cluster.node(objects.NODE).kubelet.preparation
    shares = set()
    for name, consumed in (("a", "3G"), ("b", "1G")):
        [result] = json_types.objects(town.claim(name), "status", "allocation", "devices", "results")
        assert result["consumedCapacity"] == {"bandwidth": consumed}
        [device] = preparation.devices("default", name)[DRIVER]
        assert device == PreparedDevice(
            requests=("gpu",),
            pool=objects.NODE,
            device="eth0",
            cdi_ids=(f"example.com/gpu={town.uid(name)}-0",),
            share_id=json_types.text(result, "shareID"),
        )
        shares.add(device.share_id)
    assert len(shares) == 2


def test_a_container_whose_cdi_device_is_unknown_waits_and_says_so(town: Town) -> None:
    plugin = town.plugin()

    def lose_file(response: dra.NodePrepareResourcesResponse, _context: grpc.ServicerContext) -> None:
        for uid in response.claims:
            plugin.cdi_file(uid).unlink()

    plugin.on_prepare = lose_file
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    town.create(POD, objects.pod("p", claim="c"))
    town.until(lambda: town.events("Failed"), "an event")
    name = f"example.com/gpu={town.uid('c')}-0"
    assert f"unresolvable CDI devices {name}" in town.events("Failed")[0]
    waiting = ("status", "containerStatuses", 0, "state", "waiting", "reason")
    town.until(lambda: json_types.text(town.find(POD, "p"), *waiting) == "CreateContainerError", "the container's state")
    town.phase("p", "Pending")
    plugin._write_cdi(town.uid("c"), [{"request": "gpu", "device": "gpu-0"}])
    town.phase("p", "Running")
    assert plugin.count(PREPARE) == 1


def test_init_containers_run_first_one_after_the_other_and_get_devices_too(town: Town) -> None:
    town.plugin()
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    inits = [objects.container("first", objects.use()), objects.container("second")]
    town.run(objects.pod("p", claim="c", inits=inits))
    assert town.view("p", "first").env == {"DEVICE_GPU": "gpu-0"}
    states = {name: town.view("p", name).state for name in ("first", "second", "main")}
    assert states == {"first": State.EXITED, "second": State.EXITED, "main": State.RUNNING}


def test_the_path_of_a_pod_can_be_followed_by_its_events(town: Town) -> None:
    town.plugin()
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c", run_seconds=0.05))
    town.phase("p", "Succeeded")
    wanted = ["DriverRegistered", "Allocated", "Scheduled", "PreparedDynamicResources", "Running", "UnpreparedDynamicResources"]
    town.until(lambda: all(town.events(reason) for reason in (*wanted, "Completed", "Deallocated")), "all events")
    assert town.events("Allocated") == [f"on node-1: gpu gets {DRIVER}/gpu-0"]
    assert town.events("PreparedDynamicResources") == [f"claim default/c: {DRIVER}/gpu-0"]
