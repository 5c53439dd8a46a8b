"""The three or four eBPF maps of a shared NIC, which the classifiers read and which outlive the driver.

``owners``  (namespace cookie, source address) -> class: what the egress classifier looks up
``routes``  destination address -> class of the member, its share's class, its namespace's cookie: what the ingress classifier looks up
``ledger``  class of a share -> the share; no classifier looks it up
``hosts``   IP address -> class of the member or of the host; only where the NIC has ipvlan children

Two of the maps are also indexes, so that no attachment reads a whole map. A share's entry in the ledger lists the addresses of its members. The entry
of a namespace in ``owners`` counts its members. A list or a count may have one too many, so an index entry is checked before it is used. Where an
entry says that its list or count is unknown, the whole map is read.

The kernel keeps a map while a descriptor or a loaded program refers to it. Both classifiers use the ledger, so it is found as long as one exists.
Keys and values are in the machine's byte order, addresses as on the wire.
"""

import contextlib
import ipaddress
import os
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Self

from drakit_nic import port
from drakit_nic.addresses import ip_pools
from drakit_nic.shaping import bpf, htb

ENTRIES = 65536
HOSTS = "drakit_hosts"
NAMES = ("drakit_owners", "drakit_routes", "drakit_ledger", HOSTS)

_OWNER, _CLASS = struct.Struct("=Q6sxx"), struct.Struct("=II")
_ROUTE, _MEMBER = struct.Struct("=6sxx"), struct.Struct("=IIQ")
_MINOR, _SHARE = struct.Struct("=I"), struct.Struct("=6sBBQQ112s")
_CHILDREN = (port.ChildKind.MACVLAN, port.ChildKind.IPVLAN)
"""The kinds by their numbers in the ledger."""
_TEXT_BYTES, _MAC_BYTES, _IP_BYTES = 112, 6, 16
_UNKNOWN = 0
_SIZES = {
    "drakit_owners": (_OWNER.size, _CLASS.size),
    "drakit_routes": (_ROUTE.size, _MEMBER.size),
    "drakit_ledger": (_MINOR.size, _SHARE.size),
}
_MAJOR = htb.MAJOR << 16


