"""Interfaces in pods' namespaces on the kernel: configuring them, moving whole ones in, and returning them to the host.

``locator`` locates an interface from the host. It is moved through a socket inside its namespace: a sandbox that the caller has open, else a
namespace found by its process or in /run/netns. A virtual interface is deleted with its namespace, and the kernel returns hardware to the host, so
there may be nothing to return.
"""

import contextlib
import dataclasses
import errno
import logging
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping

import drakit
from drakit_nic import interface_identity, pod_interfaces, sysctls
from drakit_nic.netlink import interface_sysctls, link_requests, namespace_numbers, namespaces, route_requests, rtnetlink
from drakit_nic.passthrough import host_routes, locator, properties, refusals

_PROC = pathlib.Path("/proc")
_CANNOT_ENTER = (
    "a pod's network namespace has the interface and cannot be entered from here; it is returned when the namespace ends, or when the driver can "
    "see /run/netns"
)
_RETURNING = "the hardware is in no network namespace that can be seen; it returns to the host when the namespace that has it ends"
_ENDING_SECONDS, _PAUSE_SECONDS = 1.0, 0.02
"""The longest wait for a namespace that may be ending: the kernel takes some milliseconds after its last process."""
_log = logging.getLogger(__name__)


class _OutOfReachError(OSError):
    """The interface cannot be moved until a namespace ends."""


