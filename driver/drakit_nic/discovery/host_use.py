"""The uses of interfaces by others that links and addresses of the host do not show, read from the kernel.

While a NIC has shares, everything else that it carries is limited to the host's reserve. So an interface is offered by default only where nothing
else uses it:

- Routes of the host, in any table, also by next hop objects. A NIC of unnumbered BGP, for example, has routes but no address.
- Links of other network namespaces on top of it, such as a macvlan of another CNI's pod. The kernel shows the links of a namespace only where that
  has a number (nsid) here. A namespace has one if the host has the other end of a veth pair to it, which nearly every pod has, or if a link was
  moved there from the host. Namespaces in /run/netns get one. Links of other namespaces are not seen.
- Programs that handle its frames: XDP, filters of traffic control, and tcx.

Constants: linux/rtnetlink.h, linux/bpf.h. Functions raise OSError.
"""

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from drakit_nic.netlink import link_requests, route_requests, rtnetlink
from drakit_nic.passthrough import locator
from drakit_nic.shaping import bpf, tc_messages

_UNICAST = 1
_CLONED = 0x200
_DEFAULT_LENGTH_MAX = 3
"""The longest prefix of a route that counts as a default route: 0.0.0.0/1 with 128.0.0.0/1 replaces one, and 2000::/3 is all of the IPv6 Internet."""


def default_interfaces(sock: rtnetlink.Socket, ifindex: int = 0) -> frozenset[int]:
    """Return the interfaces of default routes of any table and metric, because a spare uplink is an uplink too.

    With an index, other interfaces may be missing.
    """
    routes = (interfaces for route, interfaces in _routes(sock, ifindex) if route.length <= _DEFAULT_LENGTH_MAX)
    return frozenset(itertools.chain.from_iterable(routes))


def read(
    host: locator.Host,
    links: Iterable[link_requests.Link],
    *,
    is_own: Callable[[link_requests.Link], bool],
    own_namespaces: Callable[[], Collection[int]],
) -> Mapping[int, str]:
    """Return a use by others of each interface that has one, to be read after its name. ``is_own`` says whether a link has the mark of a driver."""
    uses: dict[int, str] = {}
    for ifindex, use in itertools.chain(
        _uses_by_routes(host.sock), _uses_by_namespaces(host, is_own, own_namespaces), _uses_by_programs(host.sock, links)
    ):
        uses.setdefault(ifindex, use)
    return uses


def _uses_by_routes(sock: rtnetlink.Socket) -> Iterator[tuple[int, str]]:
    for route, interfaces in _routes(sock):
        destination = route.destination
        if not destination.is_link_local:
            yield from ((ifindex, f"has a route of the host ({destination})") for ifindex in interfaces)


def _routes(sock: rtnetlink.Socket, ifindex: int = 0) -> Iterator[tuple[route_requests.Route, Collection[int]]]:
    """Yield all routes to a gateway or a link, each with its interfaces."""
    members: Mapping[int, Collection[int]] | None = None
    for route in route_requests.routes(sock, ifindex):
        if route.kind != _UNICAST or route.flags & _CLONED:
            continue
        interfaces = route.interfaces
        if route.nexthop and not interfaces:  # Where net.ipv4.nexthop_compat_mode is 0.
            members = route_requests.nexthops(sock) if members is None else members
            interfaces = set(members.get(route.nexthop, ()))
        yield route, interfaces


def _uses_by_namespaces(
    host: locator.Host, is_own: Callable[[link_requests.Link], bool], own_namespaces: Callable[[], Collection[int]]
) -> Iterator[tuple[int, str]]:
    """Yield the links of other namespaces, except those of namespaces to which a driver attached a share."""
    locator.number_named_namespaces(host)
    uppers = locator.upper_links(host)
    own = {place.nsid for place in uppers if is_own(place.link)}
    foreign = [place for place in uppers if place.nsid not in own]
    recorded = own_namespaces() if foreign else ()
    for place in foreign:
        if place.nsid not in recorded:
            link = place.link
            yield link.lower, f"carries {link.name} ({link.kind}) of another network namespace (nsid {place.nsid})"


def _uses_by_programs(sock: rtnetlink.Socket, links: Iterable[link_requests.Link]) -> Iterator[tuple[int, str]]:
    hooked = tc_messages.hooked(sock)
    for link in links:
        if link.has_xdp:
            yield link.ifindex, "has an XDP program of another program"
        if link.ifindex in hooked and tc_messages.has_foreign_filters(sock, link.ifindex):
            yield link.ifindex, "has tc filters of another program"
        with contextlib.suppress(OSError):  # Linux before 6.6, or a caller without CAP_NET_ADMIN.
            if any(bpf.tcx_programs(link.ifindex, attach_type) for attach_type in (bpf.TCX_INGRESS, bpf.TCX_EGRESS)):
                yield link.ifindex, "has tcx programs of another program"
