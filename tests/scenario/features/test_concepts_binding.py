"""The concepts page, device binding conditions: the page's own slice on a running cluster, over HTTPS."""

import contextlib
from collections.abc import Iterator

import pytest

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.cluster_node import Components
from drakit_cluster.objects import errors, json_types, naming
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLASS, NODE, POD, SLICE
from drakit_cluster.scheduling import scheduler
from fakes import feature_cluster, feature_samples
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QuickCluster

PREPARED, FAILED = "dra.example.com/is-prepared", "dra.example.com/preparing-failed"
FABRIC = "dra.example.com"


def _prepare(cluster: QuickCluster) -> None:
    """Label node-3, start the fabric's driver there, and publish the sample."""
    labels: Object = {"metadata": {"labels": {"accelerator-type": "high-performance"}}}
    cluster.api.patch(NODE, "node-3", labels, kind=PatchKind.MERGE)
    cluster.plugin(node="node-3", name=FABRIC)
    cluster.create(CLASS, objects.device_class("fabric", FABRIC))
    feature_samples.apply(cluster.api, "concepts-binding-conditions-slice")
    cluster.create(CLAIM, objects.claim("c", {"name": "r", "exactly": {"deviceClassName": "fabric"}}))


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    with feature_cluster.running("node-1", "node-3") as running:
        _prepare(running)
        yield running


def _report(cluster: QuickCluster, kind: str) -> None:
    """Set a condition of the claim's only device to True, as the fabric's controller does."""
    while True:
        found = cluster.claim("c")
        [result] = json_types.objects(found, "status", "allocation", "devices", "results")
        condition: Object = {"type": kind, "status": "True", "reason": "Done", "message": "", "lastTransitionTime": naming.now()}
        entry: Object = {field: result[field] for field in ("driver", "pool", "device")}
        json_types.child(found, "status")["devices"] = [entry | {"conditions": [condition]}]
        with contextlib.suppress(errors.ConflictError):
            cluster.api.update(CLAIM, found, subresource="status")
            return


def _wait(cluster: QuickCluster) -> None:
    cluster.create(POD, objects.pod("p", claim="c"))
    cluster.until(lambda: cluster.devices("c") == ["gpu-1"], "the allocation")
    cluster.until(lambda: cluster.events("WaitingForBindingConditions"), "the wait")
    assert json_types.text(cluster.find(POD, "p"), "spec", "nodeName") == ""


def test_the_sample_device_is_allocated_only_for_nodes_that_its_slice_selects(cluster: QuickCluster) -> None:
    _wait(cluster)
    [term] = json_types.objects(cluster.claim("c"), "status", "allocation", "nodeSelector", "nodeSelectorTerms")
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-3"]}]}
    assert json_types.mapping(cluster.find(POD, "p"), "spec").get("nodeSelector") is None


def test_a_pod_is_bound_once_all_binding_conditions_are_true(cluster: QuickCluster) -> None:
    _wait(cluster)
    [result] = json_types.objects(cluster.claim("c"), "status", "allocation", "devices", "results")
    assert (result["bindingConditions"], result["bindingFailureConditions"]) == ([PREPARED], [FAILED])
    _report(cluster, PREPARED)
    assert json_types.text(cluster.phase("p", "Running"), "spec", "nodeName") == "node-3"


def test_a_binding_failure_condition_clears_the_allocation_and_reschedules(cluster: QuickCluster) -> None:
    _wait(cluster)
    before = json_types.text(cluster.claim("c"), "metadata", "resourceVersion")
    _report(cluster, FAILED)
    cluster.until(lambda: any(FAILED in text for text in cluster.events("FailedScheduling")), "the failure")
    cluster.until(lambda: cluster.devices("c") and "devices" not in json_types.mapping(cluster.claim("c"), "status"), "a new allocation")
    assert json_types.text(cluster.claim("c"), "metadata", "resourceVersion") != before
    _report(cluster, PREPARED)
    cluster.phase("p", "Running")


def test_binding_conditions_are_waited_for_600_seconds() -> None:
    assert scheduler.BINDING_SECONDS == 600
    assert Components().binding_timeout == 600


@pytest.mark.parametrize("gate", ["DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"])
def test_binding_conditions_need_both_of_their_features(gate: str) -> None:
    with feature_cluster.running("node-3", gates=FeatureGates.of({gate: False})) as cluster:
        _prepare(cluster)
        device: Json = json_types.at(cluster.api.get(SLICE, "gpu-slice"), "spec", "devices", 0)
        assert not {"bindingConditions", "bindingFailureConditions", "bindsToNode"} & set(json_types.mapping(device))
        cluster.run(objects.pod("p", claim="c"))
