"""Each interface that is not offered says what would change that, and what it says does."""

import dataclasses

import pytest

from drakit.core import quantity
from drakit_nic import options as nic_options
from drakit_nic import port
from drakit_nic.discovery import eligibility, offers

BITS = quantity.Quantity.of
GIGA = 10**9
RULE = nic_options.NicRule


def nic(**facts: object) -> port.Interface:
    base = port.Interface(ifindex=2, name="eth0", mac="02:00:00:00:00:01", mtu=1500, speed=100 * GIGA, driver="mlx5_core")
    return dataclasses.replace(base, **facts)  # type: ignore[arg-type]


def survey(interface: port.Interface, **choices: object) -> offers.Survey:
    return offers.survey([interface], nic_options.NicOptions(**choices))  # type: ignore[arg-type]


def refusal(interface: port.Interface, **choices: object) -> eligibility.Refusal:
    (withheld,) = survey(interface, **choices).withheld
    return withheld.refusal


VIRTUAL_FUNCTION = {"pci": port.PciFunction(bus_id="0000:8a:00.2", physical_function="0000:8a:00.0")}


@pytest.mark.parametrize(
    "facts, before, keys, after",
    [
        ({"name": "ib7"}, {"include": ("eth*",)}, ["nic.include"], {"include": ("eth*", "ib*")}),
        ({}, {"exclude": ("driver:mlx5_*",)}, ["nic.exclude"], {}),
        ({}, {"exclude": ("eth*",)}, ["nic.exclude"], {"exclude": ()}),
        ({"default_route": True}, {}, ["nic.take_over", "nic.reserve"], {"take_over": ("eth0",), "reserve": BITS("1G")}),
        ({"addressed": True}, {}, ["nic.offer_addressed", "nic.take_over"], {"offer_addressed": True}),
        ({"used": "has tc filters"}, {}, ["nic.offer_addressed", "nic.take_over"], {"take_over": ("eth0",), "reserve": BITS("1G")}),
        ({"default_route": True}, {"take_over": ("*",)}, ["nic.take_over", "nic.reserve", "nic.rules"], {"reserve": BITS("1G")}),
        ({"addressed": True}, {"take_over": ("*",)}, ["nic.reserve"], {"rules": (RULE(match="eth0", reserve=BITS("1G")),)}),
        (VIRTUAL_FUNCTION, {}, ["nic.rules"], {"rules": (RULE(match="pci:*", speed=BITS("10G")),)}),
        ({"kind": "veth"}, {}, ["nic.rules"], {"rules": (RULE(match="eth0", speed=BITS("10G")),)}),
        ({"speed": None}, {}, ["nic.rules"], {"rules": (RULE(match="eth0", speed=BITS("10G")),)}),
        ({}, {"reserve": BITS("99990M")}, ["nic.reserve", "nic.rules"], {"reserve": BITS("90G")}),
    ],
    ids=[
        "not included",
        "excluded by driver",
        "excluded by name",
        "default route",
        "addressed",
        "used otherwise",
        "taken over without a reserve",
        "taken over without a reserve, a rule",
        "virtual function",
        "virtual",
        "no speed",
        "too little",
    ],
)
def test_the_settings_that_are_named_make_it_offered(
    facts: dict[str, object], before: dict[str, object], keys: list[str], after: dict[str, object]
) -> None:
    result = refusal(nic(**facts), **before)
    assert all(key in f"{result.reason} {result.change}" for key in keys), result
    kept = {key: value for key, value in before.items() if key != "exclude"}
    assert [offered.interface.name for offered in survey(nic(**facts), **{**kept, **after}).nics] == [nic(**facts).name]


@pytest.mark.parametrize("facts", [{"kind": port.LOOPBACK}, {"encapsulation": "infiniband"}, {"kind": "ifb"}, {"master": 9}])
def test_what_no_setting_can_change_names_none_and_warns_nobody(facts: dict[str, object]) -> None:
    result = refusal(nic(**facts))
    assert (result.change, result.expected) == ("", True)


@pytest.mark.parametrize(
    "facts, choices, expected",
    [
        ({"default_route": True}, {}, True),
        ({"kind": "veth"}, {}, True),
        ({"speed": None, "carrier": False}, {}, True),
        ({"speed": None}, {}, False),
        ({"queueing": "fq 8001:"}, {}, False),
        ({"other_driver": "other.example.com"}, {}, False),
        ({"addressed": True, "queueing": "fq 8001:"}, {"take_over": ("eth0",), "reserve": BITS("1G")}, False),
        ({"default_route": True}, {"take_over": ("eth0",)}, False),
    ],
)
def test_only_what_an_admin_may_not_expect_is_worth_a_warning(
    facts: dict[str, object], choices: dict[str, object], *, expected: bool
) -> None:
    assert refusal(nic(**facts), **choices).expected is expected


def test_a_take_over_that_an_admin_s_queueing_prevents_says_who_must_act() -> None:
    result = refusal(nic(default_route=True, queueing="fq 8001:"), take_over=("eth0",), reserve=BITS("1G"))
    assert result.reason == "has a root qdisc of another program (fq 8001:)"
    assert result.change == "stop that program and remove the qdisc: tc qdisc delete dev eth0 root"


