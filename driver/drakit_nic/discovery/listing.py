"""The listing of all links of a network namespace by pyroute2, with their addresses, which discovery reads once a minute.

Only this module imports pyroute2. It does so at the first listing, because the import takes some 150 ms and mock machines do not need it. Code that
reads or changes one link for a claim uses ``netlink.link_requests`` (ADR 72).
"""

import concurrent.futures
import contextlib
import dataclasses
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from drakit.core import errors
from drakit_nic.netlink import rtnetlink

if TYPE_CHECKING:
    import pyroute2
    from pyroute2.netlink import nlmsg

SCOPE_LINK = 253
"""The scope of an address that is valid on its link only (RT_SCOPE_LINK). A smaller number is a wider scope."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LinkFacts:
    """One link as the kernel reports it (linux/if_link.h).

    ``kind`` is empty for hardware. ``layer`` is the number of the link layer (ARPHRD_*). ``other`` is the index of the other end or of the link
    below, also of the one that a vxlan is bound to, 0 for none. ``is_other_elsewhere`` is set where the other end is in another namespace.
    ``has_xdp`` is set where an XDP program is attached.
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
    has_xdp: bool


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """The links of a namespace, and the indices of those with an address of global scope."""

    links: tuple[LinkFacts, ...]
    addressed: frozenset[int]


def read() -> Listing:
    """Return the links of the calling thread's namespace. Raise HardwareError, also where pyroute2 is not installed.

    pyroute2 starts an event loop, so it needs a thread without one. A new thread starts in the namespace of the calling thread.
    """
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_read).result()


def _read() -> Listing:
    library = _library()
    with _failing_as(library, "socket"):
        route = library.IPRoute()
    with route:
        return _read_tables(library, route)


def _read_tables(library: types.ModuleType, route: "pyroute2.IPRoute") -> Listing:
    links = _dump(library, "RTM_GETLINK", route.get_links)
    addresses = _dump(library, "RTM_GETADDR", route.get_addr)
    return Listing(
        links=tuple(sorted(map(_link_facts, links), key=lambda link: link.ifindex)),
        addressed=frozenset(address["index"] for address in addresses if address["scope"] < SCOPE_LINK),
    )


def _link_facts(link: "nlmsg") -> LinkFacts:
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
        other=link.get_attr("IFLA_LINK") or link.get_nested("IFLA_LINKINFO", "IFLA_INFO_DATA", "IFLA_VXLAN_LINK") or 0,
        is_other_elsewhere=link.get_attr("IFLA_LINK_NETNSID") is not None,
        has_xdp=bool(link.get_nested("IFLA_XDP", "IFLA_XDP_ATTACHED")),
    )


def _dump(library: types.ModuleType, call: str, ask: Callable[[], Iterable["nlmsg"]]) -> tuple["nlmsg", ...]:
    """Return a whole table. The caller of pyroute2 must itself repeat an interrupted read."""
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
    """Raise an error of the kernel or pyroute2 as a HardwareError of this call."""
    try:
        with rtnetlink.failing_as(call):
            yield
    except (library.NetlinkError, library.NetlinkDecodeError) as error:
        raise errors.HardwareError(call, str(error)) from error
