"""The model of classes and lookups: what is wanted, and how what is found becomes it."""

import dataclasses
import random

import hypothesis
import pytest
from hypothesis import strategies

from drakit.devices.nic import port
from drakit.devices.nic.shaping import class_numbers, htb, tc_messages

GIGA = 10**9
NIC = "02:00:00:00:00:20"
UPLINK = port.Uplink(interface="nic0", ifindex=3, mac=NIC, speed=10 * GIGA, reserve=GIGA)


def share(minor: int = 0x100, bandwidth: int = 10**8, ceil: int = 0) -> port.Share:
    return port.Share(id=f"s{minor}", interface="nic0", ifindex=3, mac="02:00:00:00:01:00", bandwidth=bandwidth, ceil=ceil, minor=minor)


def seat(minor: int, of: int = 0x100, cookie: int = 7) -> htb.Seat:
    return htb.Seat(minor=minor, share=of, cookie=cookie, mac=f"02:aa:00:00:{minor >> 8:02x}:{minor & 0xFF:02x}")


@strategies.composite
def worlds(draw: strategies.DrawFn) -> htb.Bands:
    """The classes of some shares, some of them with members."""
    minors = draw(strategies.sets(strategies.sampled_from(htb.SHARES[:6])))
    rates = strategies.integers(8, 2 * 10**11)
    listed = [share(minor, draw(rates), draw(strategies.just(0) | rates)) for minor in sorted(minors)]
    places = draw(strategies.sets(strategies.sampled_from(htb.MEMBERS[:6])))
    seats = [seat(minor, draw(strategies.sampled_from(sorted(minors)))) for minor in sorted(places)] if minors else []
    return htb.bands(UPLINK, listed, seats)


@hypothesis.given(worlds(), worlds())
def test_the_changes_lead_from_any_state_to_any_other_by_steps_the_kernel_takes(wanted: htb.Bands, found: htb.Bands) -> None:
    state = dict(found)
    for change in htb.differences(wanted, found):
        minor = change.band.minor
        if change.verb is htb.Verb.DROP:
            assert not [band for band in state.values() if band.parent == minor], "the kernel deletes no class that has others below it"
            del state[minor]
        else:
            assert change.band.parent in state or change.band.parent == 0
            assert minor not in state or state[minor].parent == change.band.parent, "the kernel moves no class"
            state[minor] = change.band
    assert state == wanted
    assert htb.differences(wanted, wanted) == ()


@hypothesis.given(worlds())
def test_a_class_has_a_queue_exactly_when_none_is_below_it(bands: htb.Bands) -> None:
    parents = {band.parent for band in bands.values()}
    for band in bands.values():
        assert (band.limit == 0) == (band.minor in parents)
        assert band.rate % 8 == band.ceil % 8 == 0
        assert band.ceil >= band.rate > 0
        assert 0 < band.burst < 2**32
        assert 0 < band.cburst < 2**32


def test_a_share_is_limited_to_its_rate_or_to_its_ceil_and_never_beyond_the_nic() -> None:
    assert [htb.bands(UPLINK, [share(ceil=ceil)], [])[0x100].ceil for ceil in (0, 10**7, 5 * GIGA, 99 * GIGA)] == [
        10**8,
        10**8,
        5 * GIGA,
        10 * GIGA,
    ]


def test_the_host_has_its_reserve_and_at_least_a_little() -> None:
    assert htb.bands(UPLINK, [], [])[htb.HOST].rate == GIGA
    without = dataclasses.replace(UPLINK, reserve=0)
    assert {htb.bands(without, [], [])[minor].ceil for minor in (htb.HOST, htb.STRAY, htb.DEFAULT)} == {htb.SMALL}


@pytest.mark.parametrize("members", [1, 2, 5])
def test_members_have_next_to_nothing_of_their_own_and_borrow_equally_up_to_the_share(members: int) -> None:
    bands = htb.bands(UPLINK, [share(bandwidth=GIGA)], [seat(0x8000 + number) for number in range(members)])
    mine = [band for band in bands.values() if band.parent == 0x100]
    assert len(mine) == members
    assert sum(band.rate for band in mine) < GIGA / 50
    assert {band.ceil for band in mine} == {GIGA}
    assert len({band.quantum for band in mine}) == 1
    assert sum(band.quantum for band in mine) <= htb.bands(UPLINK, [share(bandwidth=GIGA)], [])[0x100].quantum


