"""Devices that become ready after their allocation: the pod is bound only then (KEP-5007)."""

import contextlib
import datetime
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from drakit_cluster.cluster_node import Components
from drakit_cluster.objects import errors, json_types, naming
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, POD, SLICE
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER, PREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster

NODES = ("node-1", "node-2")
READY = ["example.com/attached", "example.com/configured"]
BROKEN = ["example.com/attach-failed"]


@contextlib.contextmanager
def _quick_cluster(binding_timeout: float = 600.0) -> Iterator[QuickCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = QuickCluster(folder, nodes=NODES, components=Components(binding_timeout=binding_timeout), https=True)
    try:
        yield running.start()
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    with _quick_cluster() as running:
        for node in NODES:
            running.plugin(node=node)
        yield running


def _offer(cluster: QuickCluster, *names: str, binds: bool = False) -> None:
    """Publish devices of a fabric that every node can have attached."""
    devices: list[Json] = []
    for name in names:
        device: Object = {"name": name, "bindingConditions": [*READY], "bindingFailureConditions": [*BROKEN]}
        devices.append(device | ({"bindsToNode": True} if binds else {}))
    pool: Object = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
    cluster.create(SLICE, {"metadata": {"name": "fabric"}, "spec": {"driver": DRIVER, "allNodes": True, "pool": pool, "devices": devices}})


def _report(cluster: QuickCluster, *kinds: str, claim: str = "c") -> None:
    """Set conditions of the claim's only device to True, as the fabric's controller does."""
    while True:
        found = cluster.claim(claim)
        [result] = json_types.objects(found, "status", "allocation", "devices", "results")
        conditions: list[Json] = [
            {"type": kind, "status": "True", "reason": "Done", "message": "", "lastTransitionTime": naming.now()} for kind in kinds
        ]
        entry: Object = {field: result[field] for field in ("driver", "pool", "device")}
        json_types.child(found, "status")["devices"] = [entry | {"conditions": conditions}]
        with contextlib.suppress(errors.ConflictError):
            cluster.api.update(CLAIM, found, subresource="status")
            return


def _wait_for_allocation(cluster: QuickCluster, claim: str = "c") -> None:
    cluster.until(lambda: cluster.devices(claim), "the allocation")


def _node(cluster: QuickCluster, pod: str) -> str:
    return json_types.text(cluster.find(POD, pod), "spec", "nodeName")


def test_a_pod_is_bound_when_all_binding_conditions_hold(cluster: QuickCluster) -> None:
    _offer(cluster, "f-0")
    cluster.create(CLAIM, objects.claim("c"))
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=1)
    cluster.create(POD, objects.pod("p", claim="c"))
    _wait_for_allocation(cluster)
    [result] = json_types.objects(cluster.claim("c"), "status", "allocation", "devices", "results")
    assert (result["bindingConditions"], result["bindingFailureConditions"]) == (READY, BROKEN)
    stamp = json_types.text(cluster.claim("c"), "status", "allocation", "allocationTimestamp")
    assert before <= datetime.datetime.fromisoformat(stamp) <= datetime.datetime.now(datetime.UTC)
    assert len(json_types.items(cluster.claim("c"), "status", "reservedFor")) == 1
    cluster.until(lambda: cluster.events("WaitingForBindingConditions"), "the event")
    _report(cluster, READY[0])
    cluster.run(objects.pod("bystander"))
    assert _node(cluster, "p") == ""
    _report(cluster, *READY)
    cluster.phase("p", "Running")
    assert cluster.plugins[0].count(PREPARE) == 1


def test_a_binding_failure_releases_the_device_and_takes_another(cluster: QuickCluster) -> None:
    _offer(cluster, "f-0", "f-1")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("p", claim="c"))
    _wait_for_allocation(cluster)
    assert cluster.devices("c") == ["f-0"]
    published = cluster.slices()[0]
    json_types.objects(published, "spec", "devices")[0]["taints"] = [{"key": "example.com/broken", "effect": "NoSchedule"}]
    cluster.api.update(SLICE, published)
    _report(cluster, BROKEN[0])
    cluster.until(lambda: cluster.devices("c") == ["f-1"], "the second allocation")
    assert "devices" not in json_types.mapping(cluster.claim("c"), "status")
    cluster.until(
        lambda: any("binding failed: claim c: example.com/attach-failed of f-0" in text for text in cluster.events("FailedScheduling")),
        "it",
    )
    _report(cluster, *READY)
    cluster.phase("p", "Running")


def test_a_wait_that_takes_too_long_is_a_failure() -> None:
    with _quick_cluster(binding_timeout=1.5) as cluster:
        cluster.plugin()
        _offer(cluster, "f-0")
        cluster.create(CLAIM, objects.claim("c"))
        cluster.create(POD, objects.pod("p", claim="c"))
        _wait_for_allocation(cluster)
        first = cluster.claim("c")["status"]
        cluster.until(
            lambda: any("not true 1.5 s after the allocation" in text for text in cluster.events("FailedScheduling")), "the failure"
        )
        cluster.until(lambda: cluster.devices("c") and cluster.claim("c")["status"] != first, "the second allocation")
        _report(cluster, *READY)
        cluster.phase("p", "Running")


def test_a_device_that_binds_to_a_node_is_usable_on_that_node_only(cluster: QuickCluster) -> None:
    _offer(cluster, "f-0", binds=True)
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("p", claim="c", nodeSelector={"kubernetes.io/hostname": "node-2"}))
    _wait_for_allocation(cluster)
    selector = json_types.mapping(cluster.claim("c"), "status", "allocation", "nodeSelector")
    [term] = json_types.objects(selector, "nodeSelectorTerms")
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]}
    _report(cluster, *READY)
    cluster.phase("p", "Running")
    assert _node(cluster, "p") == "node-2"


def test_other_pods_of_the_claim_wait_as_well_and_a_failure_frees_it_for_both(cluster: QuickCluster) -> None:
    _offer(cluster, "f-0")
    cluster.create(CLAIM, objects.claim("c"))
    for name in ("p", "q"):
        cluster.create(POD, objects.pod(name, claim="c"))
    cluster.until(lambda: len(json_types.items(cluster.claim("c"), "status", "reservedFor")) == 2, "both reservations")
    first = json_types.text(cluster.claim("c"), "metadata", "resourceVersion")
    _report(cluster, *READY[:1], *BROKEN)
    cluster.until(lambda: "devices" not in json_types.mapping(cluster.claim("c"), "status") and cluster.devices("c"), "a new allocation")
    assert json_types.text(cluster.claim("c"), "metadata", "resourceVersion") != first
    _report(cluster, *READY)
    for name in ("p", "q"):
        cluster.phase(name, "Running")


def test_a_pod_deleted_while_it_waits_releases_its_devices(cluster: QuickCluster) -> None:
    _offer(cluster, "f-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("p", claim="c"))
    _wait_for_allocation(cluster)
    cluster.delete("p")
    cluster.until(lambda: cluster.devices("c") == [], "the deallocation")
