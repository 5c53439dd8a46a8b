"""Interfaces in pods' namespaces on the kernel: configured there, moved in whole, and returned to the host.

``locator`` finds out from the host where an interface is. It is moved by a socket inside the namespace that has it: of a sandbox that the caller has
open, else of one that a process or /run/netns shows. A virtual interface ends with its namespace, and hardware returns to the host by itself, so
there may be nothing to return.
"""

import contextlib
import dataclasses
import errno
import logging
import pathlib
import time
from collections.abc import Callable, Iterator

from drakit.core import errors
from drakit.devices.nic import pod_interfaces
from drakit.devices.nic.netlink import link_requests, rtnetlink
from drakit.devices.nic.passthrough import host_routes, locator

_NAMED = pathlib.Path("/run/netns")
_PROC = pathlib.Path("/proc")
_OWN = pathlib.Path("/proc/self/ns/net")
_CANNOT_ENTER = (
    "a pod's network namespace has the interface and cannot be entered from here; it is returned when the namespace ends, or when the driver can "
    "see /run/netns"
)
_RETURNING = "the hardware is in no network namespace that can be seen; it returns to the host when the namespace that has it ends"
_ENDING_SECONDS, _PAUSE_SECONDS = 1.0, 0.02
"""How long to wait for a namespace that may be about to end: the kernel takes some milliseconds after its last process."""
_log = logging.getLogger(__name__)


class _OutOfReachError(OSError):
    """The interface cannot be moved until a namespace ends."""