def test_shares_borrow_in_proportion_to_their_rates() -> None:
    bands = htb.bands(UPLINK, [share(0x100 + times, times * 10**8) for times in range(1, 5)], [])
    assert [bands[0x100 + times].quantum // bands[0x101].quantum for times in range(1, 5)] == [1, 2, 3, 4]


def test_a_queue_is_short_but_holds_the_largest_frames() -> None:
    bands = htb.bands(UPLINK, [share(0x100, 10**8), share(0x101, 10 * GIGA)], [])
    assert bands[0x100].limit == 287_500
    assert bands[0x101].limit == 28_750_000


@pytest.mark.parametrize("speed", [400 * 10**9, 1600 * 10**9])
def test_no_queue_is_longer_than_the_kernel_keeps_it(speed: int) -> None:
    """fq_codel reduces a memory limit above 2^31; the driver gives four bytes of memory for a byte of the queue."""
    uplink = port.Uplink(interface="nic0", ifindex=2, mac="02:00:00:00:00:20", speed=speed)
    share = port.Share(id="s", interface="nic0", ifindex=2, mac="02:00:00:00:00:01", bandwidth=speed, minor=0x100)
    limits = [band.limit for band in htb.bands(uplink, [share], []).values() if band.limit]
    assert max(limits) * tc_messages.MEMORY_FOR_BYTE == 2**31


def test_a_class_makes_up_for_a_gap_of_four_milliseconds_and_never_gains_more() -> None:
    """In the kernel's ticks of 64 ns; two full frames where the rate is so small that they take longer."""
    bands = htb.bands(UPLINK, [share(0x100, 10**8), share(0x101, GIGA, ceil=5 * GIGA), share(0x102, 10**6)], [])
    assert {bands[minor].burst * 64 for minor in (htb.ROOT, 0x100, 0x101)} == {4 * 10**6}
    assert bands[0x101].cburst * 64 == 4 * 10**6
    assert bands[0x102].burst * 64 == 3000 * 8 * 10**9 // 10**6


def test_a_known_address_without_a_known_owner_leads_to_no_share() -> None:
    seats = [seat(0x8000, cookie=7), seat(0x8001, of=0x101, cookie=8)]
    found = htb.owners(port.Classifier.NETNS, host=1, mac=NIC, seats=seats)
    assert {minor for (cookie, _), minor in found.items() if cookie == htb.ANY_NAMESPACE} == {htb.STRAY}
    assert found[1, htb.ANY] == found[htb.KERNEL_MADE, NIC] == htb.HOST
    assert {found[7, htb.ANY], found[7, seats[0].mac]} == {0x8000}


def test_of_two_shares_of_one_namespace_each_address_is_its_own_and_all_others_the_first_s() -> None:
    seats = [seat(0x8001, cookie=7), seat(0x8000, of=0x101, cookie=7)]
    found = htb.owners(port.Classifier.NETNS, host=1, mac=NIC, seats=seats)
    assert [found[7, item.mac] for item in seats] == [0x8001, 0x8000]
    assert found[7, htb.ANY] == 0x8000


def test_where_namespaces_are_not_told_apart_addresses_lead_to_shares() -> None:
    found = htb.owners(port.Classifier.MAC, host=0, mac=NIC, seats=[seat(0x8000)])
    assert found == {(htb.ANY_NAMESPACE, NIC): htb.HOST, (htb.ANY_NAMESPACE, seat(0x8000).mac): 0x8000}


def test_class_numbers_never_meet_and_run_out_politely() -> None:
    kinds = [{htb.ROOT, htb.HOST, htb.STRAY, htb.DEFAULT}, {htb.MAJOR}, set(htb.SHARES), set(htb.MEMBERS)]
    assert len(set.union(*kinds)) == sum(map(len, kinds))
    assert max(htb.MEMBERS) < 0xFFFF
    assert class_numbers.Numbers(htb.SHARES).lowest() == 0x100
    assert class_numbers.Numbers(htb.SHARES, {0x100, 0x102}).lowest() == 0x101
    assert all(class_numbers.Numbers(kind, kind).lowest() is None for kind in (htb.SHARES, htb.MEMBERS))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_thousand_shares_that_came_and_went_leave_nothing(seed: int) -> None:
    chance = random.Random(seed)
    empty = htb.bands(UPLINK, [], [])
    state = dict(empty)
    live: list[port.Share] = []
    numbers = class_numbers.Numbers(htb.SHARES)
    turns = [True] * 1000 + [False] * 1000
    chance.shuffle(turns)
    for comes in [*turns, *[False] * 1000]:
        if comes:
            minor = numbers.lowest()
            assert minor == min(set(htb.SHARES[:1001]) - {item.minor for item in live})
            numbers.take(minor)
            live.append(share(minor))
            new = htb.share_bands(UPLINK, live[-1], [])
            assert not {band.minor for band in new} & state.keys()
            state |= {band.minor: band for band in new}
        elif live:
            gone = live.pop(chance.randrange(len(live))).minor
            numbers.give_back(gone)
            del state[gone]
    assert not live
    assert state == empty
