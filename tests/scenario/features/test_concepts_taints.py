"""The concepts page, device taints and tolerations: on an allocating server where only allocation matters, on a running cluster for eviction."""

import datetime
from collections.abc import Iterator

import pytest

from drakit_cluster.client.api import Api
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLASS, NAMESPACE, POD, SLICE, TAINT_RULE
from fakes import feature_cluster, feature_samples
from fakes.allocating_server import AllocatingServer
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER
from unit.cluster_kubelet.quick_cluster import QuickCluster

KEY = "example.com/broken"
OF_SAMPLE = "dra.example.com/unhealthy"


@pytest.fixture
def server() -> AllocatingServer:
    return AllocatingServer()


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    with feature_cluster.running() as running:
        yield running


def _taint(effect: str = "NoSchedule", value: str = "yes", *, ago: float = 0.0) -> Object:
    added = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ago)
    return {"key": KEY, "value": value, "effect": effect, "timeAdded": added.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _tainted(*taints: Json, name: str = "gpu-0") -> Object:
    return {"name": name, "taints": list(taints)}


def _tolerating(*tolerations: Json, **fields: Json) -> Object:
    exactly: Object = {"deviceClassName": objects.CLASS, "tolerations": list(tolerations)}
    return {"name": "gpu", "exactly": exactly | fields}


def _taint_all(api: Api, *taints: Json) -> None:
    """Let the driver taint all devices that it publishes."""
    [published] = api.list(SLICE).items
    for device in json_types.objects(published, "spec", "devices"):
        device["taints"] = list(taints)
    api.update(SLICE, published)


def _run(cluster: QuickCluster, name: str, *tolerations: Json) -> None:
    cluster.create(CLAIM, objects.claim(name, _tolerating(*tolerations)))
    cluster.run(objects.pod(name, claim=name))


def _condition(cluster: QuickCluster, rule: str) -> Object:
    conditions = json_types.objects(cluster.find(TAINT_RULE, rule) or {}, "status", "conditions")
    return next((one for one in conditions if one.get("type") == "EvictionInProgress"), {})


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_tainted_device_is_not_allocated(server: AllocatingServer, effect: str) -> None:
    server.offer(_tainted(_taint(effect)), {"name": "gpu-1"})
    assert [server.take() for _ in range(2)] == [["gpu-1"], []]


@pytest.mark.parametrize(
    "toleration, tolerated",
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": KEY, "operator": "Exists"}, True),
        ({"key": "example.com/other", "operator": "Exists"}, False),
        ({"key": KEY, "operator": "Equal", "value": "yes"}, True),
        ({"key": KEY, "value": "yes"}, True),
        ({"key": KEY, "operator": "Equal", "value": "no"}, False),
    ],
)
def test_a_toleration_matches_effect_key_and_value_and_an_empty_one_matches_all(
    server: AllocatingServer, toleration: Object, *, tolerated: bool
) -> None:
    server.offer(_tainted(_taint()))
    assert bool(server.take(_tolerating(toleration))) is tolerated


def test_all_devices_of_a_node_are_allocated_only_if_each_is_untainted_or_tolerated(server: AllocatingServer) -> None:
    server.offer(_tainted(_taint()), {"name": "gpu-1"})
    assert server.take(objects.request(allocationMode="All")) == []
    assert server.take(_tolerating({"operator": "Exists"}, allocationMode="All")) == ["gpu-0", "gpu-1"]


def test_admin_access_is_not_exempt_from_taints(server: AllocatingServer) -> None:
    labels: Object = {"resource.kubernetes.io/admin-access": "true"}
    server.api.create(NAMESPACE, {"metadata": {"name": "admin", "labels": labels}})
    server.offer(_tainted(_taint()))
    found = []
    for name, request in (
        ("plain", objects.request(adminAccess=True)),
        ("tolerant", _tolerating({"operator": "Exists"}, adminAccess=True)),
    ):
        server.api.create(CLAIM, {"metadata": {"name": name, "namespace": "admin"}, "spec": objects.claim_spec(request)})
        found.append(server.results(name))
    assert [len(results) for results in found] == [0, 1]


