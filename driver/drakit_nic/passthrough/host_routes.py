"""The host's routes by an interface that moves to a pod: recorded, read from the kernel, and restored.

Only routes that an admin or a program set are recorded. The kernel creates some routes itself (for addresses, redirects and router advertisements),
and routing daemons set theirs again. These, routes that expire and link-local ones are not recorded. The record is part of a claim's intent, which is
read often, so its size is limited (``MOST``). An existing route is never replaced. Layouts: linux/rtnetlink.h. Functions raise OSError.
"""

import dataclasses
import errno
import functools
import ipaddress
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

from drakit import wire
from drakit_nic.addresses import ip_pools
from drakit_nic.netlink import link_requests, route_requests, rtnetlink

MOST = 256
"""The maximum number of recorded routes of one interface, about 70 KB in the journal. A plan for an interface with more is refused."""

_BY_DAEMONS = frozenset({8, *range(10, 16), 17, 42, 99, 186, 187, 188, 189, 192})
"""GateD, MRT, Zebra, BIRD, DNROUTED, XORP, NTK; mrouted; Babel; Open/R; BGP, IS-IS, OSPF, RIP; EIGRP (RTPROT_*, linux/rtnetlink.h)."""

_NEWROUTE = 24
_RTMSG = struct.Struct("=BBBBBBBBI")
_DST, _SRC, _OIF, _GATEWAY, _PRIORITY, _PREFSRC, _METRICS, _MULTIPATH, _FLOW, _CACHEINFO = 1, 2, 4, 5, 6, 7, 8, 9, 11, 12
_TABLE, _VIA, _PREF, _ENCAP_TYPE, _ENCAP = 15, 18, 20, 21, 22
_UNREAD, _UNREAD_BY_HOPS = (_METRICS, _PREF), (_FLOW, _ENCAP_TYPE, _ENCAP)
_BY_KERNEL = frozenset({1, 2, 9})  # RTPROT_REDIRECT, RTPROT_KERNEL, RTPROT_RA
_CLONED = 0x200
_ONLINK = 0x4
_NESTED = 0x8000
_EXPIRES_AT = 8
_SHORT_TABLES = 256
_APPEND = 0x800
_FORMAT = wire.Format(ignore_unknown=True)

Names = Callable[[int], str]


def is_by_daemon(protocol: int) -> bool:
    """Return whether a routing daemon sets routes of this protocol. It sets them again when the interface is back."""
    return protocol in _BY_DAEMONS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hop:
    """One next hop of a route: ``interface`` by name, ``gateway`` empty where the destination is on the link.

    ``more`` are attributes that are stored unread (realm, encapsulation), as the kernel wrote them, in hexadecimal.
    """

    interface: str
    gateway: str = ""
    weight: int = 1
    onlink: bool = False
    more: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostRoute:
    """One route with the kernel's numbers (linux/rtnetlink.h). ``origin`` is a source prefix, usually empty; ``more`` as in ``Hop`` (metrics)."""

    destination: str
    hops: tuple[Hop, ...]
    table: int = 254
    protocol: int = 4
    scope: int = 0
    kind: int = 1
    tos: int = 0
    metric: int = 0
    source: str = ""
    origin: str = ""
    more: str = ""

    @property
    def is_onlink(self) -> bool:
        """Return whether all gateways are reachable without another route."""
        return all(not hop.gateway or hop.onlink for hop in self.hops)

    def __str__(self) -> str:
        hops = " ".join(f"{f'via {hop.gateway} ' if hop.gateway else ''}dev {hop.interface}" for hop in self.hops)
        return f"{self.destination} {hops} table {self.table}{f' metric {self.metric}' if self.metric else ''}"


def _listed_from_json(listed: object) -> tuple[HostRoute, ...]:
    """Return the routes of a list. Other entries are skipped."""
    routes = (_FORMAT.decode_or_none(HostRoute, record) for record in (listed if isinstance(listed, list | tuple) else ()))
    return tuple(route for route in routes if route is not None)


LISTED = wire.Converter(_listed_from_json, lambda routes: [_FORMAT.encode(route) for route in routes])


def read(sock: rtnetlink.Socket, ifindex: int) -> tuple[tuple[HostRoute, ...], int]:
    """Return the routes to record of an interface, and how many beyond ``MOST`` are left out.

    The routes are of all tables, in the kernel's order.
    """
    names, routes = _names(sock), _recorded(sock, ifindex)
    return tuple(_host_route(route, names) for route in routes[:MOST]), max(len(routes) - MOST, 0)


def restore(sock: rtnetlink.Socket, ifindex: int, name: str, wanted: Sequence[HostRoute]) -> Iterator[tuple[HostRoute, OSError]]:
    """Restore missing routes, and yield each that fails, with the error.

    Routes onto the link come first, because gateways need them. Routes of daemons, which earlier versions recorded, are skipped.
    """
    names = _names(sock)
    present = {_host_route(route, names) for route in _recorded(sock, ifindex)}
    for route in sorted(wanted, key=lambda route: not route.is_onlink):
        if route not in present and not is_by_daemon(route.protocol):
            try:
                _create_route(sock, route, ifindex, name)
            except OSError as error:
                yield route, error


def _names(sock: rtnetlink.Socket) -> Names:
    """Return a function from an interface's index to its name, which reads each name once."""
    return functools.cache(functools.partial(link_requests.name_of, sock))


def _recorded(sock: rtnetlink.Socket, ifindex: int) -> tuple[route_requests.Route, ...]:
    """Return the routes to record of an interface."""
    return tuple(route for route in route_requests.routes(sock, ifindex) if _is_recorded(route) and ifindex in route.interfaces)


