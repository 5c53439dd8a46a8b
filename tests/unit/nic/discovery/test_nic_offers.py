"""What is offered of a machine's interfaces, and why the rest is not."""

import dataclasses

import hypothesis
import pytest
from hypothesis import strategies

from drakit.core import device, names, quantity
from drakit_nic import options as nic_options
from drakit_nic import port
from drakit_nic.discovery import offers

GIGA = 10**9
BITS = quantity.Quantity.of

nic_names = strategies.text(strategies.characters(exclude_characters="/: \t\n\v\f\r\0", codec="utf-8"), min_size=1, max_size=15).filter(
    lambda name: len(name.encode()) <= 15 and name not in (".", "..")
)


def nic(index: int = 2, name: str = "eth0", **facts: object) -> port.Interface:
    base = port.Interface(ifindex=index, name=name, mac="02:00:00:00:00:01", mtu=1500, speed=100 * GIGA, driver="mlx5_core")
    return dataclasses.replace(base, **facts)  # type: ignore[arg-type]


def pci(bus_id: str = "0000:8a:00.0", **facts: object) -> port.PciFunction:
    return dataclasses.replace(port.PciFunction(bus_id=bus_id), **facts)  # type: ignore[arg-type]


def survey(*interfaces: port.Interface, **choices: object) -> offers.Survey:
    return offers.survey(interfaces, nic_options.NicOptions(**choices))  # type: ignore[arg-type]


def reasons(surveyed: offers.Survey) -> dict[str, str]:
    return {withheld.name: withheld.reason for withheld in surveyed.withheld}


def test_a_plain_nic_is_offered_with_its_whole_speed() -> None:
    (offered,) = survey(nic()).to_inventory().devices
    assert (offered.name, offered.allow_multiple_allocations) == ("eth0", True)
    capacity = offered.capacity["bandwidth"]
    assert str(capacity.value) == "100G"
    assert capacity.policy is not None
    assert capacity.policy.valid_range is not None
    span = capacity.policy.valid_range
    assert [str(figure) for figure in (capacity.policy.default, span.min, span.step, span.max)] == ["100M", "10M", "10M", "100G"]


@pytest.mark.parametrize(
    "facts, reason",
    [
        ({"kind": port.LOOPBACK}, "is the loopback interface"),
        ({"encapsulation": "infiniband"}, "is not an Ethernet interface"),
        ({"mac": ""}, "is not an Ethernet interface"),
        ({"kind": "ifb"}, "is an ifb device, which only redirects the traffic of other interfaces"),
        ({"queueing": "fq 8001:"}, "has a root qdisc of another program (fq 8001:)"),
        ({"kind": "macvlan", "lower": 9}, "is a macvlan child of another interface"),
        ({"master": 9}, "is enslaved to other"),
        ({"master": 77}, "is enslaved to another interface"),
        ({"default_route": True}, "carries the host's default route"),
        ({"addressed": True}, "has an address of the host"),
        ({"kind": "veth"}, "is virtual (veth), so its reported speed is ignored"),
        ({"kind": "vlan", "lower": 9}, "is virtual (vlan), so its reported speed is ignored"),
        ({"speed": None}, "reports no speed"),
        ({"speed": None, "carrier": False}, "reports no speed (no carrier)"),
        (
            {"pci": pci(physical_function="0000:8a:00.0")},
            "is a virtual function of 0000:8a:00.0, whose bandwidth it shares",
        ),
        ({"speed": 10**7}, "has 10M minus the reserve of 0, which is less than min + step of the policy, 20M bit/s"),
    ],
)
def test_what_is_not_offered_has_its_reason(facts: dict[str, object], reason: str) -> None:
    surveyed = survey(nic(2, "eth0", **facts), nic(9, "other"))
    assert reasons(surveyed)["eth0"] == reason
    user = f"carries the host's eth0 ({facts.get('kind', port.PHYSICAL)})"
    assert reasons(surveyed).get("other") == (user if 9 in facts.values() else None), "an interface that another one uses"


def test_what_carries_the_uplink_is_withheld_with_it() -> None:
    bond = nic(3, "bond0", kind="bond", default_route=False)
    vlan = nic(4, "bond0.7", kind="vlan", lower=3, default_route=True)
    surveyed = survey(nic(1, "eth0", master=3), nic(2, "eth1", master=3), bond, vlan, nic(5, "eth2"))
    assert [offered.interface.name for offered in surveyed.nics] == ["eth2"]
    assert reasons(surveyed)["bond0"] == "carries the host's default route"


