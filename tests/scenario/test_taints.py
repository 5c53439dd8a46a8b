"""Device taints: who is evicted, when, and who may come (KEP-5055)."""

import datetime
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, POD, SLICE, TAINT_RULE
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER, UNPREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster

KEY = "example.com/unhealthy"


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = QuickCluster(folder, https=True).start()
    yield running
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)


def _taint(effect: str = "NoExecute", *, ago: float = 0.0) -> Object:
    added = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ago)
    return {"key": KEY, "effect": effect, "timeAdded": added.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _toleration(seconds: int | None = None, effect: str = "NoExecute") -> Object:
    toleration: Object = {"key": KEY, "operator": "Exists", "effect": effect}
    return toleration | ({} if seconds is None else {"tolerationSeconds": seconds})


def _publish(cluster: QuickCluster, *taints: Json, generation: int = 1, device: str = "gpu-0") -> None:
    """Publish the only slice of the pool anew, with taints on its only device."""
    body: Object = {"name": device, "taints": list(taints)}
    spec = objects.resource_slice(body, generation=generation)["spec"]
    known = cluster.slices()
    if not known:
        cluster.create(SLICE, {"metadata": {"name": "s"}, "spec": spec})
        return
    cluster.api.update(SLICE, known[0] | {"spec": spec})


def _rule(effect: str = "NoExecute", **selector: Json) -> Object:
    return {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": {"key": KEY, "effect": effect}}}


def _run(cluster: QuickCluster, *tolerations: Json, name: str = "p") -> Object:
    cluster.create(CLAIM, objects.claim(name, objects.request(tolerations=list(tolerations))))
    return cluster.run(objects.pod(name, claim=name))


def _condition(cluster: QuickCluster) -> Object:
    conditions = json_types.objects(cluster.find(TAINT_RULE, "r") or {}, "status", "conditions")
    return next((one for one in conditions if one.get("type") == "EvictionInProgress"), {})


def test_a_driver_taint_evicts_the_pods_of_its_device(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    _publish(cluster)
    pod = _run(cluster)
    seen: list[Object] = []
    watch = cluster.api.watch(POD, since=json_types.text(pod, "metadata", "resourceVersion"), timeout=10)
    _publish(cluster, _taint())
    for event in watch:
        seen.append(event.object)
        if event.type.value == "DELETED":
            watch.close()
    reasons = {
        json_types.text(condition, "reason")
        for one in seen
        for condition in json_types.objects(one, "status", "conditions")
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True"
    }
    assert reasons == {"DeletionByDeviceTaintManager"}
    cluster.gone(POD, "p")
    cluster.until(lambda: cluster.events("DeviceTaintManagerEviction"), "the event")
    cluster.until(lambda: cluster.devices("p") == [], "the deallocation")
    assert plugin.uids(UNPREPARE) == [cluster.uid("p")]


@pytest.mark.parametrize("effect", ["NoSchedule", "None"])
def test_only_no_execute_evicts(cluster: QuickCluster, effect: str) -> None:
    cluster.plugin()
    _publish(cluster)
    _run(cluster)
    _publish(cluster, _taint(effect, ago=60))
    cluster.create(CLAIM, objects.claim("other"))
    cluster.create(POD, objects.pod("other", claim="other"))
    cluster.until(lambda: cluster.scheduling_message("other"), "the other pod's refusal")
    assert cluster.phase("p", "Running")


def test_a_toleration_never_ends_or_its_seconds_count_from_the_time_of_the_taint(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.create(SLICE, objects.resource_slice(*(objects.device(f"gpu-{index}") for index in range(3))))
    for name, tolerations in (
        ("for-ever", [_toleration()]),
        ("long", [_toleration(3600)]),
        ("short", [_toleration(3600), _toleration(60)]),
    ):
        _run(cluster, *tolerations, name=name)
    [published] = cluster.slices()
    for device in json_types.objects(published, "spec", "devices"):
        device["taints"] = [_taint(ago=59)]
    cluster.api.update(SLICE, published)
    cluster.gone(POD, "short")
    assert cluster.phase("for-ever", "Running")
    assert cluster.phase("long", "Running")


def test_a_taint_removed_before_its_toleration_ends_evicts_nobody(cluster: QuickCluster) -> None:
    cluster.plugin()
    _publish(cluster)
    _run(cluster, _toleration(2))
    _publish(cluster, _taint())
    _publish(cluster)
    cluster.create(TAINT_RULE, _rule("None", driver=DRIVER))
    cluster.until(lambda: _condition(cluster), "the controller's next turn")
    assert cluster.phase("p", "Running")


def test_only_slices_of_the_highest_generation_evict(cluster: QuickCluster) -> None:
    cluster.plugin()
    _publish(cluster, generation=2)
    _run(cluster)
    old = objects.resource_slice({"name": "gpu-0", "taints": [_taint()]}, generation=1)
    cluster.create(SLICE, old)
    cluster.create(TAINT_RULE, _rule("None", driver=DRIVER))
    cluster.until(lambda: _condition(cluster), "the controller's next turn")
    assert cluster.phase("p", "Running")
    _publish(cluster, _taint(), generation=3)
    cluster.gone(POD, "p")


def test_a_rule_evicts_and_stops_new_pods_until_it_is_deleted(cluster: QuickCluster) -> None:
    cluster.plugin()
    _publish(cluster)
    _run(cluster)
    cluster.create(TAINT_RULE, _rule(driver=DRIVER, device="gpu-0"))
    cluster.gone(POD, "p")
    cluster.until(lambda: _condition(cluster).get("reason") == "Completed", "the rule's status")
    assert _condition(cluster)["message"] == "1 pod evicted so far."
    cluster.create(POD, objects.pod("q", claim="p"))
    cluster.until(lambda: "taint" in cluster.scheduling_message("q"), "the refusal")
    cluster.api.delete(TAINT_RULE, "r")
    cluster.phase("q", "Running")


@pytest.mark.parametrize("gate", ["DRADeviceTaintRules", "DRADeviceTaints"])
def test_rules_do_nothing_with_their_gate_or_that_of_taints_off(gate: str) -> None:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = QuickCluster(folder, gates=FeatureGates.of({gate: False}))
    try:
        running.start()
        running.plugin()
        running.offer("gpu-0", "gpu-1")
        running.create(CLAIM, objects.claim("a"))
        running.run(objects.pod("p", claim="a"))
        running.create(TAINT_RULE, _rule(driver=DRIVER))
        running.create(CLAIM, objects.claim("b"))
        running.run(objects.pod("q", claim="b"))
        assert json_types.text(running.find(POD, "p"), "status", "phase") == "Running"
        assert not running.events("DeletionByDeviceTaintManager")
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_rule_evicts_pods_of_devices_that_are_no_longer_published(cluster: QuickCluster) -> None:
    cluster.plugin()
    _publish(cluster)
    _run(cluster)
    cluster.api.delete(SLICE, "s")
    cluster.create(TAINT_RULE, _rule(device="gpu-0"))
    cluster.gone(POD, "p")


def test_a_rule_with_effect_none_reports_the_pods_it_would_evict(cluster: QuickCluster) -> None:
    cluster.plugin()
    _publish(cluster)
    _run(cluster)
    cluster.create(TAINT_RULE, _rule("None"))
    cluster.until(lambda: _condition(cluster), "the forecast")
    assert _condition(cluster)["status"] == "False"
    assert _condition(cluster)["reason"] == "NoEffect"
    assert "evict 1 pod in 1 namespace" in json_types.text(_condition(cluster), "message")
    assert cluster.phase("p", "Running")


def test_a_rule_reports_how_many_pods_are_still_to_be_evicted(cluster: QuickCluster) -> None:
    cluster.plugin()
    _publish(cluster)
    _run(cluster, _toleration(3600))
    cluster.create(TAINT_RULE, _rule(pool=objects.NODE))
    cluster.until(lambda: _condition(cluster).get("status") == "True", "the rule's status")
    assert _condition(cluster)["reason"] == "PodsPendingEviction"
