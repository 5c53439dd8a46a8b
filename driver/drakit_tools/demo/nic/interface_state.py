"""The kernel's state of one interface, as lines that can be saved, compared and printed.

It has everything that sharing could change, and nothing that changes by itself: the link, its addresses and routes, its queueing disciplines and
filters, and the driver's ifb. Layouts: linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/pkt_sched.h.
"""

import ipaddress
import struct
from collections.abc import Iterator, Sequence

from drakit_nic.netlink import link_requests, route_requests, rtnetlink
from drakit_nic.shaping import ifb_links, tc_messages

Lines = tuple[str, ...]

_GETADDR, _GETQDISC, _GETFILTER = 22, 38, 46
_IFADDR = struct.Struct("=BBBBI")
_TCMSG = struct.Struct("=BxxxiIII")
_MTU, _MASTER, _QUEUE, _PROMISCUITY = 4, 10, 13, 30
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_OIF, _GATEWAY, _PREFSRC, _MULTIPATH = 4, 5, 7, 9
_KIND = 1
_FLAGS = {0x1: "up", 0x100: "promisc", 0x200: "allmulti"}
_LOCAL = 255


def read(sock: rtnetlink.Socket, ifindex: int) -> Lines:
    """Return the lines of the interface with this index; empty if it does not exist. Raises OSError."""
    if not link_requests.name_of(sock, ifindex):
        return ()
    parts = (_link, _ifb, _addresses, _routes, _qdiscs, _filters)
    return tuple(line for part in parts for line in part(sock, ifindex))


def differences(was: Sequence[str], now: Sequence[str]) -> Lines:
    """Return missing lines with ``-`` and additional lines with ``+``; empty if nothing changed."""
    return (*(f"- {line}" for line in was if line not in now), *(f"+ {line}" for line in now if line not in was))


def only(lines: Sequence[str], *kinds: str) -> Lines:
    """Return the lines of some kinds: ``link``, ``address``, ``route``, ``qdisc``, ``filter``."""
    return tuple(line for line in lines if line.startswith(tuple(f"{kind} " for kind in kinds)))


def _link(sock: rtnetlink.Socket, ifindex: int) -> Iterator[str]:
    link = link_requests.at(sock, ifindex)
    if link is not None:
        numbers = {word: rtnetlink.as_number(link.attributes[kind]) for word, kind in _NUMBERS.items() if kind in link.attributes}
        words = [f"link {link.name}", f"mac {link.mac}", *(f"{word} {number}" for word, number in numbers.items())]
        words += [f"alias {link.alias!r}"] if link.alias else []
        yield " ".join([*words, *(word for flag, word in _FLAGS.items() if link.flags & flag)])


def _ifb(sock: rtnetlink.Socket, ifindex: int) -> Iterator[str]:
    ifb = ifb_links.find(sock, ifindex)
    if ifb is not None:
        yield f"link {ifb.name} {ifb.kind}"


def _addresses(sock: rtnetlink.Socket, ifindex: int) -> Iterator[str]:
    for body in sock.dump(_GETADDR, _IFADDR.pack(0, 0, 0, 0, 0)):
        _, prefix, _, scope, index = _IFADDR.unpack_from(body)
        address = rtnetlink.attributes(body[_IFADDR.size :])
        packed = address.get(_IFA_LOCAL, address.get(_IFA_ADDRESS, b""))
        if index == ifindex and packed:
            yield f"address {ipaddress.ip_address(packed)}/{prefix} scope {scope}"


def _routes(sock: rtnetlink.Socket, ifindex: int) -> Iterator[str]:
    yield from sorted({line for route in route_requests.routes(sock) for line in _route(route, ifindex)})


def _route(route: route_requests.Route, ifindex: int) -> Iterator[str]:
    if route.table == _LOCAL:
        # The kernel derives these from the addresses; for IPv6 only after duplicate address detection.
        return
    to = str(route.destination) if route.length else "default"
    for hop in _hops(route.attributes, ifindex):
        yield f"route {to}{hop} table {route.table} metric {route.metric} protocol {route.protocol} type {route.kind}"


def _hops(route: rtnetlink.Attributes, ifindex: int) -> Iterator[str]:
    """Yield the next hops of one route through the interface."""
    if _OIF in route and rtnetlink.as_number(route[_OIF]) == ifindex:
        yield _way(route)
    for index, weight, _, way in rtnetlink.hops(route.get(_MULTIPATH, b"")):
        if index == ifindex:
            yield f"{_way(rtnetlink.attributes(way))} weight {weight}"


def _way(route: rtnetlink.Attributes) -> str:
    words = ((_GATEWAY, "via"), (_PREFSRC, "from"))
    return "".join(f" {word} {ipaddress.ip_address(route[kind])}" for kind, word in words if kind in route)


def _qdiscs(sock: rtnetlink.Socket, ifindex: int) -> Iterator[str]:
    for body in sock.dump(_GETQDISC, _TCMSG.pack(0, 0, 0, 0, 0)):
        _, index, handle, parent, _ = _TCMSG.unpack_from(body)
        if index == ifindex:
            kind = rtnetlink.as_text(rtnetlink.attributes(body[_TCMSG.size :])[_KIND])
            yield f"qdisc {kind} {handle >> 16:x}: parent {parent:x}"


def _filters(sock: rtnetlink.Socket, ifindex: int) -> Iterator[str]:
    if tc_messages.qdisc(sock, ifindex, tc_messages.AT_INGRESS) is None:
        return
    for hook in (tc_messages.HOOK_INGRESS, tc_messages.HOOK_EGRESS):
        for body in sock.dump(_GETFILTER, _TCMSG.pack(0, ifindex, 0, hook, 0)):
            _, _, handle, _, order = _TCMSG.unpack_from(body)
            kind = rtnetlink.as_text(rtnetlink.attributes(body[_TCMSG.size :])[_KIND])
            yield f"filter {kind} at {hook:x} pref {order >> 16} protocol {order & 0xFFFF:x} handle {handle:x}"


_NUMBERS = {"mtu": _MTU, "master": _MASTER, "qlen": _QUEUE, "promiscuity": _PROMISCUITY}
