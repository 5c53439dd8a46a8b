"""The model of classes and lookups: what is wanted, and how what is found becomes it."""

import dataclasses
import random

import hypothesis
import pytest
from hypothesis import strategies

from drakit_nic import port
from drakit_nic.shaping import htb, tc_messages

GIGA = 10**9
NIC = "02:00:00:00:00:20"
UPLINK = port.Uplink(interface="nic0", ifindex=3, mac=NIC, speed=10 * GIGA, reserve=GIGA)


def share(minor: int = 0x100, bandwidth: int = 10**8, ceil: int = 0) -> port.Share:
    return port.Share(id=f"s{minor}", interface="nic0", ifindex=3, mac="02:00:00:00:01:00", bandwidth=bandwidth, ceil=ceil, minor=minor)


def member(minor: int, of: int = 0x100, cookie: int = 7) -> htb.ShareMember:
    return htb.ShareMember(minor=minor, share=of, cookie=cookie, mac=f"02:aa:00:00:{minor >> 8:02x}:{minor & 0xFF:02x}")


@strategies.composite
def worlds(draw: strategies.DrawFn) -> htb.HtbClasses:
    """The classes of some shares, some of them with members."""
    minors = draw(strategies.sets(strategies.sampled_from(htb.SHARES[:6])))
    rates = strategies.integers(8, 2 * 10**11)
    listed = [share(minor, draw(rates), draw(strategies.just(0) | rates)) for minor in sorted(minors)]
    places = draw(strategies.sets(strategies.sampled_from(htb.MEMBERS[:6])))
    members = [member(minor, draw(strategies.sampled_from(sorted(minors)))) for minor in sorted(places)] if minors else []
    return htb.classes_for(UPLINK, listed, members)


@hypothesis.given(worlds(), worlds())
def test_the_changes_lead_from_any_state_to_any_other_by_steps_the_kernel_takes(wanted: htb.HtbClasses, found: htb.HtbClasses) -> None:
    state = dict(found)
    for change in htb.differences(wanted, found):
        minor = change.spec.minor
        if change.is_drop:
            assert not [spec for spec in state.values() if spec.parent == minor], "the kernel deletes no class that has others below it"
            del state[minor]
        else:
            assert change.spec.parent in state or change.spec.parent == 0
            assert minor not in state or state[minor].parent == change.spec.parent, "the kernel moves no class"
            state[minor] = change.spec
    assert state == wanted
    assert htb.differences(wanted, wanted) == ()


@hypothesis.given(worlds())
def test_a_class_has_a_queue_exactly_when_none_is_below_it(specs: htb.HtbClasses) -> None:
    parents = {spec.parent for spec in specs.values()}
    for spec in specs.values():
        assert (spec.limit == 0) == (spec.minor in parents)
        assert spec.rate % 8 == spec.ceil % 8 == 0
        assert spec.ceil >= spec.rate > 0
        assert 0 < spec.burst < 2**32
        assert 0 < spec.cburst < 2**32


def test_a_share_is_limited_to_its_rate_or_to_its_ceil_and_never_beyond_the_nic() -> None:
    assert [htb.classes_for(UPLINK, [share(ceil=ceil)], [])[0x100].ceil for ceil in (0, 10**7, 5 * GIGA, 99 * GIGA)] == [
        10**8,
        10**8,
        5 * GIGA,
        10 * GIGA,
    ]


def test_the_host_has_its_reserve_and_at_least_a_little() -> None:
    assert htb.classes_for(UPLINK, [], [])[htb.HOST].rate == GIGA
    without = dataclasses.replace(UPLINK, reserve=0)
    assert {htb.classes_for(without, [], [])[minor].ceil for minor in (htb.HOST, htb.STRAY, htb.DEFAULT)} == {htb.MIN_RATE_BITS}


@pytest.mark.parametrize("members", [1, 2, 5])
def test_members_have_a_minimal_rate_and_borrow_equally_up_to_the_share(members: int) -> None:
    specs = htb.classes_for(UPLINK, [share(bandwidth=GIGA)], [member(0x8000 + number) for number in range(members)])
    mine = [spec for spec in specs.values() if spec.parent == 0x100]
    assert len(mine) == members
    assert sum(spec.rate for spec in mine) < GIGA / 50
    assert {spec.ceil for spec in mine} == {GIGA}
    assert len({spec.quantum for spec in mine}) == 1
    assert sum(spec.quantum for spec in mine) <= htb.classes_for(UPLINK, [share(bandwidth=GIGA)], [])[0x100].quantum


