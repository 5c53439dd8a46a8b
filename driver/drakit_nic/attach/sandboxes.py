"""The children of a NIC in pods' network namespaces: their names and records, and how they are created, found and deleted.

A child is created from the NIC's namespace directly in the sandbox's, under its final name. Requests that the kernel accepts only from inside use a
socket that a short-lived thread opened there. ``passthrough.kernel_pods`` applies the configuration.

The NIC's namespace gets a number (nsid) for the sandbox's. With it any process can list and delete links there later, without a descriptor that would
keep a dead namespace alive. The kernel reuses the number of a namespace that is gone. So a link is the driver's only if its parent, the parent's
namespace and its mark match. Constants: linux/if_link.h.
"""

import contextlib
import errno
import os
import pathlib
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from drakit_nic import config, pod_interfaces, port
from drakit_nic.attach import announcer, attachment_records
from drakit_nic.netlink import link_requests, namespace_numbers, namespaces, rtnetlink
from drakit_nic.passthrough import kernel_pods, locator, refusals
from drakit_nic.shaping import tc_messages

Answer = TypeVar("Answer")
_KINDS = tuple(kind.value for kind in port.ChildKind)
_HOSTS = (pathlib.Path("/proc/self/ns/net"), pathlib.Path("/proc/1/ns/net"))


class Sandbox:
    """A sandbox's network namespace, open for one attachment."""

    def __init__(self, host: rtnetlink.Socket, inside: rtnetlink.Socket, descriptor: int) -> None:
        self._host, self._inside, self.descriptor = host, inside, descriptor
        self.cookie = inside.cookie

    def nsid(self) -> int:
        """Return the number of this namespace in the NIC's namespace. Assign one where there is none."""
        return namespace_numbers.assign_nsid(self._host, self.descriptor)

    def find(self, name: str) -> link_requests.Link | None:
        """Return the link of this name in the sandbox, also of this alternative name."""
        return link_requests.holder_of(self._inside, name)

    def create(self, wanted: pod_interfaces.InterfaceConfig, nic: int, kind: port.ChildKind = port.ChildKind.MACVLAN) -> None:
        """Create the child, down, so that no frame passes before it is classified. In private mode the child cannot reach its siblings."""
        if kind is port.ChildKind.IPVLAN:
            link_requests.create_ipvlan(self._host, wanted.name, lower=nic, mtu=wanted.mtu, namespace=self.descriptor)
            return
        with refusals.naming("mode", wanted.mode.value):
            link_requests.create(
                self._host,
                wanted.name,
                kind.value,
                lower=nic,
                mac=wanted.mac,
                mtu=wanted.mtu,
                namespace=self.descriptor,
                macvlan_mode=wanted.mode.value,
            )

    def configure(self, wanted: pod_interfaces.InterfaceConfig) -> None:
        """Configure the interface of the wanted name, and set it up. Raises HardwareError."""
        with rtnetlink.failing_as("apply"):
            kernel_pods.configure(self._inside, self.descriptor, wanted)

    def limit(self, link: link_requests.Link, rate: int) -> None:
        """Limit what the child sends to a rate in bits per second, with a token bucket in the sandbox.

        Bridge mode needs this second limit, because frames for a sibling never reach the NIC's classes. A pod's root can remove it.
        """
        with refusals.naming("mode", config.Mode.BRIDGE.value):
            tc_messages.put_token_bucket(self._inside, link.ifindex, rate)

    def mark(self, link: link_requests.Link, alias: str) -> None:
        """Write the mark that names the link's owner."""
        link_requests.alter(self._inside, link.ifindex, alias=alias)


