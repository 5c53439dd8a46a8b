"""What keeps claims from fitting is told by request, grouped by cause, with the devices and who has them."""

from drakit.cluster import obstacles
from drakit.cluster.allocator import Allocator
from drakit.cluster.devices import DeviceId
from drakit.cluster.json_types import Object
from drakit.cluster.obstacles import Obstacle
from drakit.cluster.state import AllocatedState
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


def found(
    slices: list[Object], *claims: Object, used: AllocatedState | None = None, holders: obstacles.Holders | None = None
) -> list[Obstacle]:
    allocator = Allocator(slices, CLASSES, SimpleSelectors(), ALL_FEATURES)
    problem = allocator.problem(claims=claims, node=NODE, allocated=used or AllocatedState())
    return obstacles.find(problem, holders or {})


def told(obstacle: Obstacle) -> dict[str, list[str]]:
    """Return the names of the devices by the cause."""
    return {group.text: [device.rpartition("/")[2] for device in group.devices] for group in obstacle.groups}


def test_devices_without_their_counter_are_one_group_that_names_the_claim_which_took_it() -> None:
    devices = [
        device("small", draws={"set.slice-0": "1"}),
        *(device(f"large-{number}", draws={"set.slice-0": "1", "set.slice-1": "1"}) for number in range(7)),
    ]
    used = AllocatedState()
    used.hold(DeviceId("drv", "pool", "small"))
    holders = {DeviceId("drv", "pool", "small"): ["ns/x"]}
    (obstacle,) = found(partitioned(devices, SIZES), claim(request()), used=used, holders=holders)
    assert (obstacle.request, obstacle.text) == ("r", "needs 1 device, none can be had")
    assert told(obstacle) == {
        "taken by claim ns/x": ["small"],
        "counter slice-0 of set: nothing left, taken by claim ns/x": [f"large-{number}" for number in range(7)],
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
    assert told(obstacle) == {
        f"not selected by the request: {expression}": ["other"],
        "has no capacity bandwidth": ["broken"],
        "capacity bandwidth: 11 needed, 10 left": ["nic"],
    }
    (obstacle,) = found([resource_slice(devices[1:2])], claim(request()))
    assert told(obstacle) == {"tainted and not tolerated: k=v:NoSchedule": ["broken"]}


def test_the_first_request_that_fits_no_longer_beside_the_others_is_shown() -> None:
    devices = [device("whole", draws={"set.memory": "4"}), device("half", draws={"set.memory": "2"})]
    (obstacle,) = found(partitioned(devices, SIZES), claim(request("a"), request("b")))
    assert (obstacle.request, obstacle.text) == ("b", "needs 1 device, none can be had beside a (whole)")
    assert told(obstacle) == {
        "taken by request a": ["whole"],
        "counter memory of set: nothing left, taken by request a": ["half"],
    }


def test_a_constraint_is_named_with_both_values_and_with_what_would_be_without_it() -> None:
    devices = [device(f"d{number}", attributes=strings(parent=f"p{number}")) for number in range(2)]
    match: Object = {"matchAttribute": "drv/parent"}
    first, second = found([resource_slice(devices)], claim(request("a"), request("b"), constraints=[match]))
    assert told(first) == {"taken by request a": ["d0"], "matchAttribute drv/parent: p1, while p0 is chosen": ["d1"]}
    assert second.text == "it would fit without the constraint matchAttribute drv/parent"


def test_a_count_says_how_many_there_are() -> None:
    (obstacle,) = found([resource_slice([device("d0"), device("d1")])], claim(request("a"), request("b", count=2)))
    assert obstacle.text == "needs 2 devices, 1 can be had beside a (d0)"


def test_a_pool_that_offers_nothing_is_named_first() -> None:
    first, _ = found([resource_slice([device("d")], count=2)], claim(request()))
    assert first.text == "pool drv/pool is incomplete: 1 of 2 slices of generation 1"
