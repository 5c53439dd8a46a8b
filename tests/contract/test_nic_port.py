"""What every NIC port keeps, on a mock machine and on the real kernel."""

import dataclasses
import pathlib
from collections.abc import Iterator

import pytest

from drakit import machines
from drakit.core import errors
from drakit_nic import kernel_port, mock_port, port
from fakes import netns, waits


@dataclasses.dataclass(frozen=True)
class Bench:
    """A port, and what is known of its machine by other means."""

    port: port.Port
    uplink: str
    nic: str
    mac: str
    mtu: int


@pytest.fixture(params=["mock", pytest.param("kernel", marks=pytest.mark.root)])
def bench(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Bench]:
    if request.param == "mock":
        choice = machines.Choice(name="dgx-a100-40gb", directory=tmp_path)
        yield Bench(port=mock_port.MockPort(choice), uplink="eth0", nic="eth1", mac="02:d9:a1:00:00:01", mtu=9000)
        return
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as own:
        own.make_nic("uplink0", mac="02:00:00:00:00:10")
        own.ip("address", "add", "10.1.0.2/24", "dev", "uplink0")
        own.ip("route", "add", "default", "via", "10.1.0.1")
        own.make_nic("nic0", mac="02:00:00:00:00:20", mtu=9000)
        yield Bench(port=kernel_port.KernelPort(own.name), uplink="uplink0", nic="nic0", mac="02:00:00:00:00:20", mtu=9000)


def by_name(bench: Bench) -> dict[str, port.Interface]:
    return {interface.name: interface for interface in bench.port.interfaces()}


def uplink_of(bench: Bench, speed: int = 10**10, reserve: int = 0) -> port.Uplink:
    interface = by_name(bench)[bench.nic]
    return port.Uplink(interface=interface.name, ifindex=interface.ifindex, mac=interface.mac, speed=speed, reserve=reserve)


def share_of(bench: Bench, number: int = 1, bandwidth: int = 10**8, ceil: int = 0) -> port.Share:
    interface = by_name(bench)[bench.nic]
    return port.Share(
        id=f"share-{number}",
        interface=interface.name,
        ifindex=interface.ifindex,
        mac=f"02:11:22:33:44:{number:02x}",
        bandwidth=bandwidth,
        ceil=ceil,
        minor=0x100 + number,
    )


def test_interfaces_are_listed_by_index_and_each_name_once(bench: Bench) -> None:
    interfaces = bench.port.interfaces()
    assert [interface.ifindex for interface in interfaces] == sorted({interface.ifindex for interface in interfaces})
    assert len({interface.name for interface in interfaces}) == len(interfaces)


def test_an_interface_is_described_as_it_is(bench: Bench) -> None:
    interface = by_name(bench)[bench.nic]
    assert (interface.mac, interface.mtu, interface.carrier, interface.state) == (bench.mac, bench.mtu, True, "up")
    assert interface.encapsulation == port.ETHERNET
    assert interface.driver
    assert not interface.default_route


def test_the_interface_of_the_default_route_is_marked(bench: Bench) -> None:
    assert [interface.name for interface in bench.port.interfaces() if interface.default_route] == [bench.uplink]


def test_reading_one_interface_gives_the_same_as_reading_all(bench: Bench) -> None:
    for name, interface in by_name(bench).items():
        assert bench.port.interface(name) == dataclasses.replace(interface, used="")


@pytest.mark.parametrize("name", ["", "no-such", "x" * 16, "x" * 64, "a/b", "caf\u00e9-\ufffd"])
def test_an_unknown_name_finds_nothing(bench: Bench, name: str) -> None:
    assert bench.port.interface(name) is None


def test_reading_twice_gives_the_same(bench: Bench) -> None:
    assert bench.port.interfaces() == bench.port.interfaces()


def test_installing_and_removing_a_share_repeatedly_leaves_interfaces_unchanged(bench: Bench) -> None:
    before = bench.port.interfaces()
    share = share_of(bench)
    for _ in range(2):
        bench.port.install(uplink_of(bench), share)
        assert bench.port.shares() == (share,)
    for hint in (share, share, None):
        bench.port.remove(share.id, hint)
        assert bench.port.shares() == ()
    assert bench.port.interfaces() == before