class KernelPods:
    """Pods seen from a namespace: None for the process's own, else a name under /run/netns, a path, or an open descriptor."""

    _namespace: str | int | None
    _after_effect: Callable[[], None]

    def apply(self, child: pod_interfaces.InterfaceRef, wanted: pod_interfaces.InterfaceConfig) -> None:
        namespace = child.namespace or self._namespace or namespaces.OWN
        with rtnetlink.failing_as("apply"), self._sock_in(child.namespace) as sock, namespaces.opened(namespace) as descriptor:
            configure(sock, descriptor, wanted)

    def remove_config(self, child: pod_interfaces.InterfaceRef, wanted: pod_interfaces.InterfaceConfig) -> None:
        """Remove the interface's rules from the pod, because they would outlive the interface. Raises HardwareError."""
        with rtnetlink.failing_as("remove_config"), self._sock_in(child.namespace) as sock:
            for rule in wanted.rules:
                route_requests.delete_rule(sock, rule)

    def observed(self, child: pod_interfaces.InterfaceRef) -> pod_interfaces.ObservedInterface | None:
        """Return the present state of the interface in the pod, None if it does not exist. Raises HardwareError."""
        with rtnetlink.failing_as("observed"), self._sock_in(child.namespace) as sock:
            link = link_requests.find(sock, child.name)
            if link is None:
                return None
            return pod_interfaces.ObservedInterface(
                name=link.name, mac=link.mac, mtu=link.mtu, up=link.up, addresses=link_requests.addresses(sock, link.ifindex)
            )

    def host_state(self, name: str) -> pod_interfaces.HostState | None:
        with rtnetlink.failing_as("host_state"), self._host() as host:
            link = link_requests.find(host.sock, name)
            if link is None:
                return None
            routes, left_out = host_routes.read(host.sock, link.ifindex)
            with properties.opened(host.sock, host.descriptor, link) as interface:
                others = properties.read(interface)
            return pod_interfaces.HostState(
                name=name,
                mac=link.mac,
                mtu=link.mtu,
                up=link.up,
                addresses=link_requests.addresses(host.sock, link.ifindex),
                alias=link.alias,
                identity=locator.on_host(link),
                routes=routes,
                routes_left_out=left_out,
                properties=others,
            )

    def alias(self, name: str) -> str:
        with rtnetlink.failing_as("alias"), self._sock_in(self._namespace) as sock:
            link = link_requests.find(sock, name)
            return "" if link is None else link.alias

    def mark(self, host_state: pod_interfaces.HostState, mark: str) -> None:
        with rtnetlink.failing_as("mark"), self._sock_in(self._namespace) as sock:
            link = link_requests.existing(sock, host_state.name)
            if link.alias != mark:
                link_requests.alter(sock, link.ifindex, alias=mark)

    def locate(self, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.InterfaceRef | None = None) -> pod_interfaces.Location:
        """Return the location of the interface. HERE is the namespace of ``sandbox``. Raises HardwareError."""
        with rtnetlink.failing_as("locate"), self._host() as host, contextlib.ExitStack() as stack:
            if sandbox is None:
                return locator.locate(host, whole, namespace_numbers.NO_NSID)
            descriptor = stack.enter_context(namespaces.opened(sandbox.namespace))
            location = locator.locate(host, whole, namespace_numbers.nsid_of(host.sock, descriptor))
            cookie = stack.enter_context(self._sock_in(descriptor)).cookie
            is_recorded = locator.is_recorded_by_earlier_version(whole, cookie)
            return pod_interfaces.Location.HERE if location is pod_interfaces.Location.GONE and is_recorded else location

    def planned_placement(
        self, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.InterfaceRef, pod: str
    ) -> interface_identity.Placement:
        """Return the placement to record before the interface is moved from the host into the sandbox.

        Raises HardwareError where the host does not have the interface, or an interface in another namespace uses it. Links that a pod of the present
        claim created on it are deleted.
        """
        with rtnetlink.failing_as("planned_placement"), self._host() as host, self._sock_in(sandbox.namespace) as sock:
            link = _on_host(host, whole)
            if locator.was_away(whole, link):
                _delete_upper_links(host, link.ifindex)
            _check_unused(host, link)
            taken = {other.ifindex for other in link_requests.links(sock)}
            index = max(taken) + 1 if link.ifindex in taken else link.ifindex
            return interface_identity.Placement(cookie=sock.cookie, pod=pod, identity=locator.on_host(link), ifindex=index)

    def move_in(
        self, whole: pod_interfaces.Passthrough, child: pod_interfaces.InterfaceRef, wanted: pod_interfaces.InterfaceConfig
    ) -> None:
        """Move the interface from the host into the pod under the wanted name, and configure it. If the pod has it already, only configure it.

        Raises HardwareError when the host does not have it, or the pod has another interface of that name.
        """
        with rtnetlink.failing_as("move_in"), self._host() as host, namespaces.opened(child.namespace) as target:
            in_pod = locator.find(host, whole, namespace_numbers.assign_nsid(host.sock, target)) or self._moved_by_earlier_version(
                whole, target, wanted
            )
            if in_pod is None:
                self._move(host, whole, target, wanted.name)
            name = wanted.name if in_pod is None else in_pod.name
            self.apply(pod_interfaces.InterfaceRef(namespace=target, name=name), dataclasses.replace(wanted, name=name))

    def _moved_by_earlier_version(
        self, whole: pod_interfaces.Passthrough, target: int, wanted: pod_interfaces.InterfaceConfig
    ) -> link_requests.Link | None:
        """Return the interface that an earlier version moved into a sandbox without an identity, None if no such record exists.

        The pod can replace it by another of its own interfaces, which is then configured instead. Nothing outside the pod changes.
        """
        with self._sock_in(target) as sock:
            if not locator.is_recorded_by_earlier_version(whole, sock.cookie):
                return None
            links = [link for link in link_requests.links(sock) if link.alias == whole.mark or link.name == wanted.name]
            if not links:
                raise OSError(errno.ENODEV, f"the pod no longer has the interface {wanted.name}")
            return links[0]

    def _move(self, host: locator.Host, whole: pod_interfaces.Passthrough, target: int, name: str) -> None:
        link = _on_host(host, whole)
        index = whole.placement.ifindex if whole.placement is not None else 0
        link_requests.alter(host.sock, link.ifindex, up=False)
        with refusals.naming("interfaceName", name):
            link_requests.move(host.sock, link.ifindex, target, name=name, new_index=index)

    def return_to_host(
        self,
        whole: pod_interfaces.Passthrough,
        sandbox: pod_interfaces.InterfaceRef | None = None,
        on_failed: pod_interfaces.OnFailed = pod_interfaces.ignore,
    ) -> bool:
        deadline = time.monotonic() + _ENDING_SECONDS
        while True:
            try:
                with rtnetlink.failing_as("return_to_host"), self._host() as host:
                    return self._return_to_host(host, whole, sandbox, on_failed)
            except drakit.HardwareError as error:
                if not isinstance(error.__cause__, _OutOfReachError) or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _return_to_host(
        self,
        host: locator.Host,
        whole: pod_interfaces.Passthrough,
        sandbox: pod_interfaces.InterfaceRef | None,
        on_failed: pod_interfaces.OnFailed,
    ) -> bool:
        on_host = locator.find_on_host(host, whole)
        link = on_host or self._fetch(host, whole, sandbox)
        if link is None:
            return _is_back(host, whole)
        was_away = on_host is None or locator.was_away(whole, link)
        if was_away:
            _delete_upper_links(host, link.ifindex)
        on_failed(_restore(host, link, whole, was_away=was_away))
        return True

    def _fetch(
        self, host: locator.Host, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.InterfaceRef | None
    ) -> link_requests.Link | None:
        """Move the interface from its pod to the host and return it, None if no interface of a pod is proved to be it."""
        place = locator.search(host, whole)
        if place is None or not whole.identity.is_provable:
            return None
        with self._entered(host, place.nsid, sandbox) as (sock, descriptor):
            if not locator.is_recorded_in(whole, sock.cookie):
                return None
            link_requests.alter(sock, place.link.ifindex, up=False, alias=pod_interfaces.returning_mark(whole.mark))
            _move_without_altnames(sock, place.link.ifindex, host.descriptor, whole.host_state.name)
            arrived = link_requests.existing(host.sock, whole.host_state.name)
            if not interface_identity.is_same(whole.identity, locator.on_host(arrived)):
                link_requests.move(host.sock, arrived.ifindex, descriptor)
                raise OSError(errno.ENODEV, "the pod put another interface in its place, which was sent back")
            return arrived

    @contextlib.contextmanager
    def _entered(
        self, host: locator.Host, nsid: int, sandbox: pod_interfaces.InterfaceRef | None
    ) -> Iterator[tuple[rtnetlink.Socket, int]]:
        """Yield a socket in the namespace of this number, and its descriptor. Raises OSError where the namespace cannot be entered."""
        for namespace in (*([sandbox.namespace] if sandbox is not None else []), *_all_namespaces()):
            with contextlib.ExitStack() as stack:
                try:
                    descriptor = stack.enter_context(namespaces.opened(namespace))
                    if namespace_numbers.nsid_of(host.sock, descriptor) != nsid:
                        continue
                    sock = stack.enter_context(self._sock_in(descriptor))
                except OSError:
                    continue
                yield sock, descriptor
                return
        raise _OutOfReachError(errno.EACCES, _CANNOT_ENTER)

    @contextlib.contextmanager
    def _host(self) -> Iterator[locator.Host]:
        """Yield the NICs' own namespace, open."""
        with self._sock_in(self._namespace) as sock, namespaces.opened(self._namespace or namespaces.OWN) as descriptor:
            yield locator.Host(sock=sock, descriptor=descriptor)

    @contextlib.contextmanager
    def _sock_in(self, namespace: str | int | None) -> Iterator[rtnetlink.Socket]:
        with rtnetlink.Socket.open(self._namespace if namespace == pod_interfaces.HOST else namespace, self._after_effect) as sock:
            yield sock