class KernelPods:
    """Pods as seen from a namespace: None for the process's own, else a name under /run/netns, a path, or an open descriptor."""

    _namespace: str | int | None
    _after_effect: Callable[[], None]

    def apply(self, child: pod_interfaces.InterfaceRef, wanted: pod_interfaces.InterfaceConfig) -> None:
        with rtnetlink.failing_as("apply"), self._sock_in(child.namespace) as sock:
            link = link_requests.existing(sock, wanted.name)
            _set_figures(sock, link, wanted)
            with rtnetlink.opened(child.namespace or self._namespace or str(_OWN)) as descriptor:
                link_requests.write_sysctls(descriptor, wanted.name, wanted.sysctls)
            link_requests.alter(sock, link.ifindex, up=True)
            _configure_link_up(sock, link.ifindex, wanted)

    def remove_config(self, child: pod_interfaces.InterfaceRef, wanted: pod_interfaces.InterfaceConfig) -> None:
        """Remove the interface's rules from the pod, where they would outlive it. Raises HardwareError."""
        with rtnetlink.failing_as("remove_config"), self._sock_in(child.namespace) as sock:
            for rule in wanted.rules:
                link_requests.delete_rule(sock, rule)

    def observed(self, child: pod_interfaces.InterfaceRef) -> pod_interfaces.ObservedInterface | None:
        """Return the interface as it is in the pod now; None where it does not exist. Raises HardwareError."""
        with rtnetlink.failing_as("observed"), self._sock_in(child.namespace) as sock:
            link = link_requests.find(sock, child.name)
            if link is None:
                return None
            return pod_interfaces.ObservedInterface(
                name=link.name, mac=link.mac, mtu=link.mtu, up=link.up, addresses=link_requests.addresses(sock, link.ifindex)
            )

    def host_state(self, name: str) -> pod_interfaces.HostState | None:
        with rtnetlink.failing_as("host_state"), self._sock_in(self._namespace) as sock:
            link = link_requests.find(sock, name)
            if link is None:
                return None
            own = link_requests.addresses(sock, link.ifindex)
            given, left_out = host_routes.read(sock, link.ifindex)
            return pod_interfaces.HostState(
                name=name,
                mac=link.mac,
                mtu=link.mtu,
                up=link.up,
                addresses=own,
                alias=link.alias,
                identity=locator.on_host(link),
                routes=given,
                routes_left_out=left_out,
            )

    def mark(self, host_state: pod_interfaces.HostState, mark: str) -> None:
        with rtnetlink.failing_as("mark"), self._sock_in(self._namespace) as sock:
            link = link_requests.existing(sock, host_state.name)
            if link.alias != mark:
                link_requests.alter(sock, link.ifindex, alias=mark)

    def locate(self, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.InterfaceRef | None = None) -> pod_interfaces.Location:
        """Return where the interface is; HERE is the namespace of ``sandbox``. Raises HardwareError."""
        with rtnetlink.failing_as("locate"), self._host() as host, contextlib.ExitStack() as stack:
            if sandbox is None:
                return locator.locate(host, whole, rtnetlink.NO_NSID)
            descriptor = stack.enter_context(rtnetlink.opened(sandbox.namespace))
            where = locator.locate(host, whole, rtnetlink.nsid_of(host.sock, descriptor))
            cookie = stack.enter_context(self._sock_in(descriptor)).cookie
            is_recorded = locator.is_recorded_by_earlier_version(whole, cookie)
            return pod_interfaces.Location.HERE if where is pod_interfaces.Location.GONE and is_recorded else where

    def planned_placement(
        self, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.InterfaceRef, pod: str
    ) -> pod_interfaces.Placement:
        """Return what to record before the interface is moved from the host into the sandbox.

        Raises HardwareError where the host does not have it, or an interface in another namespace sits on it and no pod of ours can have made that.
        """
        with rtnetlink.failing_as("planned_placement"), self._host() as host, self._sock_in(sandbox.namespace) as sock:
            link = _on_host(host, whole)
            if locator.was_away(whole, link):
                _delete_upper_links(host, link.ifindex)
            _check_unused(host, link)
            taken = {other.ifindex for other in link_requests.links(sock)}
            index = max(taken) + 1 if link.ifindex in taken else link.ifindex
            return pod_interfaces.Placement(cookie=sock.cookie, pod=pod, identity=locator.on_host(link), ifindex=index)

    def move_in(
        self, whole: pod_interfaces.Passthrough, child: pod_interfaces.InterfaceRef, wanted: pod_interfaces.InterfaceConfig
    ) -> None:
        """Move the interface from the host into the pod under the wanted name, and configure it. Where it is in the pod already, only configure it.

        Raises HardwareError when the host does not have it, or the pod has another interface of that name.
        """
        with rtnetlink.failing_as("move_in"), self._host() as host, rtnetlink.opened(child.namespace) as target:
            there = locator.find(host, whole, rtnetlink.assign_nsid(host.sock, target)) or self._moved_by_earlier_version(
                whole, target, wanted
            )
            if there is None:
                self._move(host, whole, target, wanted.name)
            name = wanted.name if there is None else there.name
            self.apply(pod_interfaces.InterfaceRef(namespace=target, name=name), dataclasses.replace(wanted, name=name))

    def _moved_by_earlier_version(
        self, whole: pod_interfaces.Passthrough, target: int, wanted: pod_interfaces.InterfaceConfig
    ) -> link_requests.Link | None:
        """Return the interface that an earlier version moved into a sandbox without recording an identity; None where that is not recorded.

        The pod can put another of its own interfaces in its place, which is then configured instead, and changes nothing outside the pod.
        """
        with self._sock_in(target) as sock:
            if not locator.is_recorded_by_earlier_version(whole, sock.cookie):
                return None
            links = [link for link in link_requests.links(sock) if link.alias == whole.mark or link.name == wanted.name]
            if not links:
                raise OSError(errno.ENODEV, f"the pod no longer has the interface {wanted.name}")
            return links[0]

    def _move(self, host: locator.Host, whole: pod_interfaces.Passthrough, target: int, name: str) -> None:
        with self._sock_in(target) as sock:
            if link_requests.find(sock, name) is not None:
                raise OSError(errno.EEXIST, f"the pod has an interface {name} already")
        link = _on_host(host, whole)
        index = whole.placement.ifindex if whole.placement is not None else 0
        link_requests.alter(host.sock, link.ifindex, up=False)
        link_requests.move(host.sock, link.ifindex, target, name=name, new_index=index)

    def return_to_host(self, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.InterfaceRef | None = None) -> bool:
        deadline = time.monotonic() + _ENDING_SECONDS
        while True:
            try:
                with rtnetlink.failing_as("return_to_host"), self._host() as host:
                    return self._return_to_host(host, whole, sandbox)
            except errors.HardwareError as error:
                if not isinstance(error.__cause__, _OutOfReachError) or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _return_to_host(self, host: locator.Host, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.InterfaceRef | None) -> bool:
        there = locator.find_on_host(host, whole)
        here = there or self._fetch(host, whole, sandbox)
        if here is None:
            return _is_back(host, whole)
        if there is None or locator.was_away(whole, here):
            _delete_upper_links(host, here.ifindex)
        _restore(host.sock, here, whole.host_state, whole.mark)
        return True

    def _fetch(
        self, host: locator.Host, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.InterfaceRef | None
    ) -> link_requests.Link | None:
        """Move the interface from the pod that has it to the host; None where no pod has one that is proved to be it."""
        place = locator.search(host, whole)
        if place is None or not whole.identity.is_provable:
            return None
        with self._entered(host, place.nsid, sandbox) as (sock, descriptor):
            if not locator.is_noted(whole, sock.cookie):
                return None
            link_requests.alter(sock, place.link.ifindex, up=False, alias=pod_interfaces.returning_mark(whole.mark))
            link_requests.move(sock, place.link.ifindex, host.descriptor, name=whole.host_state.name)
            came = link_requests.existing(host.sock, whole.host_state.name)
            if not pod_interfaces.is_same(whole.identity, locator.on_host(came)):
                link_requests.move(host.sock, came.ifindex, descriptor)
                raise OSError(errno.ENODEV, "the pod put another interface in its place, which was sent back")
            return came

    @contextlib.contextmanager
    def _entered(
        self, host: locator.Host, nsid: int, sandbox: pod_interfaces.InterfaceRef | None
    ) -> Iterator[tuple[rtnetlink.Socket, int]]:
        """A socket in the namespace of this number, and its descriptor. Raises OSError where it cannot be entered."""
        for namespace in (*([sandbox.namespace] if sandbox is not None else []), *_others()):
            with contextlib.ExitStack() as stack:
                try:
                    descriptor = stack.enter_context(rtnetlink.opened(namespace))
                    if rtnetlink.nsid_of(host.sock, descriptor) != nsid:
                        continue
                    sock = stack.enter_context(self._sock_in(descriptor))
                except OSError:
                    continue
                yield sock, descriptor
                return
        raise _OutOfReachError(errno.EACCES, _CANNOT_ENTER)

    @contextlib.contextmanager
    def _host(self) -> Iterator[locator.Host]:
        """The NICs' own namespace, open."""
        with self._sock_in(self._namespace) as sock, rtnetlink.opened(self._namespace or str(_OWN)) as descriptor:
            yield locator.Host(sock=sock, descriptor=descriptor)

    @contextlib.contextmanager
    def _sock_in(self, namespace: str | int | None) -> Iterator[rtnetlink.Socket]:
        with rtnetlink.Socket.open(self._namespace if namespace == pod_interfaces.HOST else namespace, self._after_effect) as sock:
            yield sock


