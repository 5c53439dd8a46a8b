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
from fakes import feature_samples, feature_town
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.town import Town

PREPARED, FAILED = "dra.example.com/is-prepared", "dra.example.com/preparing-failed"
FABRIC = "dra.example.com"


def _prepare(town: Town) -> None:
    """Label node-3, start the fabric's driver there, and publish the sample."""
    labels: Object = {"metadata": {"labels": {"accelerator-type": "high-performance"}}}
    town.api.patch(NODE, "node-3", labels, kind=PatchKind.MERGE)
    town.plugin(node="node-3", name=FABRIC)
    town.create(CLASS, objects.device_class("fabric", FABRIC))
    feature_samples.apply(town.api, "concepts-binding-conditions-slice")
    town.create(CLAIM, objects.claim("c", {"name": "r", "exactly": {"deviceClassName": "fabric"}}))


@pytest.fixture
def town() -> Iterator[Town]:
    with feature_town.running("node-1", "node-3") as running:
        _prepare(running)
        yield running


def _report(town: Town, kind: str) -> None:
    """Set a condition of the claim's only device to True, as the fabric's controller does."""
    while True:
        found = town.claim("c")
        [result] = json_types.objects(found, "status", "allocation", "devices", "results")
        condition: Object = {"type": kind, "status": "True", "reason": "Done", "message": "", "lastTransitionTime": naming.now()}
        entry: Object = {field: result[field] for field in ("driver", "pool", "device")}
        json_types.child(found, "status")["devices"] = [entry | {"conditions": [condition]}]
        with contextlib.suppress(errors.ConflictError):
            town.api.update(CLAIM, found, subresource="status")
            return


def _wait(town: Town) -> None:
    town.create(POD, objects.pod("p", claim="c"))
    town.until(lambda: town.devices("c") == ["gpu-1"], "the allocation")
    town.until(lambda: town.events("WaitingForBindingConditions"), "the wait")
    assert json_types.text(town.find(POD, "p"), "spec", "nodeName") == ""


def test_the_sample_device_is_allocated_only_for_nodes_that_its_slice_selects(town: Town) -> None:
    _wait(town)
    [term] = json_types.objects(town.claim("c"), "status", "allocation", "nodeSelector", "nodeSelectorTerms")
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-3"]}]}
    assert json_types.mapping(town.find(POD, "p"), "spec").get("nodeSelector") is None


def test_a_pod_is_bound_once_all_binding_conditions_are_true(town: Town) -> None:
    _wait(town)
    [result] = json_types.objects(town.claim("c"), "status", "allocation", "devices", "results")
    assert (result["bindingConditions"], result["bindingFailureConditions"]) == ([PREPARED], [FAILED])
    _report(town, PREPARED)
    assert json_types.text(town.phase("p", "Running"), "spec", "nodeName") == "node-3"


def test_a_binding_failure_condition_clears_the_allocation_and_reschedules(town: Town) -> None:
    _wait(town)
    before = json_types.text(town.claim("c"), "metadata", "resourceVersion")
    _report(town, FAILED)
    town.until(lambda: any(FAILED in text for text in town.events("FailedScheduling")), "the failure")
    town.until(lambda: town.devices("c") and "devices" not in json_types.mapping(town.claim("c"), "status"), "a new allocation")
    assert json_types.text(town.claim("c"), "metadata", "resourceVersion") != before
    _report(town, PREPARED)
    town.phase("p", "Running")


def test_binding_conditions_are_waited_for_600_seconds() -> None:
    assert scheduler.BINDING_SECONDS == 600
    assert Components().binding_timeout == 600


@pytest.mark.parametrize("gate", ["DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"])
def test_binding_conditions_need_both_of_their_features(gate: str) -> None:
    with feature_town.running("node-3", gates=FeatureGates.of({gate: False})) as town:
        _prepare(town)
        device: Json = json_types.at(town.api.get(SLICE, "gpu-slice"), "spec", "devices", 0)
        assert not {"bindingConditions", "bindingFailureConditions", "bindsToNode"} & set(json_types.mapping(device))
        town.run(objects.pod("p", claim="c"))
