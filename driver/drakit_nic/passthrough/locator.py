"""The locations of whole interfaces: among the host's links, and among those of every namespace that has a number there.

An interface is recognized by its identity, and only where exactly one link matches. On the host, a virtual interface must also have the mark: no pod
can write there, and the kernel may reuse the numbers in its identity after the interface was deleted. Functions raise OSError.
"""

import contextlib
import dataclasses
import pathlib

from drakit_nic import interface_identity, pod_interfaces
from drakit_nic.netlink import link_requests, namespace_numbers, namespaces, rtnetlink

_BUSES = pathlib.Path("/sys/bus")
_PCI_DEVICES = _BUSES / "pci/devices"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """The host's open network namespace: a socket in it, and its descriptor."""

    sock: rtnetlink.Socket
    descriptor: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """A link, with the number of its namespace in the host's namespace."""

    nsid: int
    link: link_requests.Link


def on_host(link: link_requests.Link) -> interface_identity.Identity:
    """Return the identity of a link of the host."""
    return _identity(link, interface_identity.HOST_NSID if link.other_nsid is None else link.other_nsid)


def find_on_host(host: Host, whole: pod_interfaces.Passthrough) -> link_requests.Link | None:
    """Return the interface on the host, whatever its name, None if the host does not have it."""
    marks, wanted = {whole.mark, pod_interfaces.returning_mark(whole.mark)}, whole.identity
    links = link_requests.links(host.sock)
    if wanted.place:
        return _only([link for link in links if interface_identity.is_same(wanted, on_host(link))])
    return _only([link for link in links if link.alias in marks and (not wanted.kind or interface_identity.is_same(wanted, on_host(link)))])


def find(host: Host, whole: pod_interfaces.Passthrough, nsid: int) -> link_requests.Link | None:
    """Return the interface in the namespace of this number, None if it is not there."""
    links = link_requests.links(host.sock, nsid)
    own = namespace_numbers.nsid_of(host.sock, host.descriptor)

    def identity_in_pod(link: link_requests.Link) -> interface_identity.Identity:
        if link.other_nsid is None:
            return _identity(link, interface_identity.INSIDE_NSID)
        return _identity(link, interface_identity.HOST_NSID if link.other_nsid == own else link.other_nsid)

    return _only(
        [link for link in links if interface_identity.is_in_pod(whole.identity, whole.placement, identity_in_pod(link), link.ifindex)]
    )


def search(host: Host, whole: pod_interfaces.Passthrough) -> Place | None:
    """Return the interface in any namespace but the host's, None if no namespace has it."""
    own = namespace_numbers.nsid_of(host.sock, host.descriptor)
    for nsid in namespace_numbers.nsids(host.sock):
        link = find(host, whole, nsid) if nsid != own else None
        if link is not None:
            return Place(nsid=nsid, link=link)
    return None


def number_named_namespaces(host: Host) -> None:
    """Give every namespace in /run/netns a number in the host's namespace, which the listing of its links needs."""
    for path in sorted(namespaces.NAMED.iterdir()) if namespaces.NAMED.is_dir() else ():
        with contextlib.suppress(OSError), namespaces.opened(str(path)) as descriptor:
            namespace_numbers.assign_nsid(host.sock, descriptor)


def upper_links(host: Host) -> tuple[Place, ...]:
    """Return the links of all other namespaces on top of links of the host, such as a macvlan child that a pod created."""
    places = [Place(nsid=nsid, link=link) for nsid in namespace_numbers.nsids(host.sock) for link in link_requests.links(host.sock, nsid)]
    # Read after the links: the kernel gives the host's namespace a number when it lists the first link that refers to it.
    own = namespace_numbers.nsid_of(host.sock, host.descriptor)
    if own == namespace_numbers.NO_NSID:
        return ()
    uppers = (place for place in places if place.link.lower and place.link.other_nsid == own and place.nsid != own)
    return tuple(place for place in uppers if place.link.kind not in interface_identity.PAIRS)


def locate(host: Host, whole: pod_interfaces.Passthrough, here: int) -> pod_interfaces.Location:
    """Return the location of the interface. HERE is the namespace of the number ``here``."""
    if find_on_host(host, whole) is not None:
        return pod_interfaces.Location.HOST
    place = search(host, whole)
    if place is not None:
        return pod_interfaces.Location.HERE if place.nsid == here else pod_interfaces.Location.ELSEWHERE
    return pod_interfaces.Location.RETURNING if is_plugged(whole.identity) else pod_interfaces.Location.GONE


def is_recorded_in(whole: pod_interfaces.Passthrough, cookie: int) -> bool:
    """Return whether a namespace is the recorded one of the interface. Hardware, which a pod may move on, needs no such proof."""
    return whole.placement is None or bool(whole.identity.place) or whole.placement.cookie == cookie


def is_recorded_by_earlier_version(whole: pod_interfaces.Passthrough, cookie: int) -> bool:
    """Return whether only a record of an earlier version says that the interface is in the namespace of this cookie."""
    placement = whole.placement
    return placement is not None and placement.is_of_earlier_version and placement.cookie == cookie and not whole.identity.is_unique


def was_away(whole: pod_interfaces.Passthrough, link: link_requests.Link) -> bool:
    """Return whether an interface on the host was in a sandbox of its present claim."""
    return whole.placement is not None or link.alias == pod_interfaces.returning_mark(whole.mark)


def is_plugged(of: interface_identity.Identity, buses: pathlib.Path = _BUSES) -> bool:
    """Return whether hardware exists at the interface's bus address."""
    address, _, _ = of.place.partition(" ")
    return bool(address) and any(buses.glob(f"*/devices/{address}"))


def _identity(link: link_requests.Link, other_nsid: int) -> interface_identity.Identity:
    if link.place:
        return interface_identity.Identity(place=_place(link), port=link.port)
    return interface_identity.Identity(
        kind=link.kind, other=link.other, other_nsid=other_nsid if link.other else interface_identity.HOST_NSID
    )


def _place(link: link_requests.Link) -> str:
    """Return the place of hardware: of a virtual function only its bus address, because its parent can change its burnt-in MAC."""
    address, _, _ = link.place.partition(" ")
    return address if (_PCI_DEVICES / address / "physfn").exists() else link.place


def _only(links: list[link_requests.Link]) -> link_requests.Link | None:
    return links[0] if len(links) == 1 else None
