"""ResourcePoolStatusRequests (KEP-5677): a request gets one answer with the counts of each pool, and goes away in time."""

import datetime

import pytest

from drakit_cluster.api import registry
from drakit_cluster.api.storage.watching import EventType
from drakit_cluster.client.informer import Change, key_of
from drakit_cluster.controllers import pool_status
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, NAMESPACE, POOL_STATUS_REQUEST, SLICE, TAINT_RULE, Resource
from fakes import feature_cluster, waits
from unit.cluster_kubelet.quick_cluster import QuickCluster

DRIVER = "gpu.example.com"
PROFILE = f"{DRIVER}/profile"
EVERY = FeatureGates.of({Gate.PARTITION_TYPE: True})


def published(name: str, *devices: Object, pool: str = "node-1", count: int = 1, **spec: Json) -> Object:
    made: Object = {"name": pool, "generation": 1, "resourceSliceCount": count}
    fields: Object = {"driver": DRIVER, "pool": made, "nodeName": "node-1", "devices": json_types.from_objects(devices)}
    return {"metadata": {"name": name}, "spec": {key: value for key, value in (fields | spec).items() if value != []}}


def partition(name: str, profile: str, memory: str, counter_set: str = "gpu-0") -> Object:
    return {
        "name": name,
        "attributes": {"profile": {"string": profile}},
        "consumesCounters": [{"counterSet": counter_set, "counters": {"memory": {"value": memory}}}],
    }


def counters(memory: str = "80Gi", *names: str) -> Json:
    return [{"name": name, "counters": {"memory": {"value": memory}}} for name in names or ("gpu-0",)]


def allocated(memory: registry.Registry, name: str, *results: Object, namespace: str = "default") -> None:
    request: Object = {"name": "r", "exactly": {"deviceClassName": "any"}}
    claim = memory.create(CLAIM, {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}, namespace=namespace)
    full: list[Json] = [{"request": "r", "driver": DRIVER, "pool": "node-1", **result} for result in results]
    memory.update(CLAIM, claim | {"status": {"allocation": {"devices": {"results": full}}}}, subresource="status")


class Desk:
    """A store with the controller, whose time the test sets."""

    def __init__(self, gates: FeatureGates = EVERY) -> None:
        self.memory = registry.Registry(gates=gates)
        self.now = datetime.datetime.now(datetime.UTC)
        self.writer = pool_status.PoolStatusWriter(self.memory, gates, lambda: self.now)

    def ask(self, name: str = "q", **spec: Json) -> Object:
        """Return the request after the controller saw it."""
        made = self.memory.create(POOL_STATUS_REQUEST, {"metadata": {"name": name}, "spec": {"driver": DRIVER, **spec}})
        self.observe(made)
        return self.stored(name)

    def observe(self, obj: Object, *, resource: Resource = POOL_STATUS_REQUEST) -> None:
        change = Change(resource=resource, type=EventType.ADDED, object=obj)
        for key in self.writer.observe(change):
            self.writer.check(key)

    def stored(self, name: str = "q") -> Object:
        return self.memory.get(POOL_STATUS_REQUEST, name)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def pools(request: Object) -> list[Object]:
    return json_types.objects(request, "status", "pools")


def test_a_running_cluster_answers_with_the_counts_of_each_pool() -> None:
    with feature_cluster.running() as cluster:
        cluster.api.create(SLICE, published("s-0", {"name": "a"}, {"name": "b"}))
        cluster.api.create(POOL_STATUS_REQUEST, {"metadata": {"name": "q"}, "spec": {"driver": DRIVER}})
        assert waits.eventually(lambda: "status" in cluster.api.get(POOL_STATUS_REQUEST, "q"))
        status = json_types.mapping(cluster.api.get(POOL_STATUS_REQUEST, "q"), "status")
    assert status["poolCount"] == 1
    counts: Object = {"totalDevices": 2, "allocatedDevices": 0, "availableDevices": 2, "unavailableDevices": 0}
    assert status["pools"] == [
        {"driver": DRIVER, "poolName": "node-1", "nodeName": "node-1", "generation": 1, "resourceSliceCount": 1, **counts}
    ]
    assert json_types.at(status, "conditions", 0, "type") == "Complete"


