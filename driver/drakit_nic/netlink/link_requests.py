"""Requests for one interface by rtnetlink: the link itself, its addresses, routes, rules and neighbours.

Each request is idempotent: an equal object that exists is ignored, and a conflicting one of the pod is an error. Layouts: linux/if_addr.h,
linux/rtnetlink.h, linux/fib_rules.h, linux/neighbour.h. Functions raise OSError.
"""

import errno
import ipaddress
import socket
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence

from drakit_nic import config
from drakit_nic.addresses import ip_pools
from drakit_nic.netlink import rtnetlink

_NEWLINK, _DELLINK, _GETLINK, _SETLINK = 16, 17, 18, 19
_NEWADDR, _GETADDR = 20, 22
_NEWLINKPROP, _DELLINKPROP = 108, 109
_NESTED = 0x8000
_NEWROUTE, _GETROUTE = 24, 26
_NEWNEIGH = 28
_NEWRULE, _DELRULE = 32, 33
_GETNEXTHOP = 106
_IFINFO = struct.Struct("=BxHiII")
_IFADDR = struct.Struct("=BBBBI")
_RTMSG = struct.Struct("=BBBBBBBBI")
_NDMSG = struct.Struct("=BxHiHBB")
_RULE = struct.Struct("=BBBBBBBBI")
_NHMSG, _NHGROUP = struct.Struct("=BBBxI"), struct.Struct("=IBBH")
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINK, _IFLA_LINKINFO, _IFLA_IFALIAS, _IFLA_NET_NS_FD = 1, 3, 4, 5, 18, 20, 28
_IFLA_PROP_LIST, _IFLA_ALT_IFNAME = 52, 53
_IFLA_LINK_NETNSID, _IFLA_PHYS_PORT_NAME, _IFLA_NEW_IFINDEX, _IFLA_PERM_ADDRESS, _IFLA_PARENT = 37, 38, 49, 54, 56
_INFO_KIND, _INFO_DATA = 1, 2
_VXLAN, _VXLAN_LINK = "vxlan", 3
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS, _IFA_TARGET = 1, 2, 8, 10
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_PREFSRC, _RTA_MULTIPATH, _RTA_TABLE = 1, 4, 5, 6, 7, 9, 15
_RTA_NH_ID = 30
_NHA_ID, _NHA_GROUP, _NHA_OIF = 1, 2, 5
_NDA_DST, _NDA_LLADDR = 1, 2
_FRA_DST, _FRA_SRC, _FRA_PRIORITY, _FRA_TABLE = 1, 2, 6, 15
_UP = 1
_LOWER_UP = 0x10000
_ETHERNET = 1
_NODAD, _DAD_FAILED, _TENTATIVE = 0x02, 0x08, 0x40
_LINK, _UNIVERSE = 253, 0
_STATIC, _UNICAST, _PERMANENT, _TO_TABLE = 4, 1, 0x80, 1
_TABLE_SHORT = 256
_UNSPECIFIED = 0
NAME_BYTES_MAX = 15
IPV4_FAMILY = socket.AF_INET
_FAMILY = {ip_pools.IPV4: IPV4_FAMILY, ip_pools.IPV6: socket.AF_INET6}
_IPV6_METRIC = 1024
_GONE = frozenset({errno.ENODEV, errno.ENOENT, errno.ESRCH, errno.EAFNOSUPPORT})


class RouteTakenError(OSError):
    """The pod has a route of the same destination, table and metric by another interface or gateway. The text has the fix."""


