"""What every NIC port keeps, on a mock machine and on the real kernel."""

import dataclasses
import pathlib
from collections.abc import Iterator

import pytest

from drakit.core import errors
from drakit.devices import machines
from drakit.devices.nic import mock, netlink, port
from fakes import netns


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
        yield Bench(port=mock.MockPort(choice), uplink="eth0", nic="eth1", mac="02:d9:a1:00:00:01", mtu=9000)
        return
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as own:
        own.make_nic("uplink0", mac="02:00:00:00:00:10")
        own.ip("address", "add", "10.1.0.2/24", "dev", "uplink0")
        own.ip("route", "add", "default", "via", "10.1.0.1")
        own.make_nic("nic0", mac="02:00:00:00:00:20", mtu=9000)
        yield Bench(port=netlink.KernelPort(own.name), uplink="uplink0", nic="nic0", mac="02:00:00:00:00:20", mtu=9000)


def by_name(bench: Bench) -> dict[str, port.Interface]:
    return {interface.name: interface for interface in bench.port.interfaces()}


def share_of(bench: Bench, identity: str = "share-1", bandwidth: int = 10**8) -> port.Share:
    found = by_name(bench)[bench.nic]
    return port.Share(id=identity, interface=found.name, ifindex=found.ifindex, mac="02:11:22:33:44:55", bandwidth=bandwidth)


def test_interfaces_come_by_rising_index_and_each_name_once(bench: Bench) -> None:
    found = bench.port.interfaces()
    assert [item.ifindex for item in found] == sorted({item.ifindex for item in found})
    assert len({item.name for item in found}) == len(found)


def test_an_interface_is_described_as_it_is(bench: Bench) -> None:
    found = by_name(bench)[bench.nic]
    assert (found.mac, found.mtu, found.carrier, found.state) == (bench.mac, bench.mtu, True, "up")
    assert found.encapsulation == port.ETHERNET
    assert found.driver
    assert not found.default_route


def test_the_interface_of_the_default_route_is_marked(bench: Bench) -> None:
    assert [item.name for item in bench.port.interfaces() if item.default_route] == [bench.uplink]


def test_one_interface_is_the_same_as_among_all(bench: Bench) -> None:
    for name, interface in by_name(bench).items():
        assert bench.port.interface(name) == interface


@pytest.mark.parametrize("name", ["", "no-such", "x" * 16, "x" * 64, "a/b", "caf\u00e9-\ufffd"])
def test_a_name_nobody_has_finds_nothing(bench: Bench, name: str) -> None:
    assert bench.port.interface(name) is None


def test_reading_twice_gives_the_same(bench: Bench) -> None:
    assert bench.port.interfaces() == bench.port.interfaces()


def test_a_share_is_installed_and_removed_any_number_of_times_and_interfaces_stay_as_they_were(bench: Bench) -> None:
    before = bench.port.interfaces()
    bench.port.install(share_of(bench))
    bench.port.install(share_of(bench))
    assert [share.id for share in bench.port.shares()] in (["share-1"], [])  # The kernel keeps no shares yet.
    bench.port.remove("share-1")
    bench.port.remove("share-1")
    assert bench.port.shares() == ()
    assert bench.port.interfaces() == before


def test_removing_what_was_never_installed_succeeds_and_spares_the_rest(bench: Bench) -> None:
    bench.port.install(share_of(bench))
    before = bench.port.shares()
    bench.port.remove("someone-else")
    assert bench.port.shares() == before
    bench.port.remove("share-1")


def test_errors_name_the_call(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.HardwareError) as gone:
        netlink.KernelPort("no-such-namespace-here").interfaces()
    assert gone.value.call == "open"
    choice = machines.Choice(name="dgx-a100-40gb", directory=tmp_path)
    with pytest.raises(errors.HardwareError) as unknown:
        mock.MockPort(choice).install(port.Share(id="x", interface="eth9", ifindex=9, mac="02:11:22:33:44:55", bandwidth=1))
    assert unknown.value.call == "install"
