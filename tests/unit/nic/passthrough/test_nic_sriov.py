"""What a physical function is asked for, message by message, and what becomes of its refusals."""

import dataclasses
import errno
import typing

import hypothesis
import pytest
from hypothesis import strategies

from drakit_nic import config
from drakit_nic.netlink import rtnetlink
from drakit_nic.passthrough import sriov
from fakes import sriov_parent

MEGA = 10**6
OF = sriov.Function(parent="enp1s0", number=1)
MAC, VLAN, SPOOF_CHECK, LINK_STATE, RATE, TRUST = 1, 2, 4, 5, 6, 9


def socket_of(parent: sriov_parent.Parent) -> rtnetlink.Socket:
    return typing.cast("rtnetlink.Socket", parent)


def igb(**kinds: typing.Any) -> sriov_parent.Parent:
    return sriov_parent.Parent("enp1s0", 3, **kinds)


def settings_in(parent: sriov_parent.Parent, number: int = 1) -> sriov.Settings:
    return sriov.read(socket_of(parent), "enp1s0")[number]


FRESH = sriov.Settings(mac="02:00:00:00:00:01", spoof_check=True, trust=False, link_state=config.LinkState.AUTO)


def test_the_settings_of_a_function_are_read_by_its_number() -> None:
    assert settings_in(igb()) == FRESH
    assert sriov.read(socket_of(igb()), "enp2s0") == {}


@hypothesis.given(
    strategies.integers(0, 2),
    strategies.binary(min_size=6, max_size=6).filter(lambda mac: not mac[0] & 1),
    strategies.integers(0, 4094),
    strategies.integers(0, 7),
    strategies.tuples(strategies.integers(0, 1000), strategies.integers(0, 1000)),
    strategies.tuples(strategies.booleans(), strategies.booleans()),
)
def test_every_setting_arrives_and_is_read_back(
    number: int, mac: bytes, vlan: int, quality: int, rates: tuple[int, int], flags: tuple[bool, bool]
) -> None:
    parent = igb(takes_min=True)
    (least, most), (spoof_check, trust) = (rate * MEGA for rate in rates), flags
    wanted = dataclasses.replace(
        FRESH, mac=mac.hex(":"), vlan=vlan, quality=quality, min_rate=least, max_rate=most, spoof_check=spoof_check, trust=trust
    )
    sriov.write(socket_of(parent), sriov.Function(parent="enp1s0", number=number), wanted)
    assert settings_in(parent, number) == wanted
    assert sriov.differing(settings_in(parent, number), wanted) == []


def test_only_what_differs_is_asked_for() -> None:
    parent = igb()
    sriov.write(socket_of(parent), OF, FRESH)
    assert parent.changes == []
    sriov.write(socket_of(parent), OF, dataclasses.replace(FRESH, max_rate=50 * MEGA, trust=True))
    assert parent.changes == [(1, TRUST), (1, RATE)]
    sriov.write(socket_of(parent), OF, sriov.Settings(mac=FRESH.mac, max_rate=50 * MEGA))
    assert parent.changes == [(1, TRUST), (1, RATE)], "a record of an earlier version says nothing about trust"


@pytest.mark.parametrize(
    "changed,error",
    [
        ({"mac": "03:00:00:00:00:09"}, "mac 03:00:00:00:00:09 .*Invalid argument.; choose another NicConfig.mac"),
        ({"link_state": config.LinkState.ENABLE}, "linkState enable .*not supported.; remove NicConfig.linkState from the DeviceClass"),
        ({"max_rate": 5000 * MEGA}, "rate 0 to 5000 Mbit/s .*Invalid argument.; the parent must have a link that is at least as fast"),
        ({"min_rate": 10 * MEGA, "max_rate": 5000 * MEGA}, "rate 10 to 5000 Mbit/s .*Invalid argument"),
    ],
)
def test_a_refusal_names_the_function_the_setting_and_the_fix(changed: dict[str, typing.Any], error: str) -> None:
    with pytest.raises(OSError, match=error) as refused:
        sriov.write(socket_of(igb()), OF, dataclasses.replace(FRESH, **changed))
    assert "for virtual function 1 of enp1s0" in str(refused.value)


def test_a_function_that_is_gone_is_an_error_that_says_why() -> None:
    with pytest.raises(OSError, match="there is no virtual function 3 of enp1s0; sriov_numvfs of enp1s0 may have been changed"):
        sriov.write(socket_of(igb()), sriov.Function(parent="enp1s0", number=3), FRESH)


@pytest.mark.parametrize("refusal", [errno.EINVAL, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, 524])
def test_a_driver_that_takes_no_minimum_gets_the_maximum_alone(refusal: int) -> None:
    parent = igb(refusal=refusal)
    wanted = dataclasses.replace(FRESH, min_rate=10 * MEGA, max_rate=20 * MEGA)
    for _ in range(2):
        sriov.write(socket_of(parent), OF, wanted)
        assert parent.rows[1].rate == (0, 20)
    assert sriov.differing(settings_in(parent), wanted) == []
    assert sriov.differing(settings_in(parent), dataclasses.replace(wanted, max_rate=30 * MEGA)) == ["rate"]


def test_a_driver_that_takes_a_minimum_gets_both() -> None:
    parent = igb(takes_min=True)
    sriov.write(socket_of(parent), OF, dataclasses.replace(FRESH, min_rate=10 * MEGA, max_rate=20 * MEGA))
    assert (parent.rows[1].rate, parent.changes) == ((10, 20), [(1, RATE)])


def test_rates_are_whole_megabits_and_a_maximum_is_never_zero() -> None:
    former = dataclasses.replace(FRESH, vlan=5, quality=3)
    planned = sriov.wanted(former, config.NicConfig(), min_rate=10_500_000, max_rate=500_000)
    assert planned == dataclasses.replace(former, min_rate=10_000_000, max_rate=1_000_000)