def test_shares_borrow_in_proportion_to_their_rates() -> None:
    specs = htb.classes_for(UPLINK, [share(0x100 + times, times * 10**8) for times in range(1, 5)], [])
    assert [specs[0x100 + times].quantum // specs[0x101].quantum for times in range(1, 5)] == [1, 2, 3, 4]


def test_a_queue_is_short_but_holds_the_largest_frames() -> None:
    specs = htb.classes_for(UPLINK, [share(0x100, 10**8), share(0x101, 10 * GIGA)], [])
    assert specs[0x100].limit == 287_500
    assert specs[0x101].limit == 28_750_000


@pytest.mark.parametrize("speed", [400 * 10**9, 1600 * 10**9])
def test_no_queue_is_longer_than_the_kernel_keeps_it(speed: int) -> None:
    """fq_codel reduces a memory limit above 2^31; the driver gives four bytes of memory for a byte of the queue."""
    uplink = port.Uplink(interface="nic0", ifindex=2, mac="02:00:00:00:00:20", speed=speed)
    share = port.Share(id="s", interface="nic0", ifindex=2, mac="02:00:00:00:00:01", bandwidth=speed, minor=0x100)
    limits = [spec.limit for spec in htb.classes_for(uplink, [share], []).values() if spec.limit]
    assert max(limits) * tc_messages.MEMORY_FOR_BYTE == 2**31


def test_a_class_makes_up_for_a_gap_of_four_milliseconds_and_never_gains_more() -> None:
    """In the kernel's ticks of 64 ns; two full frames where the rate is so small that they take longer."""
    specs = htb.classes_for(UPLINK, [share(0x100, 10**8), share(0x101, GIGA, ceil=5 * GIGA), share(0x102, 10**6)], [])
    assert {specs[minor].burst * 64 for minor in (htb.ROOT, 0x100, 0x101)} == {4 * 10**6}
    assert specs[0x101].cburst * 64 == 4 * 10**6
    assert specs[0x102].burst * 64 == 3000 * 8 * 10**9 // 10**6


def test_a_known_address_without_a_known_owner_leads_to_no_share() -> None:
    members = [member(0x8000, cookie=7), member(0x8001, of=0x101, cookie=8)]
    lookups = htb.owners(port.Classifier.NETNS, host=1, mac=NIC, members=members)
    assert {minor for (cookie, _), minor in lookups.items() if cookie == htb.ANY_NAMESPACE} == {htb.STRAY}
    assert lookups[1, htb.ANY] == lookups[htb.KERNEL_MADE, NIC] == htb.HOST
    assert {lookups[7, htb.ANY], lookups[7, members[0].mac]} == {0x8000}


def test_two_shares_of_one_namespace_split_by_address_and_the_first_gets_the_rest() -> None:
    members = [member(0x8001, cookie=7), member(0x8000, of=0x101, cookie=7)]
    lookups = htb.owners(port.Classifier.NETNS, host=1, mac=NIC, members=members)
    assert [lookups[7, item.mac] for item in members] == [0x8001, 0x8000]
    assert lookups[7, htb.ANY] == 0x8000


def test_where_namespaces_are_not_distinguished_addresses_lead_to_shares() -> None:
    lookups = htb.owners(port.Classifier.MAC, host=0, mac=NIC, members=[member(0x8000)])
    assert lookups == {(htb.ANY_NAMESPACE, NIC): htb.HOST, (htb.ANY_NAMESPACE, member(0x8000).mac): 0x8000}


def test_class_numbers_never_meet_and_run_out_politely() -> None:
    kinds = [{htb.ROOT, htb.HOST, htb.STRAY, htb.DEFAULT}, {htb.MAJOR}, set(htb.SHARES), set(htb.MEMBERS)]
    assert len(set.union(*kinds)) == sum(map(len, kinds))
    assert max(htb.MEMBERS) < 0xFFFF
    assert htb.NumberPool(htb.SHARES).lowest() == 0x100
    assert htb.NumberPool(htb.SHARES, {0x100, 0x102}).lowest() == 0x101
    assert all(htb.NumberPool(kind, kind).lowest() is None for kind in (htb.SHARES, htb.MEMBERS))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_thousand_shares_that_came_and_went_leave_nothing(seed: int) -> None:
    chance = random.Random(seed)
    empty = htb.classes_for(UPLINK, [], [])
    state = dict(empty)
    live: list[port.Share] = []
    numbers = htb.NumberPool(htb.SHARES)
    turns = [True] * 1000 + [False] * 1000
    chance.shuffle(turns)
    for comes in [*turns, *[False] * 1000]:
        if comes:
            minor = numbers.lowest()
            assert minor == min(set(htb.SHARES[:1001]) - {share.minor for share in live})
            numbers.take(minor)
            live.append(share(minor))
            new = htb.share_classes(UPLINK, live[-1], [])
            assert not {spec.minor for spec in new} & state.keys()
            state |= {spec.minor: spec for spec in new}
        elif live:
            gone = live.pop(chance.randrange(len(live))).minor
            numbers.release(gone)
            del state[gone]
    assert not live
    assert state == empty