class Link:
    """One link as the kernel reports it.

    ``place`` is the bus address and burnt-in MAC of hardware, which no pod can change, and empty for other links. ``other`` is the index of its other
    end: a veth's peer, the NIC below a macvlan. ``other_nsid`` is the number of that end's namespace in the socket's namespace, None where it is in
    the link's own. ``lower`` is that end too, or the link that a vxlan is bound to. ``layer`` is the kernel's number of the link layer (ARPHRD_*).
    ``attributes`` are all attributes of the message.
    """

    def __init__(self, body: bytes) -> None:
        self.ifindex: int
        self.layer: int
        self.flags: int
        _, self.layer, self.ifindex, self.flags, _ = _IFINFO.unpack_from(body)
        self.attributes = attrs = rtnetlink.attributes(body[_IFINFO.size :])
        self.up, self.has_carrier = bool(self.flags & _UP), bool(self.flags & _LOWER_UP)
        self.is_ethernet = self.layer == _ETHERNET
        self.name = rtnetlink.as_text(attrs[_IFLA_IFNAME])
        self.mac = attrs.get(_IFLA_ADDRESS, b"").hex(":")
        self.mtu = rtnetlink.as_number(attrs[_IFLA_MTU])
        self.alias = rtnetlink.as_text(attrs.get(_IFLA_IFALIAS, b""))
        info = rtnetlink.attributes(attrs.get(_IFLA_LINKINFO, b""))
        self.kind = rtnetlink.as_text(info.get(_INFO_KIND, b""))
        self.other = rtnetlink.as_number(attrs[_IFLA_LINK]) if _IFLA_LINK in attrs else 0
        self.lower = self.other or _bound_to(self.kind, info)
        self.other_nsid = struct.unpack("=i", attrs[_IFLA_LINK_NETNSID])[0] if _IFLA_LINK_NETNSID in attrs else None
        properties = rtnetlink.walk(attrs.get(_IFLA_PROP_LIST, b""))
        self.altnames = tuple(rtnetlink.as_text(content) for kind, content in properties if kind == _IFLA_ALT_IFNAME)
        self.port = rtnetlink.as_text(attrs.get(_IFLA_PHYS_PORT_NAME, b""))
        parent = rtnetlink.as_text(attrs.get(_IFLA_PARENT, b""))
        self.place = f"{parent} {attrs.get(_IFLA_PERM_ADDRESS, b'').hex(':')}" if parent else ""


def _bound_to(kind: str, info: rtnetlink.Attributes) -> int:
    """Return the index of the link that a vxlan is bound to, which the kernel reports with the options of its kind only, 0 for none."""
    options = rtnetlink.attributes(info.get(_INFO_DATA, b"")) if kind == _VXLAN else {}
    return rtnetlink.as_number(options[_VXLAN_LINK]) if _VXLAN_LINK in options else 0


def find(sock: rtnetlink.Socket, name: str, more: bytes = b"") -> Link | None:
    """Return the link of this name, None where none has it or only as an alternative name. ``more`` are further request attributes."""
    link = at(sock, 0, rtnetlink.text(_IFLA_IFNAME, name) + more)
    return link if link is not None and link.name == name else None


def existing(sock: rtnetlink.Socket, name: str, more: bytes = b"") -> Link:
    """Return the link of this name. Raise OSError where there is none."""
    link = find(sock, name, more)
    if link is None:
        raise OSError(errno.ENODEV, f"there is no interface {name}")
    return link


def holder_of(sock: rtnetlink.Socket, name: str) -> Link | None:
    """Return the link that has this name, also as an alternative name, None where none has."""
    return at(sock, 0, rtnetlink.text(_IFLA_IFNAME if len(name) <= NAME_BYTES_MAX else _IFLA_ALT_IFNAME, name))


def name_of(sock: rtnetlink.Socket, ifindex: int) -> str:
    """Return the name of the link of this index, empty where there is none."""
    link = at(sock, ifindex)
    return "" if link is None else link.name


def at(sock: rtnetlink.Socket, ifindex: int, more: bytes = b"") -> Link | None:
    """Return the link of this index, or with index 0 the one that the attributes ``more`` select, None where there is none."""
    try:
        answers = sock.ask(_GETLINK, _header(ifindex) + more)
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise
    return next(map(Link, answers), None)


def _header(ifindex: int = 0, flags: int = 0, changed: int = 0) -> bytes:
    return _IFINFO.pack(0, 0, ifindex, flags, changed)


def links(sock: rtnetlink.Socket, number: int | None = None, *, kind: str = "") -> tuple[Link, ...]:
    """Return every link of the socket's namespace, or of the one with this number.

    ``kind`` asks the kernel for links of that kind only. A namespace that is gone has no links.
    """
    body = _header() + (b"" if number is None else rtnetlink.in_namespace(number))
    body += rtnetlink.pack(_IFLA_LINKINFO, rtnetlink.text(_INFO_KIND, kind)) if kind else b""
    return tuple(map(Link, sock.dump(_GETLINK, body)))


def create(
    sock: rtnetlink.Socket,
    name: str,
    kind: str,
    *,
    data: bytes = b"",
    lower: int = 0,
    mac: str = "",
    mtu: int = 0,
    namespace: int | None = None,
) -> None:
    """Create a link, down. Raise OSError, with EEXIST where the name is taken.

    ``data`` are attributes of its kind, ``lower`` is the index of the link below, ``namespace`` the open descriptor of another namespace.
    """
    linkinfo = rtnetlink.text(_INFO_KIND, kind) + (rtnetlink.pack(_INFO_DATA, data) if data else b"")
    body = _header() + _attributes(name=name, mac=mac, mtu=mtu) + rtnetlink.pack(_IFLA_LINKINFO, linkinfo)
    body += rtnetlink.number(_IFLA_LINK, lower) if lower else b""
    body += b"" if namespace is None else rtnetlink.number(_IFLA_NET_NS_FD, namespace)
    sock.ask(_NEWLINK, body, rtnetlink.CREATE | rtnetlink.EXCLUSIVE)


