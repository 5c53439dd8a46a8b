"""The kubelet tells which devices its containers have (PodResources v1)."""

import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import grpc
import pytest

from drakit._proto import podresources_v1_pb2 as wire
from drakit._proto import podresources_v1_pb2_grpc as services
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import CLAIM, POD, SLICE
from fakes import channels, waits
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER
from unit.cluster_kubelet.quick_cluster import QuickCluster


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = QuickCluster(folder, https=True).start()
    running.plugin()
    yield running
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def stub(cluster: QuickCluster) -> Iterator[services.PodResourcesListerStub]:
    with channels.insecure(f"unix:{cluster.cluster.node(objects.NODE).folder.pod_resources}") as channel:
        yield services.PodResourcesListerStub(channel)


def test_each_container_has_every_device_of_its_claims(cluster: QuickCluster, stub: services.PodResourcesListerStub) -> None:
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(CLAIM, objects.claim("c", objects.request("a"), objects.request("b")))
    containers = [objects.container("one", objects.use("a")), objects.container("both", objects.use()), objects.container("none")]
    cluster.run(objects.pod("p", claim="c", containers=containers))
    [pod] = stub.List(wire.ListPodResourcesRequest()).pod_resources
    assert (pod.name, pod.namespace) == ("p", "default")
    devices = {one.name: [device for claim in one.dynamic_resources for device in claim.claim_resources] for one in pod.containers}
    assert {name: [device.device_name for device in found] for name, found in devices.items()} == {
        "one": ["gpu-0", "gpu-1"],
        "both": ["gpu-0", "gpu-1"],
        "none": [],
    }
    [first, _] = devices["one"]
    assert (first.driver_name, first.pool_name, first.HasField("share_id")) == (DRIVER, objects.NODE, False)
    uid = cluster.uid("c")
    assert [[cdi.name for cdi in device.cdi_devices] for device in devices["both"]] == [
        [f"example.com/gpu={uid}-0"],
        [f"example.com/gpu={uid}-1"],
    ]
    assert {(claim.claim_name, claim.claim_namespace) for one in pod.containers for claim in one.dynamic_resources} == {("c", "default")}


def test_shares_are_listed_with_their_ids(cluster: QuickCluster, stub: services.PodResourcesListerStub) -> None:
    cluster.create(SLICE, objects.resource_slice(objects.nic("nic-0")))
    shares = []
    for name in ("p", "q"):
        cluster.create(CLAIM, objects.claim(name, objects.request(capacity={"requests": {"bandwidth": "1G"}})))
        cluster.run(objects.pod(name, claim=name))
        [result] = json_types.objects(cluster.claim(name), "status", "allocation", "devices", "results")
        shares.append(json_types.text(result, "shareID"))
    found = [
        stub.Get(wire.GetPodResourcesRequest(pod_name=name, pod_namespace="default")).pod_resources.containers[0].dynamic_resources[0]
        for name in ("p", "q")
    ]
    assert [claim.claim_resources[0].share_id for claim in found] == shares
    assert len(set(shares)) == 2


def test_a_deleted_pod_is_not_found(cluster: QuickCluster, stub: services.PodResourcesListerStub) -> None:
    cluster.run(objects.pod("p"))
    cluster.delete("p")
    cluster.gone(POD, "p")
    cluster.until(lambda: not stub.List(wire.ListPodResourcesRequest()).pod_resources, "its end")
    with pytest.raises(grpc.RpcError, match="pod p in namespace default not found"):
        stub.Get(wire.GetPodResourcesRequest(pod_name="p", pod_namespace="default"))


def test_the_next_kubelet_serves_pod_resources_again(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.cluster.restart_kubelet(objects.NODE)
    socket = cluster.cluster.node(objects.NODE).folder.pod_resources
    assert socket.stat().st_mode & 0o077 == 0

    def listed() -> list[str]:
        with channels.insecure(f"unix:{socket}") as channel:
            pods = (
                services.PodResourcesListerStub(channel)
                .List(wire.ListPodResourcesRequest(), wait_for_ready=True, timeout=waits.SECONDS)
                .pod_resources
            )
        return [
            device.device_name
            for pod in pods
            for one in pod.containers
            for claim in one.dynamic_resources
            for device in claim.claim_resources
        ]

    cluster.until(lambda: listed() == ["gpu-0"], "the devices")
