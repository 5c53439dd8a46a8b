"""Interfaces in other network namespaces: made, dressed, found again and deleted.

A child is made from the NIC's namespace straight into the sandbox's, under its final name, so that it is never seen half-way under another. What the
kernel only does from inside goes through a socket that was opened there by a thread of its own, which ended at once; what a configuration adds to it
is ``netlink_pods``' part.

The NIC's namespace gets a number (nsid) for the sandbox's. By it, links inside can be listed and deleted later, by any process, without a descriptor
that would keep a dead namespace alive. A number is free again when its namespace is gone and may then mean another, so a link is only taken for ours
by its parent, the parent's namespace and its mark. Constants and layouts: linux/if_link.h, linux/pkt_sched.h.
"""

import contextlib
import dataclasses
import errno
import os
import pathlib
import struct
from collections.abc import Callable, Iterable, Iterator

from drakit.devices.nic import config, pod_interfaces
from drakit.devices.nic.attach import attachment_plan
from drakit.devices.nic.netlink import netns_ids, rtnetlink
from drakit.devices.nic.passthrough import kernel_pods, locator

_NEWLINK, _DELLINK, _GETLINK, _SETLINK = 16, 17, 18, 19
_IFINFO = struct.Struct("=BxHiII")
_ADDRESS, _NAME, _MTU, _LINK, _LINKINFO, _ALIAS, _NAMESPACE, _LINK_NETNSID = 1, 3, 4, 5, 18, 20, 28, 37
_INFO_KIND, _INFO_DATA, _MACVLAN_MODE = 1, 2, 1
_MODES = {config.Mode.PRIVATE: 1, config.Mode.BRIDGE: 4}
_NEWQDISC, _QDISC_KIND, _QDISC_OPTIONS = 36, 1, 2
_TCMSG, _RATE, _TBF = struct.Struct("=BxxxiIII"), struct.Struct("=BBHhHI"), struct.Struct("=III")
_TBF_PARAMETERS, _TBF_RATE, _TBF_BURST = 1, 4, 6
_HANDLE, _AT_ROOT, _ETHERNET, _UINT32_MAX = 0x00DA0000, 0xFFFFFFFF, 1, 2**32 - 1
_FRAMES, _HUNDREDTH, _THOUSANDTH = 2 * 65536, 100, 1000
_KIND = "macvlan"
_UP = 1
_HOSTS = (pathlib.Path("/proc/self/ns/net"), pathlib.Path("/proc/1/ns/net"))
_NAMESPACES = pathlib.Path("/run/netns")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """An interface in some namespace. ``parent`` is the index of the NIC it is a child of, 0 for what is no child."""

    ifindex: int
    name: str
    mac: str
    alias: str
    parent: int
    up: bool