def alter(
    sock: rtnetlink.Socket,
    ifindex: int,
    *,
    up: bool | None = None,
    name: str = "",
    mtu: int = 0,
    mac: str = "",
    alias: str | None = None,
    more: bytes = b"",
) -> None:
    """Change the given settings of a link in one request. ``more`` are other attributes."""
    header = _header(ifindex) if up is None else _header(ifindex, _UP if up else 0, _UP)
    sock.ask(_SETLINK, header + _attributes(name=name, mtu=mtu, mac=mac, alias=alias) + more)


def set_flags(sock: rtnetlink.Socket, ifindex: int, flags: int, mask: int) -> None:
    """Set the flags of a link (IFF_*) that are in the mask."""
    sock.ask(_SETLINK, _header(ifindex, flags & mask, mask))


def add_altnames(sock: rtnetlink.Socket, ifindex: int, names: Collection[str]) -> None:
    """Add alternative names to a link. Raise OSError, with EEXIST where another link has one."""
    if names:
        sock.ask(_NEWLINKPROP, _header(ifindex) + _altnames(names), rtnetlink.CREATE | rtnetlink.EXCLUSIVE)


def delete_altnames(sock: rtnetlink.Socket, ifindex: int, names: Collection[str]) -> None:
    """Delete alternative names of a link."""
    if names:
        sock.ask(_DELLINKPROP, _header(ifindex) + _altnames(names))


def _altnames(names: Collection[str]) -> bytes:
    return rtnetlink.pack(_IFLA_PROP_LIST | _NESTED, b"".join(rtnetlink.text(_IFLA_ALT_IFNAME, name) for name in names))


def move(sock: rtnetlink.Socket, ifindex: int, namespace: int, *, name: str = "", new_index: int = 0) -> None:
    """Move a link into the namespace of an open descriptor, with a new name and index where given. The link must be down."""
    target = rtnetlink.number(_IFLA_NET_NS_FD, namespace) + (rtnetlink.number(_IFLA_NEW_IFINDEX, new_index) if new_index else b"")
    alter(sock, ifindex, name=name, more=target)


def _attributes(*, name: str = "", mtu: int = 0, mac: str = "", alias: str | None = None) -> bytes:
    body = rtnetlink.text(_IFLA_IFNAME, name) if name else b""
    body += rtnetlink.number(_IFLA_MTU, mtu) if mtu else b""
    body += rtnetlink.pack(_IFLA_ADDRESS, bytes.fromhex(mac.replace(":", ""))) if mac else b""
    return body + (rtnetlink.pack(_IFLA_IFALIAS, alias.encode(errors="surrogateescape")) if alias is not None else b"")


def delete(sock: rtnetlink.Socket, ifindex: int, number: int | None = None) -> None:
    """Delete a link, in the namespace of this number where one is given. A link that is gone is ignored."""
    try:
        sock.ask(_DELLINK, _header(ifindex) + (b"" if number is None else rtnetlink.in_namespace(number)))
    except OSError as error:
        # With EINVAL the namespace is gone, and with it the number.
        gone = {errno.ENODEV} if number is None else {errno.ENODEV, errno.EINVAL}
        if error.errno not in gone:
            raise


def addresses(sock: rtnetlink.Socket, ifindex: int) -> tuple[str, ...]:
    """Return the addresses of a link in CIDR form, sorted, without IPv6 link-local ones."""
    texts = []
    for body in sock.dump(_GETADDR, _IFADDR.pack(0, 0, 0, 0, 0)):
        _, prefix, _, _, index = _IFADDR.unpack_from(body)
        attrs = rtnetlink.attributes(body[_IFADDR.size :])
        packed = attrs.get(_IFA_LOCAL, attrs.get(_IFA_ADDRESS, b""))
        address = ipaddress.ip_address(packed) if packed else None
        if index == ifindex and address is not None and not (address.version == ip_pools.IPV6 and address.is_link_local):
            texts.append(f"{address}/{prefix}")
    return tuple(sorted(texts))


