"""What a NIC with ipvlan shares receives is classified by IP address. Needs no ipvlan: frames for the NIC's own address come from the wire.

``tests/vm/test_ipvlan.py`` has the ipvlans themselves.
"""

import contextlib
import dataclasses
import ipaddress
import socket
from collections.abc import Iterator

import pytest

from drakit.core import errors
from drakit_nic import kernel_port, port
from drakit_nic.netlink import rtnetlink
from drakit_nic.shaping import htb, tc_messages
from fakes import netns, nic_network, waits

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]

MEGA, FRAMES = 10**6, 50
POD4, POD6, OTHER, ADDED = "10.99.1.1", "fd00:99::1", "10.99.1.2", "10.99.1.9"


@dataclasses.dataclass(frozen=True)
class Bench:
    """A NIC with two ipvlan shares and a member of each."""

    network: nic_network.NicNetwork
    shares: tuple[port.Share, port.Share]

    def classes(self) -> dict[int, int]:
        """The packets that each class of the ifb has sent."""
        with rtnetlink.Socket.open(self.network.node.name) as sock:
            (ifb,) = (int(str(link["ifindex"])) for name, link in self.network.node.links().items() if name.startswith("drb"))
            return {minor: entry.counters.packets for minor, entry in tc_messages.classes(sock, ifb).items()}

    def receives(self, to: str, protocol: int | None = None) -> int:
        """The class that receives packets for an IP address with the NIC's own MAC address, as they come from the wire."""
        before = self.classes()
        nic_network.inside(self.network.network, lambda: send(to, protocol))
        assert waits.eventually(lambda: self.classes()[htb.ROOT] - before[htb.ROOT] >= FRAMES)
        (got,) = (
            minor
            for minor, count in self.classes().items()
            if count - before.get(minor, 0) >= FRAMES and minor not in {htb.ROOT, *htb.SHARES}
        )
        return got

    def member(self, number: int) -> int:
        """The class of the member of a share."""
        minor = self.shares[number - 1].minor
        with rtnetlink.Socket.open(self.network.node.name) as sock:
            (found,) = (
                entry.spec.minor for entry in tc_messages.classes(sock, self.network.nic.ifindex).values() if entry.spec.parent == minor
            )
        return found


def send(to: str, protocol: int | None = None) -> None:
    """Send raw packets for an address to the NIC's own MAC address."""
    address = ipaddress.ip_address(to)
    header = bytes.fromhex("4500003c000000004011") + bytes(6) + address.packed
    if address.version == 6:
        header = bytes.fromhex("6000000000141140") + bytes(16) + address.packed
    kind = protocol or (0x86DD if address.version == 6 else 0x0800)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind(("wire", 0))
        for _ in range(FRAMES):
            sock.send(bytes.fromhex(nic_network.NIC_MAC.replace(":", "") + "020000000099") + kind.to_bytes(2, "big") + header + bytes(40))


@pytest.fixture
def bench() -> Iterator[Bench]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_network.network() as network:
        shares = tuple(dataclasses.replace(network.share(number, 100 * MEGA), child=port.ChildKind.IPVLAN) for number in (1, 2))
        for number, (share, hosts) in enumerate(zip(shares, ((POD4, POD6), (OTHER,)), strict=True), start=1):
            network.port.install(network.uplink(reserve=10 * MEGA), share)
            network.port.admit(share, cookie=1000 + number, mac=share.mac, hosts=hosts)
        yield Bench(network, (shares[0], shares[1]))


def test_packets_are_received_in_the_class_of_their_ip_address(bench: Bench) -> None:
    assert bench.receives(POD4) == bench.receives(POD6) == bench.member(1)
    assert bench.receives(OTHER) == bench.member(2)
    assert bench.receives(nic_network.HOST) == htb.HOST


def test_an_address_that_nobody_was_given_is_in_the_default_class(bench: Bench) -> None:
    assert bench.receives(ADDED) == htb.DEFAULT
    assert bench.receives("fd00:99::9") == htb.DEFAULT


def test_arp_for_the_nic_is_the_hosts(bench: Bench) -> None:
    assert bench.receives(POD4, protocol=0x0806) == htb.HOST


