"""KEP-4815 from end to end with the tpu family: a publisher of the whole cluster, and a driver on every node that prepares its own part."""

from collections.abc import Iterator

import pytest

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import NODE, SLICE
from fakes import tpu_cluster


@pytest.fixture(scope="module")
def shared() -> Iterator[tpu_cluster.TpuCluster]:
    with tpu_cluster.running() as made:
        yield made


@pytest.fixture
def cluster(shared: tpu_cluster.TpuCluster) -> Iterator[tpu_cluster.TpuCluster]:
    """A cluster without pods and claims."""
    yield shared
    shared.clear()


def test_a_central_publisher_writes_slices_without_an_owner(cluster: tpu_cluster.TpuCluster) -> None:
    central = [one for one in cluster.quick_cluster.api.list(SLICE).items if not json_types.text(one, "spec", "nodeName")]
    assert {json_types.text(one, "spec", "pool", "name") for one in central} == {"tpus"}
    assert all(json_types.at(one, "spec", "perDeviceNodeSelection") is True for one in central)
    assert not any(json_types.items(one, "metadata", "ownerReferences") for one in central)
    assert len(cluster.devices_of_slices()) == 4 + 2 + 1


def test_pods_that_keep_apart_take_one_node_each_and_each_node_prepares_its_part(cluster: tpu_cluster.TpuCluster) -> None:
    cluster.claim("big", 16)
    names = [f"w{number}" for number in range(4)]
    for name in names:
        cluster.pod(name, "big", workload="train")
    for name in names:
        cluster.quick_cluster.phase(name, "Running")
    nodes = {name: cluster.node_of(name) for name in names}
    assert sorted(nodes.values()) == list(tpu_cluster.NODES)
    result = {nodes[name]: cluster.environment(name) for name in names}
    assert {node: one["TPU_WORKER_ID"] for node, one in result.items()} == {
        node: str(place) for place, node in enumerate(tpu_cluster.NODES)
    }
    assert {one["TPU_WORKER_HOSTNAMES"] for one in result.values()} == {",".join(tpu_cluster.NODES)}
    assert {one["TPU_TOPOLOGY"] for one in result.values()} == {"4x4"}
    cluster.quick_cluster.until(lambda: cluster.ready("big") == "True: all of 4 nodes", "all parts of the status")
    assert cluster.workers("big") == {node: place for place, node in enumerate(tpu_cluster.NODES)}
    cluster.pod("w4", "big", workload="train")
    cluster.quick_cluster.until(lambda: "anti-affinity forbids" in cluster.quick_cluster.scheduling_message("w4"), "the fifth pod's reason")


def test_a_device_is_ready_once_every_node_has_prepared_its_part(cluster: tpu_cluster.TpuCluster) -> None:
    cluster.claim("pair", 8)
    cluster.pod("p0", "pair", workload="pair")
    cluster.quick_cluster.phase("p0", "Running")
    cluster.quick_cluster.until(lambda: cluster.ready("pair") == "False: 1 of 2 nodes", "the first part of the status")
    cluster.pod("p1", "pair", workload="pair")
    cluster.quick_cluster.phase("p1", "Running")
    cluster.quick_cluster.until(lambda: cluster.ready("pair") == "True: all of 2 nodes", "the second part")
    first, second = cluster.node_of("p0"), cluster.node_of("p1")
    assert cluster.workers("pair") == {first: 0, second: 1}
    cluster.quick_cluster.delete("p0", force=True)
    cluster.quick_cluster.until(lambda: cluster.workers("pair") == {second: 1}, "one part alone")
    assert cluster.ready("pair") == "False: 1 of 2 nodes"


def test_overlapping_slices_exclude_each_other_until_release(cluster: tpu_cluster.TpuCluster) -> None:
    cluster.claim("small", 4)
    cluster.pod("s", "small")
    cluster.quick_cluster.phase("s", "Running")
    cluster.claim("whole", 16)
    cluster.pod("w", "whole", workload="whole")
    cluster.claim("half", 8)
    cluster.pod("h", "half", workload="half")
    cluster.quick_cluster.phase("h", "Running")
    cluster.quick_cluster.until(lambda: " needed, " in cluster.quick_cluster.scheduling_message("w"), "the reason")
    assert (cluster.quick_cluster.devices("small"), cluster.quick_cluster.devices("half")) == (["tpu-2x2-1"], ["tpu-2x4-2"])
    for pod in ("s", "h"):
        cluster.quick_cluster.delete(pod, force=True)
    cluster.quick_cluster.phase("w", "Running")
    assert cluster.quick_cluster.devices("whole") == ["tpu-4x4-1"]
    assert cluster.environment("w")["TPU_TOPOLOGY"] == "4x4"


def test_a_node_without_a_part_in_the_slice_gets_no_pod_of_its_claim(cluster: tpu_cluster.TpuCluster) -> None:
    cluster.claim("pair", 8)
    cluster.pod("in", "pair", workload="pair")
    cluster.quick_cluster.phase("in", "Running")
    cluster.quick_cluster.until(lambda: cluster.workers("pair"), "the part of the first")
    cluster.pod("out", "pair", node=tpu_cluster.OUTSIDE)
    cluster.quick_cluster.until(lambda: cluster.quick_cluster.scheduling_message("out").startswith("0/5 nodes are available"), "a refusal")
    assert cluster.node_of("out") == ""
    assert list(cluster.workers("pair")) == [cluster.node_of("in")]


def test_pods_keep_apart_by_any_label_of_their_nodes(cluster: tpu_cluster.TpuCluster) -> None:
    for number, node in enumerate(tpu_cluster.NODES):
        cluster.quick_cluster.api.patch(NODE, node, {"metadata": {"labels": {"rack": f"r{number // 2}"}}}, kind=PatchKind.MERGE)
    cluster.claim("big", 16)
    for number in range(2):
        cluster.pod(f"p{number}", "big", workload="spread", topology="rack")
        cluster.quick_cluster.phase(f"p{number}", "Running")
    racks = {tpu_cluster.NODES.index(cluster.node_of(f"p{number}")) // 2 for number in range(2)}
    assert racks == {0, 1}
    cluster.pod("p2", "big", workload="spread", topology="rack")
    cluster.quick_cluster.until(lambda: "(rack=r0)" in cluster.quick_cluster.scheduling_message("p2"), "the third pod's reason")
    cluster.quick_cluster.delete("p1", force=True)
    cluster.quick_cluster.phase("p2", "Running")
