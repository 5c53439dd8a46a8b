from drakit_cluster.objects.devices import DeviceId
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.scheduling.explain.reasons import Reason
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
)
from fakes.simple_selectors import SimpleSelectors


def reasons(slices: list[Object], wanted: Object, used: AllocatedState | None = None) -> list[Reason]:
    allocator = Allocator(slices, CLASSES, SimpleSelectors(), ALL_FEATURES)
    return allocator.explain(claims=[wanted], node=NODE, allocated=used or AllocatedState())


def test_every_device_is_named_with_what_stands_in_its_way() -> None:
    devices = [
        device("held", draws={"set.x": "1"}),
        device("large", draws={"set.x": "4"}),
        device("tainted", taints=[{"key": "k", "effect": "NoSchedule"}]),
        shared("nic", "10"),
    ]
    used = AllocatedState()
    used.hold(DeviceId("drv", "pool", "held"))
    found = reasons(partitioned(devices, {"set.x": "4"}), claim(request(capacity=bandwidth("11"))), used)
    assert [(reason.request, reason.device, reason.text) for reason in found] == [
        ("r", "", "needs 1 device, none suits"),
        ("r", "drv/pool/held", "in use"),
        ("r", "drv/pool/large", "capacity unknown, against its policy, or not enough left: the device has no bandwidth"),
        ("r", "drv/pool/tainted", "capacity unknown, against its policy, or not enough left: the device has no bandwidth"),
        ("r", "drv/pool/nic", "capacity unknown, against its policy, or not enough left: bandwidth: 11 requested, 10 of 10 left"),
    ]
    found = reasons(partitioned(devices[:2], {"set.x": "4"}), claim(request()), used)
    assert found[-1].text == "not enough left in a shared counter: drv/pool: set.x has 3 left, 4 needed"


def test_requests_that_fit_alone_but_not_together_say_so() -> None:
    found = reasons([resource_slice([device("d")])], claim(request("a"), request("b")))
    assert [reason.text for reason in found] == ["every request could be served alone, but not all together"]


def test_a_pool_that_offers_nothing_is_named() -> None:
    found = reasons([resource_slice([device("d")], count=2)], claim(request()))
    assert found[0].text == "pool drv/pool is incomplete: 1 of 2 slices of generation 1"