@pytest.mark.parametrize("used", [{"default_route": True}, {"addressed": True}, {"used": "has an XDP program"}])
def test_a_take_over_never_leaves_the_host_the_smallest_class(used: dict[str, object]) -> None:
    result = refusal(nic(**used), take_over=("eth0",))
    assert result.reason == ("matches nic.take_over and has no reserve: the host's own traffic would be limited to 1M bit/s")
    assert survey(nic(**used), take_over=("eth0",), reserve=BITS("1M")).nics, "an admin may choose that little by saying so"
    assert survey(nic(), take_over=("eth0",)).nics, "an interface that the host does not use needs no reserve"


def test_an_addressed_interface_offered_without_a_reserve_comes_with_a_warning() -> None:
    (offered,) = survey(nic(addressed=True), offer_addressed=True).nics
    assert offered.caution == eligibility.Refusal(
        reason="is used by the host and has no reserve: while it has shares, the host's own traffic is limited to 1M bit/s",
        change="set a reserve above 0 (nic.reserve, or a rule in nic.rules)",
    )
    (with_reserve,) = survey(nic(addressed=True), offer_addressed=True, reserve=BITS("1G")).nics
    (unused,) = survey(nic()).nics
    assert (with_reserve.caution, unused.caution) == (None, None)


@pytest.mark.parametrize(
    "user, reason",
    [
        ({"kind": "vlan", "lower": 2}, "carries the host's user0 (vlan)"),
        ({"kind": "macsec", "lower": 2}, "carries the host's user0 (macsec)"),
        ({"kind": "vlan", "lower": 2, "default_route": True}, "carries the host's default route"),
        ({"kind": "gretap", "lower": 2, "default_route": True}, "carries the host's default route"),
    ],
)
def test_a_nic_below_another_interface_of_the_host_needs_a_reserve(user: dict[str, object], reason: str) -> None:
    both = [nic(), nic(ifindex=3, name="user0", **user)]
    withheld = offers.survey(both, nic_options.NicOptions()).withheld
    assert {entry.name: entry.reason for entry in withheld}["eth0"] == reason
    taken = offers.survey(both, nic_options.NicOptions(take_over=("eth0",), reserve=BITS("1G")))
    assert [entry.interface.name for entry in taken.nics] == ["eth0"]
    unreserved = offers.survey(both, nic_options.NicOptions(take_over=("eth0",))).withheld
    assert "has no reserve" in {entry.name: entry.reason for entry in unreserved}["eth0"]


def test_a_bridge_with_ports_is_used_and_a_bond_has_its_slaves_to_itself() -> None:
    rule = nic_options.NicOptions(rules=(RULE(match="*0", speed=BITS("10G")),))
    pod = nic(ifindex=4, name="veth1", kind="veth", master=3)
    bridged = offers.survey([nic(ifindex=3, name="br0", kind="bridge"), pod], rule)
    assert {entry.name: entry.reason for entry in bridged.withheld}["br0"] == "carries the host's veth1 (veth)"
    bonded = offers.survey([nic(ifindex=3, name="bond0", kind="bond"), dataclasses.replace(pod, kind=port.PHYSICAL)], rule)
    assert [entry.interface.name for entry in bonded.nics] == ["bond0"]


IPVLAN: dict[str, object] = {"rules": (RULE(match="eth0", child="ipvlan"),)}


@pytest.mark.parametrize(
    "shaping, reason",
    [
        (port.Shaping(classifier=port.Classifier.NETNS), "has child: ipvlan in nic.rules, and this kernel has no ipvlan"),
        (
            port.Shaping(classifier=port.Classifier.MAC, ipvlan=True),
            "has child: ipvlan in nic.rules, and this kernel tells senders apart by MAC address only, which all ipvlans share",
        ),
    ],
)
def test_ipvlan_that_this_kernel_cannot_enforce_is_not_offered(shaping: port.Shaping, reason: str) -> None:
    options = nic_options.NicOptions(**IPVLAN)  # type: ignore[arg-type]
    (withheld,) = offers.survey([nic()], options, shaping).withheld
    assert withheld.reason == reason
    assert "remove child: ipvlan from the rule in nic.rules" in withheld.refusal.change
    assert not withheld.refusal.expected
    (offered,) = offers.survey([nic()], nic_options.NicOptions(), shaping).nics
    assert offered.to_device().attributes["child"] == "macvlan"


@pytest.mark.parametrize("user, choices, child", [("macvlan", IPVLAN, "ipvlan"), ("macvtap", IPVLAN, "ipvlan"), ("ipvlan", {}, "macvlan")])
def test_a_nic_with_an_interface_of_the_other_kind_is_not_offered(user: str, choices: dict[str, object], child: str) -> None:
    shaping = port.Shaping(classifier=port.Classifier.NETNS, ipvlan=True)
    both = [nic(), nic(ifindex=3, name="user0", kind=user, lower=2)]
    options = nic_options.NicOptions(offer_addressed=True, **choices)  # type: ignore[arg-type]
    (reason,) = (entry.reason for entry in offers.survey(both, options, shaping).withheld if entry.name == "eth0")
    assert reason == f"carries the host's user0 ({user}), beside which the kernel allows no {child}"
    beside = [nic(), nic(ifindex=3, name="user0", kind=f"{child[:3]}{'vtap' if child == 'macvlan' else 'lan'}", lower=2)]
    assert [entry.interface.name for entry in offers.survey(beside, options, shaping).nics] == ["eth0"]
