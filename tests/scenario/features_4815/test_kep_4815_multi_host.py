"""KEP-4815: devices that choose their nodes, and devices of several nodes that pods share."""

import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLASS, DEPLOYMENT, POD, SLICE
from fakes import kep_4815_samples, kep_4815_tpus
from fakes.single_threaded_cluster import SingleThreadedCluster, device_request
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE, UNPREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster

OF_SAMPLE = ("node-1", "node-2", "node-5", "node-6")
CLASS_NAME = "tpu.google.com"


def chips(number: int) -> Object:
    return device_request(CLASS_NAME, f"device.capacity['{kep_4815_tpus.DRIVER}'].tpus == quantity('{number}')")


def grid() -> SingleThreadedCluster:
    """The node pool of 64 chips."""
    simulated_cluster = SingleThreadedCluster(*kep_4815_tpus.NODES)
    simulated_cluster.apply(*kep_4815_tpus.node_pool())
    simulated_cluster.device_class(CLASS_NAME, f"device.driver == '{kep_4815_tpus.DRIVER}'")
    return simulated_cluster


def sample_cell(*more: str) -> SingleThreadedCluster:
    """The nodes and the slice of the text's example."""
    simulated_cluster = SingleThreadedCluster(*OF_SAMPLE, *more)
    simulated_cluster.apply(*kep_4815_samples.mended("tpu-slice"))
    simulated_cluster.device_class(CLASS_NAME, f"device.driver == '{kep_4815_tpus.DRIVER}'")
    return simulated_cluster


def on(*nodes: str) -> Object:
    requirement: Json = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    return {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}


def choosing(*devices: Json, **spec: Json) -> Object:
    """A slice whose devices choose their nodes."""
    made = kep_4815_samples.slice_of("s", {"devices": list(devices)})
    held = json_types.mapping(made, "spec")
    del held["nodeName"]
    held.update({"perDeviceNodeSelection": True, **spec})
    return made


@pytest.mark.parametrize("shape, number", [("8x8", 1), ("4x8", 2), ("4x4", 4), ("2x4", 8), ("2x2", 16)])
def test_a_pool_of_64_chips_has_as_many_slices_of_each_shape_as_the_wiring_allows(shape: str, number: int) -> None:
    simulated_cluster = grid()
    size = next(one.width * one.height * kep_4815_tpus.CHIPS for one in kep_4815_tpus.SHAPES if one.name == shape)
    got = [simulated_cluster.take(f"c{n}", chips(size)) for n in range(number + 1)]
    assert sorted(got) == [[], *sorted([f"tpu-{shape}-{n}"] for n in range(1, number + 1))]
    assert got[-1] == []


def test_a_4x4_claim_gets_one_of_the_four_good_allocations_or_none() -> None:
    simulated_cluster = grid()
    simulated_cluster.apply(*kep_4815_samples.mended("tpu-4x4-claim"))
    assert simulated_cluster.schedule("p", "tpu-device") == "node-1"
    others = [simulated_cluster.take(f"c{n}", chips(16)) for n in range(4)]
    quads = [("1", "2", "5", "6"), ("3", "4", "7", "8"), ("9", "10", "13", "14"), ("11", "12", "15", "16")]
    for quad in quads:
        assert on(*(f"node-{n}" for n in quad)) in [
            simulated_cluster.allocation(name).get("nodeSelector") for name in ("tpu-device", "c0", "c1", "c2")
        ]
    assert others[3] == []


def test_a_small_allocation_excludes_every_larger_one_around_it() -> None:
    simulated_cluster = grid()
    assert simulated_cluster.take("small", chips(4)) == ["tpu-2x2-1"]
    assert simulated_cluster.take("whole", chips(64)) == []
    assert [simulated_cluster.take(f"half{n}", chips(32)) for n in range(2)] == [["tpu-4x8-2"], []]
    assert simulated_cluster.take("quarter", chips(16)) == ["tpu-4x4-2"]
    simulated_cluster.end("small")
    assert simulated_cluster.take("quarter-2", chips(16)) == ["tpu-4x4-1"]


