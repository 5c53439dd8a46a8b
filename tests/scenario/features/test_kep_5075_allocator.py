"""KEP-5075, test plan, allocator, and how devices may change: allocations that the API server takes into the claims' status."""

import pytest

from drakit_cluster.api.registry import Registry
from drakit_cluster.objects import devices, json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, SLICE
from fakes.allocating_server import AllocatingServer
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER

SHARED = "device.allowMultipleAllocations == true"
DEDICATED = "device.allowMultipleAllocations == false"
OFF = FeatureGates.of({"DRAConsumableCapacity": False})


@pytest.fixture
def server() -> AllocatingServer:
    return AllocatingServer()


def _dedicated(name: str, bandwidth: str = "10G") -> Object:
    return {"name": name, "capacity": {"bandwidth": {"value": bandwidth}}}


def _shared(name: str, value: str = "10", policy: Object | None = None) -> Object:
    capacity: Object = {"value": value}
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "capacity": {"bandwidth": capacity | ({"requestPolicy": policy} if policy else {})},
    }


def _selecting(expression: str) -> Object:
    return objects.request(selectors=[{"cel": {"expression": expression}}])


def _wanting(amount: str, name: str = "gpu", **fields: str) -> Object:
    return objects.request(name, capacity={"requests": {"bandwidth": amount}}, **fields)


def test_a_device_that_allows_multiple_allocations_is_allocated_multiple_times(server: AllocatingServer) -> None:
    server.offer(objects.nic("eth0"))
    found = [server.results(server.ask()) for _ in range(3)]
    assert [one["device"] for results in found for one in results] == ["eth0"] * 3
    assert len({one["shareID"] for results in found for one in results}) == 3


def test_two_requests_of_one_claim_may_get_the_same_device(server: AllocatingServer) -> None:
    server.offer(objects.nic("eth0"))
    assert server.take(objects.request("a"), objects.request("b")) == ["eth0", "eth0"]


def test_a_device_that_does_not_allow_multiple_allocations_is_allocated_once(server: AllocatingServer) -> None:
    server.offer(_dedicated("d"))
    [result] = server.results(server.ask())
    assert "shareID" not in result
    assert "consumedCapacity" not in result
    assert server.take() == []


def test_dedicated_devices_are_excluded_with_cel(server: AllocatingServer) -> None:
    server.offer(_dedicated("d"), objects.nic("eth0"))
    assert [server.take(_selecting(SHARED)) for _ in range(2)] == [["eth0"], ["eth0"]]


def test_allocation_is_limited_to_one_kind_of_device_with_cel(server: AllocatingServer) -> None:
    server.offer(objects.nic("eth0"), _dedicated("d"))
    assert server.take(_selecting(DEDICATED)) == ["d"]
    assert server.take(_selecting(DEDICATED)) == []
    assert server.take(_selecting(SHARED)) == ["eth0"]


def test_shared_partitions_draw_their_counters_once_and_their_capacity_each_time(server: AllocatingServer) -> None:
    pool: Object = {"name": objects.NODE, "generation": 1, "resourceSliceCount": 2}
    spec: Object = {"driver": DRIVER, "nodeName": objects.NODE, "pool": pool}
    partitions: list[Object] = [
        _shared(name, "4") | {"consumesCounters": [{"counterSet": "gpu", "counters": {"slices": {"value": "6"}}}]} for name in ("a", "b")
    ]
    counters: Object = {"sharedCounters": [{"name": "gpu", "counters": {"slices": {"value": "8"}}}]}
    devices: Object = {"devices": json_types.from_objects(partitions)}
    for name, content in (("counters", counters), ("devices", devices)):
        server.api.create(SLICE, {"metadata": {"name": name}, "spec": spec | content})
    assert [server.take(_wanting("2")) for _ in range(2)] == [["a"], ["a"]]
    assert server.take(_wanting("1")) == []


def test_consumed_capacity_is_gathered_from_allocated_claims(server: AllocatingServer) -> None:
    server.offer(_shared("eth0"))
    assert [server.consume(amount) for amount in ("4", "5", "2", "1", "1")] == ["4", "5", "", "1", ""]


