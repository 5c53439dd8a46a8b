"""The concepts page, device taints and tolerations: on a desk where only allocation matters, on a running cluster for eviction."""

import datetime
from collections.abc import Iterator

import pytest

from drakit_cluster.client.api import Api
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLASS, NAMESPACE, POD, SLICE, TAINT_RULE
from fakes import feature_samples, feature_town
from fakes.feature_desk import Desk
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER
from unit.cluster_kubelet.town import Town

KEY = "example.com/broken"
OF_SAMPLE = "dra.example.com/unhealthy"


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def town() -> Iterator[Town]:
    with feature_town.running() as running:
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


def _run(town: Town, name: str, *tolerations: Json) -> None:
    town.create(CLAIM, objects.claim(name, _tolerating(*tolerations)))
    town.run(objects.pod(name, claim=name))


def _condition(town: Town, rule: str) -> Object:
    conditions = json_types.objects(town.find(TAINT_RULE, rule) or {}, "status", "conditions")
    return next((one for one in conditions if one.get("type") == "EvictionInProgress"), {})


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_tainted_device_is_not_allocated(desk: Desk, effect: str) -> None:
    desk.offer(_tainted(_taint(effect)), {"name": "gpu-1"})
    assert [desk.take() for _ in range(2)] == [["gpu-1"], []]


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
def test_a_toleration_matches_effect_key_and_value_and_an_empty_one_matches_all(desk: Desk, toleration: Object, *, tolerated: bool) -> None:
    desk.offer(_tainted(_taint()))
    assert bool(desk.take(_tolerating(toleration))) is tolerated


def test_all_devices_of_a_node_are_allocated_only_if_each_is_untainted_or_tolerated(desk: Desk) -> None:
    desk.offer(_tainted(_taint()), {"name": "gpu-1"})
    assert desk.take(objects.request(allocationMode="All")) == []
    assert desk.take(_tolerating({"operator": "Exists"}, allocationMode="All")) == ["gpu-0", "gpu-1"]


def test_admin_access_is_not_exempt_from_taints(desk: Desk) -> None:
    labels: Object = {"resource.kubernetes.io/admin-access": "true"}
    desk.api.create(NAMESPACE, {"metadata": {"name": "admin", "labels": labels}})
    desk.offer(_tainted(_taint()))
    found = []
    for name, request in (
        ("plain", objects.request(adminAccess=True)),
        ("tolerant", _tolerating({"operator": "Exists"}, adminAccess=True)),
    ):
        desk.api.create(CLAIM, {"metadata": {"name": name, "namespace": "admin"}, "spec": objects.claim_spec(request)})
        found.append(desk.results(name))
    assert [len(results) for results in found] == [0, 1]


def test_no_schedule_keeps_new_pods_away_and_evicts_none(town: Town) -> None:
    town.offer("gpu-0", "gpu-1")
    _run(town, "p")
    _taint_all(town.api, _taint(ago=60))
    town.create(CLAIM, objects.claim("q"))
    town.create(POD, objects.pod("q", claim="q"))
    town.until(lambda: "taint" in town.scheduling_message("q"), "the refusal")
    assert town.phase("p", "Running")


def test_no_execute_evicts_the_pods_that_do_not_tolerate_it(town: Town) -> None:
    town.offer("gpu-0", "gpu-1")
    _run(town, "p")
    _run(town, "tolerant", {"key": KEY, "operator": "Exists"})
    _taint_all(town.api, _taint("NoExecute"))
    town.gone(POD, "p")
    town.until(lambda: town.devices("p") == [], "the deallocation")
    assert town.phase("tolerant", "Running")


def test_a_toleration_with_seconds_delays_eviction_from_the_time_of_the_taint(town: Town) -> None:
    town.offer("gpu-0", "gpu-1")
    for name, seconds in (("over", 50), ("under", 3600)):
        _run(town, name, {"key": KEY, "operator": "Exists", "tolerationSeconds": seconds})
    _taint_all(town.api, _taint("NoExecute", ago=60))
    town.gone(POD, "over")
    assert town.phase("under", "Running")


def test_the_sample_rule_taints_all_devices_of_its_driver_until_it_is_removed(town: Town) -> None:
    driver = "dra.example.com"
    town.plugin(name=driver)
    town.create(CLASS, objects.device_class("fictional", driver))
    town.create(SLICE, objects.resource_slice({"name": "a"}, {"name": "b"}, driver=driver))
    town.offer("gpu-0")
    _run(town, "bystander")
    for name in ("p", "q"):
        town.create(CLAIM, objects.claim(name, {"name": "r", "exactly": {"deviceClassName": "fictional"}}))
        town.run(objects.pod(name, claim=name))
    [rule] = feature_samples.apply(town.api, "concepts-taint-rule")
    assert json_types.text(rule, "spec", "taint", "key") == OF_SAMPLE
    for name in ("p", "q"):
        town.gone(POD, name)
    town.create(POD, objects.pod("next", claim="p"))
    town.until(lambda: "taint" in town.scheduling_message("next"), "the refusal")
    town.api.delete(TAINT_RULE, "example")
    town.phase("next", "Running")
    assert town.phase("bystander", "Running")


@pytest.mark.parametrize(
    "selector, evicted",
    [
        ({"driver": DRIVER}, {"p", "q"}),
        ({"pool": objects.NODE}, {"p", "q"}),
        ({"device": "gpu-1"}, {"q"}),
        ({"driver": DRIVER, "pool": objects.NODE, "device": "gpu-0"}, {"p"}),
    ],
)
def test_a_rule_selects_devices_by_driver_pool_and_device(town: Town, selector: Object, evicted: set[str]) -> None:
    town.offer("gpu-0", "gpu-1")
    for name in ("p", "q"):
        _run(town, name)
    spec: Object = {"deviceSelector": selector, "taint": {"key": KEY, "effect": "NoExecute"}}
    town.create(TAINT_RULE, {"metadata": {"name": "r"}, "spec": spec})
    for name in evicted:
        town.gone(POD, name)
    for name in {"p", "q"} - evicted:
        assert town.phase(name, "Running")


def test_a_rule_without_a_selector_taints_nothing(town: Town) -> None:
    town.offer("gpu-0")
    _run(town, "p")
    town.create(TAINT_RULE, {"metadata": {"name": "r"}, "spec": {"taint": {"key": KEY, "effect": "NoExecute"}}})
    town.until(lambda: _condition(town, "r"), "the controller's turn")
    assert town.phase("p", "Running")
    assert town.devices("p") == ["gpu-0"]


def test_a_rule_may_be_modified_at_any_time(town: Town) -> None:
    town.offer("gpu-0", "gpu-1")
    for name in ("p", "q"):
        _run(town, name)
    spec: Object = {"deviceSelector": {"device": "gpu-0"}, "taint": {"key": KEY, "effect": "NoExecute"}}
    town.create(TAINT_RULE, {"metadata": {"name": "r"}, "spec": spec})
    town.gone(POD, "p")
    town.until(lambda: _condition(town, "r").get("reason") == "Completed", "the rule's status")
    town.api.update(TAINT_RULE, town.api.get(TAINT_RULE, "r") | {"spec": spec | {"deviceSelector": {"device": "gpu-1"}}})
    town.gone(POD, "q")
    _run(town, "again")
    assert town.devices("again") == ["gpu-0"]