def usable_hosts(sock: rtnetlink.Socket, ifindex: int, number: int) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]:
    """Return the addresses of a link in the namespace of this number, without those that duplicate address detection has not confirmed."""
    target = rtnetlink.pack(_IFA_TARGET, struct.pack("=i", number))
    hosts = []
    for body in sock.dump(_GETADDR, _IFADDR.pack(0, 0, 0, 0, ifindex) + target):
        _, _, short_flags, _, index = _IFADDR.unpack_from(body)
        attrs = rtnetlink.attributes(body[_IFADDR.size :])
        flags = rtnetlink.as_number(attrs[_IFA_FLAGS]) if _IFA_FLAGS in attrs else short_flags
        packed = attrs.get(_IFA_LOCAL, attrs.get(_IFA_ADDRESS, b""))
        if index == ifindex and packed and not flags & (_TENTATIVE | _DAD_FAILED):
            hosts.append(ipaddress.ip_address(packed))
    return tuple(hosts)


def add_address(sock: rtnetlink.Socket, ifindex: int, text: str) -> None:
    """Add an address. An IPv6 address skips duplicate address detection, because the starting container needs it at once."""
    wanted = ipaddress.ip_interface(text)
    flags = _NODAD if wanted.version == ip_pools.IPV6 else 0
    body = _IFADDR.pack(_FAMILY[wanted.version], wanted.network.prefixlen, flags, _UNIVERSE, ifindex)
    body += rtnetlink.pack(_IFA_LOCAL, wanted.ip.packed) + rtnetlink.pack(_IFA_ADDRESS, wanted.ip.packed)
    sock.ask(_NEWADDR, body, rtnetlink.CREATE | rtnetlink.REPLACE)


def add_neighbour(sock: rtnetlink.Socket, ifindex: int, wanted: config.Neighbour) -> None:
    """Add a permanent entry to the neighbour table."""
    address = ipaddress.ip_address(wanted.address)
    body = _NDMSG.pack(_FAMILY[address.version], 0, ifindex, _PERMANENT, 0, 0)
    body += rtnetlink.pack(_NDA_DST, address.packed) + rtnetlink.pack(_NDA_LLADDR, bytes.fromhex(wanted.mac.replace(":", "")))
    sock.ask(_NEWNEIGH, body, rtnetlink.CREATE | rtnetlink.REPLACE)


def add_route(sock: rtnetlink.Socket, ifindex: int, wanted: config.Route) -> None:
    """Add a route by this link. Raise OSError where the pod has another route of the same destination, table and metric."""
    try:
        sock.ask(_NEWROUTE, _route(ifindex, wanted), rtnetlink.CREATE | rtnetlink.EXCLUSIVE)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
        hops = list(_hops(sock, wanted))
        if (ifindex, wanted.gateway) not in hops:
            raise RouteTakenError(errno.EEXIST, _taken_route(sock, wanted, hops)) from error


def _taken_route(sock: rtnetlink.Socket, wanted: config.Route, hops: Sequence[tuple[int, str]]) -> str:
    """Return the text for a route that the pod has by another interface or gateway."""
    owners = " and ".join(sorted({name_of(sock, ifindex) for ifindex, _ in hops}))
    owner = f", by {owners}" if owners else ""
    return (
        f"the pod has a route to {wanted.destination} in table {wanted.table} already{owner}; set override: true in this one of "
        "NicConfig.routes, so that it wins, or give it a table and a rule"
    )


def routes(sock: rtnetlink.Socket, ifindex: int = 0) -> Iterator[bytes]:
    """Yield the messages of the routes of all tables and both families.

    With an index, Linux 4.20 and later leaves out routes by other interfaces.
    """
    interface_filter = rtnetlink.number(_RTA_OIF, ifindex) if ifindex else b""
    for family in _FAMILY.values():
        yield from sock.dump(_GETROUTE, _RTMSG.pack(family, 0, 0, 0, 0, 0, 0, 0, 0) + interface_filter)


def interfaces_of(route: bytes) -> set[int]:
    """Return the indices of the interfaces of a route."""
    attrs = rtnetlink.attributes(route[_RTMSG.size :])
    single = {rtnetlink.as_number(attrs[_RTA_OIF])} if _RTA_OIF in attrs else set()
    return single | {ifindex for ifindex, *_ in rtnetlink.hops(attrs.get(_RTA_MULTIPATH, b""))}


def nexthop_of(route: bytes) -> int:
    """Return the id of a route's next hop object, 0 where it has none."""
    attrs = rtnetlink.attributes(route[_RTMSG.size :])
    return rtnetlink.as_number(attrs[_RTA_NH_ID]) if _RTA_NH_ID in attrs else 0