def test_allocated_devices_count_once_and_admin_access_not_at_all(desk: Desk) -> None:
    desk.memory.create(SLICE, published("s-0", {"name": "a"}, {"name": "b"}, {"name": "c"}))
    allocated(desk.memory, "c1", {"device": "a"})
    desk.memory.create(NAMESPACE, {"metadata": {"name": "admins", "labels": {"resource.kubernetes.io/admin-access": "true"}}})
    allocated(desk.memory, "c2", {"device": "b", "adminAccess": True}, namespace="admins")
    allocated(desk.memory, "c3", {"device": "a"})
    (pool,) = pools(desk.ask())
    assert (pool["allocatedDevices"], pool["availableDevices"]) == (1, 2)


@pytest.mark.parametrize("version, unavailable, available", [("1.36", 0, 3), ("1.37", 2, 1)])
def test_taints_of_drivers_and_rules_count_since_1_37(version: str, unavailable: int, available: int) -> None:
    gates = {Gate.RESOURCE_POOL_STATUS: True, Gate.DEVICE_TAINT_RULES: True}
    desk = Desk(FeatureGates.of({gate.value: state for gate, state in gates.items()}, version))
    taint: Object = {"key": "example.com/broken", "effect": "NoSchedule"}
    desk.memory.create(SLICE, published("s-0", {"name": "a", "taints": [taint]}, {"name": "b"}, {"name": "c"}))
    desk.memory.create(TAINT_RULE, {"metadata": {"name": "r"}, "spec": {"deviceSelector": {"device": "b"}, "taint": dict(taint)}})
    (pool,) = pools(desk.ask())
    assert (pool["unavailableDevices"], pool["availableDevices"]) == (unavailable, available)


def test_pools_are_filtered_sorted_and_limited(desk: Desk) -> None:
    for name in ("node-3", "node-1", "node-2"):
        desk.memory.create(SLICE, published(f"s-{name}", {"name": "a"}, pool=name))
    limited, named = desk.ask("limited", limit=2), desk.ask("named", poolName="node-2")
    assert ([pool["poolName"] for pool in pools(limited)], json_types.at(limited, "status", "poolCount")) == (["node-1", "node-2"], 3)
    assert [pool["poolName"] for pool in pools(named)] == ["node-2"]
    nothing = desk.memory.create(POOL_STATUS_REQUEST, {"metadata": {"name": "none"}, "spec": {"driver": "other.example.com"}})
    desk.observe(nothing)
    assert (json_types.at(desk.stored("none"), "status", "poolCount"), pools(desk.stored("none"))) == (0, [])


def test_a_request_waits_for_the_missing_slices_of_a_pool(desk: Desk) -> None:
    desk.memory.create(SLICE, published("s-0", {"name": "a"}, count=2))
    assert "status" not in desk.ask()
    desk.observe(desk.memory.create(SLICE, published("s-1", {"name": "b"}, count=2)), resource=SLICE)
    (pool,) = pools(desk.stored())
    assert (pool["resourceSliceCount"], pool["totalDevices"]) == (2, 2)


def test_an_answer_is_final_and_the_spec_cannot_change(desk: Desk) -> None:
    desk.memory.create(SLICE, published("s-0", {"name": "a"}))
    answered = desk.ask()
    desk.memory.create(SLICE, published("s-1", {"name": "a"}, pool="node-2"))
    desk.observe(answered)
    assert desk.stored() == answered
    with pytest.raises(errors.InvalidError):
        desk.memory.update(POOL_STATUS_REQUEST, answered | {"spec": {"driver": DRIVER, "limit": 3}})
    with pytest.raises(errors.InvalidError):
        desk.memory.update(POOL_STATUS_REQUEST, answered | {"status": {"poolCount": 7}}, subresource="status")


def test_partitions_of_equal_cost_are_counted_by_what_the_counters_allow(desk: Desk) -> None:
    halves, quarters = [partition(f"h{n}", "half", "40Gi") for n in range(2)], [partition(f"q{n}", "quarter", "20Gi") for n in range(4)]
    desk.memory.create(SLICE, published("s-0", sharedCounters=counters(), count=2))
    desk.memory.create(SLICE, published("s-1", *halves, *quarters, count=2, partitionTypeAttribute=PROFILE))
    allocated(desk.memory, "c", {"device": "q0"})
    (pool,) = pools(desk.ask())
    assert pool["partitionSummary"] == [
        {"attribute": PROFILE, "type": "half", "total": 2, "allocatable": 1},
        {"attribute": PROFILE, "type": "quarter", "total": 4, "allocatable": 3},
    ]
    assert pool["availableDevices"] == 5  # Of which three fit at most: the plain count ignores counters.