def test_a_share_is_found_without_a_hint_and_with_a_wrong_one(bench: Bench) -> None:
    for number in (1, 2):
        bench.port.install(uplink_of(bench), share_of(bench, number))
    bench.port.remove("share-1", dataclasses.replace(share_of(bench, 2), id="share-1"))
    assert [share.id for share in bench.port.shares()] == ["share-2"]
    bench.port.remove("share-2")
    assert bench.port.shares() == ()


def test_removing_an_unknown_share_succeeds_and_changes_no_other(bench: Bench) -> None:
    bench.port.install(uplink_of(bench), share_of(bench))
    bench.port.remove("someone-else", share_of(bench, 9))
    bench.port.remove("someone-else")
    assert bench.port.shares() == (share_of(bench),)


def test_new_rates_change_a_share_and_keep_its_members(bench: Bench) -> None:
    share = share_of(bench)
    bench.port.install(uplink_of(bench), share)
    bench.port.admit(share, cookie=7001, mac="02:aa:00:00:00:01")
    altered = dataclasses.replace(share, bandwidth=3 * 10**8, ceil=10**9)
    bench.port.install(uplink_of(bench), altered)
    assert bench.port.shares() == (altered,)
    assert bench.port.members() == (port.Member(share_id=share.id, cookie=7001, mac="02:aa:00:00:00:01"),)
    (traffic,) = bench.port.traffic()
    assert {(side.rate, side.ceil) for side in (traffic.egress, traffic.ingress)} == {(3 * 10**8, 10**9)}
    assert bench.port.check(uplink_of(bench), [altered]) == ()


def test_sandboxes_can_be_added_and_removed_repeatedly(bench: Bench) -> None:
    share = share_of(bench)
    bench.port.install(uplink_of(bench), share)
    for _ in range(2):
        bench.port.admit(share, cookie=7001, mac="02:AA:00:00:00:01")
        bench.port.admit(share, cookie=7002, mac="02:aa:00:00:00:02")
    assert [(member.cookie, member.mac) for member in bench.port.members()] == [(7001, "02:aa:00:00:00:01"), (7002, "02:aa:00:00:00:02")]
    assert bench.port.check(uplink_of(bench), [share]) == ()
    for _ in range(2):
        bench.port.dismiss(share, cookie=7001, mac="02:aa:00:00:00:01")
    assert [member.cookie for member in bench.port.members()] == [7002]
    assert bench.port.check(uplink_of(bench), [share]) == ()
    bench.port.remove(share.id, share)
    assert bench.port.members() == ()


def test_an_address_belongs_to_the_last_sandbox_that_used_it(bench: Bench) -> None:
    share = share_of(bench)
    bench.port.install(uplink_of(bench), share)
    for cookie in (7001, 7002):
        bench.port.admit(share, cookie=cookie, mac="02:aa:00:00:00:01")
    assert bench.port.members() == (port.Member(share_id=share.id, cookie=7002, mac="02:aa:00:00:00:01"),)
    assert bench.port.check(uplink_of(bench), [share]) == ()


def test_the_members_of_one_share_are_listed_alone(bench: Bench) -> None:
    one, other = share_of(bench, 1), share_of(bench, 2)
    for number, share in enumerate((one, other)):
        bench.port.install(uplink_of(bench), share)
        for place in range(15):
            bench.port.admit(share, cookie=7000 + place, mac=f"02:aa:00:00:{number:02x}:{place:02x}")
    of_one = tuple(member for member in bench.port.members() if member.share_id == one.id)
    assert bench.port.members(of=one) == of_one
    assert len(of_one) == 15
    assert bench.port.check(uplink_of(bench), [one, other]) == ()
    bench.port.remove(one.id, one)
    assert bench.port.members(of=one) == ()
    assert len(bench.port.members(of=other)) == len(bench.port.members()) == 15
    assert bench.port.check(uplink_of(bench), [other]) == ()


