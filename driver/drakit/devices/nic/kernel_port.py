"""The kernel's network interfaces, by netlink and ethtool, in the network namespace given.

Everything is read through sockets that a thread of its own opens after it has entered the namespace; the thread ends with the call, so no other
thread of the process is ever moved. The only importer of pyroute2, which is loaded at the first call, because that takes some 200 ms.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import socket
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from drakit.core import errors
from drakit.devices.nic import pod_interfaces, port
from drakit.devices.nic.discovery import read_interface
from drakit.devices.nic.netlink import rtnetlink
from drakit.devices.nic.passthrough import kernel_pods, sriov
from drakit.devices.nic.shaping import ifb_links as ifbs
from drakit.devices.nic.shaping import kernel_shares, parts, tc_messages

if TYPE_CHECKING:
    import pyroute2
    from pyroute2.netlink import nlmsg

Answer = TypeVar("Answer")

_NAME_BYTES_MAX = 15
_DUMP_TRIES = 10
_DUMP_INTERRUPTED = 0x10


class _Sockets(NamedTuple):
    """One of each kind, in the namespace."""

    route: "pyroute2.IPRoute"
    plain: socket.socket
    traffic: rtnetlink.Socket


class _Use(NamedTuple):
    """Indices of the interfaces the host uses: by an address of global scope, by a default route."""

    addressed: frozenset[int]
    uplinks: frozenset[int]


class KernelPort(kernel_shares.KernelShares, kernel_pods.KernelPods, sriov.KernelFunctions):
    """The interfaces of one network namespace: None for the process's own, else a name under /run/netns, a path, or an open descriptor.

    Shares are enforced by traffic control; see ``tc``.
    """

    def interfaces(self) -> tuple[port.Interface, ...]:
        return self._inside(functools.partial(_read, owner=self._owner))

    def interface(self, name: str) -> port.Interface | None:
        if len(name.encode()) > _NAME_BYTES_MAX:
            return None
        with rtnetlink.failing_as("RTM_GETLINK"), _opened(self._namespace) as descriptor:
            if descriptor is None:
                return _glance(name, self._owner)
            with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
                return thread.submit(_glance_inside, descriptor, name, self._owner).result()

    def _inside(self, work: Callable[[_Sockets], Answer]) -> Answer:
        """Return the result of ``work`` on sockets of the namespace, in a thread that ends here."""
        library = _library()
        with _opened(self._namespace) as descriptor, concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(_run, library, descriptor, work).result()


def _run(library: types.ModuleType, descriptor: int | None, work: Callable[[_Sockets], Answer]) -> Answer:
    """Enter the namespace and work there; must be called in a thread that nothing else uses, which stays inside."""
    if descriptor is not None:
        with _failing_as("setns"):
            library.netns.setns(descriptor)
    with _failing_as("socket"):
        traffic = rtnetlink.Socket.open()
        route, plain = library.IPRoute(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with route, plain, traffic:
        return work(_Sockets(route, plain, traffic))


def _library() -> types.ModuleType:
    try:
        import pyroute2  # noqa: PLC0415 - slow to load, and not needed on mock machines
        import pyroute2.netns  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise errors.HardwareError("import pyroute2", "is not installed; install drakit[nic]") from error
    return pyroute2


@contextlib.contextmanager
def _opened(namespace: str | int | None) -> Iterator[int | None]:
    """The descriptor of a namespace; one that is opened here is closed here."""
    if namespace is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        with rtnetlink.failing_as("open"):
            descriptor = stack.enter_context(rtnetlink.opened(namespace))
        yield descriptor


@contextlib.contextmanager
def _failing_as(call: str) -> Iterator[None]:
    """Turn what the kernel and pyroute2 raise into a HardwareError of that call."""
    library = _library()
    try:
        yield
    except (OSError, library.NetlinkError, library.NetlinkDecodeError) as error:
        raise errors.HardwareError(call, str(error)) from error


def _read(sockets: _Sockets, *, owner: str) -> tuple[port.Interface, ...]:
    links = _dump("RTM_GETLINK", sockets.route.get_links)
    use = _read_use(sockets.route)
    with _failing_as("RTM_GETQDISC"):
        roots, ours = tc_messages.roots(sockets.traffic), ifbs.ours(sockets.traffic) if owner else {}
    found = (_interface(link, sockets.plain, use, parts.chosen_by_others(roots.get(link["index"]))) for link in links)
    shared = (dataclasses.replace(item, sharer=parts.other_owner(ours.get(item.ifindex), owner)) for item in found)
    return tuple(sorted(shared, key=lambda item: item.ifindex))


def _glance_inside(descriptor: int, name: str, owner: str) -> port.Interface | None:
    """Must be called in a thread that ends afterwards: it stays in the namespace."""
    rtnetlink.enter(descriptor)
    return _glance(name, owner)


def _glance(name: str, owner: str) -> port.Interface | None:
    with rtnetlink.Socket.open() as route, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        return read_interface.read(route, plain, name, owner=owner)


def _read_use(route: "pyroute2.IPRoute") -> _Use:
    addresses = _dump("RTM_GETADDR", route.get_addr)
    routes = _dump("RTM_GETROUTE", route.get_routes)
    return _Use(
        addressed=frozenset(address["index"] for address in addresses if address["scope"] < read_interface.SCOPE_LINK),
        uplinks=frozenset(index for route in routes for index in _default_by(route)),
    )


def _dump(call: str, read: Callable[[], Iterable["nlmsg"]]) -> tuple["nlmsg", ...]:
    """Return a whole table, read again where the kernel reports a change meanwhile (NLM_F_DUMP_INTR), which pyroute2 leaves to its caller."""
    for _ in range(_DUMP_TRIES):
        with _failing_as(call):
            answer = tuple(read())
        if not any(item["header"]["flags"] & _DUMP_INTERRUPTED for item in answer):
            return answer
    raise errors.HardwareError(call, f"the table changed during each of {_DUMP_TRIES} reads")


def _default_by(route: "nlmsg") -> list[int]:
    """Return the interfaces by which a default route of any table and metric leaves; a spare uplink is an uplink too."""
    if route["dst_len"] or route["type"] != read_interface.UNICAST:
        return []
    hops = [route.get_attr("RTA_OIF"), *(hop["oif"] for hop in route.get_attr("RTA_MULTIPATH") or ())]
    return [hop for hop in hops if hop]


def _interface(link: "nlmsg", plain: socket.socket, use: _Use, queueing: str) -> port.Interface:
    index, name = link["index"], link.get_attr("IFLA_IFNAME")
    kind = _kind(link)
    with _failing_as("ETHTOOL"):
        report = read_interface.ethtool(plain, name)
    return port.Interface(
        ifindex=index,
        name=name,
        altnames=_altnames(link),
        mac=(link.get_attr("IFLA_ADDRESS") or "").lower(),
        mtu=link.get_attr("IFLA_MTU"),
        kind=kind,
        encapsulation=read_interface.ENCAPSULATIONS.get(link["ifi_type"], f"type-{link['ifi_type']}"),
        speed=report.speed,
        carrier=bool(link.get_attr("IFLA_CARRIER")),
        state=(link.get_attr("IFLA_OPERSTATE") or "unknown").lower(),
        driver=report.driver,
        pci=read_interface.pci_function(report.bus_id) if report.bus_id else None,
        master=link.get_attr("IFLA_MASTER") or None,
        lower=_lower(link, kind),
        default_route=index in use.uplinks,
        addressed=index in use.addressed,
        queueing=queueing,
    )


def _kind(link: "nlmsg") -> str:
    if link["flags"] & read_interface.LOOPBACK_FLAG:
        return port.LOOPBACK
    return link.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") or port.PHYSICAL


def _altnames(link: "nlmsg") -> tuple[str, ...]:
    listed = link.get_attr("IFLA_PROP_LIST")
    return tuple(listed.altnames()) if listed else ()


def _lower(link: "nlmsg", kind: str) -> int | None:
    """Return the interface below, if it is in this namespace. IFLA_LINK of a pair's end is its peer, which is not below it."""
    if kind in pod_interfaces.PAIRS or link.get_attr("IFLA_LINK_NETNSID") is not None:
        return None
    return link.get_attr("IFLA_LINK") or None
