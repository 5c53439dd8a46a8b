"""What keeps claims from fitting is told by request, grouped by cause, with the devices and who has them."""

from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import DeviceId
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.scheduling.explain import obstacles
from drakit_cluster.scheduling.explain.obstacles import Obstacle
from drakit_cluster.scheduling.explain.wording import Holders
from fakes.allocation_objects import (
    ALL_FEATURES,
    CLASSES,
    NODE,
    bandwidth,
    claim,
    device,
    partitioned,
    request,
    resource_slice,
    shared,
    strings,
)
from fakes.simple_selectors import SimpleSelectors

SIZES = {"set.slice-0": "1", "set.slice-1": "1", "set.memory": "4"}


def found(slices: list[Object], *claims: Object, used: AllocatedState | None = None, holders: Holders | None = None) -> list[Obstacle]:
    allocator = Allocator(slices, CLASSES, SimpleSelectors(), ALL_FEATURES)
    problem = allocator.problem(claims=claims, node=NODE, allocated=used or AllocatedState())
    return obstacles.find(problem, holders or {})


def by_reason(obstacle: Obstacle) -> dict[str, list[str]]:
    """Return the names of the devices by the cause."""
    return {group.text: [device.rpartition("/")[2] for device in group.devices] for group in obstacle.groups}


def test_devices_that_lack_a_counter_form_one_group_naming_the_claim_that_took_it() -> None:
    devices = [
        device("small", draws={"set.slice-0": "1"}),
        *(device(f"large-{number}", draws={"set.slice-0": "1", "set.slice-1": "1"}) for number in range(7)),
    ]
    used = AllocatedState()
    used.hold(DeviceId("drv", "pool", "small"))
    holders = {DeviceId("drv", "pool", "small"): ["claim ns/x"]}
    (obstacle,) = found(partitioned(devices, SIZES), claim(request()), used=used, holders=holders)
    assert (obstacle.request, obstacle.text) == ("r", "needs 1 device, none available")
    assert by_reason(obstacle) == {
        "taken by claim ns/x": ["small"],
        "counter slice-0 of set: 1 needed, none of 1 left, taken by claim ns/x": [f"large-{number}" for number in range(7)],
    }


def test_selectors_taints_and_capacity_are_named() -> None:
    devices = [
        device("other", attributes=strings(kind="b")),
        device("broken", attributes=strings(kind="a"), taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),
        {**shared("nic", "10"), "attributes": strings(kind="a")},
    ]
    expression = 'device.attributes["drv"].kind == "a"'
    (obstacle,) = found(
        [resource_slice(devices)], claim(request(capacity=bandwidth("11"), selectors=[{"cel": {"expression": expression}}]))
    )
    assert by_reason(obstacle) == {
        f"not selected by the request: {expression}": ["other"],
        "has no capacity bandwidth": ["broken"],
        "capacity bandwidth: 11 needed, 10 of 10 left": ["nic"],
    }
    (obstacle,) = found([resource_slice(devices[1:2])], claim(request()))
    assert by_reason(obstacle) == {"tainted and not tolerated: k=v:NoSchedule": ["broken"]}


def test_the_first_request_that_fits_no_longer_beside_the_others_is_shown() -> None:
    devices = [device("whole", draws={"set.memory": "4"}), device("half", draws={"set.memory": "2"})]
    (obstacle,) = found(partitioned(devices, SIZES), claim(request("a"), request("b")))
    assert (obstacle.request, obstacle.text) == ("b", "needs 1 device, none available beside a (whole)")
    assert by_reason(obstacle) == {
        "taken by request a": ["whole"],
        "counter memory of set: 2 needed, none of 4 left, taken by request a": ["half"],
    }


def test_claims_in_the_way_are_named_before_requests_of_the_same_claim() -> None:
    devices = [device("held", draws={"set.memory": "1"}), *(device(name, draws={"set.memory": "2"}) for name in ("one", "two"))]
    used = AllocatedState()
    used.hold(DeviceId("drv", "pool", "held"))
    holders = {DeviceId("drv", "pool", "held"): ["claim ns/x"]}
    (obstacle,) = found(partitioned(devices, SIZES), claim(request("a"), request("b")), used=used, holders=holders)
    assert by_reason(obstacle) == {
        "taken by claim ns/x": ["held"],
        "taken by request a": ["one"],
        "counter memory of set: 2 needed, 1 of 4 left, taken by claim ns/x, request a": ["two"],
    }


def test_a_constraint_is_named_with_both_values_and_its_effect() -> None:
    devices = [device(f"d{number}", attributes=strings(parent=f"p{number}")) for number in range(2)]
    match: Object = {"matchAttribute": "drv/parent"}
    first, second = found([resource_slice(devices)], claim(request("a"), request("b"), constraints=[match]))
    assert by_reason(first) == {"taken by request a": ["d0"], "matchAttribute drv/parent: p1, while p0 is chosen": ["d1"]}
    assert second.text == "it would fit without the constraint matchAttribute drv/parent"