def _all_namespaces() -> Iterator[str]:
    """Yield every namespace of a process and in /run/netns once, in the order of process ids."""
    seen: set[tuple[int, int]] = set()
    processes = sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())
    by_process = [_PROC / str(pid) / "ns/net" for pid in processes]
    named = sorted(namespaces.NAMED.iterdir()) if namespaces.NAMED.is_dir() else []
    for path in (*by_process, *named):
        with contextlib.suppress(OSError):
            status = path.stat()
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield str(path)


def _delete_upper_links(host: locator.Host, ifindex: int) -> None:
    """Delete the links that pods created on an interface of the host, such as a macvlan, because their pods would go on using the NIC."""
    for upper in _upper_links(host, ifindex):
        link_requests.delete(host.sock, upper.link.ifindex, upper.nsid)


def _check_unused(host: locator.Host, link: link_requests.Link) -> None:
    """Raise OSError where an interface in another namespace uses a link of the host, because its owner and the pod would share the NIC."""
    for upper in _upper_links(host, link.ifindex):
        reason = (
            f"{upper.link.name}, a {upper.link.kind} in another network namespace (nsid {upper.nsid}), uses {link.name}; delete it first"
        )
        raise OSError(errno.EBUSY, reason)


def _upper_links(host: locator.Host, ifindex: int) -> tuple[locator.Place, ...]:
    """Return the links of other namespaces on a link of the host. Every visible namespace first gets a number, which the listing needs."""
    with rtnetlink.Socket.open(host.descriptor) as sock:
        for namespace in _all_namespaces():
            with contextlib.suppress(OSError), namespaces.opened(namespace) as descriptor:
                namespace_numbers.assign_nsid(sock, descriptor)
    return tuple(place for place in locator.upper_links(host) if place.link.lower == ifindex)