def nexthops(sock: rtnetlink.Socket) -> Mapping[int, frozenset[int]]:
    """Return the interfaces of each next hop object and group, by id."""
    single: dict[int, frozenset[int]] = {}
    groups: dict[int, tuple[int, ...]] = {}
    for body in sock.dump(_GETNEXTHOP, _NHMSG.pack(0, 0, 0, 0)):
        attrs = rtnetlink.attributes(body[_NHMSG.size :])
        number = rtnetlink.as_number(attrs[_NHA_ID])
        if _NHA_GROUP in attrs:
            groups[number] = tuple(entry[0] for entry in _NHGROUP.iter_unpack(attrs[_NHA_GROUP]))
        elif _NHA_OIF in attrs:
            single[number] = frozenset({rtnetlink.as_number(attrs[_NHA_OIF])})
    members = {number: frozenset().union(*(single.get(member, frozenset()) for member in group)) for number, group in groups.items()}
    return {**single, **members}


def add_rule(sock: rtnetlink.Socket, wanted: config.Rule) -> None:
    """Add a rule to the namespace. An equal rule is ignored."""
    try:
        sock.ask(_NEWRULE, _rule(wanted), rtnetlink.CREATE | rtnetlink.EXCLUSIVE)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise


def delete_rule(sock: rtnetlink.Socket, wanted: config.Rule) -> None:
    """Delete a rule. A rule that is gone is ignored."""
    try:
        sock.ask(_DELRULE, _rule(wanted))
    except OSError as error:
        if error.errno not in _GONE:
            raise


def _route(ifindex: int, wanted: config.Route) -> bytes:
    destination = ipaddress.ip_network(wanted.destination)
    scope = _LINK if destination.version == ip_pools.IPV4 and not wanted.gateway else _UNIVERSE
    short = wanted.table if wanted.table < _TABLE_SHORT else _UNSPECIFIED
    body = _RTMSG.pack(_FAMILY[destination.version], destination.prefixlen, 0, 0, short, _STATIC, scope, _UNICAST, 0)
    body += rtnetlink.number(_RTA_TABLE, wanted.table) + rtnetlink.number(_RTA_OIF, ifindex)
    body += rtnetlink.pack(_RTA_DST, destination.network_address.packed) if destination.prefixlen else b""
    body += rtnetlink.number(_RTA_PRIORITY, wanted.metric) if wanted.metric else b""
    for kind, text in ((_RTA_GATEWAY, wanted.gateway), (_RTA_PREFSRC, wanted.source)):
        body += rtnetlink.pack(kind, ipaddress.ip_address(text).packed) if text else b""
    return body


def _hops(sock: rtnetlink.Socket, wanted: config.Route) -> Iterator[tuple[int, str]]:
    """Yield the link and the gateway of every route with the wanted destination, table and metric."""
    destination = ipaddress.ip_network(wanted.destination)
    metric = wanted.metric or (_IPV6_METRIC if destination.version == ip_pools.IPV6 else 0)
    for body in sock.dump(_GETROUTE, _RTMSG.pack(_FAMILY[destination.version], 0, 0, 0, 0, 0, 0, 0, 0)):
        fields = _RTMSG.unpack_from(body)
        attrs = rtnetlink.attributes(body[_RTMSG.size :])
        network = attrs.get(_RTA_DST, bytes(len(destination.network_address.packed)))
        table = rtnetlink.as_number(attrs[_RTA_TABLE]) if _RTA_TABLE in attrs else fields[4]
        is_same = (fields[1], network, table) == (destination.prefixlen, destination.network_address.packed, wanted.table)
        if is_same and (rtnetlink.as_number(attrs[_RTA_PRIORITY]) if _RTA_PRIORITY in attrs else 0) == metric and _RTA_OIF in attrs:
            gateway = str(ipaddress.ip_address(attrs[_RTA_GATEWAY])) if _RTA_GATEWAY in attrs else ""
            yield rtnetlink.as_number(attrs[_RTA_OIF]), gateway


def _rule(wanted: config.Rule) -> bytes:
    ends = {_FRA_SRC: wanted.source, _FRA_DST: wanted.destination}
    networks = {kind: ipaddress.ip_network(text) for kind, text in ends.items() if text}
    lengths = [networks[kind].prefixlen if kind in networks else 0 for kind in (_FRA_DST, _FRA_SRC)]
    short = wanted.table if wanted.table < _TABLE_SHORT else _UNSPECIFIED
    body = _RULE.pack(_FAMILY[wanted.version], lengths[0], lengths[1], 0, short, 0, 0, _TO_TABLE, 0)
    body += rtnetlink.number(_FRA_PRIORITY, wanted.priority) + rtnetlink.number(_FRA_TABLE, wanted.table)
    for kind, network in networks.items():
        body += rtnetlink.pack(kind, network.network_address.packed)
    return body