def test_devices_of_another_kind_come_last_though_they_are_fewer_or_in_use() -> None:
    chosen, kinds = 'device.attributes["drv"].kind == "a"', {"r0": "a", "r1": "a", "r2": "a", "of-others": "b", "in-use": "b"}
    taint: Object = {"key": "k", "effect": "NoSchedule"}
    devices = [device(name, attributes=strings(kind=kind), taints=[taint]) for name, kind in kinds.items()]
    used = AllocatedState()
    for name in ("r0", "in-use"):
        used.hold(DeviceId("drv", "pool", name))
    (obstacle,) = found([resource_slice(devices)], claim(request(selectors=[{"cel": {"expression": chosen}}])), used=used)
    assert list(by_reason(obstacle).items()) == [
        ("in use", ["r0"]),
        ("tainted and not tolerated: k:NoSchedule", ["r1", "r2"]),
        (f"not selected by the request: {chosen}", ["of-others", "in-use"]),
    ]


def test_compatibility_groups_are_named_with_those_in_use_and_their_holders() -> None:
    def part(name: str, *groups: str) -> Object:
        drawn: Object = {"counterSet": "gpu", "counters": {"mem": {"value": "1"}}, "compatibilityGroups": json_types.from_strings(groups)}
        return {"name": name, "consumesCounters": [drawn]}

    slices = partitioned([part("mig", "mig"), part("vgpu", "vgpu"), part("plain")], {"gpu.mem": "8"})
    (obstacle,) = found(slices, claim(request(count=2)))
    prefix = "compatibility groups of gpu: the device has"
    assert by_reason(obstacle) == {
        f"{prefix} vgpu, the devices in use have mig (request r)": ["vgpu"],
        f"{prefix} none, the devices in use have mig (request r)": ["plain"],
    }
    held = DeviceId("drv", "pool", "plain")
    used = AllocatedState()
    used.hold(held)
    (obstacle,) = found(slices, claim(request()), used=used, holders={held: ["claim ns/x"]})
    assert by_reason(obstacle) == {
        "taken by claim ns/x": ["plain"],
        f"{prefix} mig, the devices in use have none (claim ns/x)": ["mig"],
        f"{prefix} vgpu, the devices in use have none (claim ns/x)": ["vgpu"],
    }


def test_a_count_says_how_many_there_are() -> None:
    (obstacle,) = found([resource_slice([device("d0"), device("d1")])], claim(request("a"), request("b", count=2)))
    assert obstacle.text == "needs 2 devices, 1 available beside a (d0)"


def test_a_pool_that_offers_nothing_is_named_first() -> None:
    first, _ = found([resource_slice([device("d")], count=2)], claim(request()))
    assert first.text == "pool drv/pool is incomplete: 1 of 2 slices of generation 1"


def test_amounts_are_reported_in_the_units_in_which_they_are_published() -> None:
    devices = [device("half", draws={"set.memory": "20Gi"}), device("whole", draws={"set.memory": "40Gi"})]
    used = AllocatedState()
    used.hold(DeviceId("drv", "pool", "half"))
    (obstacle,) = found(partitioned(devices, {"set.memory": "40Gi"}), claim(request()), used=used)
    assert "counter memory of set: 40Gi needed, 20Gi of 40Gi left" in by_reason(obstacle)
    (obstacle,) = found([resource_slice([shared("nic", "10Gi")])], claim(request(capacity=bandwidth("11Gi"))))
    assert by_reason(obstacle) == {"capacity bandwidth: 11Gi needed, 10Gi of 10Gi left": ["nic"]}


def test_a_policy_that_forbids_the_amount_is_shown() -> None:
    limits: Object = {"default": "1G", "validRange": {"min": "1G", "max": "4G", "step": "1G"}}
    nic: Object = {**shared("nic", "10G"), "capacity": {"bandwidth": {"value": "10G", "requestPolicy": limits}}}
    (obstacle,) = found([resource_slice([nic])], claim(request(capacity=bandwidth("5G"))))
    assert by_reason(obstacle) == {"capacity bandwidth: 5G is against its policy, at least 1G at most 4G in steps of 1G": ["nic"]}


def test_a_selector_that_fails_is_shown_with_its_reason() -> None:
    expression = 'device.attributes["drv"].kind == "a"'
    selecting = claim(request(selectors=[{"cel": {"expression": expression}}]))
    (obstacle,) = found([resource_slice([device("d")])], selecting)
    (text,) = by_reason(obstacle)
    assert text.startswith("a selector of the request fails: ")
    assert text.endswith(f": {expression}")


def test_only_taints_that_are_not_tolerated_are_named() -> None:
    marks: list[Object] = [{"key": key, "effect": effect} for key, effect in (("a", "NoSchedule"), ("b", "NoExecute"), ("c", "None"))]
    tolerant = claim(request(tolerations=[{"key": "a", "operator": "Exists"}]))
    (obstacle,) = found([resource_slice([device("d", taints=[*marks])])], tolerant)
    assert by_reason(obstacle) == {"tainted and not tolerated: b:NoExecute": ["d"]}


def test_capacity_taken_by_earlier_requests_is_shown_with_the_rest() -> None:
    wanted = claim(request("a", capacity=bandwidth("7G")), request("b", capacity=bandwidth("4G")))
    (obstacle,) = found([resource_slice([shared("nic", "10G")])], wanted)
    assert (obstacle.request, by_reason(obstacle)) == ("b", {"capacity bandwidth: 4G needed, 3G left by the requests before": ["nic"]})