def _on_host(host: locator.Host, whole: pod_interfaces.Passthrough) -> link_requests.Link:
    link = locator.find_on_host(host, whole)
    if link is None:
        raise OSError(errno.ENODEV, f"the interface {whole.host_state.name} is not in the host's network namespace")
    return link


def configure(sock: rtnetlink.Socket, descriptor: int, wanted: pod_interfaces.InterfaceConfig) -> None:
    """Configure the interface of the wanted name and set it up, in the namespace of the socket and the descriptor. Raises OSError."""
    link = link_requests.existing(sock, wanted.name)
    _set_mac_and_mtu(sock, link, wanted)
    if not link.up:  # Later the pod may have changed them, like its MAC.
        with refusals.naming("sysctls", f"of {wanted.name}"):
            _write_sysctls(descriptor, wanted)
    link_requests.alter(sock, link.ifindex, up=True)
    _configure_link_up(sock, link.ifindex, wanted)


def _write_sysctls(descriptor: int, wanted: pod_interfaces.InterfaceConfig) -> None:
    """Write the settings of an interface. Where the node denies that, only a value that a class asked for fails the attach. Raises OSError."""
    optional = sysctls.defaults(wanted.sysctls)
    interface_sysctls.write(descriptor, wanted.name, {name: value for name, value in wanted.sysctls.items() if name not in optional})
    try:
        chosen = {name: value for name, value in wanted.sysctls.items() if name in optional}
        interface_sysctls.write(descriptor, wanted.name, chosen, may_lack=optional)
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
        _log.warning("kernel settings not written", extra={"interface": wanted.name, "error": error.strerror or str(error)})


def _set_mac_and_mtu(sock: rtnetlink.Socket, link: link_requests.Link, wanted: pod_interfaces.InterfaceConfig) -> None:
    """Set MAC and MTU where they differ."""
    if wanted.mac and link.mac != wanted.mac:
        with refusals.naming("mac", wanted.mac):
            _set_mac(sock, link, wanted.mac)
    if wanted.mtu and link.mtu != wanted.mtu:
        with refusals.naming("mtu", wanted.mtu):
            link_requests.alter(sock, link.ifindex, mtu=wanted.mtu)


def _set_mac(sock: rtnetlink.Socket, link: link_requests.Link, mac: str) -> None:
    """Set the MAC of a link that may be up. The link is set down first, because some drivers require that.

    A virtual function whose parent has set its address may refuse even that address, and take it from the parent when it goes up (igbvf).
    """
    link_requests.alter(sock, link.ifindex, up=False)
    try:
        link_requests.alter(sock, link.ifindex, mac=mac)
    except OSError:
        link_requests.alter(sock, link.ifindex, up=True)
        link_requests.alter(sock, link.ifindex, up=False)
        present = link_requests.at(sock, link.ifindex)
        if present is None or present.mac != mac:
            raise