class Maps:
    """The open descriptors of the three or four maps, which ``close`` closes.

    ``verified`` are the ids of the programs that use these maps and no others of drakit. The maps of a program never change, and the kernel reuses
    an id only after two thousand million others, so each program is verified once.
    """

    def __init__(self, descriptors: Mapping[str, int]) -> None:
        self._descriptors = dict(descriptors)
        self.verified: set[int] = set()
        self._members: htb.NumberPool | None = None

    @classmethod
    def complete(cls, descriptors: Mapping[str, int]) -> Self:
        """Return the maps of these descriptors, and create the missing ones. On an error the caller still owns the given descriptors."""
        completed = dict(descriptors)
        with contextlib.ExitStack() as undo:
            for name, (key, value) in _SIZES.items():
                if name not in completed:
                    completed[name] = bpf.create_map(name, key=key, value=value, entries=ENTRIES)
                    undo.callback(os.close, completed[name])
            undo.pop_all()
        return cls(completed)

    @property
    def owners(self) -> int:
        return self._descriptors["drakit_owners"]

    @property
    def routes(self) -> int:
        return self._descriptors["drakit_routes"]

    @property
    def ledger(self) -> int:
        return self._descriptors["drakit_ledger"]

    @property
    def hosts(self) -> int | None:
        return self._descriptors.get(HOSTS)

    def ensure_hosts(self) -> None:
        """Create the map ``hosts`` where it does not exist. Raises OSError."""
        if HOSTS not in self._descriptors:
            self._descriptors[HOSTS] = bpf.create_map(HOSTS, key=_IP_BYTES, value=_CLASS.size, entries=ENTRIES)

    def read_hosts(self) -> Mapping[str, int]:
        """Return the class of every IP address in ``hosts``."""
        entries = {} if self.hosts is None else bpf.entries(self.hosts, _IP_BYTES, _CLASS.size)
        return {_host(key): _CLASS.unpack(value)[0] & 0xFFFF for key, value in entries.items()}

    def host_class(self, host: str) -> int | None:
        """Return the class that packets for an IP address go to, None if the address has no entry."""
        value = None if self.hosts is None else bpf.look_up(self.hosts, _packed_host(host), _CLASS.size)
        return None if value is None else _CLASS.unpack(value)[0] & 0xFFFF

    def add_hosts(self, minor: int, hosts: Iterable[str]) -> None:
        """Direct the packets for these IP addresses to a class too. Without the map ``hosts``, do nothing."""
        if self.hosts is not None:
            for host in hosts:
                bpf.update(self.hosts, _packed_host(host), _CLASS.pack(_MAJOR | minor, 0))

    def remove_hosts(self, minor: int, hosts: Iterable[str]) -> None:
        """Delete the entries of these IP addresses that direct to a class. Without the map ``hosts``, do nothing."""
        if self.hosts is not None:
            for host in hosts:
                if self.host_class(host) == minor:
                    bpf.delete(self.hosts, _packed_host(host))

    def set_hosts(self, minor: int, wanted: Collection[str]) -> None:
        """Direct the packets for exactly these IP addresses to a class. The whole map is read. Without the map ``hosts``, do nothing.

        The host's class never takes the address of a member, because nothing would restore the entry when the host gives the address up.
        """
        if self.hosts is None:
            return
        present = self.read_hosts()
        self.remove_hosts(minor, [host for host, other in present.items() if other == minor and host not in wanted])
        self.add_hosts(minor, [host for host in wanted if present.get(host) != minor and (minor != htb.HOST or host not in present)])

    def descriptors(self) -> Mapping[str, int]:
        """Return the descriptors by name. This object closes them."""
        return dict(self._descriptors)

    def numbers(self) -> Mapping[str, int]:
        """Return the kernel's ids of the maps by name."""
        return {name: bpf.map_id(descriptor) for name, descriptor in self._descriptors.items()}

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}

    def read_owners(self) -> htb.Owners:
        """Return the whole map ``owners``."""
        return {_owner(key): _CLASS.unpack(value)[0] & 0xFFFF for key, value in bpf.entries(self.owners, _OWNER.size, _CLASS.size).items()}

    def set_owner(self, owner: tuple[int, str], minor: int, *, unless_owned: bool = False) -> None:
        """Direct the frames of an owner to a class, or with ``unless_owned`` only those of a new owner."""
        bpf.update(self.owners, _owner_key(owner), _CLASS.pack(_MAJOR | minor, 0), bpf.NOT_EXISTING if unless_owned else 0)

    def count_member(self, cookie: int, minor: int) -> None:
        """Count one more member of a namespace. The first member's class gets the frames of any other address."""
        first, count = self._first_and_count(cookie)
        self._set_count(cookie, first or minor, count + 1 if count or not first else _UNKNOWN)

    def uncount_member(self, cookie: int, minor: int) -> bool:
        """Count one member of a namespace less, and return whether the member of this class was the only one."""
        first, count = self._first_and_count(cookie)
        if count > 1:
            self._set_count(cookie, first, count - 1)
        return (first, count) == (minor, 1)

    def set_first_member(self, cookie: int, minor: int) -> None:
        """Direct the frames of any other address of a namespace to the class of another member."""
        self._set_count(cookie, minor, self._first_and_count(cookie)[1])

    def _first_and_count(self, cookie: int) -> tuple[int, int]:
        """Return the class of a namespace's first member, and the number of its members. Both may be 0."""
        value = bpf.look_up(self.owners, _owner_key((cookie, htb.ANY)), _CLASS.size)
        first, count = (0, 0) if value is None else _CLASS.unpack(value)
        return first & 0xFFFF, count

    def _set_count(self, cookie: int, first: int, count: int) -> None:
        bpf.update(self.owners, _owner_key((cookie, htb.ANY)), _CLASS.pack(_MAJOR | first, count))

    def delete_owner(self, owner: tuple[int, str]) -> None:
        """Delete the entry of an owner."""
        bpf.delete(self.owners, _owner_key(owner))

    def owner(self, owner: tuple[int, str]) -> int | None:
        """Return the class that an owner's frames go to, None if the owner has no entry."""
        value = bpf.look_up(self.owners, _owner_key(owner), _CLASS.size)
        return None if value is None else _CLASS.unpack(value)[0] & 0xFFFF

    def read_members(self) -> tuple[htb.ShareMember, ...]:
        """Return the members of all shares in the order of their classes, from the whole map ``routes``."""
        members = (_member(key[:6].hex(":"), value) for key, value in bpf.entries(self.routes, _ROUTE.size, _MEMBER.size).items())
        return tuple(sorted((member for member in members if member is not None), key=lambda member: member.minor))

    def member_at(self, mac: str) -> htb.ShareMember | None:
        """Return the member of an address, None if no member has it."""
        value = bpf.look_up(self.routes, _ROUTE.pack(_octets(mac)), _MEMBER.size)
        return None if value is None else _member(mac, value)

    def members_of(self, minor: int) -> tuple[htb.ShareMember, ...]:
        """Return the members of a share in the order of their classes. The whole map is read only where they are too many to list."""
        listed = self.listed_members(minor)
        if listed is None:
            return tuple(member for member in self.read_members() if member.share == minor)
        members = (self.member_at(mac) for mac in listed)
        return tuple(
            sorted((member for member in members if member is not None and member.share == minor), key=lambda member: member.minor)
        )

    def listed_members(self, minor: int) -> frozenset[str] | None:
        """Return the addresses that a share's entry lists, None if the entry has no list, empty if there is no entry."""
        value = bpf.look_up(self.ledger, _MINOR.pack(minor), _SHARE.size)
        return frozenset() if value is None else _listed(value)

    def set_listed_members(self, minor: int, macs: Collection[str]) -> None:
        """Write these addresses into a share's entry, or that they are too many to list. A class without an entry is skipped."""
        share = self.share(minor)
        if share is not None:
            self._write_entry(share, macs)

    def member_numbers(self) -> htb.NumberPool:
        """Return the pool of member class numbers, read from the map once and updated by ``add_member`` and ``remove_member``."""
        return self.reload_member_numbers() if self._members is None else self._members

    def reload_member_numbers(self) -> htb.NumberPool:
        """Return the pool of member class numbers, read from the map again because another process may have assigned some."""
        self._members = htb.NumberPool(htb.MEMBERS, (member.minor for member in self.read_members()))
        return self._members

    def route(self, mac: str) -> int | None:
        """Return the class that frames for an address go to, None if the address has no entry."""
        value = bpf.look_up(self.routes, _ROUTE.pack(_octets(mac)), _MEMBER.size)
        return None if value is None else _MEMBER.unpack(value)[0] & 0xFFFF

    def route_to(self, mac: str, minor: int) -> None:
        """Direct the frames for an address of the host to a class."""
        bpf.update(self.routes, _ROUTE.pack(_octets(mac)), _MEMBER.pack(_MAJOR | minor, 0, 0))

    def add_member(self, member: htb.ShareMember) -> None:
        """Direct the frames for a member's address to its class. The address is listed first, so that no list lacks a member."""
        listed = {other.mac for other in self.members_of(member.share)}
        self.set_listed_members(member.share, listed | {member.mac})
        self.member_numbers().take(member.minor)
        bpf.update(self.routes, _ROUTE.pack(_octets(member.mac)), _MEMBER.pack(_MAJOR | member.minor, member.share, member.cookie))

    def remove_member(self, mac: str) -> None:
        """Delete the entry of an address, and then its place in the share's list."""
        member = self.member_at(mac)
        bpf.delete(self.routes, _ROUTE.pack(_octets(mac)))
        if member is not None:
            self.member_numbers().release(member.minor)
            self.set_listed_members(member.share, {other.mac for other in self.members_of(member.share)})

    def addresses(self) -> frozenset[str]:
        """Return every address that has an entry in ``routes``."""
        return frozenset(key[:6].hex(":") for key in set(bpf.keys(self.routes, _ROUTE.size)))

    def read_shares(self, ifindex: int, interface: str) -> Mapping[int, port.Share]:
        """Return the shares of the NIC, by class."""
        return {
            _MINOR.unpack(key)[0]: _share(_MINOR.unpack(key)[0], value, ifindex, interface)
            for key, value in bpf.entries(self.ledger, _MINOR.size, _SHARE.size).items()
        }

    def share(self, minor: int) -> port.Share | None:
        """Return the share of a class without its interface, None if there is none."""
        value = bpf.look_up(self.ledger, _MINOR.pack(minor), _SHARE.size)
        return None if value is None else _share(minor, value, 0, "")

    def has_shares(self) -> bool:
        """Return whether there is any share, in constant time."""
        return next(bpf.keys(self.ledger, _MINOR.size), None) is not None

    def write_share(self, share: port.Share) -> None:
        """Write a share into the ledger, and keep the list of its members."""
        former = self.share(share.minor)
        self._write_entry(share, self.listed_members(share.minor) if former is not None and former.id == share.id else ())

    def _write_entry(self, share: port.Share, macs: Collection[str] | None) -> None:
        share_id = share.id.encode()
        if len(share_id) > _TEXT_BYTES:
            raise ValueError(f"the share id {share.id[:64]!r} is longer than {_TEXT_BYTES} bytes")
        listing = None if macs is None else b"".join(_octets(mac) for mac in sorted(macs))
        is_listed = listing is not None and len(share_id) + 1 + len(listing) <= _TEXT_BYTES
        text = share_id.ljust(_TEXT_BYTES - len(listing), b"\0") + listing if is_listed and listing else share_id
        mark = 1 + len(macs) if is_listed and macs is not None else _UNKNOWN
        value = _SHARE.pack(_octets(share.mac), mark, _CHILDREN.index(share.child), share.bandwidth, share.ceil, text)
        bpf.update(self.ledger, _MINOR.pack(share.minor), value)

    def delete_share(self, minor: int) -> None:
        """Delete a share from the ledger."""
        bpf.delete(self.ledger, _MINOR.pack(minor))


