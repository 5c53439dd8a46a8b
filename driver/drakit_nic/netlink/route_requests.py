"""Requests for routes and rules by rtnetlink.

Each change is idempotent: an equal route or rule that exists is ignored, and a conflicting route of the pod is an error. Layouts: linux/rtnetlink.h,
linux/nexthop.h. Functions raise OSError.
"""

import errno
import functools
import ipaddress
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence

from drakit_nic import config
from drakit_nic.addresses import ip_pools
from drakit_nic.netlink import link_requests, rtnetlink

_GETROUTE, _GETNEXTHOP = 26, 106
_RTMSG = struct.Struct("=BBBBBBBBI")
_NHMSG, _NHGROUP = struct.Struct("=BBBxI"), struct.Struct("=IBBH")
_DST, _OIF, _GATEWAY, _PRIORITY, _MULTIPATH, _TABLE, _NH_ID = 1, 4, 5, 6, 9, 15, 30
_NHA_ID, _NHA_GROUP, _NHA_OIF = 1, 2, 5
_UNIVERSE, _LINK = 0, 253
_IPV6_METRIC = 1024
FAMILY: Mapping[int, int] = {ip_pools.IPV4: socket.AF_INET, ip_pools.IPV6: socket.AF_INET6}
_GONE = frozenset({errno.ENODEV, errno.ENOENT, errno.ESRCH, errno.EAFNOSUPPORT})


class RouteTakenError(OSError):
    """The pod has a route of the same destination, table and metric by another interface or gateway. The text has the fix."""


class Route:
    """One route as the kernel reports it, with the fields of struct rtmsg. Its attributes are decoded on first use, because a host may have many."""

    def __init__(self, body: bytes) -> None:
        self.family: int
        self.length: int
        self.origin_length: int
        self.tos: int
        self.protocol: int
        self.scope: int
        self.kind: int
        self.flags: int
        header = _RTMSG.unpack_from(body)
        self.family, self.length, self.origin_length, self.tos, self._table, self.protocol, self.scope, self.kind, self.flags = header
        self._tail = body[_RTMSG.size :]

    @functools.cached_property
    def attributes(self) -> rtnetlink.Attributes:
        """Return all attributes (RTA_*)."""
        return rtnetlink.attributes(self._tail)

    @property
    def destination(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        """Return the destination."""
        packed = self.attributes.get(_DST, bytes(4 if self.family == socket.AF_INET else 16))
        return ipaddress.ip_network((packed, self.length), strict=False)

    @property
    def table(self) -> int:
        """Return the number of the routing table."""
        return self.number(_TABLE, self._table)

    @property
    def metric(self) -> int:
        """Return the metric, 0 for none."""
        return self.number(_PRIORITY)

    @property
    def interfaces(self) -> set[int]:
        """Return the indices of the interfaces of the route."""
        hops = rtnetlink.hops(self.attributes.get(_MULTIPATH, b""))
        return {self.number(_OIF)} - {0} | {ifindex for ifindex, *_ in hops}

    @property
    def nexthop(self) -> int:
        """Return the id of the route's next hop object, 0 where it has none."""
        return self.number(_NH_ID)

    def number(self, attribute: int, otherwise: int = 0) -> int:
        """Return the value of a 32-bit attribute, ``otherwise`` where the route has none."""
        content = self.attributes.get(attribute)
        return otherwise if content is None else rtnetlink.as_number(content)


def routes(sock: rtnetlink.Socket, ifindex: int = 0) -> Iterator[Route]:
    """Yield the routes of all tables and both families.

    With an index, Linux 4.20 and later leaves out routes by other interfaces.
    """
    for family in FAMILY.values():
        yield from _routes_of(sock, family, rtnetlink.number(_OIF, ifindex) if ifindex else b"")


def _routes_of(sock: rtnetlink.Socket, family: int, interface_filter: bytes = b"") -> Iterator[Route]:
    return map(Route, sock.dump(_GETROUTE, _RTMSG.pack(family, 0, 0, 0, 0, 0, 0, 0, 0) + interface_filter))


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


def add_route(sock: rtnetlink.Socket, ifindex: int, wanted: config.Route) -> None:
    """Add a route by this link. Raises OSError where the pod has another route of the same destination, table and metric."""
    destination = ipaddress.ip_network(wanted.destination)
    try:
        sock.change(
            "route",
            "add",
            family=FAMILY[destination.version],
            dst=str(destination),
            oif=ifindex,
            gateway=wanted.gateway or None,
            prefsrc=wanted.source or None,
            table=wanted.table,
            priority=wanted.metric or None,
            scope=_LINK if destination.version == ip_pools.IPV4 and not wanted.gateway else _UNIVERSE,
        )
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
        hops = list(_hops(sock, wanted))
        if (ifindex, wanted.gateway) not in hops:
            raise RouteTakenError(errno.EEXIST, _taken_route(sock, wanted, hops)) from error


def _hops(sock: rtnetlink.Socket, wanted: config.Route) -> Iterator[tuple[int, str]]:
    """Yield the link and the gateway of every route with the wanted destination, table and metric."""
    destination = ipaddress.ip_network(wanted.destination)
    metric = wanted.metric or (_IPV6_METRIC if destination.version == ip_pools.IPV6 else 0)
    for route in _routes_of(sock, FAMILY[destination.version]):
        is_same = (route.destination, route.table, route.metric) == (destination, wanted.table, metric)
        if is_same and _OIF in route.attributes:
            packed = route.attributes.get(_GATEWAY)
            yield route.number(_OIF), str(ipaddress.ip_address(packed)) if packed else ""


def _taken_route(sock: rtnetlink.Socket, wanted: config.Route, hops: Sequence[tuple[int, str]]) -> str:
    """Return the text for a route that the pod has by another interface or gateway."""
    owners = " and ".join(sorted({link_requests.name_of(sock, ifindex) for ifindex, _ in hops}))
    owner = f", by {owners}" if owners else ""
    return (
        f"the pod has a route to {wanted.destination} in table {wanted.table} already{owner}; set override: true in this one of "
        "NicConfig.routes, so that it wins, or give it a table and a rule"
    )


def add_rule(sock: rtnetlink.Socket, wanted: config.Rule) -> None:
    """Add a rule to the namespace. An equal rule is ignored."""
    try:
        _change_rule(sock, "add", wanted)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise


def delete_rule(sock: rtnetlink.Socket, wanted: config.Rule) -> None:
    """Delete a rule. A rule that is gone is ignored."""
    try:
        _change_rule(sock, "del", wanted)
    except OSError as error:
        if error.errno not in _GONE:
            raise


def _change_rule(sock: rtnetlink.Socket, command: str, wanted: config.Rule) -> None:
    sock.change(
        "rule",
        command,
        family=FAMILY[wanted.version],
        priority=wanted.priority,
        table=wanted.table,
        src=wanted.source or None,
        dst=wanted.destination or None,
    )