def _configure_link_up(sock: rtnetlink.Socket, ifindex: int, wanted: pod_interfaces.InterfaceConfig) -> None:
    """Add addresses, neighbours, routes and rules to a link that is up. Routes onto the link come first, because gateways need them."""
    present = set(link_requests.addresses(sock, ifindex))
    for address in wanted.addresses:
        if address not in present:
            with refusals.naming("addresses", address):
                link_requests.add_address(sock, ifindex, address)
    for neighbour in wanted.neighbours:
        with refusals.naming("neighbours", neighbour.address):
            link_requests.add_neighbour(sock, ifindex, neighbour)
    for route in sorted(wanted.routes, key=lambda route: bool(route.gateway)):
        with refusals.naming("routes", route.destination):
            route_requests.add_route(sock, ifindex, route)
    for rule in wanted.rules:
        with refusals.naming("rules", rule.source or rule.destination):
            route_requests.add_rule(sock, rule)


def _is_back(host: locator.Host, whole: pod_interfaces.Passthrough) -> bool:
    """Return whether an interface that was not located is on the host already. Raises OSError while hardware is about to return."""
    link = link_requests.find(host.sock, whole.host_state.name)
    if link is not None and (link.mac, link.alias) == (whole.host_state.mac, whole.host_state.alias):
        return True
    if locator.is_plugged(whole.identity):
        raise _OutOfReachError(errno.EAGAIN, _RETURNING)
    return False


def _move_without_altnames(sock: rtnetlink.Socket, ifindex: int, target: int, name: str) -> None:
    """Move an interface out of a pod after its alternative names are deleted, because one that the host uses stops the move.

    A running pod can add them again meanwhile, so this is tried more than once.
    """
    for last in (False, False, True):
        link = link_requests.at(sock, ifindex)
        if link is not None:
            link_requests.delete_altnames(sock, ifindex, link.altnames)
        try:
            link_requests.move(sock, ifindex, target, name=name)
        except FileExistsError:
            if last:
                raise
        else:
            return


def _restore(host: locator.Host, link: link_requests.Link, whole: pod_interfaces.Passthrough, *, was_away: bool) -> Mapping[str, str]:
    """Restore the interface's state on the host, and return the errors of the properties that cannot be restored, by name.

    Its mark is removed last, so that a repetition after a crash recognizes it. The mark first records that the interface was away, because its
    restored addresses hide that. An interface that was not away keeps the properties and routes that an admin changed meanwhile.
    """
    sock, state, returning = host.sock, whole.host_state, pod_interfaces.returning_mark(whole.mark)
    was_away = was_away or link.alias == returning or _is_changed(sock, link, state)
    if was_away and link.alias != returning:
        link_requests.alter(sock, link.ifindex, alias=returning)
    if link.name != state.name:
        link_requests.alter(sock, link.ifindex, up=False)
        link_requests.alter(sock, link.ifindex, name=state.name)
    with properties.opened(sock, host.descriptor, link) as interface:
        failed = properties.restore(interface, pod_interfaces.properties_of(state, was_away=was_away))
    for name, reason in failed.items():
        _log.warning("interface property not restored", extra={"interface": state.name, "property": name, "error": reason})
    for route, error in host_routes.restore(sock, link.ifindex, state.name, state.routes) if was_away else ():
        _log.warning("route restore failed", extra={"interface": state.name, "route": str(route), "error": str(error)})
    link_requests.set_alias(sock, link.ifindex, state.alias)
    return failed


def _is_changed(sock: rtnetlink.Socket, link: link_requests.Link, host_state: pod_interfaces.HostState) -> bool:
    """Return whether the interface differs as after a move: by its name, by up or down, or by a missing address."""
    lost = set(host_state.addresses) - set(link_requests.addresses(sock, link.ifindex))
    return link.name != host_state.name or link.up != host_state.up or bool(lost)