def _is_recorded(route: route_requests.Route) -> bool:
    """Return whether to record a route. A daemon may have thousands by one interface, so the cheapest check comes first."""
    if route.protocol in _BY_KERNEL or is_by_daemon(route.protocol) or route.flags & _CLONED:
        return False
    attrs = route.attributes
    expires = struct.unpack_from("=i", attrs[_CACHEINFO], _EXPIRES_AT)[0] if _CACHEINFO in attrs else 0
    link_local = route.family == socket.AF_INET6 and route.length and route.destination.network_address.is_link_local
    return not expires and not link_local


def _host_route(route: route_requests.Route, names: Names) -> HostRoute:
    attrs = route.attributes
    single = [(route.number(_OIF), 1, bool(route.flags & _ONLINK), attrs)] if _MULTIPATH not in attrs else []
    several = [
        (ifindex, weight, bool(own & _ONLINK), rtnetlink.attributes(content))
        for ifindex, weight, own, content in rtnetlink.hops(attrs.get(_MULTIPATH, b""))
    ]
    return HostRoute(
        destination=str(route.destination),
        hops=tuple(_hop(names(ifindex), weight, own, onlink=onlink) for ifindex, weight, onlink, own in (*single, *several)),
        table=route.table,
        protocol=route.protocol,
        scope=route.scope,
        kind=route.kind,
        tos=route.tos,
        metric=route.metric,
        source=str(ipaddress.ip_address(attrs[_PREFSRC])) if _PREFSRC in attrs else "",
        origin=f"{ipaddress.ip_address(attrs[_SRC])}/{route.origin_length}" if _SRC in attrs else "",
        more=_raw(attrs, _UNREAD),
    )


def _hop(interface: str, weight: int, attrs: rtnetlink.Attributes, *, onlink: bool) -> Hop:
    packed = attrs.get(_GATEWAY, attrs.get(_VIA, b"\0\0")[2:])
    gateway = str(ipaddress.ip_address(packed)) if packed else ""
    return Hop(interface=interface, gateway=gateway, weight=weight, onlink=onlink, more=_raw(attrs, _UNREAD_BY_HOPS))


def _raw(attrs: rtnetlink.Attributes, kinds: Sequence[int]) -> str:
    nested = {_METRICS, _ENCAP}
    return b"".join(rtnetlink.pack(kind | (_NESTED if kind in nested else 0), attrs[kind]) for kind in kinds if kind in attrs).hex()


def _create_route(sock: rtnetlink.Socket, route: HostRoute, ifindex: int, name: str) -> None:
    """Create one route. Of an IPv6 route with several hops only those by this interface are appended, because the kernel kept the others."""
    version = ipaddress.ip_network(route.destination).version
    indices = {
        name: ifindex,
        **{hop.interface: link_requests.existing(sock, hop.interface).ifindex for hop in route.hops if hop.interface != name},
    }
    if version == ip_pools.IPV4 or len(route.hops) == 1:
        _ask(sock, _packed(route, route.hops, indices), rtnetlink.CREATE | rtnetlink.EXCLUSIVE)
        return
    for hop in route.hops:
        if hop.interface == name:
            _ask(sock, _packed(route, (hop,), indices), rtnetlink.CREATE | _APPEND, is_part=True)


def _ask(sock: rtnetlink.Socket, body: bytes, flags: int, *, is_part: bool = False) -> None:
    try:
        sock.ask(_NEWROUTE, body, flags)
    except OSError as error:
        if error.errno != errno.EEXIST or not is_part:
            raise


def _packed(route: HostRoute, hops: Sequence[Hop], indices: Mapping[str, int]) -> bytes:
    destination = ipaddress.ip_network(route.destination)
    origin = ipaddress.ip_network(route.origin) if route.origin else None
    short = route.table if route.table < _SHORT_TABLES else 0
    flags = _ONLINK if len(hops) == 1 and hops[0].onlink else 0
    lengths = (destination.prefixlen, origin.prefixlen if origin else 0)
    body = _RTMSG.pack(
        route_requests.FAMILY[destination.version], *lengths, route.tos, short, route.protocol, route.scope, route.kind, flags
    )
    body += rtnetlink.number(_TABLE, route.table) + (rtnetlink.number(_PRIORITY, route.metric) if route.metric else b"")
    body += rtnetlink.pack(_DST, destination.network_address.packed) if destination.prefixlen else b""
    body += rtnetlink.pack(_SRC, origin.network_address.packed) if origin else b""
    body += rtnetlink.pack(_PREFSRC, ipaddress.ip_address(route.source).packed) if route.source else b""
    body += bytes.fromhex(route.more)
    if len(hops) == 1:
        return body + rtnetlink.number(_OIF, indices[hops[0].interface]) + _hop_attributes(hops[0], destination.version)
    return body + rtnetlink.pack(_MULTIPATH, b"".join(_packed_hop(hop, indices[hop.interface], destination.version) for hop in hops))


def _packed_hop(hop: Hop, ifindex: int, version: int) -> bytes:
    return rtnetlink.hop(ifindex, hop.weight, _ONLINK if hop.onlink else 0, _hop_attributes(hop, version))


def _hop_attributes(hop: Hop, version: int) -> bytes:
    """Return the attributes of a hop: its gateway, which may be of the other family (RTA_VIA), and the unread ones."""
    if not hop.gateway:
        return bytes.fromhex(hop.more)
    gateway = ipaddress.ip_address(hop.gateway)
    if gateway.version == version:
        return rtnetlink.pack(_GATEWAY, gateway.packed) + bytes.fromhex(hop.more)
    return rtnetlink.pack(_VIA, struct.pack("=H", route_requests.FAMILY[gateway.version]) + gateway.packed) + bytes.fromhex(hop.more)
