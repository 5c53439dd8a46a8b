"""Each frame counts as its sender's, whatever the sender writes into it: by every way to know a sender that this kernel has.

Frames are counted, not timed, so this holds on any kernel and machine, also an emulated one (``make vm``). What floods gain is in
``scenario/test_nic_traffic``.
"""

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from drakit_nic import port
from fakes import netns, nic_network, waits

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]

MEGA = 10**6
FRAMES = 100
NOISE = 20
"""Frames that a kernel sends on its own, as to find neighbours, or drops until it has found one."""
SO_PRIORITY = 12
OTHERS = {"the sibling's": "02:99:00:00:02:01", "the NIC's": nic_network.NIC_MAC, "nobody's": "02:00:00:00:00:99"}


class Pods:
    """A hostile pod and its sibling, each with a share of the same NIC."""

    def __init__(self, network: nic_network.NicNetwork) -> None:
        self.network = network
        shares = [network.share(number, 100 * MEGA) for number in (1, 2)]
        self.hostile, self.sibling = network.sharing(*shares, reserve=10 * MEGA)
        server = str(network.network.links()["wire"]["address"])
        self.hostile.space.ip("neighbour", "replace", nic_network.SERVER, "lladdr", server, "dev", "net1")

    def spent(self, send: Callable[[], None]) -> tuple[int, int]:
        """Frames that count as the hostile pod's and as its sibling's, of those that ``send`` sends."""
        before, sent = self._counted(), self._left()
        send()
        assert waits.eventually(lambda: self._left() - sent >= FRAMES - NOISE)
        mine, other = (after - early for early, after in zip(before, self._counted(), strict=True))
        return mine, other

    def _counted(self) -> tuple[int, int]:
        packets = {traffic.share_id: traffic.egress.packets for traffic in self.network.port.traffic()}
        return packets["share-1"], packets["share-2"]

    def _left(self) -> int:
        return int(self.network.node.run("cat", "/sys/class/net/nic0/statistics/tx_packets"))

    def raw(self, space: netns.Namespace, link: str, source: str) -> None:
        """Send raw frames with this source address."""

        def work() -> None:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
                sock.bind((link, 0))
                frame = bytes.fromhex("020000000099" + source.replace(":", "") + "88b5") + bytes(100)
                for _ in range(FRAMES):
                    sock.send(frame)

        nic_network.inside(space, work)

    def datagrams(self, space: netns.Namespace, priority: int = 0) -> None:
        """Send datagrams of a socket with this priority."""

        def work() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.setsockopt(socket.SOL_SOCKET, SO_PRIORITY, struct.pack("=I", priority))
                sock.connect((nic_network.SERVER, 9))
                for _ in range(FRAMES):
                    with contextlib.suppress(ConnectionRefusedError):
                        sock.send(bytes(100))

        nic_network.inside(space, work)


def is_all(spent: tuple[int, int]) -> bool:
    """Whether the frames count as the hostile pod's, and none as its sibling's."""
    return spent[0] >= FRAMES - NOISE and spent[1] < NOISE


def is_none(spent: tuple[int, int]) -> bool:
    """Whether the frames count as no pod's."""
    return max(spent) < NOISE


@pytest.fixture(params=nic_network.BY_NAMESPACE)
def pods(request: pytest.FixtureRequest) -> Iterator[Pods]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_network.network(nic_network.BY_NAMESPACE[request.param]) as network:
        assert network.port.shaping().classifier is port.Classifier.NETNS
        yield Pods(network)


def test_raw_frames_with_any_source_address_count_as_the_sender_s(pods: Pods) -> None:
    for source in OTHERS.values():
        assert is_all(pods.spent(lambda source=source: pods.raw(pods.hostile.space, "net1", source))), source  # type: ignore[misc]


def test_a_socket_with_a_class_as_priority_counts_as_the_sender_s(pods: Pods) -> None:
    for priority in (0, 0xDA0002, 0xDA0000, 0xDA0102, 0xDA8001, 0xFFFFFFFF):
        assert is_all(pods.spent(lambda priority=priority: pods.datagrams(pods.hostile.space, priority))), hex(priority)  # type: ignore[misc]


def test_a_pod_that_changes_its_address_still_spends_its_own_share(pods: Pods) -> None:
    pods.hostile.space.ip("link", "set", "net1", "address", "02:de:ad:00:00:01")
    assert is_all(pods.spent(lambda: pods.datagrams(pods.hostile.space)))


def test_frames_forwarded_from_a_nested_namespace_spend_no_share(pods: Pods) -> None:
    with netns.namespace() as nested:
        inner = pods.hostile.space
        inner.ip("link", "add", "in0", "type", "veth", "peer", "name", "out0", "netns", nested.name)
        inner.ip("link", "set", "in0", "up")
        nested.ip("link", "set", "out0", "up")
        inner.run("tc", "qdisc", "add", "dev", "in0", "ingress")
        redirect = ("match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", "net1")
        inner.run("tc", "filter", "add", "dev", "in0", "ingress", "protocol", "all", "u32", *redirect)
        for source in (pods.hostile.mac, *OTHERS.values()):
            assert is_none(pods.spent(lambda source=source: pods.raw(nested, "out0", source))), source  # type: ignore[misc]


def test_a_nested_namespace_with_a_child_of_its_own_spends_no_share(pods: Pods) -> None:
    stranger = pods.network.pod(9)
    assert is_none(pods.spent(lambda: pods.raw(stranger.space, "net1", pods.sibling.mac)))


def test_answers_of_the_pod_s_kernel_count_as_the_pod_s(pods: Pods) -> None:
    def ask() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
            sock.settimeout(waits.SECONDS)
            for number in range(FRAMES):
                sock.sendto(echo_request(number), (pods.hostile.address, 0))
                sock.recv(1500)

    assert is_all(pods.spent(lambda: nic_network.inside(pods.network.network, ask)))


def echo_request(number: int) -> bytes:
    kind, identity = 8 << 8, 7
    total = kind + identity + number
    return struct.pack("!HHHH", kind, ~(total + (total >> 16)) & 0xFFFF, identity, number)


def test_resets_of_the_pod_s_kernel_count_as_the_pod_s(pods: Pods) -> None:
    def connect() -> None:
        for _ in range(FRAMES):
            with socket.socket() as sock, contextlib.suppress(ConnectionRefusedError):
                sock.settimeout(waits.SECONDS)
                sock.connect((pods.hostile.address, 9))

    assert is_all(pods.spent(lambda: nic_network.inside(pods.network.network, connect)))


def test_frames_of_the_host_spend_no_share(pods: Pods) -> None:
    assert is_none(pods.spent(lambda: pods.raw(pods.network.node, "nic0", pods.sibling.mac)))


def test_the_sibling_s_own_frames_spend_its_share(pods: Pods) -> None:
    mine, other = pods.spent(lambda: pods.raw(pods.sibling.space, "net1", pods.sibling.mac))
    assert mine < NOISE
    assert other >= FRAMES - NOISE