def test_devices_of_a_claim_count_for_its_further_requests_and_are_released_with_it(server: AllocatingServer) -> None:
    server.offer(_shared("eth0"))
    assert server.take(_wanting("6", "a"), _wanting("5", "b")) == []
    name = server.ask(_wanting("6", "a"), _wanting("4", "b"))
    assert [json_types.text(one, "consumedCapacity", "bandwidth") for one in server.results(name)] == ["6", "4"]
    assert server.consume("1") == ""
    server.release(name)
    assert server.consume("10") == "10"


@pytest.mark.parametrize(
    "asked, consumed",
    [(None, "4"), ("0", "2"), ("1", "2"), ("2", "2"), ("3", "4"), ("7", "8"), ("8", "8"), ("9", "")],
)
def test_a_request_is_rounded_up_by_range_and_step(server: AllocatingServer, asked: str | None, consumed: str) -> None:
    server.offer(_shared("eth0", "10", {"default": "4", "validRange": {"min": "2", "max": "8", "step": "2"}}))
    assert server.consume(asked) == consumed


@pytest.mark.parametrize("asked, consumed", [(None, "2"), ("1", "1"), ("3", "5"), ("5", "5"), ("6", "")])
def test_a_request_is_rounded_up_to_a_valid_value(server: AllocatingServer, asked: str | None, consumed: str) -> None:
    server.offer(_shared("eth0", "10", {"default": "2", "validValues": ["1", "2", "5"]}))
    assert server.consume(asked) == consumed


@pytest.mark.parametrize("asked, consumed", [(None, "10"), ("3", "3"), ("11", "")])
def test_without_a_policy_the_request_is_consumed_and_without_a_request_all(
    server: AllocatingServer, asked: str | None, consumed: str
) -> None:
    server.offer(_shared("eth0", "10"))
    assert server.consume(asked) == consumed


def test_a_requested_capacity_of_a_dedicated_device_is_a_lower_bound(server: AllocatingServer) -> None:
    server.offer(_dedicated("small", "5G"), _dedicated("large", "20G"))
    [result] = server.results(server.ask(_wanting("10G")))
    assert (result["device"], "consumedCapacity" in result) == ("large", False)
    assert server.take(_wanting("10G")) == []
    assert server.take(_wanting("5G")) == ["small"]


def test_the_capacity_of_subrequests_decides_which_is_first_available(server: AllocatingServer) -> None:
    server.offer(_shared("eth0", "10"))
    subs: list[Object] = [
        {"name": name, "deviceClassName": objects.CLASS, "capacity": {"requests": {"bandwidth": amount}}}
        for name, amount in (("fast", "8"), ("slow", "2"))
    ]
    listed: Object = {"name": "nic", "firstAvailable": json_types.from_objects(subs)}
    found = [server.results(server.ask(listed))[0] for _ in range(2)]
    assert [one["request"] for one in found] == ["nic/fast", "nic/slow"]
    assert [one["consumedCapacity"] for one in found] == [{"bandwidth": "8"}, {"bandwidth": "2"}]
    assert server.take(listed) == []


def _ports(*ports_: str) -> list[Object]:
    return [objects.nic(f"eth{place}") | {"attributes": {"port": {"string": port}}} for place, port in enumerate(ports_)]


def _distinct(*names: str) -> tuple[Object, ...]:
    return ({"requests": list(names), "distinctAttribute": f"{DRIVER}/port"},)


def test_a_distinct_constraint_prevents_allocating_the_same_device_twice(server: AllocatingServer) -> None:
    server.offer(*_ports("p0"))
    assert server.take(objects.request("a"), objects.request("b"), constraints=_distinct("a", "b")) == []
    assert server.take(objects.request("a", count=2), constraints=_distinct("a")) == []
    assert server.take(objects.request("a"), objects.request("b")) == ["eth0", "eth0"]


def test_a_distinct_constraint_allows_different_devices(server: AllocatingServer) -> None:
    server.offer(*_ports("p0", "p0", "p1"))
    assert server.take(objects.request("a"), objects.request("b"), constraints=_distinct("a", "b")) == ["eth0", "eth2"]
    assert server.take(objects.request("a", count=2), constraints=_distinct("a")) == ["eth0", "eth2"]