def test_the_member_with_an_address_is_found_whatever_its_share(bench: Bench) -> None:
    one, other = share_of(bench, 1), share_of(bench, 2)
    for number, share in enumerate((one, other)):
        bench.port.install(uplink_of(bench), share)
        bench.port.admit(share, cookie=7000 + number, mac=f"02:aa:00:00:00:0{number}")
    assert bench.port.members_at("02:AA:00:00:00:01") == (port.Member(share_id=other.id, cookie=7001, mac="02:aa:00:00:00:01"),)
    assert bench.port.members_at("02:aa:00:00:00:07") == ()
    bench.port.dismiss(other, cookie=7001, mac="02:aa:00:00:00:01")
    assert bench.port.members_at("02:aa:00:00:00:01") == ()


def test_the_share_of_a_class_is_found_by_its_number(bench: Bench) -> None:
    share = share_of(bench)
    assert bench.port.share(share.ifindex, share.minor) is None
    bench.port.install(uplink_of(bench), share)
    assert bench.port.share(share.ifindex, share.minor) == share
    assert bench.port.share(share.ifindex, share.minor + 1) is None
    assert bench.port.share(share.ifindex + 1000, share.minor) is None


def test_a_sandbox_cannot_use_a_share_that_is_not_installed(bench: Bench) -> None:
    with pytest.raises(errors.HardwareError, match=r"^admit: share share-1 is not installed on ") as refused:
        bench.port.admit(share_of(bench), cookie=7001, mac="02:aa:00:00:00:01")
    assert refused.value.call == "admit"
    bench.port.dismiss(share_of(bench), cookie=7001, mac="02:aa:00:00:00:01")
    assert bench.port.members() == ()


def test_a_repair_leaves_exactly_the_wanted_shares_and_reports_its_fixes(bench: Bench) -> None:
    for number in (1, 2):
        bench.port.install(uplink_of(bench), share_of(bench, number))
    wanted = [share_of(bench, 2, bandwidth=2 * 10**8), share_of(bench, 3)]
    wrong = {"share share-1 has no claim", "share share-2 differs from its claim", "share share-3 is missing"}
    assert wrong <= set(bench.port.check(uplink_of(bench), wanted))
    assert wrong <= set(bench.port.repair(uplink_of(bench), wanted))
    assert bench.port.shares() == tuple(wanted)
    assert bench.port.check(uplink_of(bench), wanted) == ()
    assert bench.port.repair(uplink_of(bench), wanted) == ()


def test_a_repair_without_shares_leaves_the_nic_as_it_was(bench: Bench) -> None:
    before = bench.port.interfaces()
    assert bench.port.repair(uplink_of(bench), []) == ()
    bench.port.install(uplink_of(bench), share_of(bench))
    assert bench.port.repair(uplink_of(bench), [])
    assert bench.port.shares() == ()
    assert bench.port.interfaces() == before


def test_counters_report_the_configured_rates(bench: Bench) -> None:
    assert bench.port.traffic() == ()
    bench.port.install(uplink_of(bench), share_of(bench, ceil=5 * 10**8))
    still = port.Counters(rate=10**8, ceil=5 * 10**8)
    assert bench.port.traffic() == (port.Traffic(share_id="share-1", egress=still, ingress=still),)


def test_a_watch_returns_when_it_is_woken(bench: Bench) -> None:
    watch = bench.port.watch()
    try:
        watch.wake()
        assert watch.wait(waits.SECONDS)
        watch.drain()
        assert not watch.wait(0)
    finally:
        watch.close()


def test_errors_name_the_failed_call(tmp_path: pathlib.Path) -> None:
    lost = kernel_port.KernelPort("no-such-namespace-here")
    share = port.Share(id="x", interface="eth9", ifindex=9, mac="02:11:22:33:44:55", bandwidth=1, minor=0x100)
    uplink = port.Uplink(interface="eth9", ifindex=9, mac="02:11:22:33:44:00", speed=10**9)
    with pytest.raises(errors.HardwareError) as gone:
        lost.interfaces()
    assert gone.value.call == "open"
    with pytest.raises(errors.HardwareError) as refused:
        lost.install(uplink, share)
    assert refused.value.call == "install"
    choice = machines.Choice(name="dgx-a100-40gb", directory=tmp_path)
    with pytest.raises(errors.HardwareError) as unknown:
        mock_port.MockPort(choice).install(uplink, share)
    assert unknown.value.call == "install"
