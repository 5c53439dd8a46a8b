"""The three maps of a shared NIC, typed: the memory of the kernel that the classifiers read and that outlives the driver.

``owners``  (namespace cookie, source address) -> class: what the egress classifier looks up
``routes``  destination address -> class of the member, its share's class, its namespace's cookie: what the ingress classifier looks up
``ledger``  class of a share -> the share: which share a class is for; no classifier looks into it

A map lives while a descriptor or a loaded program holds it. Both classifiers hold the ledger, so it is found again as long as one of them is there.
Keys and values are in the machine's byte order, addresses as on the wire.
"""

import contextlib
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Self

from drakit.devices.nic import port, shaping
from drakit.devices.nic.tc import bpf

ENTRIES = 65536
NAMES = ("drakit_owners", "drakit_routes", "drakit_ledger")

_OWNER, _CLASS = struct.Struct("=Q6sxx"), struct.Struct("=II")
_ROUTE, _SEAT = struct.Struct("=6sxx"), struct.Struct("=IIQ")
_MINOR, _SHARE = struct.Struct("=I"), struct.Struct("=6sxxQQ112s")
_SIZES = {
    "drakit_owners": (_OWNER.size, _CLASS.size),
    "drakit_routes": (_ROUTE.size, _SEAT.size),
    "drakit_ledger": (_MINOR.size, _SHARE.size),
}
_MAJOR = shaping.MAJOR << 16


class Maps:
    """Descriptors of the three maps; ``close`` gives them back.

    ``verified`` are the programs that were found to look into these maps and no others of ours. What a program looks into never changes, and the
    kernel gives a number again only after two thousand million others, so a program is asked once.
    """

    def __init__(self, found: Mapping[str, int]) -> None:
        self._found = dict(found)
        self.verified: set[int] = set()

    @classmethod
    def complete(cls, found: Mapping[str, int]) -> Self:
        """The maps that were found, and new ones in the place of those that were not."""
        made = dict(found)
        for name, (key, value) in _SIZES.items():
            if name not in made:
                made[name] = bpf.create_map(name, key=key, value=value, entries=ENTRIES)
        return cls(made)

    @property
    def owners(self) -> int:
        return self._found["drakit_owners"]

    @property
    def routes(self) -> int:
        return self._found["drakit_routes"]

    @property
    def ledger(self) -> int:
        return self._found["drakit_ledger"]

    def descriptors(self) -> Mapping[str, int]:
        """The descriptors, by name; they stay this object's."""
        return dict(self._found)

    def numbers(self) -> Mapping[str, int]:
        """The kernel's numbers of the maps, by name."""
        return {name: bpf.map_id(descriptor) for name, descriptor in self._found.items()}

    def close(self) -> None:
        for descriptor in self._found.values():
            os.close(descriptor)
        self._found = {}

    def read_owners(self) -> shaping.Owners:
        """The whole map ``owners``."""
        return {_owner(key): _CLASS.unpack(value)[0] & 0xFFFF for key, value in bpf.entries(self.owners, _OWNER.size, _CLASS.size).items()}

    def own(self, owner: tuple[int, str], minor: int, *, unless_owned: bool = False) -> None:
        """Lead an owner's frames to a class."""
        bpf.update(self.owners, _owner_key(owner), _CLASS.pack(_MAJOR | minor, 0), bpf.NOT_EXISTING if unless_owned else 0)

    def disown(self, owner: tuple[int, str]) -> None:
        """Forget an owner."""
        bpf.delete(self.owners, _owner_key(owner))

    def owner(self, owner: tuple[int, str]) -> int | None:
        """The class an owner's frames go to."""
        value = bpf.look_up(self.owners, _owner_key(owner), _CLASS.size)
        return None if value is None else _CLASS.unpack(value)[0] & 0xFFFF

    def read_seats(self) -> tuple[shaping.Seat, ...]:
        """The members, from the whole map ``routes``, by class."""
        found = (
            shaping.Seat(minor=minor & 0xFFFF, share=share, cookie=cookie, mac=key[:6].hex(":"))
            for key, value in bpf.entries(self.routes, _ROUTE.size, _SEAT.size).items()
            for minor, share, cookie in [_SEAT.unpack(value)]
            if share
        )
        return tuple(sorted(found, key=lambda seat: seat.minor))

    def route(self, mac: str) -> int | None:
        """The class to which frames for an address go."""
        value = bpf.look_up(self.routes, _ROUTE.pack(_octets(mac)), _SEAT.size)
        return None if value is None else _SEAT.unpack(value)[0] & 0xFFFF

    def route_to(self, mac: str, minor: int) -> None:
        """Lead the frames for an address that is no member's to a class."""
        bpf.update(self.routes, _ROUTE.pack(_octets(mac)), _SEAT.pack(_MAJOR | minor, 0, 0))

    def seat(self, seat: shaping.Seat) -> None:
        """Lead the frames for a member's address to its class."""
        bpf.update(self.routes, _ROUTE.pack(_octets(seat.mac)), _SEAT.pack(_MAJOR | seat.minor, seat.share, seat.cookie))

    def unseat(self, mac: str) -> None:
        """Forget an address."""
        bpf.delete(self.routes, _ROUTE.pack(_octets(mac)))

    def addresses(self) -> frozenset[str]:
        """Every address that is led to a class."""
        return frozenset(key[:6].hex(":") for key in set(bpf.keys(self.routes, _ROUTE.size)))

    def read_shares(self, ifindex: int, interface: str) -> Mapping[int, port.Share]:
        """The shares of the NIC, by class."""
        return {
            _MINOR.unpack(key)[0]: _share(_MINOR.unpack(key)[0], value, ifindex, interface)
            for key, value in bpf.entries(self.ledger, _MINOR.size, _SHARE.size).items()
        }

    def share(self, minor: int) -> port.Share | None:
        """The share of a class; its interface is left out."""
        value = bpf.look_up(self.ledger, _MINOR.pack(minor), _SHARE.size)
        return None if value is None else _share(minor, value, 0, "")

    def has_shares(self) -> bool:
        """Whether the ledger holds anything; costs the same for any number."""
        return next(bpf.keys(self.ledger, _MINOR.size), None) is not None

    def enter(self, share: port.Share) -> None:
        """Write a share into the ledger."""
        identity = share.id.encode()
        if len(identity) > 112:
            raise ValueError(f"the share id {share.id[:64]!r} is longer than 112 bytes")
        bpf.update(self.ledger, _MINOR.pack(share.minor), _SHARE.pack(_octets(share.mac), share.bandwidth, share.ceil, identity))

    def strike(self, minor: int) -> None:
        """Take a share out of the ledger."""
        bpf.delete(self.ledger, _MINOR.pack(minor))


@contextlib.contextmanager
def lent(found: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    """Descriptors that are closed in the end."""
    try:
        yield found
    finally:
        for descriptor in found.values():
            os.close(descriptor)


def _owner_key(owner: tuple[int, str]) -> bytes:
    return _OWNER.pack(owner[0], _octets(owner[1]))


def _owner(key: bytes) -> tuple[int, str]:
    cookie, octets = _OWNER.unpack(key)
    return cookie, octets.hex(":")


def _octets(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def _share(minor: int, value: bytes, ifindex: int, interface: str) -> port.Share:
    octets, bandwidth, ceil, identity = _SHARE.unpack(value)
    return port.Share(
        id=identity.split(b"\0", 1)[0].decode(),
        interface=interface,
        ifindex=ifindex,
        mac=octets.hex(":"),
        bandwidth=bandwidth,
        ceil=ceil,
        minor=minor,
    )
