"""ResourcePoolStatusRequests: what pools have, counted once and kept for a while."""

import datetime

import pytest

from drakit_cluster.api.registry import Registry
from drakit_cluster.api.storage.store import Key
from drakit_cluster.controllers import pool_requests
from drakit_cluster.controllers.pool_requests import ANSWERED_FOR, WAITING_FOR, PoolCounter
from drakit_cluster.objects import json_types, naming
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, POOL_STATUS_REQUEST, SLICE, TAINT_RULE
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER
from unit.cluster_kubelet.town import Town

SECOND = datetime.timedelta(seconds=1)
BROKEN: Object = {"key": "example.com/broken", "effect": "NoSchedule"}


def request(**spec: Json) -> Object:
    return {"metadata": {"name": "q"}, "spec": {"driver": DRIVER, "limit": 100, **spec}}


def published(*devices: Object, pool: str = "n1", node: str = "n1", generation: int = 1, count: int = 1) -> Object:
    place: Object = {"nodeName": node} if node else {"allNodes": True}
    known: Object = {"name": pool, "generation": generation, "resourceSliceCount": count}
    return {"spec": {"driver": DRIVER, "pool": known, "devices": json_types.from_objects(devices), **place}}


def device(name: str, *effects: str) -> Object:
    return {"name": name, "taints": [{"key": "example.com/x", "effect": effect} for effect in effects]}


def held(*devices: str, pool: str = "n1", **more: Json) -> Object:
    results: list[Json] = [{"request": "r", "driver": DRIVER, "pool": pool, "device": one, **more} for one in devices]
    return {"status": {"allocation": {"devices": {"results": results}}}}


def counts(slices: list[Object], claims: list[Object], rules: list[Object], **spec: Json) -> list[Object]:
    status = pool_requests.answer_to(request(**spec), slices, claims, rules)
    assert status is not None
    return json_types.objects(status, "pools")


def numbers(pool: Object) -> list[Json]:
    return [pool[f"{kind}Devices"] for kind in ("total", "allocated", "unavailable", "available")]


def test_allocated_devices_count_once_and_admin_access_not_at_all() -> None:
    claims = [held("a"), held("a"), held("b", adminAccess=True), held("c", pool="other")]
    [pool] = counts([published(device("a"), device("b"), device("c"))], claims, [])
    assert numbers(pool) == [3, 1, 0, 2]
    assert (pool["driver"], pool["poolName"], pool["nodeName"], pool["resourceSliceCount"]) == (DRIVER, "n1", "n1", 1)


def test_devices_with_a_taint_that_keeps_pods_away_are_unavailable() -> None:
    slices = [published(device("a", "NoSchedule"), device("b", "NoExecute", "NoSchedule"), device("c", "None"), device("d"))]
    assert numbers(counts(slices, [], [])[0]) == [4, 0, 2, 2]
    rule: Object = {"spec": {"deviceSelector": {"device": "d"}, "taint": BROKEN}}
    assert numbers(counts(slices, [], [rule])[0]) == [4, 0, 3, 1]


def test_only_the_highest_generation_counts_and_pools_are_in_order() -> None:
    slices = [
        published(device("a"), pool="z", node="", generation=2),
        published(device("a"), device("b"), pool="z", generation=1, count=7),
        published(device("a"), pool="m", count=2),
        published(device("b"), pool="m", node="n2", count=2),
    ]
    first, second = counts(slices, [], [])
    assert [(one["poolName"], one["totalDevices"], one["generation"]) for one in (first, second)] == [("m", 2, 1), ("z", 1, 2)]
    assert "nodeName" not in first | second


def test_the_limit_shortens_the_list_and_the_count_stays() -> None:
    slices = [published(device("a"), pool=name) for name in "abc"]
    status = pool_requests.answer_to(request(limit=2), slices, [], []) or {}
    assert (status["poolCount"], len(json_types.objects(status, "pools"))) == (3, 2)
    assert [one["poolName"] for one in counts(slices, [], [], poolName="b")] == ["b"]
    nothing = pool_requests.answer_to(request(driver="other.example.com"), slices, [], []) or {}
    assert nothing["poolCount"] == 0
    assert "pools" not in nothing


def test_a_request_is_answered_by_the_cluster(town: Town) -> None:
    town.plugin()
    town.offer("gpu-0", "gpu-1", "gpu-2")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))
    town.create(TAINT_RULE, {"metadata": {"name": "r"}, "spec": {"deviceSelector": {"device": "gpu-2"}, "taint": BROKEN}})
    town.create(POOL_STATUS_REQUEST, {"metadata": {"name": "q"}, "spec": {"driver": DRIVER}})
    town.until(lambda: "status" in (town.find(POOL_STATUS_REQUEST, "q") or {}), "the answer")
    answered = town.find(POOL_STATUS_REQUEST, "q")
    assert numbers(json_types.objects(answered, "status", "pools")[0]) == [3, 1, 1, 1]
    assert json_types.text(answered, "status", "conditions", 0, "type") == "Complete"


def test_an_incomplete_pool_is_waited_for(town: Town) -> None:
    town.create(SLICE, {"metadata": {"name": "one"}, **published(device("a"), count=2)})
    town.create(POOL_STATUS_REQUEST, {"metadata": {"name": "q"}, "spec": {"driver": DRIVER}})
    town.create(POOL_STATUS_REQUEST, {"metadata": {"name": "other"}, "spec": {"driver": DRIVER, "poolName": "else"}})
    town.until(lambda: "status" in (town.find(POOL_STATUS_REQUEST, "other") or {}), "the answer to a later request")
    assert "status" not in (town.find(POOL_STATUS_REQUEST, "q") or {})
    town.create(SLICE, {"metadata": {"name": "two"}, **published(device("b"), count=2)})
    town.until(lambda: "status" in (town.find(POOL_STATUS_REQUEST, "q") or {}), "the answer")


@pytest.mark.parametrize("complete, kept", [(True, ANSWERED_FOR), (False, WAITING_FOR)])
def test_requests_are_deleted_after_a_while(complete: bool, kept: datetime.timedelta) -> None:  # noqa: FBT001
    present = [naming.present()]
    api = Registry()
    counter = PoolCounter(api, with_rules=True, now=lambda: present[0])
    api.create(SLICE, {"metadata": {"name": "one"}, **published(device("a"), count=1 if complete else 2)})
    api.create(POOL_STATUS_REQUEST, request())
    counter.check(Key("", "q"))
    assert len(counter.waiting) == (not complete)
    present[0] += kept - 10 * SECOND
    assert 0 < (counter.act() or 0) <= 11
    assert api.get(POOL_STATUS_REQUEST, "q")
    present[0] += 11 * SECOND
    assert counter.act() is None
    assert api.list(POOL_STATUS_REQUEST).items == []
    assert counter.waiting == set()
