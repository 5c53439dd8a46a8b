"""Devices whose slices skip operations of the node: the kubelet calls no driver for them (KEP-5945)."""

import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from drakit_cluster.cluster_node import Components
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, POD, SLICE
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER, PREPARE, UNPREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster

GATE = "DRAOptionalNodeOperations"
ON = FeatureGates.of({GATE: True}, "1.37")
OFF = FeatureGates.of({}, "1.37")
NO_UNPREPARE = ["NodeUnprepareResources"]


@contextlib.contextmanager
def _running(*, gates: FeatureGates = ON, components: Components | None = None) -> Iterator[QuickCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    cluster = QuickCluster(folder, gates=gates, components=components, https=True)
    try:
        yield cluster.start()
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    with _running() as running:
        yield running


def _offer(cluster: QuickCluster, pool: str, *skipped: str) -> None:
    """Publish one device, named as its pool."""
    fields: Object = {"skipNodeOperations": json_types.from_strings(skipped)} if skipped else {}
    slice_of_pool = objects.resource_slice(objects.device(pool, kind=pool))
    spec = json_types.child(slice_of_pool, "spec")
    spec |= fields
    json_types.child(spec, "pool")["name"] = pool
    cluster.api.create(SLICE, slice_of_pool)


def _result(cluster: QuickCluster, claim: str) -> Object:
    (result,) = json_types.objects(cluster.claim(claim), "status", "allocation", "devices", "results")
    return result


def _named(device: str) -> Object:
    selector: Json = [{"cel": {"expression": f"device.attributes['{DRIVER}'].kind == '{device}'"}}]
    return objects.request(device, selectors=selector)


def test_a_pod_runs_and_ends_although_no_driver_is_on_the_node(cluster: QuickCluster) -> None:
    _offer(cluster, "licence", "*")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    assert _result(cluster, "c")["skipNodeOperations"] == ["*"]
    assert cluster.events("FailedPrepareDynamicResources") == []
    cluster.delete("p")
    cluster.gone(POD, "p")


def test_without_the_field_the_pod_waits_for_a_driver(cluster: QuickCluster) -> None:
    _offer(cluster, "licence")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("p", claim="c"))
    cluster.until(lambda: "is not registered" in "".join(cluster.events("FailedPrepareDynamicResources")), "the refusal")
    assert "skipNodeOperations" not in _result(cluster, "c")


def test_a_driver_is_called_for_a_claim_if_one_of_its_devices_needs_it(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    _offer(cluster, "gpu")
    _offer(cluster, "licence", "*")
    cluster.create(CLAIM, objects.claim("both", _named("gpu"), _named("licence")))
    cluster.run(objects.pod("p", claim="both"))
    cluster.delete("p")
    cluster.gone(POD, "p")
    uid = cluster.uid("both")
    assert (plugin.uids(PREPARE), plugin.uids(UNPREPARE)) == ([uid], [uid])


def test_a_driver_may_be_called_for_prepare_alone(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    _offer(cluster, "gpu", *NO_UNPREPARE)
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.lose(plugin)
    cluster.delete("p")
    cluster.gone(POD, "p")
    assert (plugin.count(PREPARE), plugin.count(UNPREPARE)) == (1, 0)


def test_a_restarted_kubelet_knows_what_it_may_skip(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    _offer(cluster, "gpu", *NO_UNPREPARE)
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    node = cluster.cluster.node(objects.NODE)
    plugin.stop()
    node.stop_kubelet()
    cluster.delete("p", force=True)
    node.start_kubelet()
    cluster.until(lambda: not node.kubelet.preparation.pods(), "the end of the claim on the node")
    assert plugin.count(UNPREPARE) == 0


def test_a_kubelet_without_the_gate_refuses_the_pod() -> None:
    with _running(components=Components(kubelets={objects.NODE: OFF})) as cluster:
        _offer(cluster, "licence", "*")
        cluster.create(CLAIM, objects.claim("c"))
        cluster.create(POD, objects.pod("p", claim="c"))
        refusal = f"ResourceClaim default/c skips node operations, but the feature gate {GATE} is off"
        cluster.until(lambda: refusal in "".join(cluster.events("FailedPrepareDynamicResources")), "the refusal")


def test_a_scheduler_without_the_gate_does_not_allocate_the_device() -> None:
    with _running(components=Components(scheduler=OFF)) as cluster:
        _offer(cluster, "licence", "*")
        cluster.create(CLAIM, objects.claim("c"))
        cluster.create(POD, objects.pod("p", claim="c"))
        cluster.until(lambda: f"skipNodeOperations, but the feature {GATE} is off" in cluster.scheduling_message("p"), "the refusal")


def test_with_the_gate_off_the_field_is_dropped_and_the_driver_is_called() -> None:
    with _running(gates=OFF) as cluster:
        plugin = cluster.plugin()
        _offer(cluster, "gpu", "*")
        cluster.create(CLAIM, objects.claim("c"))
        cluster.run(objects.pod("p", claim="c"))
        assert plugin.uids(PREPARE) == [cluster.uid("c")]
