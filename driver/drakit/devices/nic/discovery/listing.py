"""Lists all links of a network namespace by pyroute2, with the addresses and default routes on them: what discovery needs once a minute.

The only importer of pyroute2, which is loaded at the first listing, because that takes some 150 ms and mock machines do not need it. What reads or
changes one link for a claim uses requests of ``netlink.link_requests`` (ADR 72).
"""

import concurrent.futures
import contextlib
import dataclasses
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from drakit.core import errors
from drakit.devices.nic.netlink import rtnetlink

if TYPE_CHECKING:
    import pyroute2
    from pyroute2.netlink import nlmsg

UNICAST = 1
"""The type of a route that leads somewhere (RTN_UNICAST)."""
SCOPE_LINK = 253
"""Addresses of a smaller scope are known beyond their link (RT_SCOPE_LINK)."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LinkFacts:
    """One link as the kernel reports it (linux/if_link.h).

    ``kind`` is empty for hardware, ``layer`` the number of the link layer (ARPHRD_*), ``other`` the index of the link's other end or of the link
    below, 0 for none. ``is_other_elsewhere`` says that this end is in another namespace.
    """

    ifindex: int
    name: str
    altnames: tuple[str, ...]
    mac: str
    mtu: int
    kind: str
    layer: int
    flags: int
    carrier: bool
    state: str
    master: int | None
    other: int
    is_other_elsewhere: bool


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """The links of a namespace, the indices of those with an address of global scope, and of those with a default route."""

    links: tuple[LinkFacts, ...]
    addressed: frozenset[int]
    uplinks: frozenset[int]


def read() -> Listing:
    """List the links of the calling thread's namespace. Raises HardwareError, also where pyroute2 is not installed.

    pyroute2 runs an event loop of its own, so it runs in a thread that has none. That thread starts in the namespace of the calling one.
    """
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_read).result()


def _read() -> Listing:
    library = _library()
    with _failing_as(library, "socket"):
        route = library.IPRoute()
    with route:
        return _tables(library, route)


def _tables(library: types.ModuleType, route: "pyroute2.IPRoute") -> Listing:
    links = _dump(library, "RTM_GETLINK", route.get_links)
    addresses = _dump(library, "RTM_GETADDR", route.get_addr)
    routes = _dump(library, "RTM_GETROUTE", route.get_routes)
    return Listing(
        links=tuple(sorted(map(_facts, links), key=lambda link: link.ifindex)),
        addressed=frozenset(address["index"] for address in addresses if address["scope"] < SCOPE_LINK),
        uplinks=frozenset(ifindex for route in routes for ifindex in _default_by(route)),
    )


def _facts(link: "nlmsg") -> LinkFacts:
    alternative_names = link.get_attr("IFLA_PROP_LIST")
    return LinkFacts(
        ifindex=link["index"],
        name=link.get_attr("IFLA_IFNAME"),
        altnames=tuple(alternative_names.altnames()) if alternative_names else (),
        mac=(link.get_attr("IFLA_ADDRESS") or "").lower(),
        mtu=link.get_attr("IFLA_MTU"),
        kind=link.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") or "",
        layer=link["ifi_type"],
        flags=link["flags"],
        carrier=bool(link.get_attr("IFLA_CARRIER")),
        state=(link.get_attr("IFLA_OPERSTATE") or "unknown").lower(),
        master=link.get_attr("IFLA_MASTER") or None,
        other=link.get_attr("IFLA_LINK") or 0,
        is_other_elsewhere=link.get_attr("IFLA_LINK_NETNSID") is not None,
    )


def _default_by(route: "nlmsg") -> list[int]:
    """Return the interfaces by which a default route of any table and metric leaves; a spare uplink is an uplink too."""
    if route["dst_len"] or route["type"] != UNICAST:
        return []
    hops = [route.get_attr("RTA_OIF"), *(hop["oif"] for hop in route.get_attr("RTA_MULTIPATH") or ())]
    return [hop for hop in hops if hop]


def _dump(library: types.ModuleType, call: str, ask: Callable[[], Iterable["nlmsg"]]) -> tuple["nlmsg", ...]:
    """Return a whole table; pyroute2 leaves it to its caller to read an interrupted one again."""
    with _failing_as(library, call):
        return rtnetlink.whole_table(lambda: tuple(ask()), lambda entry: entry["header"]["flags"])


def _library() -> types.ModuleType:
    try:
        import pyroute2  # noqa: PLC0415 - slow to load, and not needed on mock machines
    except ModuleNotFoundError as error:
        raise errors.HardwareError("import pyroute2", "is not installed; install drakit[nic]") from error
    return pyroute2


@contextlib.contextmanager
def _failing_as(library: types.ModuleType, call: str) -> Iterator[None]:
    """Turn what the kernel and pyroute2 raise into a HardwareError of that call."""
    try:
        with rtnetlink.failing_as(call):
            yield
    except (library.NetlinkError, library.NetlinkDecodeError) as error:
        raise errors.HardwareError(call, str(error)) from error
