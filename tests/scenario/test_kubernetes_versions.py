"""The local cluster runs as each Kubernetes version: its server, scheduler and kubelet serve, decide and report as that version does."""

import contextlib
import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from drakit_cluster.api.registry import Registry
from drakit_cluster.cluster_node import Components
from drakit_cluster.objects import errors, json_types, versions
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, NODE, POD, SLICE, TAINT_RULE
from drakit_cluster.scheduling.allocator import known_errors
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER
from unit.cluster_kubelet.quick_cluster import QuickCluster


@contextlib.contextmanager
def running(version: str, *on: str) -> Iterator[QuickCluster]:
    """Run a cluster of a version, with gates on and a driver on its node, which a test uses over HTTPS."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    gates = FeatureGates.of(dict.fromkeys(on, True), version)
    repeated = known_errors.BY_VERSION.get(version, known_errors.NONE)
    cluster = QuickCluster(folder, gates=gates, components=Components(known_errors=repeated), https=True)
    try:
        cluster.start()
        cluster.plugin()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def published(**spec: object) -> Object:
    """Return a slice of the driver on the node."""
    fields = {"driver": DRIVER, "nodeName": objects.NODE, "pool": {"name": objects.NODE, "resourceSliceCount": 1}} | spec
    made: Object = json.loads(json.dumps({"metadata": {"name": "s"}, "spec": fields}))
    return made


POLICY = {"default": "100m", "validRange": {"min": "100m", "max": "1", "step": "100m"}}
SHARED = published(
    devices=[{"name": "d", "allowMultipleAllocations": True, "capacity": {"share": {"value": "1", "requestPolicy": POLICY}}}]
)


@pytest.mark.parametrize("version, consumed", [("1.34", "1"), ("1.36", "1"), ("1.37", "300m"), ("1.38", "300m")])
def test_a_pod_runs_and_consumes_what_its_version_counts(version: str, consumed: str) -> None:
    with running(version, "DRAConsumableCapacity") as cluster:
        node = cluster.api.get(NODE, objects.NODE)
        assert json_types.text(node, "status", "nodeInfo", "kubeletVersion").startswith(f"v{version}.")
        cluster.api.create(SLICE, SHARED)
        cluster.create(CLAIM, objects.claim("c", objects.request("r", capacity={"requests": {"share": "250m"}})))
        cluster.run(objects.pod("p", claim="c"))
        (result,) = json_types.objects(cluster.claim("c"), "status", "allocation", "devices", "results")
        assert result["consumedCapacity"] == {"share": consumed}


def test_a_taint_rule_in_v1_keeps_pods_waiting_on_1_37_and_does_not_exist_on_1_36() -> None:
    rule: Object = {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "k", "effect": "NoSchedule"}},
    }
    with running("1.37") as cluster:
        cluster.api.create(SLICE, published(devices=[{"name": "d"}]))
        cluster.api.create(TAINT_RULE, rule)
        cluster.create(CLAIM, objects.claim("c"))
        cluster.create(POD, objects.pod("p", claim="c"))
        cluster.until(lambda: "tainted" in cluster.scheduling_message("p"), "the refusal")
    with running("1.36") as cluster, pytest.raises(errors.NotFoundError, match=r"v1 is not served by Kubernetes 1\.36"):
        cluster.api.create(TAINT_RULE, rule)


@pytest.mark.parametrize("version", versions.ALL)
def test_a_field_of_1_37_is_stored_only_where_the_version_has_it_and_its_gate_is_on(version: str) -> None:
    gate = "DRAOptionalNodeOperations"
    has = versions.stage(gate, version) is not None
    for on in [(), (gate,)] if has else [()]:
        registry = Registry(gates=FeatureGates.of(dict.fromkeys(on, True), version))
        stored = registry.create(SLICE, published(devices=[{"name": "d"}], skipNodeOperations=["*"]))
        assert (json_types.strings(stored, "spec", "skipNodeOperations") == ["*"]) is bool(on)