@contextlib.contextmanager
def closing(descriptors: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    """Yield descriptors and close them afterwards."""
    try:
        yield descriptors
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


def _owner_key(owner: tuple[int, str]) -> bytes:
    return _OWNER.pack(owner[0], _octets(owner[1]))


def _owner(key: bytes) -> tuple[int, str]:
    cookie, octets = _OWNER.unpack(key)
    return cookie, octets.hex(":")


def _octets(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def _member(mac: str, value: bytes) -> htb.ShareMember | None:
    """Return the member of an entry in ``routes``, None for an entry of the host."""
    minor, share, cookie = _MEMBER.unpack(value)
    return htb.ShareMember(minor=minor & 0xFFFF, share=share, cookie=cookie, mac=mac) if share else None


def _listed(value: bytes) -> frozenset[str] | None:
    _, mark, _, _, _, text = _SHARE.unpack(value)
    listing = text[_TEXT_BYTES - _MAC_BYTES * (mark - 1) :] if mark > 1 else b""
    macs = (listing[at : at + _MAC_BYTES].hex(":") for at in range(0, len(listing), _MAC_BYTES))
    return None if mark == _UNKNOWN else frozenset(macs)


def _share(minor: int, value: bytes, ifindex: int, interface: str) -> port.Share:
    octets, _, child, bandwidth, ceil, share_id = _SHARE.unpack(value)
    return port.Share(
        id=share_id.split(b"\0", 1)[0].decode(),
        interface=interface,
        ifindex=ifindex,
        mac=octets.hex(":"),
        bandwidth=bandwidth,
        ceil=ceil,
        minor=minor,
        child=_CHILDREN[child],
    )


def _packed_host(host: str) -> bytes:
    address = ipaddress.ip_address(host)
    return (address if address.version == ip_pools.IPV6 else ipaddress.IPv6Address(f"::ffff:{address}")).packed


def _host(key: bytes) -> str:
    address = ipaddress.IPv6Address(key)
    return str(address.ipv4_mapped or address)
