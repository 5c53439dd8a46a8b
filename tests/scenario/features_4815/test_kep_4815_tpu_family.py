"""KEP-4815 from end to end with the tpu family: a publisher of the whole cluster, and a driver on every node that prepares its own part."""

from collections.abc import Iterator

import pytest

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import NODE, SLICE
from fakes import tpu_town


@pytest.fixture
def town() -> Iterator[tpu_town.TpuTown]:
    with tpu_town.running() as made:
        yield made


def test_a_central_publisher_offers_the_slices_and_nobody_owns_them(town: tpu_town.TpuTown) -> None:
    central = [one for one in town.town.api.list(SLICE).items if not json_types.text(one, "spec", "nodeName")]
    assert {json_types.text(one, "spec", "pool", "name") for one in central} == {"tpus"}
    assert all(json_types.at(one, "spec", "perDeviceNodeSelection") is True for one in central)
    assert not any(json_types.items(one, "metadata", "ownerReferences") for one in central)
    assert len(town.devices_of_slices()) == 4 + 2 + 1


def test_pods_that_keep_apart_take_one_node_each_and_each_node_prepares_its_part(town: tpu_town.TpuTown) -> None:
    town.claim("big", 16)
    names = [f"w{number}" for number in range(4)]
    for name in names:
        town.pod(name, "big", workload="train")
    for name in names:
        town.town.phase(name, "Running")
    nodes = {name: town.node_of(name) for name in names}
    assert sorted(nodes.values()) == list(tpu_town.NODES)
    told = {nodes[name]: town.environment(name) for name in names}
    assert {node: one["TPU_WORKER_ID"] for node, one in told.items()} == {node: str(place) for place, node in enumerate(tpu_town.NODES)}
    assert {one["TPU_WORKER_HOSTNAMES"] for one in told.values()} == {",".join(tpu_town.NODES)}
    assert {one["TPU_TOPOLOGY"] for one in told.values()} == {"4x4"}
    town.town.until(lambda: town.ready("big") == "True: all of 4 nodes", "all parts of the status")
    assert town.workers("big") == {node: place for place, node in enumerate(tpu_town.NODES)}
    town.pod("w4", "big", workload="train")
    town.town.until(lambda: "anti-affinity forbids" in town.town.scheduling_message("w4"), "the fifth pod's reason")


def test_a_device_is_not_ready_until_every_node_has_prepared_and_says_who_has(town: tpu_town.TpuTown) -> None:
    town.claim("pair", 8)
    town.pod("p0", "pair", workload="pair")
    town.town.phase("p0", "Running")
    town.town.until(lambda: town.ready("pair") == "False: 1 of 2 nodes", "the first part of the status")
    town.pod("p1", "pair", workload="pair")
    town.town.phase("p1", "Running")
    town.town.until(lambda: town.ready("pair") == "True: all of 2 nodes", "the second part")
    first, second = town.node_of("p0"), town.node_of("p1")
    assert town.workers("pair") == {first: 0, second: 1}
    town.town.delete("p0", force=True)
    town.town.until(lambda: town.workers("pair") == {second: 1}, "one part alone")
    assert town.ready("pair") == "False: 1 of 2 nodes"


def test_slices_that_overlap_exclude_each_other_until_the_first_is_given_back(town: tpu_town.TpuTown) -> None:
    town.claim("small", 4)
    town.pod("s", "small")
    town.town.phase("s", "Running")
    town.claim("whole", 16)
    town.pod("w", "whole", workload="whole")
    town.claim("half", 8)
    town.pod("h", "half", workload="half")
    town.town.phase("h", "Running")
    town.town.until(lambda: " needed, " in town.town.scheduling_message("w"), "the reason")
    assert (town.town.devices("small"), town.town.devices("half")) == (["tpu-2x2-1"], ["tpu-2x4-2"])
    for pod in ("s", "h"):
        town.town.delete(pod, force=True)
    town.town.phase("w", "Running")
    assert town.town.devices("whole") == ["tpu-4x4-1"]
    assert town.environment("w")["TPU_TOPOLOGY"] == "4x4"


def test_a_node_without_a_part_in_the_slice_gets_no_pod_of_its_claim(town: tpu_town.TpuTown) -> None:
    town.claim("pair", 8)
    town.pod("in", "pair", workload="pair")
    town.town.phase("in", "Running")
    town.town.until(lambda: town.workers("pair"), "the part of the first")
    town.pod("out", "pair", node=tpu_town.OUTSIDE)
    town.town.until(lambda: town.town.scheduling_message("out").startswith("0/5 nodes are available"), "a refusal")
    assert town.node_of("out") == ""
    assert list(town.workers("pair")) == [town.node_of("in")]


def test_pods_keep_apart_by_any_label_of_their_nodes(town: tpu_town.TpuTown) -> None:
    for number, node in enumerate(tpu_town.NODES):
        town.town.api.patch(NODE, node, {"metadata": {"labels": {"rack": f"r{number // 2}"}}}, kind=PatchKind.MERGE)
    town.claim("big", 16)
    for number in range(2):
        town.pod(f"p{number}", "big", workload="spread", topology="rack")
        town.town.phase(f"p{number}", "Running")
    racks = {tpu_town.NODES.index(town.node_of(f"p{number}")) // 2 for number in range(2)}
    assert racks == {0, 1}
    town.pod("p2", "big", workload="spread", topology="rack")
    town.town.until(lambda: "(rack=r0)" in town.town.scheduling_message("p2"), "the third pod's reason")
    town.town.delete("p1", force=True)
    town.town.phase("p2", "Running")