def test_a_ring_of_masters_ends() -> None:
    surveyed = survey(nic(1, "a", master=2, default_route=True), nic(2, "b", master=1))
    assert len(surveyed.withheld) == 2


def test_a_peer_s_end_is_not_taken_for_a_carrier() -> None:
    speeds = (nic_options.NicRule(match="*", speed=BITS("1G")),)
    uplink = nic(2, "veth0", kind="veth", lower=3, default_route=True)
    assert [offered.name for offered in survey(uplink, nic(3, "veth1", kind="veth"), rules=speeds).nics] == ["veth1"]


def test_a_bond_s_speed_is_believed_when_all_its_slaves_are_hardware() -> None:
    bond = nic(3, "bond0", kind="bond", speed=200 * GIGA)
    assert [offered.speed for offered in survey(bond, nic(1, "eth0", master=3), nic(2, "eth1", master=3)).nics] == [200 * GIGA]
    assert "speed is ignored" in reasons(survey(bond, nic(1, "eth0", master=3), nic(2, "veth1", master=3, kind="veth")))["bond0"]
    assert "speed is ignored" in reasons(survey(bond))["bond0"]


@pytest.mark.parametrize(
    "reported, kind, given, speed",
    [
        (100 * GIGA, port.PHYSICAL, "25G", 25 * GIGA),
        (10 * GIGA, port.PHYSICAL, "25G", 10 * GIGA),
        (None, port.PHYSICAL, "25G", 25 * GIGA),
        (10 * GIGA, "veth", "25G", 25 * GIGA),
    ],
)
def test_the_admins_speed_caps_the_reported_one_and_replaces_an_implausible_one(
    reported: int | None, kind: str, given: str, speed: int
) -> None:
    (offered,) = survey(nic(speed=reported, kind=kind), rules=(nic_options.NicRule(match="eth*", speed=BITS(given)),)).nics
    assert offered.speed == speed
    assert offered.bandwidth.value == BITS(speed)


def test_a_reserve_is_kept_from_the_shares_and_the_first_rule_that_matches_counts() -> None:
    rules = (nic_options.NicRule(match="eth0", reserve=BITS("1G")), nic_options.NicRule(match="*", reserve=BITS("2G")))
    surveyed = survey(nic(1, "eth0"), nic(2, "eth1"), reserve=BITS("5G"), rules=rules)
    assert [str(offered.bandwidth.value) for offered in surveyed.nics] == ["99G", "98G"]
    assert str(survey(nic(), reserve=BITS("5G")).nics[0].bandwidth.value) == "95G"


def test_filters_go_by_interface_name() -> None:
    machine = (nic(1, "eth0"), nic(2, "eth1"), nic(3, "ib0"))
    surveyed = survey(*machine, include=("eth*",), exclude=("eth1",))
    assert [offered.interface.name for offered in surveyed.nics] == ["eth0"]
    assert reasons(surveyed) == {"eth1": "matches nic.exclude", "ib0": "does not match nic.include"}


def test_the_host_s_interfaces_are_offered_only_when_named() -> None:
    machine = (nic(1, "eth0", default_route=True, addressed=True), nic(2, "eth1", addressed=True))
    for_the_host = BITS("1G")
    assert [offered.name for offered in survey(*machine, take_over=("eth1",), reserve=for_the_host).nics] == ["eth1"]
    assert [offered.name for offered in survey(*machine, take_over=("*",), reserve=for_the_host).nics] == ["eth0", "eth1"]
    assert [offered.name for offered in survey(*machine, offer_addressed=True).nics] == ["eth1"], "never the uplink"


def test_devices_come_in_the_order_of_their_names_whatever_their_indices() -> None:
    surveyed = survey(nic(1, "b", pci=pci("0000:8a:00.0")), nic(2, "a", pci=pci("0000:0c:00.0")))
    other = survey(nic(8, "a", pci=pci("0000:0c:00.0")), nic(9, "b", pci=pci("0000:8a:00.0")))
    assert [offered.name for offered in surveyed.nics] == ["pci-0000-0c-00-0", "pci-0000-8a-00-0"]
    assert surveyed.to_inventory() == other.to_inventory()