def test_the_addresses_of_a_member_are_replaced_and_end_with_it(bench: Bench) -> None:
    (share, _), machine = bench.shares, bench.network.port
    machine.admit(share, cookie=1001, mac=share.mac, hosts=(ADDED,))
    assert bench.receives(ADDED) == bench.member(1)
    assert bench.receives(POD4) == htb.DEFAULT
    machine.dismiss(share, cookie=1001, mac=share.mac)
    assert bench.receives(ADDED) == htb.DEFAULT


def test_a_check_follows_the_hosts_addresses_and_calls_nothing_damaged(bench: Bench) -> None:
    network = bench.network
    network.node.ip("link", "add", "upper0", "link", "nic0", "type", "macvlan", "mode", "private")
    for name, address in (("nic0", "10.99.7.7/32"), ("upper0", "10.99.7.8/32")):
        network.node.ip("address", "add", address, "dev", name)
    assert network.port.repair(network.uplink(reserve=10 * MEGA), bench.shares) == ()
    assert bench.receives("10.99.7.7") == bench.receives("10.99.7.8") == htb.HOST
    network.node.ip("address", "del", "10.99.7.7/32", "dev", "nic0")
    assert network.port.repair(network.uplink(reserve=10 * MEGA), bench.shares) == ()
    assert bench.receives("10.99.7.7") == htb.DEFAULT


def test_an_address_that_the_host_takes_for_a_moment_stays_the_pods(bench: Bench) -> None:
    network, uplink = bench.network, bench.network.uplink(reserve=10 * MEGA)
    network.node.ip("address", "add", f"{POD4}/32", "dev", "nic0")
    conflict = f"the host has {POD4} on nic0, which is the address of a pod; remove it from the host, or delete the pod"
    assert network.port.check(uplink, bench.shares) == (conflict,)
    with pytest.raises(errors.HardwareError, match=conflict):
        network.port.repair(uplink, bench.shares)
    assert bench.receives(POD4) == bench.member(1)
    network.node.ip("address", "del", f"{POD4}/32", "dev", "nic0")
    assert network.port.repair(uplink, bench.shares) == ()
    assert bench.receives(POD4) == bench.member(1)


def test_a_member_never_gets_an_address_of_the_host(bench: Bench) -> None:
    (share, _) = bench.shares
    with pytest.raises(errors.HardwareError, match=r"10\.99\.0\.2 is an address of the host on nic0; remove it from the host, or give"):
        bench.network.port.admit(share, cookie=1001, mac=share.mac, hosts=(nic_network.HOST,))


def test_another_process_finds_shares_members_and_addresses(bench: Bench) -> None:
    with contextlib.closing(kernel_port.KernelPort(bench.network.node.name)) as other:
        assert other.shares() == bench.network.port.shares()
        assert {share.child for share in other.shares()} == {port.ChildKind.IPVLAN}
        assert other.check(bench.network.uplink(reserve=10 * MEGA), bench.shares) == ()
        other.remove(bench.shares[0].id, bench.shares[0])
        assert bench.receives(POD4) == htb.DEFAULT
        assert bench.receives(OTHER) == bench.member(2)


def test_a_share_of_the_other_kind_is_refused_and_changes_nothing(bench: Bench) -> None:
    network = bench.network
    with pytest.raises(errors.HardwareError, match="nic0 has ipvlan shares, beside which the kernel allows no macvlan"):
        network.port.install(network.uplink(reserve=10 * MEGA), network.share(3, 100 * MEGA))
    assert bench.receives(POD4) == bench.member(1)
    assert network.port.repair(network.uplink(reserve=10 * MEGA), bench.shares) == ()


def test_frames_of_the_hosts_kernel_are_stray_because_a_pod_can_imitate_them(bench: Bench) -> None:
    owners = htb.owners(port.Classifier.NETNS, host=1, mac=nic_network.NIC_MAC, members=(), child=port.ChildKind.IPVLAN)
    assert owners[htb.KERNEL_MADE, nic_network.NIC_MAC] == htb.STRAY
    assert owners[1, htb.ANY] == htb.HOST
    assert bench.network.port.check(bench.network.uplink(reserve=10 * MEGA), bench.shares) == ()


def test_the_last_ipvlan_share_leaves_nothing_and_a_macvlan_share_may_follow(bench: Bench) -> None:
    network = bench.network
    for share in bench.shares:
        network.port.remove(share.id, share)
    assert not [name for name in network.node.links() if name.startswith("drb")]
    network.port.install(network.uplink(), network.share(3, 100 * MEGA))
    assert network.port.check(network.uplink(), [network.share(3, 100 * MEGA)]) == ()