def _others() -> Iterator[str]:
    """Yield every namespace of a process or with a name, each once, the first process's first."""
    seen: set[tuple[int, int]] = set()
    processes = sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())
    shown = [_PROC / str(pid) / "ns/net" for pid in processes]
    named = sorted(_NAMED.iterdir()) if _NAMED.is_dir() else []
    for path in (*shown, *named):
        with contextlib.suppress(OSError):
            status = path.stat()
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield str(path)


def _delete_upper_links(host: locator.Host, ifindex: int) -> None:
    """Delete what pods made on an interface that the host has again, such as a macvlan: the kernel keeps it, and its pod would keep using the NIC."""
    for upper in _upper_links(host, ifindex):
        link_requests.delete(host.sock, upper.link.ifindex, upper.nsid)


def _check_unused(host: locator.Host, link: link_requests.Link) -> None:
    """Raise OSError where an interface in another namespace sits on a link of the host's: its owner and the pod would share the NIC."""
    for upper in _upper_links(host, link.ifindex):
        reason = (
            f"{upper.link.name}, a {upper.link.kind} in another network namespace (nsid {upper.nsid}), uses {link.name}; delete it first"
        )
        raise OSError(errno.EBUSY, reason)


def _upper_links(host: locator.Host, ifindex: int) -> tuple[locator.Place, ...]:
    """Return the links of other namespaces on a link of the host's. Every namespace that can be seen gets a number, by which links are listed."""
    with rtnetlink.Socket.open(host.descriptor) as sock:
        for namespace in _others():
            with contextlib.suppress(OSError), rtnetlink.opened(namespace) as descriptor:
                rtnetlink.assign_nsid(sock, descriptor)
    return locator.upper_links(host, ifindex)