def test_no_schedule_stops_new_pods_and_evicts_none(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0", "gpu-1")
    _run(cluster, "p")
    _taint_all(cluster.api, _taint(ago=60))
    cluster.create(CLAIM, objects.claim("q"))
    cluster.create(POD, objects.pod("q", claim="q"))
    cluster.until(lambda: "taint" in cluster.scheduling_message("q"), "the refusal")
    assert cluster.phase("p", "Running")


def test_no_execute_evicts_the_pods_that_do_not_tolerate_it(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0", "gpu-1")
    _run(cluster, "p")
    _run(cluster, "tolerant", {"key": KEY, "operator": "Exists"})
    _taint_all(cluster.api, _taint("NoExecute"))
    cluster.gone(POD, "p")
    cluster.until(lambda: cluster.devices("p") == [], "the deallocation")
    assert cluster.phase("tolerant", "Running")


def test_a_toleration_with_seconds_delays_eviction_from_the_time_of_the_taint(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0", "gpu-1")
    for name, seconds in (("over", 50), ("under", 3600)):
        _run(cluster, name, {"key": KEY, "operator": "Exists", "tolerationSeconds": seconds})
    _taint_all(cluster.api, _taint("NoExecute", ago=60))
    cluster.gone(POD, "over")
    assert cluster.phase("under", "Running")


def test_the_sample_rule_taints_all_devices_of_its_driver_until_it_is_removed(cluster: QuickCluster) -> None:
    driver = "dra.example.com"
    cluster.plugin(name=driver)
    cluster.create(CLASS, objects.device_class("fictional", driver))
    cluster.create(SLICE, objects.resource_slice({"name": "a"}, {"name": "b"}, driver=driver))
    cluster.offer("gpu-0")
    _run(cluster, "bystander")
    for name in ("p", "q"):
        cluster.create(CLAIM, objects.claim(name, {"name": "r", "exactly": {"deviceClassName": "fictional"}}))
        cluster.run(objects.pod(name, claim=name))
    [rule] = feature_samples.apply(cluster.api, "concepts-taint-rule")
    assert json_types.text(rule, "spec", "taint", "key") == OF_SAMPLE
    for name in ("p", "q"):
        cluster.gone(POD, name)
    cluster.create(POD, objects.pod("next", claim="p"))
    cluster.until(lambda: "taint" in cluster.scheduling_message("next"), "the refusal")
    cluster.api.delete(TAINT_RULE, "example")
    cluster.phase("next", "Running")
    assert cluster.phase("bystander", "Running")


@pytest.mark.parametrize(
    "selector, evicted",
    [
        ({"driver": DRIVER}, {"p", "q"}),
        ({"pool": objects.NODE}, {"p", "q"}),
        ({"device": "gpu-1"}, {"q"}),
        ({"driver": DRIVER, "pool": objects.NODE, "device": "gpu-0"}, {"p"}),
    ],
)
def test_a_rule_selects_devices_by_driver_pool_and_device(cluster: QuickCluster, selector: Object, evicted: set[str]) -> None:
    cluster.offer("gpu-0", "gpu-1")
    for name in ("p", "q"):
        _run(cluster, name)
    spec: Object = {"deviceSelector": selector, "taint": {"key": KEY, "effect": "NoExecute"}}
    cluster.create(TAINT_RULE, {"metadata": {"name": "r"}, "spec": spec})
    for name in evicted:
        cluster.gone(POD, name)
    for name in {"p", "q"} - evicted:
        assert cluster.phase(name, "Running")


def test_a_rule_without_a_selector_taints_nothing(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0")
    _run(cluster, "p")
    cluster.create(TAINT_RULE, {"metadata": {"name": "r"}, "spec": {"taint": {"key": KEY, "effect": "NoExecute"}}})
    cluster.until(lambda: _condition(cluster, "r"), "the controller's turn")
    assert cluster.phase("p", "Running")
    assert cluster.devices("p") == ["gpu-0"]


def test_a_rule_may_be_modified_at_any_time(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0", "gpu-1")
    for name in ("p", "q"):
        _run(cluster, name)
    spec: Object = {"deviceSelector": {"device": "gpu-0"}, "taint": {"key": KEY, "effect": "NoExecute"}}
    cluster.create(TAINT_RULE, {"metadata": {"name": "r"}, "spec": spec})
    cluster.gone(POD, "p")
    cluster.until(lambda: _condition(cluster, "r").get("reason") == "Completed", "the rule's status")
    cluster.api.update(TAINT_RULE, cluster.api.get(TAINT_RULE, "r") | {"spec": spec | {"deviceSelector": {"device": "gpu-1"}}})
    cluster.gone(POD, "q")
    _run(cluster, "again")
    assert cluster.devices("again") == ["gpu-0"]