def test_attributes_are_the_same_set_on_every_device_but_for_the_standard_ones() -> None:
    behind_pci = nic(1, "eth0", pci=pci(root="pci0000:80", numa_nodes=(3,)))
    bare = nic(2, "veth0", kind="veth")
    surveyed = survey(behind_pci, bare, rules=(nic_options.NicRule(match="veth*", speed=BITS("1G")),))
    first, second = (offered.to_device().attributes for offered in surveyed.nics)
    assert set(first) - set(second) == {f"resource.kubernetes.io/{name}" for name in ("pciBusID", "pcieRoot", "numaNode")}
    assert not set(second) - set(first)
    assert (first["resource.kubernetes.io/numaNode"], first["dra.net/numaNode"], second["dra.net/numaNode"]) == (3, 3, -1)
    assert (first["resource.kubernetes.io/pcieRoot"], first["resource.kubernetes.io/pciBusID"]) == ("pci0000:80", "0000:8a:00.0")
    assert (first["dra.net/type"], second["dra.net/type"]) == ("device", "veth")
    assert (first["ifName"], first["dra.net/ifName"], first["speed"], first["shaping"]) == ("eth0", "eth0", 100 * GIGA, "none")


def test_a_nic_near_several_numa_nodes_names_its_own_for_selectors_of_dranet() -> None:
    (offered,) = survey(nic(1, "eth0", pci=pci(numa_nodes=(2, 3)))).nics
    attributes = offered.to_device().attributes
    assert (attributes["resource.kubernetes.io/numaNode"], attributes["dra.net/numaNode"]) == ((2, 3), 2)


amounts = strategies.integers(min_value=1, max_value=10**13)


@strategies.composite
def policies(draw: strategies.DrawFn) -> nic_options.BandwidthPolicy:
    least, step = draw(amounts), draw(amounts)
    default = draw(strategies.integers(min_value=0, max_value=1000))
    above = draw(strategies.none() | strategies.integers(min_value=0, max_value=1000))
    return nic_options.BandwidthPolicy(
        min=BITS(least),
        step=BITS(step),
        default=BITS(least + default * step),
        max=None if above is None else BITS(least + (default + above) * step),
    )


@hypothesis.given(strategies.integers(min_value=-(10**13), max_value=10**15), policies())
def test_rounding_always_gives_a_policy_that_the_api_takes_or_none(available: int, rates: nic_options.BandwidthPolicy) -> None:
    capacity = offers.shareable(available, rates)
    if capacity is None:
        assert available < rates.min.value + rates.step.value
        return
    # The constructors have checked the policy against itself and the capacity; a device refuses what the API would.
    device.Device(name="nic", capacity={"bandwidth": capacity}, allow_multiple_allocations=True)
    assert available - rates.step.value < capacity.value.value <= available
    assert capacity.policy is not None
    assert capacity.policy.valid_range is not None
    most = capacity.policy.valid_range.max
    assert most is not None
    assert capacity.consumed_by(most) == most, "the largest share can be had"
    assert capacity.consumed_by(None) == capacity.policy.default
    assert most <= capacity.value


@hypothesis.given(strategies.lists(nic_names, unique=True, max_size=12), strategies.data())
def test_every_interface_is_offered_or_withheld_under_a_valid_and_unique_name(found: list[str], data: strategies.DataObject) -> None:
    addresses = strategies.none() | strategies.sampled_from(["0000:8a:00.0", "0000:8a:00.1", "10000:01:00.0"]).map(port_of)
    machine = [nic(index, name, pci=data.draw(addresses)) for index, name in enumerate(found, start=1)]
    seen = survey(*machine)
    assert sorted([item.interface.name for item in seen.nics] + [item.name for item in seen.withheld]) == sorted(found)
    offered = [item.name for item in seen.nics]
    assert len(set(offered)) == len(offered)
    assert all(names.is_label(name) for name in offered)
    seen.to_inventory()


def port_of(bus_id: str) -> port.PciFunction:
    return port.PciFunction(bus_id=bus_id)


def test_nothing_is_offered_where_no_rate_could_be_held() -> None:
    shaping = port.Shaping(classifier=port.Classifier.NONE, missing="this kernel has no HTB")
    surveyed = offers.survey([nic()], nic_options.NicOptions(take_over=("*",)), shaping)
    assert surveyed.nics == ()
    assert reasons(surveyed) == {"eth0": "this kernel has no HTB"}


@pytest.mark.parametrize("classifier", port.Classifier)
def test_the_classifier_in_use_is_published(classifier: port.Classifier) -> None:
    surveyed = offers.survey([nic()], nic_options.NicOptions(), port.Shaping(classifier=classifier))
    assert surveyed.to_inventory().devices[0].attributes["shaping"] == classifier.value