def _on_host(host: locator.Host, whole: pod_interfaces.Passthrough) -> link_requests.Link:
    link = locator.find_on_host(host, whole)
    if link is None:
        raise OSError(errno.ENODEV, f"the interface {whole.host_state.name} is not in the host's network namespace")
    return link


def _set_figures(sock: rtnetlink.Socket, link: link_requests.Link, wanted: pod_interfaces.InterfaceConfig) -> None:
    """MAC and MTU where they differ; a MAC is changed while the link is down, because not every driver can otherwise."""
    if wanted.mac and link.mac != wanted.mac:
        link_requests.alter(sock, link.ifindex, up=False)
        link_requests.alter(sock, link.ifindex, mac=wanted.mac)
    if wanted.mtu and link.mtu != wanted.mtu:
        link_requests.alter(sock, link.ifindex, mtu=wanted.mtu)


def _configure_link_up(sock: rtnetlink.Socket, ifindex: int, wanted: pod_interfaces.InterfaceConfig) -> None:
    """Add the routes, which need a link that is up; those onto the link come first, because gateways need them."""
    present = set(link_requests.addresses(sock, ifindex))
    for address in wanted.addresses:
        if address not in present:
            link_requests.add_address(sock, ifindex, address)
    for neighbour in wanted.neighbours:
        link_requests.add_neighbour(sock, ifindex, neighbour)
    for route in sorted(wanted.routes, key=lambda route: bool(route.gateway)):
        link_requests.add_route(sock, ifindex, route)
    for rule in wanted.rules:
        link_requests.add_rule(sock, rule)


def _is_back(host: locator.Host, whole: pod_interfaces.Passthrough) -> bool:
    """Whether the interface, which is neither known on the host nor in a pod, is the host's already. Raises OSError while hardware is on its way."""
    link = link_requests.find(host.sock, whole.host_state.name)
    if link is not None and (link.mac, link.alias) == (whole.host_state.mac, whole.host_state.alias):
        return True
    if locator.is_plugged(whole.identity):
        raise _OutOfReachError(errno.EAGAIN, _RETURNING)
    return False


def _restore(sock: rtnetlink.Socket, link: link_requests.Link, host_state: pod_interfaces.HostState, mark: str) -> None:
    """The interface as it was; its mark goes last, so that a crash before finds it again.

    That it has been away is written into the mark first: with its addresses back it looks as if it had never left, and one that never left keeps
    the routes that it has, also those that an admin took away meanwhile.
    """
    was_away = link.alias == pod_interfaces.returning_mark(mark) or _is_changed(sock, link, host_state)
    if was_away and link.alias != pod_interfaces.returning_mark(mark):
        link_requests.alter(sock, link.ifindex, alias=pod_interfaces.returning_mark(mark))
    if link.name != host_state.name or link.mac != host_state.mac:
        link_requests.alter(sock, link.ifindex, up=False)
        link_requests.alter(sock, link.ifindex, name=host_state.name, mac=host_state.mac if link.mac != host_state.mac else "")
    if link.mtu != host_state.mtu:
        link_requests.alter(sock, link.ifindex, mtu=host_state.mtu)
    link_requests.alter(sock, link.ifindex, up=host_state.up)
    present = set(link_requests.addresses(sock, link.ifindex))
    for address in host_state.addresses:
        if address not in present:
            link_requests.add_address(sock, link.ifindex, address)
    for route, error in host_routes.restore(sock, link.ifindex, host_state.name, host_state.routes) if was_away else ():
        _log.warning("route restore failed", extra={"interface": host_state.name, "route": str(route), "error": str(error)})
    link_requests.alter(sock, link.ifindex, alias=host_state.alias)


def _is_changed(sock: rtnetlink.Socket, link: link_requests.Link, host_state: pod_interfaces.HostState) -> bool:
    """Return whether the interface lacks what it loses by leaving: it is down, has another name, or not all its addresses."""
    lost = set(host_state.addresses) - set(link_requests.addresses(sock, link.ifindex))
    return link.name != host_state.name or link.up != host_state.up or bool(lost)