class Sandbox:
    """A sandbox's network namespace, open for one attachment."""

    def __init__(self, host: rtnetlink.Socket, inside: rtnetlink.Socket, descriptor: int) -> None:
        self._host, self._inside, self._descriptor = host, inside, descriptor
        self.cookie = inside.cookie

    def nsid(self) -> int:
        """The number that the NIC's namespace has for this one; given now where it has none."""
        return netns_ids.assign(self._host, self._descriptor)

    def find(self, name: str) -> Link | None:
        """The link of this name here."""
        try:
            answers = self._inside.ask(_GETLINK, _IFINFO.pack(0, 0, 0, 0, 0) + rtnetlink.text(_NAME, name))
        except OSError as error:
            if error.errno == errno.ENODEV:
                return None
            raise
        return next(map(_link, answers), None)

    def make(self, wanted: pod_interfaces.InterfaceConfig, nic: int) -> None:
        """Make the child, down: nothing passes before its frames are counted. In private mode it reaches no sibling."""
        mode = rtnetlink.pack(_INFO_DATA, rtnetlink.number(_MACVLAN_MODE, _MODES[wanted.mode]))
        self._host.ask(
            _NEWLINK,
            _IFINFO.pack(0, 0, 0, 0, 0)
            + rtnetlink.text(_NAME, wanted.name)
            + rtnetlink.number(_LINK, nic)
            + rtnetlink.number(_NAMESPACE, self._descriptor)
            + rtnetlink.pack(_ADDRESS, bytes.fromhex(wanted.mac.replace(":", "")))
            + (rtnetlink.number(_MTU, wanted.mtu) if wanted.mtu else b"")
            + rtnetlink.pack(_LINKINFO, rtnetlink.text(_INFO_KIND, _KIND) + mode),
            rtnetlink.CREATE | rtnetlink.EXCLUSIVE,
        )

    def limit(self, link: Link, rate: int) -> None:
        """Hold what the child sends to a rate in bits per second, by a token bucket in the sandbox itself: the second limiter of bridge mode.

        Frames for a sibling never reach the NIC's classes. A pod's root may take this away, as it may switch modes.
        """
        whole = rate // 8
        spec = _RATE.pack(0, _ETHERNET, 0, 0, 0, min(whole, _UINT32_MAX))
        room = max(_FRAMES, whole // _HUNDREDTH)
        options = rtnetlink.pack(_TBF_PARAMETERS, spec + bytes(_RATE.size) + _TBF.pack(room, 0, 0))
        options += rtnetlink.pack(_TBF_RATE, struct.pack("=Q", whole)) + rtnetlink.number(_TBF_BURST, max(_FRAMES, whole // _THOUSANDTH))
        body = (
            _TCMSG.pack(0, link.ifindex, _HANDLE, _AT_ROOT, 0)
            + rtnetlink.text(_QDISC_KIND, "tbf")
            + rtnetlink.pack(_QDISC_OPTIONS, options)
        )
        self._inside.ask(_NEWQDISC, body, rtnetlink.CREATE | rtnetlink.REPLACE)

    def mark(self, link: Link, alias: str) -> None:
        """Write whose the link is."""
        self._inside.ask(_SETLINK, _IFINFO.pack(0, 0, link.ifindex, 0, 0) + rtnetlink.pack(_ALIAS, alias.encode()))


class KernelSandboxes(kernel_pods.KernelPods):
    """Sandboxes as the NIC's namespace sees them: None for the process's own, else a name under /run/netns, or a path.

    ``after_effect`` is called after every request that changes the kernel. What the kernel refuses is a HardwareError.
    """

    def __init__(self, namespace: str | None = None, *, after_effect: Callable[[], None] = lambda: None) -> None:
        self._namespace = namespace
        self._after_effect = after_effect

    def is_host(self, descriptor: int) -> bool:
        """Whether a descriptor is of the host's own network namespace, or the NIC's. All of them live now, so inode numbers tell."""
        paths = [*_HOSTS, *([_NAMESPACES / self._namespace] if isinstance(self._namespace, str) else [])]
        own = os.fstat(descriptor)
        for path in paths:
            with contextlib.suppress(PermissionError, FileNotFoundError):
                if os.path.samestat(path.stat(), own):
                    return True
        return False

    @contextlib.contextmanager
    def opened(self, descriptor: int) -> Iterator[Sandbox]:
        """A sandbox's namespace; nothing of it is held afterwards. Raises HardwareError, also for what is no network namespace."""
        with (
            rtnetlink.failing_as("attach"),
            rtnetlink.Socket.open(descriptor, self._after_effect) as inside,
            rtnetlink.Socket.open(self._namespace, self._after_effect) as host,
        ):
            yield Sandbox(host, inside, descriptor)

    def children(self, nsid: int, nic: int) -> tuple[Link, ...]:
        """The children of a NIC in the namespace of this number; none where there is no such namespace any more."""
        with rtnetlink.failing_as("RTM_GETLINK"), self._host() as host:
            return tuple(link for _, link in _children(host, (nsid,)) if link.parent == nic)

    def marked(self) -> tuple[tuple[int, Link], ...]:
        """Return every child of a NIC here that has a mark of ours, in every namespace that has a number, with that number."""
        with rtnetlink.failing_as("RTM_GETNSID"), self._host() as host:
            found = _children(host, netns_ids.numbers(host.sock))
            return tuple((nsid, link) for nsid, link in found if attachment_plan.share_of(link.alias))

    def delete(self, nsid: int, link: Link) -> None:
        """Delete a link in the namespace of this number; one that is gone is success."""
        with rtnetlink.failing_as("RTM_DELLINK"), rtnetlink.Socket.open(self._namespace, self._after_effect) as host, _gone_is_success():
            host.ask(_DELLINK, _IFINFO.pack(0, 0, link.ifindex, 0, 0) + netns_ids.target(nsid))


@contextlib.contextmanager
def _gone_is_success() -> Iterator[None]:
    """A link that is gone, or its namespace, whose number is then no valid argument."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENODEV, errno.EINVAL}:
            raise


def _children(host: locator.Host, nsids: Iterable[int]) -> list[tuple[int, Link]]:
    """Return the children of any NIC of the host's in the namespaces of these numbers, with the number.

    Another host on this machine, such as a node in a container, has NICs of the same index and children with marks of the same form.
    """
    only = rtnetlink.pack(_LINKINFO, rtnetlink.text(_INFO_KIND, _KIND))
    answers = [
        (nsid, answer) for nsid in nsids for answer in host.sock.dump(_GETLINK, _IFINFO.pack(0, 0, 0, 0, 0) + netns_ids.target(nsid) + only)
    ]
    # Read after the links: the kernel gives the host's namespace a number when it lists the first link that refers to it.
    own = netns_ids.number_of(host.sock, host.descriptor)
    if own == netns_ids.NONE:
        return []
    return [(nsid, _link(answer)) for nsid, answer in answers if _parent_namespace(answer) == own]


def _parent_namespace(answer: bytes) -> int | None:
    """Return the number of the namespace that has the link's parent; None where it is the link's own."""
    attrs = rtnetlink.attributes(answer[_IFINFO.size :]).get(_LINK_NETNSID)
    return None if attrs is None else struct.unpack("=i", attrs)[0]


def _link(answer: bytes) -> Link:
    _, _, ifindex, flags, _ = _IFINFO.unpack_from(answer)
    attrs = rtnetlink.attributes(answer[_IFINFO.size :])
    kind = rtnetlink.as_text(rtnetlink.attributes(attrs.get(_LINKINFO, b"")).get(_INFO_KIND, b""))
    return Link(
        ifindex=ifindex,
        name=rtnetlink.as_text(attrs[_NAME]),
        mac=attrs.get(_ADDRESS, b"").hex(":"),
        alias=rtnetlink.as_text(attrs.get(_ALIAS, b"")),
        parent=rtnetlink.as_number(attrs[_LINK]) if kind == _KIND and _LINK in attrs else 0,
        up=bool(flags & _UP),
    )
