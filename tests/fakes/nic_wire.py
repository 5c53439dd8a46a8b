"""A node whose NIC leads to a wire in another namespace, with frames that other machines on the wire may send, and what they see."""

import contextlib
import dataclasses
import ipaddress
import pathlib
import socket
import struct
import tempfile
from collections.abc import Iterator

from drakit.core import claim as claims
from drakit.core import records
from drakit_nic import options as nic_options
from fakes import netns, nic_attach, nic_network

GATEWAY_MAC = "02:00:00:00:00:aa"
WIRE = "wire"
WHOLE = dataclasses.replace(nic_attach.OPTIONS, whole=("nic0",))
_EVERY_PROTOCOL = 3
_ROUTER_ADVERTISEMENT, _ADVERTISEMENT = 134, 136
_ICMPV6, _ICMP, _REDIRECT_HOST = 58, 1, 5
_PREFIX_FLAGS, _HIGH_PREFERENCE = 0xC0, 0x08


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wired:
    """The node, and the namespace with the other end of its NIC ``nic0``: the interface ``wire``."""

    world: nic_attach.World
    net: netns.Namespace

    def send(self, frame: bytes) -> None:
        """Send a frame to the node's NIC."""
        with nic_network.inside(self.net, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) as sock:
            sock.bind((WIRE, 0))
            sock.send(frame)

    @contextlib.contextmanager
    def heard(self) -> Iterator["Heard"]:
        """The announcements that arrive on the wire from here on, in a list that ``listen`` of it fills."""
        with nic_network.inside(self.net, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL))) as sock:
            sock.bind((WIRE, _EVERY_PROTOCOL))
            sock.settimeout(0.05)
            yield Heard(sock)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Announced:
    """An announcement that other machines saw: the address and the MAC that it gives, and the flags of a neighbour advertisement."""

    address: str
    mac: str
    flags: int = 0


class Heard(list[Announced]):
    """The announcements on a wire."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock

    def listen(self) -> "Heard":
        """Take in what has arrived."""
        with contextlib.suppress(TimeoutError):
            while True:
                frame, (_, _, kind, *_) = self._sock.recvfrom(2048)
                announced = None if kind == socket.PACKET_OUTGOING else _announced(frame)
                if announced is not None:
                    self.append(announced)
        return self


def _announced(frame: bytes) -> Announced | None:
    """The announcement in a frame, None for another one. An advertisement with a wrong checksum fails."""
    kind, body = frame[12:14], frame[14:]
    if kind == b"\x08\x06" and body[14:18] == body[24:28]:
        assert frame[:6] == b"\xff" * 6
        assert frame[6:12] == body[8:14]
        return Announced(address=str(ipaddress.ip_address(body[14:18])), mac=body[8:14].hex(":"))
    if kind == b"\x86\xdd" and body[6] == _ICMPV6 and body[40] == _ADVERTISEMENT and frame[:2] == b"33":
        message = body[40 : 40 + struct.unpack_from("!H", body, 4)[0]]
        assert checksum(body[8:40] + struct.pack("!II", len(message), _ICMPV6) + message) == 0
        assert message[24:26] == b"\x02\x01"
        assert body[8:24] == message[8:24]
        return Announced(address=str(ipaddress.ip_address(message[8:24])), mac=message[26:32].hex(":"), flags=message[4])
    return None


@contextlib.contextmanager
def wired(options: nic_options.NicOptions = nic_attach.OPTIONS) -> Iterator[Wired]:
    with netns.namespace() as node, netns.namespace() as net, tempfile.TemporaryDirectory(prefix="dk") as folder:
        net.ip("link", "add", WIRE, "address", GATEWAY_MAC, "type", "veth", "peer", "name", "nic0", "netns", node.name)
        node.ip("link", "set", "nic0", "address", nic_attach.NIC_MAC)
        for space, name in ((net, WIRE), (node, "nic0")):
            space.ip("link", "set", name, "up")
        nic_attach.until(lambda: node.links()["nic0"]["operstate"] == "UP", "the NIC has no link")
        net.ip("address", "add", "10.99.0.1/16", "dev", WIRE)
        if netns.HAS_IPV6:
            net.ip("address", "add", "fd99::1/64", "dev", WIRE, "nodad")
        yield Wired(world=nic_attach.World(node, pathlib.Path(folder), options), net=net)


def whole(number: int, parameters: records.Record, source: claims.ConfigSource = claims.ConfigSource.CLAIM) -> claims.Claim:
    """A claim for the whole ``nic0``."""
    shared = nic_attach.claim(number, parameters=parameters, source=source)
    (result,) = shared.results
    return dataclasses.replace(shared, results=(dataclasses.replace(result, device="nic0-whole", share_id=None, consumed_capacity={}),))


def router_advertisement(prefix: str = "2001:db8:77::") -> bytes:
    """The frame of a router that offers a prefix for autoconfiguration, and itself as default router of high preference."""
    source, everybody = (ipaddress.ip_address(text).packed for text in ("fe80::aa", "ff02::1"))
    own = bytes.fromhex(GATEWAY_MAC.replace(":", ""))
    information = struct.pack("!BBBBIII", 3, 4, 64, _PREFIX_FLAGS, 86400, 14400, 0) + ipaddress.ip_address(prefix).packed
    body = struct.pack("!BBHBBHII", _ROUTER_ADVERTISEMENT, 0, 0, 64, _HIGH_PREFERENCE, 1800, 0, 0) + b"\x01\x01" + own + information
    pseudo = source + everybody + struct.pack("!I3xB", len(body), _ICMPV6)
    body = body[:2] + struct.pack("!H", checksum(pseudo + body)) + body[4:]
    header = struct.pack("!IHBB", 6 << 28, len(body), _ICMPV6, 255) + source + everybody
    return bytes.fromhex("333300000001") + own + b"\x86\xdd" + header + body


def redirect(mac: str, *, victim: str, destination: str, router: str, better: str) -> bytes:
    """The frame by which a victim's router says that another one is the better way to a destination (ICMP redirect)."""
    addresses = {name: ipaddress.ip_address(text).packed for name, text in locals().items() if name != "mac"}
    # The kernel wants to have sent the packet that caused it; for the answer to an echo it does not look for a socket.
    cause = _ipv4(addresses["victim"], addresses["destination"], _ICMP, bytes(8))
    body = struct.pack("!BBH", _REDIRECT_HOST, 1, 0) + addresses["better"] + cause
    body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
    ends = bytes.fromhex((mac + GATEWAY_MAC).replace(":", ""))
    return ends + b"\x08\x00" + _ipv4(addresses["router"], addresses["victim"], _ICMP, body)


def checksum(content: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{(len(content) + 1) // 2}H", content + b"\0" * (len(content) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _ipv4(source: bytes, destination: bytes, protocol: int, body: bytes) -> bytes:
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, protocol, 0) + source + destination
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + body