class KernelSandboxes(kernel_pods.KernelPods):
    """Sandboxes seen from the NIC's namespace: None for the process's own, else a name under /run/netns, or a path.

    ``after_effect`` is called after every request that changes the kernel. A request that the kernel refuses raises HardwareError.
    """

    def __init__(self, namespace: str | None = None, *, after_effect: Callable[[], None] = lambda: None) -> None:
        self._namespace = namespace
        self._after_effect = after_effect

    def is_host(self, descriptor: int) -> bool:
        """Return whether a descriptor refers to the host's network namespace or the NIC's. All of them exist, so their inode numbers differ."""
        paths = [*_HOSTS, *([namespaces.NAMED / self._namespace] if isinstance(self._namespace, str) else [])]
        own = os.fstat(descriptor)
        for path in paths:
            with contextlib.suppress(PermissionError, FileNotFoundError):
                if os.path.samestat(path.stat(), own):
                    return True
        return False

    @contextlib.contextmanager
    def opened(self, descriptor: int) -> Iterator[Sandbox]:
        """Open a sandbox's namespace and close it afterwards. Raises HardwareError, also where the descriptor is no network namespace."""
        with (
            rtnetlink.failing_as("attach"),
            rtnetlink.Socket.open(descriptor, self._after_effect) as inside,
            rtnetlink.Socket.open(self._namespace, self._after_effect) as host,
        ):
            yield Sandbox(host, inside, descriptor)

    def run_inside(self, work: Callable[[], Answer]) -> Answer:
        """Return the result of work in the NIC's namespace."""
        return work() if self._namespace is None else namespaces.run_in(self._namespace, work)

    def children(self, nsid: int, nic: int, kind: port.ChildKind = port.ChildKind.MACVLAN) -> tuple[link_requests.Link, ...]:
        """Return the children of a NIC of this kind in the namespace of this number, none where the namespace is gone."""
        with rtnetlink.failing_as("RTM_GETLINK"), self._host() as host:
            return tuple(link for _, link in _children(host, (nsid,), (kind.value,)) if link.other == nic)

    def marked(self) -> tuple[tuple[int, link_requests.Link], ...]:
        """Return every child of this host's NICs with the driver's mark, with the number of its namespace. All numbered namespaces are searched."""
        with rtnetlink.failing_as("RTM_GETNSID"), self._host() as host:
            children = _children(host, namespace_numbers.nsids(host.sock), _KINDS)
            return tuple((nsid, link) for nsid, link in children if attachment_records.share_of(link.alias))

    def sender(self, descriptor: int | None = None) -> socket.socket:
        return namespaces.run_in(self._namespace if descriptor is None else descriptor, _packet_socket)

    def announceable(self, subject: announcer.Subject) -> announcer.Announceable | None:
        with rtnetlink.Socket.open(self._namespace) as host:
            try:
                link = link_requests.at(host, subject.ifindex, namespace_numbers.in_namespace(subject.nsid))
                hosts = link_requests.usable_hosts(host, subject.ifindex, subject.nsid)
            except OSError as error:
                if error.errno == errno.EINVAL:  # The namespace is gone, and with it the number.
                    return None
                raise
        if link is None or not link.is_ethernet:
            return None
        announced = (address for address in hosts if address.version in subject.versions)
        wanted = frozenset(str(address) for address in announced if address.is_link_local or str(address) in subject.hosts)
        return announcer.Announceable(mac=link.mac, has_link=link.has_carrier, hosts=wanted)

    def delete(self, nsid: int, link: link_requests.Link) -> None:
        """Delete a link in the namespace of this number. A link that is gone is ignored."""
        with rtnetlink.failing_as("RTM_DELLINK"), rtnetlink.Socket.open(self._namespace, self._after_effect) as host:
            link_requests.delete(host, link.ifindex, nsid)


def _packet_socket() -> socket.socket:
    """Return a socket that sends whole frames by interfaces of the calling thread's namespace, and receives nothing."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC)
    sock.setblocking(False)
    return sock


def is_child_of(link: link_requests.Link, nic: int) -> bool:
    """Return whether a link is a child of the NIC of this index."""
    return link.kind in _KINDS and link.other == nic


def _children(host: locator.Host, nsids: Iterable[int], kinds: Sequence[str]) -> list[tuple[int, link_requests.Link]]:
    """Return the children of these kinds of all NICs of the host in the namespaces of these numbers, each with the number.

    Another host on this machine, such as a node in a container, may have NICs of the same index and children with marks of the same form.
    """
    links = [
        (nsid, link)
        for nsid in nsids
        for kind in kinds
        for link in link_requests.links(host.sock, nsid, kind=kind)
        if link.kind == kind  # A kernel without this kind returns all links.
    ]
    # Read after the links: the kernel gives the host's namespace a number when it lists the first link that refers to it.
    own = namespace_numbers.nsid_of(host.sock, host.descriptor)
    return [] if own == namespace_numbers.NO_NSID else [(nsid, link) for nsid, link in links if link.other_nsid == own]