def test_chips_of_one_node_are_not_allocated_for_another() -> None:
    simulated_cluster = sample_cell()
    assert simulated_cluster.take("a", chips(4)) == ["tpu-2x2-1"]
    simulated_cluster.claim("b", chips(4))
    assert simulated_cluster.schedule("b", "b", nodeSelector={"kubernetes.io/hostname": "node-1"}) == ""
    assert simulated_cluster.take("c", chips(8)) == ["tpu-2x4-2"]
    assert simulated_cluster.take("d", chips(4)) == ["tpu-2x2-2"]


def test_the_nodes_of_a_claim_are_those_of_its_device_not_of_its_slice() -> None:
    simulated_cluster = sample_cell("node-9")
    for size, device, nodes in ((4, "tpu-2x2-1", None), (8, "tpu-2x4-2", ("node-5", "node-6"))):
        assert simulated_cluster.take(f"c{size}", chips(size)) == [device]
        selector = simulated_cluster.allocation(f"c{size}")["nodeSelector"]
        of_name: Object = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]}
        assert selector == (on(*nodes) if nodes else of_name)


@pytest.mark.parametrize(
    "place, nodes",
    [
        ({"nodeName": "node-2"}, ["node-2"]),
        ({"nodeSelector": on("node-1", "node-3")}, ["node-1", "node-3"]),
        ({"allNodes": True}, ["node-1", "node-2", "node-3"]),
    ],
    ids=["name", "selector", "all"],
)
def test_a_device_is_available_on_the_nodes_that_it_chooses(place: Object, nodes: list[str]) -> None:
    names = ("node-1", "node-2", "node-3")
    found = []
    for name in names:
        simulated_cluster = SingleThreadedCluster(*names)
        simulated_cluster.apply(choosing({"name": "d", **place}))
        simulated_cluster.device_class("any", "true")
        simulated_cluster.claim("c", device_request("any"))
        found.append(simulated_cluster.schedule("p", "c", nodeSelector={"kubernetes.io/hostname": name}))
    assert [name for name in found if name] == nodes


@pytest.mark.parametrize(
    "published, field",
    [
        (choosing({"name": "d"}), r"spec\.devices\[0\]: Required value"),
        (choosing({"name": "d", "nodeName": "n", "allNodes": True}), r"spec\.devices\[0\]: Invalid value"),
        (choosing({"name": "d", "nodeName": "n"}, nodeName="n"), r"spec: Invalid value"),
        (choosing({"name": "d", "nodeName": "n"}, perDeviceNodeSelection=False, nodeName="n"), r"spec\.perDeviceNodeSelection"),
        (kep_4815_samples.slice_of("s", {"devices": [{"name": "d", "nodeName": "n"}]}), r"spec\.devices\[0\]"),
    ],
    ids=["none", "two", "slice-and-device", "false", "not-delegated"],
)
def test_nodes_are_selected_by_the_slice_or_by_each_device_never_both(published: Object, field: str) -> None:
    with pytest.raises(errors.InvalidError, match=field):
        SingleThreadedCluster().apply(published)


def test_a_device_selects_its_nodes_by_exactly_one_term() -> None:
    two: Object = {
        "nodeSelectorTerms": json_types.items(on("node-1"), "nodeSelectorTerms") + json_types.items(on("node-2"), "nodeSelectorTerms")
    }
    simulated_cluster = SingleThreadedCluster("node-1", "node-2")
    simulated_cluster.apply(choosing({"name": "d", "nodeSelector": two}))
    simulated_cluster.device_class("any", "true")
    assert simulated_cluster.take("c", device_request("any")) == []
    assert "exactly one is supported" in simulated_cluster.refusal("c")


def test_pods_of_one_claim_stay_on_the_nodes_of_its_device() -> None:
    simulated_cluster = sample_cell("node-9")
    simulated_cluster.apply(*kep_4815_samples.mended("tpu-consumer-claim"))
    assert simulated_cluster.schedule("first", "tpu-consumer-resource-claim") == "node-1"
    for node, found in (("node-2", "node-2"), ("node-5", ""), ("node-9", "")):
        assert (
            simulated_cluster.schedule(f"on-{node}", "tpu-consumer-resource-claim", nodeSelector={"kubernetes.io/hostname": node}) == found
        )
    assert simulated_cluster.devices("tpu-consumer-resource-claim") == ["tpu-2x4-1"]