def test_a_request_may_name_the_attribute_for_drivers_that_do_not(desk: Desk) -> None:
    desk.memory.create(SLICE, published("s-0", sharedCounters=counters(), count=2))
    desk.memory.create(SLICE, published("s-1", partition("h0", "half", "40Gi"), count=2))
    (plain,), (named,) = pools(desk.ask("plain")), pools(desk.ask("named", defaultPartitionTypeAttribute=PROFILE))
    assert "partitionSummary" not in plain
    assert json_types.at(named, "partitionSummary", 0, "allocatable") == 1


@pytest.mark.parametrize(
    "devices, prefix",
    [
        ([partition("a", "half", "40Gi"), partition("b", "half", "30Gi")], "PartitionCostMismatch:"),
        ([partition("a", "half", "40Gi"), partition("b", "half", "40Gi", "gpu-1")], "PartitionCostMismatch:"),
        ([partition("a", "half", "40Gi"), partition("b", "half", "40Gi") | {"attributes": {}}], "PartitionTypeMissing:"),
        ([partition(f"d{n}", f"kind-{n}", "1Gi") for n in range(33)], "PartitionSummaryOverCap:"),
    ],
)
def test_a_pool_that_cannot_be_summed_up_says_why_and_keeps_its_counts(desk: Desk, devices: list[Object], prefix: str) -> None:
    desk.memory.create(SLICE, published("s-0", sharedCounters=counters("80Gi", "gpu-0", "gpu-1"), count=2))
    desk.memory.create(SLICE, published("s-1", *devices, count=2))
    request = desk.ask(defaultPartitionTypeAttribute=PROFILE)
    (pool,) = pools(request)
    assert json_types.text(pool, "validationError").startswith(prefix)
    assert ("partitionSummary" in pool, pool["totalDevices"]) == (False, len(devices))
    assert "with a validation error: 1" in json_types.text(request, "status", "conditions", 0, "message")


def test_without_its_gate_the_default_attribute_is_dropped() -> None:
    desk = Desk(FeatureGates.of({Gate.PARTITION_TYPE.value: False}))
    assert json_types.mapping(desk.ask(defaultPartitionTypeAttribute=PROFILE), "spec").keys() == {"driver", "limit"}


def test_a_default_attribute_needs_its_domain(desk: Desk) -> None:
    with pytest.raises(errors.InvalidError, match="defaultPartitionTypeAttribute"):
        desk.ask(defaultPartitionTypeAttribute="profile")


def test_shareable_devices_have_the_sums_of_their_capacities(desk: Desk) -> None:
    shared: list[Object] = [
        {"name": name, "allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}} for name in ("a", "b")
    ]
    desk.memory.create(SLICE, published("s-0", *shared))
    share: Object = {"device": "a", "shareID": "6cf8db2d-06c0-4d70-9a51-e59b25b2c16c", "consumedCapacity": {"memory": "10Gi"}}
    allocated(desk.memory, "c", share)
    (pool,) = pools(desk.ask())
    assert pool["shareableSummary"] == {
        "fullyAvailableDevices": 1,
        "partiallyAvailableDevices": 1,
        "capacity": [{"name": "memory", "total": "80Gi", "consumed": "10Gi", "available": "70Gi"}],
    }


def test_answered_requests_go_after_an_hour_and_pending_ones_after_a_day(desk: Desk) -> None:
    desk.memory.create(SLICE, published("s-0", {"name": "a"}, count=2))
    pending = desk.ask("pending")
    desk.memory.create(SLICE, published("s-9", {"name": "a"}, pool="node-9"))
    desk.observe(desk.ask("answered", poolName="node-9"))
    desk.now += datetime.timedelta(minutes=59)
    assert desk.writer.act() == pytest.approx(60, abs=5)
    desk.now += datetime.timedelta(minutes=2)
    desk.writer.act()
    assert [key_of(request) for request in desk.memory.list(POOL_STATUS_REQUEST).items] == [key_of(pending)]
    desk.now += datetime.timedelta(days=1)
    desk.writer.act()
    assert desk.memory.list(POOL_STATUS_REQUEST).items == []


def test_with_its_gate_off_the_kind_is_not_served() -> None:
    gates = FeatureGates.of({Gate.RESOURCE_POOL_STATUS.value: False})
    with feature_cluster.running(gates=gates) as cluster, pytest.raises(errors.NotFoundError):
        _create(cluster)


def _create(cluster: QuickCluster) -> None:
    cluster.api.create(POOL_STATUS_REQUEST, {"metadata": {"name": "q"}, "spec": {"driver": DRIVER}})