def test_where_a_constraint_has_both_attributes_the_match_decides(server: AllocatingServer) -> None:
    server.offer(*_ports("p0", "p1", "p1"))
    both: Object = {"matchAttribute": f"{DRIVER}/port", "distinctAttribute": f"{DRIVER}/port"}
    assert server.take(objects.request(count=2, selectors=[{"cel": {"expression": SHARED}}]), constraints=(both,)) == ["eth1", "eth2"]


def test_a_shared_device_without_capacity_is_allocated_without_limit(server: AllocatingServer) -> None:
    server.offer({"name": "eth0", "allowMultipleAllocations": True})
    found = [server.results(server.ask())[0] for _ in range(30)]
    assert {one["device"] for one in found} == {"eth0"}
    assert not any("consumedCapacity" in one for one in found)


def test_a_policy_of_zero_shares_a_capacity_without_limit_and_is_recorded(server: AllocatingServer) -> None:
    server.offer(_shared("eth0", "1", {"default": "0", "validValues": ["0"]}))
    assert [server.consume(amount) for amount in (None, None, "0", "1")] == ["0", "0", "0", ""]


def test_a_dedicated_device_that_becomes_shared_stays_dedicated_until_it_is_released(server: AllocatingServer) -> None:
    server.offer(_dedicated("d"))
    holder = server.ask()
    assert server.results(holder)
    server.offer(_shared("d"), generation=2)
    assert server.consume("1") == ""
    server.release(holder)
    assert [server.consume("1"), server.consume("1")] == ["1", "1"]


def test_a_shared_device_that_becomes_dedicated_keeps_its_claims_and_accepts_no_more(server: AllocatingServer) -> None:
    server.offer(_shared("d"))
    holder = server.ask(_wanting("1"))
    before = server.results(holder)
    server.offer(_dedicated("d"), generation=2)
    assert server.take() == []
    assert json_types.objects(server.api.get(CLAIM, holder, "default"), "status", "allocation", "devices", "results") == before
    server.release(holder)
    assert server.take() == ["d"]


def test_a_changed_request_policy_applies_to_future_allocations_alone(server: AllocatingServer) -> None:
    server.offer(_shared("eth0", "10"))
    holder = server.ask(_wanting("3"))
    assert server.results(holder)[0]["consumedCapacity"] == {"bandwidth": "3"}
    server.offer(_shared("eth0", "10", {"default": "5", "validValues": ["5"]}), generation=2)
    assert [server.consume("3"), server.consume("3")] == ["5", ""]
    server.offer(_shared("eth0", "10"), generation=3)
    assert [server.consume("3"), server.consume("2")] == ["", "2"]
    held = json_types.objects(server.api.get(CLAIM, holder, "default"), "status", "allocation", "devices", "results")
    assert held[0]["consumedCapacity"] == {"bandwidth": "3"}


def test_an_older_scheduler_refuses_claims_that_request_capacity(server: AllocatingServer) -> None:
    server.offer(_shared("eth0", "10"))
    wanted = server.ask(_wanting("1"))
    server.gates = OFF
    with pytest.raises(devices.AllocationError, match="feature DRAConsumableCapacity is off"):
        server.results(wanted)


def test_an_older_scheduler_ignores_what_makes_a_device_shared(server: AllocatingServer) -> None:
    server.offer(_shared("eth0", "10", {"default": "1"}))
    server.gates = OFF
    [result] = server.results(server.ask())
    assert result["device"] == "eth0"
    assert not {"shareID", "consumedCapacity"} & set(result)
    assert server.take() == []


def test_with_an_older_api_server_the_scheduler_works_without_the_fields() -> None:
    server = AllocatingServer(Registry(gates=OFF))
    server.offer(_shared("eth0", "10", {"default": "1"}))
    [result] = server.results(server.ask(_wanting("1")))
    assert not {"shareID", "consumedCapacity"} & set(result)
    assert server.take(_wanting("1")) == []


def test_a_scheduler_with_the_gate_off_keeps_shares_and_offers_their_device_to_none(server: AllocatingServer) -> None:
    server.offer(_shared("eth0", "10"))
    first = server.ask(_wanting("1"))
    before = server.results(first)
    server.gates = OFF
    assert server.take() == []
    assert json_types.objects(server.api.get(CLAIM, first, "default"), "status", "allocation", "devices", "results") == before
    server.gates = FeatureGates()
    assert [server.consume("9"), server.consume("1")] == ["9", ""]