def test_a_claim_for_each_pod_spreads_the_pods_of_a_shared_claim_over_its_nodes() -> None:
    simulated_cluster = sample_cell("node-9")
    for node in (*OF_SAMPLE, "node-9"):
        simulated_cluster.apply(kep_4815_samples.slice_of(f"host-{node}", {"devices": [{"name": "host"}]}, pool=node, node=node))
    simulated_cluster.device_class("host")
    simulated_cluster.apply(*kep_4815_samples.mended("tpu-consumer-claim"))
    for number in range(3):
        simulated_cluster.claim(f"host{number}", device_request("host"))
    nodes = [simulated_cluster.schedule(f"p{n}", "tpu-consumer-resource-claim", f"host{n}") for n in range(3)]
    assert nodes == ["node-1", "node-2", ""]


def test_nothing_promises_that_all_pods_of_a_device_find_room_on_its_nodes() -> None:
    simulated_cluster = sample_cell()
    simulated_cluster.apply(*kep_4815_samples.mended("tpu-consumer-claim"))
    assert simulated_cluster.schedule("first", "tpu-consumer-resource-claim") == "node-1"
    assert simulated_cluster.schedule("second", "tpu-consumer-resource-claim", nodeSelector={"accelerated": "true"}) == ""
    assert simulated_cluster.devices("tpu-consumer-resource-claim") == ["tpu-2x4-1"]


def test_a_pod_with_claims_for_devices_of_other_nodes_waits() -> None:
    simulated_cluster = sample_cell()
    assert [simulated_cluster.take(name, chips(8)) for name in ("left", "right")] == [["tpu-2x4-1"], ["tpu-2x4-2"]]
    assert simulated_cluster.schedule("both", "left", "right") == ""
    assert simulated_cluster.schedule("one", "right") == "node-5"


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = QuickCluster(folder, nodes=(*OF_SAMPLE, "node-9"))
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        ending.callback(running.stop)
        yield running.start()


def test_the_workload_of_the_text_runs_on_both_nodes_of_its_device_and_on_no_other(cluster: QuickCluster) -> None:
    plugins = {node: cluster.plugin(node=node, name=kep_4815_tpus.DRIVER) for node in OF_SAMPLE}
    for node in OF_SAMPLE[:2]:
        cluster.plugin(node=node)
    for node in OF_SAMPLE:
        cluster.offer("host", node=node)
    cluster.create(CLASS, objects.device_class(CLASS_NAME, kep_4815_tpus.DRIVER))
    for one in kep_4815_samples.mended("tpu-slice"):
        cluster.create(SLICE, one)
    [claim] = kep_4815_samples.mended("tpu-consumer-claim")
    cluster.api.create(CLAIM, claim, namespace="default")
    pods = [_pod_of_deployment(cluster, number) for number in range(2)]
    assert [json_types.text(pod, "spec", "nodeName") for pod in pods] == ["node-1", "node-2"]
    uid = cluster.uid("tpu-consumer-resource-claim")
    assert {node for node, plugin in plugins.items() if uid in plugin.uids(PREPARE)} == {"node-1", "node-2"}
    for number in range(2):
        cluster.delete(f"tpu-consumer-{number}")
    cluster.until(lambda: not cluster.devices("tpu-consumer-resource-claim"), "the deallocation")
    assert {node for node, plugin in plugins.items() if uid in plugin.uids(UNPREPARE)} == {"node-1", "node-2"}


def _pod_of_deployment(cluster: QuickCluster, number: int) -> Object:
    """Run one pod as the Deployment of the text describes it, with a claim of its own that keeps it off the other's node."""
    [deployment] = kep_4815_samples.mended("tpu-consumer-deployment")
    if not number:
        json_types.mapping(deployment, "spec")["replicas"] = 0  # Its pods are made here, each with one claim more.
        cluster.api.create(DEPLOYMENT, deployment, namespace="default")
    template = json_types.mapping(cluster.api.get(DEPLOYMENT, "tpu-consumer", "default"), "spec", "template")
    name = f"tpu-consumer-{number}"
    cluster.create(CLAIM, objects.claim(f"host-{number}"))
    spec = json_types.mapping(template, "spec")
    uses: list[Json] = [*json_types.items(spec, "resourceClaims"), {"name": "host", "resourceClaimName": f"host-{number}"}]
    metadata: Object = {**json_types.mapping(template, "metadata"), "name": name, "namespace": "default"}
    cluster.create(POD, {"metadata": metadata, "spec": {**spec, "resourceClaims": uses, "terminationGracePeriodSeconds": 1}})
    return cluster.phase(name, "Running")