@pytest.mark.parametrize(
    "speed, choices, wanted",
    [
        (100 * GIGA, {}, None),
        (100 * GIGA, {"shares": 128}, "128"),
        (400 * GIGA, {}, "10k"),
        (400 * GIGA, {"shares": 20}, "20"),
        (400 * GIGA, {"rules": (nic_options.NicRule(match="*", min=BITS("100M"), step=BITS("100M")),)}, None),
    ],
    ids=["bandwidth is used up first", "the admin's bound", "more room than the kernel has", "the admin's bound of that", "larger shares"],
)
def test_shares_are_bounded_by_bandwidth_by_the_admin_or_by_what_the_kernel_holds(
    speed: int, choices: dict[str, object], wanted: str | None
) -> None:
    (offered,) = survey(nic(speed=speed), **choices).to_inventory().devices
    slots = offered.capacity.get("shares")
    assert (None if slots is None else str(slots.value)) == wanted
    if slots is not None:
        assert slots.policy is not None
        assert slots.policy.valid_values == (quantity.ONE,)


def test_all_forms_of_an_interface_have_the_reason_that_withholds_them() -> None:
    used, plain = nic(2, "eth0", pci=pci(), addressed=True), nic(3, "eth1")
    assert survey(used, plain).withheld_devices() == {
        "pci-0000-8a-00-0": "eth0 has an address of the host",
        "pci-0000-8a-00-0-whole": "eth0 has an address of the host",
        "pci-0000-8a-00-0-vfio": "eth0 has an address of the host",
        "eth1-whole": "eth1 does not match nic.whole",
        "eth1-vfio": "eth1 does not match nic.vfio",
    }


@pytest.mark.parametrize("is_function", [False, True], ids=["physical function", "virtual function"])
def test_every_form_of_a_fully_known_interface_fits_the_limits_of_the_api(*, is_function: bool) -> None:
    parent = "0000:8a:00.0" if is_function else ""
    known = pci("0000:8a:00.1", root="pci0000:80", numa_nodes=(1,), physical_function=parent, vendor="15b3", rdma_device="mlx5_0")
    rule = nic_options.NicRule(match="*", speed=BITS("25G"))
    surveyed = survey(nic(pci=known), shares=64, whole=("*",), rules=(rule,))
    inventory = dataclasses.replace(surveyed, nics=tuple(dataclasses.replace(each, vfio=True) for each in surveyed.nics)).to_inventory()
    sizes = {name: len(each.attributes) + len(each.capacity) for name, each in inventory.flat().by_name().items()}
    assert sizes.keys() == {"pci-0000-8a-00-1", "pci-0000-8a-00-1-whole", "pci-0000-8a-00-1-vfio"}
    assert max(sizes.values()) == device.ATTRIBUTES_AND_CAPACITY_MAX


@pytest.mark.parametrize("shares,is_left_out", [(0, False), (64, True)])
def test_only_a_device_without_room_leaves_the_attribute_virtual_out(shares: int, *, is_left_out: bool) -> None:
    known = pci("0000:8a:00.1", root="pci0000:80", numa_nodes=(1,), vendor="15b3")
    shared, whole = survey(nic(pci=known), shares=shares, whole=("*",)).to_inventory().flat().by_name().values()
    assert ("virtual" in shared.attributes) is not is_left_out
    assert (whole.attributes["virtual"], shared.attributes["dra.net/virtual"]) == (False, False)


@pytest.mark.parametrize("speed,least", [(GIGA, 125), (10 * GIGA, 1250), (25 * GIGA, 3125), (100 * GIGA, 12500)])
def test_a_nic_with_several_queues_says_how_large_frames_must_be_for_its_speed(speed: int, least: int) -> None:
    (offered,) = survey(nic(speed=speed, transmit_queues=16)).nics
    assert offered.queueing == (
        "shares use one HTB tree and none of up to 16 transmit queues; it passes about 1 million frames a second, so "
        f"{quantity.Quantity.of(speed)} needs frames of {least} bytes or more before segmentation"
    )


def test_a_nic_with_one_queue_and_a_virtual_interface_lose_none() -> None:
    rule = nic_options.NicRule(match="veth*", speed=BITS("10G"))
    one, virtual = survey(nic(), nic(3, "veth1", kind="veth", transmit_queues=8), rules=(rule,)).nics
    assert (one.queueing, virtual.queueing) == ("", "")
