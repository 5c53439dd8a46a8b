"""The protocol ``Port``, by which the NIC driver uses a machine, and its values.

"Port" has its meaning in "ports and adapters". The adapters are the kernel (``kernel_port``) and a machine's file (``mock_port``). Every call is
idempotent. Every failure of a call is a HardwareError that names the call. Rates are bits per second.
"""

import dataclasses
import enum
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from drakit_nic import pod_interfaces
from drakit_nic.passthrough import sriov

PHYSICAL = "physical"
LOOPBACK = "loopback"
ETHERNET = "ether"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PciFunction:
    """The PCI function behind an interface.

    ``bus_id`` is ``dddd:bb:dd.f``; ``root`` is the root complex (``pci0000:00``), empty when unknown; ``numa_nodes`` are its NUMA node
    and those as near, none if the firmware reports none. ``physical_function`` is the bus id of the SR-IOV parent of a virtual function, else empty,
    and ``function_number`` its number there; ``virtual_functions`` is the maximum number of a physical function (sriov_totalvfs). ``vendor`` is four
    hexadecimal digits. ``rdma_device`` is the function's RDMA device (``mlx5_0``), empty where there is none.
    """

    bus_id: str
    root: str = ""
    numa_nodes: tuple[int, ...] = ()
    physical_function: str = ""
    virtual_functions: int = 0
    function_number: int | None = None
    vendor: str = ""
    rdma_device: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface as the kernel reports it.

    ``mac`` is lower-case hexadecimal with colons, empty where the link layer has none. ``mtu`` is in bytes. ``kind`` is the kernel's link kind
    (``veth``, ``bond``, ``macvlan``), ``physical`` for hardware, ``loopback`` for lo. ``encapsulation`` is the link layer, ``ether`` for Ethernet.
    ``speed`` is the speed that the kernel driver reports in bits per second, also an invented one, as of a veth; None if it reports none.
    ``state`` is the operational state of RFC 2863 in lower case. ``up`` is set where the host turned the interface on (IFF_UP), also without a link,
    where ``state`` is ``down``. ``master`` is the index of the interface's bond or bridge, ``lower`` that of the
    interface below in the same namespace. ``default_route`` is set where it has a default route, ``addressed`` where it has an address of global
    scope. ``used`` is another use of it that no other field shows, to be read after the interface's name (``has a route of the host (10.0.0.0/8)``);
    only ``interfaces`` reads it. ``transmit_queues`` is the number of queues that it was made with. ``queueing`` is another program's root qdisc
    (``fq 8001:``), empty for the kernel's default and drakit's own. ``other_driver`` is the other driver that owns its shares, empty where there is
    none.
    """

    ifindex: int
    name: str
    mtu: int
    mac: str = ""
    altnames: tuple[str, ...] = ()
    kind: str = PHYSICAL
    encapsulation: str = ETHERNET
    speed: int | None = None
    carrier: bool = True
    state: str = "up"
    up: bool = True
    driver: str = ""
    pci: PciFunction | None = None
    master: int | None = None
    lower: int | None = None
    default_route: bool = False
    addressed: bool = False
    used: str = ""
    transmit_queues: int = 1
    queueing: str = ""
    other_driver: str = ""

    @property
    def is_virtual(self) -> bool:
        """Return whether the interface is not hardware itself."""
        return self.kind != PHYSICAL


class ChildKind(enum.Enum):
    """The kernel's kind of the interfaces that sandboxes get on a NIC. The kernel allows only one of the two on one NIC.

    A macvlan child has an address of its own. All ipvlan children have the NIC's.
    """

    MACVLAN = "macvlan"
    IPVLAN = "ipvlan"


class Classifier(enum.Enum):
    """The key that classifies egress frames: the sender's network namespace, the source address, or none."""

    NETNS = "netns"
    MAC = "mac"
    NONE = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shaping:
    """The machine's ability to enforce rates. ``missing`` says what is missing where it cannot.

    ``fair_queues`` is set where the flows of one sandbox get equal parts of its bandwidth, ``reads_memory`` where the sender's namespace is read from
    the kernel's memory, because the kernel has no helper for it, ``ipvlan`` where a rule has ipvlan and the kernel has it.
    """

    classifier: Classifier
    missing: str = ""
    fair_queues: bool = False
    reads_memory: bool = False
    ipvlan: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uplink:
    """A NIC with its limits: ``speed`` for all traffic in each direction, ``reserve`` the part for the host.

    ``ceil`` is the admin's limit for a share that borrows unused bandwidth, None for the NIC's speed.
    """

    interface: str
    ifindex: int
    mac: str
    speed: int
    reserve: int = 0
    ceil: int | None = None

    def allowed(self, share: "Share") -> "Share":
        """Return the share to install, its ceil lowered to the admin's limit."""
        return share if self.ceil is None or share.ceil <= self.ceil else dataclasses.replace(share, ceil=self.ceil)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """One claim's share of one interface.

    ``id`` is never reused on the node. ``mac`` is the address of the share's own interface. ``bandwidth`` is its guaranteed rate, and ``ceil`` the
    rate up to which it may borrow unused bandwidth (0: no more than ``bandwidth``). ``minor`` is the number of its HTB class, unique on the node.
    ``child`` is the kind of its interfaces. The ``mac`` of an ipvlan share only identifies it.
    """

    id: str
    interface: str
    ifindex: int
    mac: str
    bandwidth: int
    ceil: int = 0
    minor: int = 0
    child: ChildKind = ChildKind.MACVLAN


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """One sandbox that uses a share: the cookie of its network namespace (SO_NETNS_COOKIE) and the address of its interface.

    The address of an ipvlan child is not on the wire. It identifies the member.
    """

    share_id: str
    cookie: int
    mac: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counters:
    """The counters of a share in one direction: the rates read back from the kernel, sent bytes and packets, drops, and backlog in bytes."""

    rate: int
    ceil: int
    bytes: int = 0
    packets: int = 0
    drops: int = 0
    backlog: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traffic:
    """The traffic of one share since it was installed. ``drops`` and ``backlog`` are those of its present members."""

    share_id: str
    egress: Counters
    ingress: Counters


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interest:
    """The interfaces whose events a watch receives: those with these indices, those with shares, and new ones whose name matches a glob.

    Of other hardware it receives link events only.
    """

    ifindexes: frozenset[int] = frozenset()
    globs: tuple[str, ...] = ()


class Watch(Protocol):
    """A watch for changes of the machine's interfaces and their queueing."""

    def narrow(self, interest: Interest) -> bool:
        """Receive only events of these interfaces from now on. Before the first call, the watch receives all events.

        Return whether events may have been missed since the last call, so that the caller must read the interfaces again. Raises HardwareError.
        """

    def wait(self, seconds: float) -> bool:
        """Return whether an event came, or ``wake`` was called, within this many seconds."""

    def drain(self) -> None:
        """Discard all pending events."""

    def wake(self) -> None:
        """End the present wait, or the next one. Any thread may call this."""

    def close(self) -> None:
        """Close the watch. No thread may be waiting."""


class Port(pod_interfaces.HostInterfaces, sriov.Functions, Protocol):
    """The machine's network hardware."""

    def interfaces(self, own_namespaces: Callable[[], Collection[int]] = tuple) -> tuple[Interface, ...]:
        """Return all interfaces in the order of their indices. Raises HardwareError.

        ``own_namespaces`` returns the numbers of the namespaces to which this driver attached shares. It is called only where an interface there
        has no mark of a driver, as after a pod removed it.
        """

    def interface(self, name: str) -> Interface | None:
        """Return the interface of this name, None if there is none. O(1) in the number of interfaces. Raises HardwareError."""

    def is_plugged(self, interface: Interface) -> bool:
        """Return whether the hardware of an interface is in the machine, wherever the interface is. True for one that is no PCI function."""

    def shaping(self) -> Shaping:
        """Return what this machine can enforce. It is detected once."""

    def install(self, uplink: Uplink, share: Share) -> None:
        """Install the share in both directions. An earlier version of it is replaced, and its members stay.

        Raises HardwareError, for example where another program has the root qdisc.
        """

    def remove(self, share_id: str, hint: Share | None = None) -> None:
        """Remove the share with its members. A share that is gone is ignored. Removing the last one restores the NIC's former state.

        ``hint`` is the planned share. Without it the share is searched for on all NICs. Raises HardwareError.
        """

    def shares(self) -> tuple[Share, ...]:
        """Return the installed shares in the order of their ids. Raises HardwareError."""

    def share(self, ifindex: int, minor: int) -> Share | None:
        """Return the share of this class of an interface, None if there is none. O(1) in the number of shares. Raises HardwareError."""

    def admit(self, share: Share, *, cookie: int, mac: str, hosts: Collection[str] = ()) -> None:
        """Direct the frames of a sandbox to the share, which must be installed. Raises HardwareError.

        ``hosts`` are the IP addresses of an ipvlan child, by which received frames are recognized. Other addresses replace those of an
        earlier call.
        """

    def dismiss(self, share: Share, *, cookie: int, mac: str, hosts: Collection[str] = ()) -> None:
        """Undo ``admit``. A sandbox or share that does not exist is ignored. Raises HardwareError.

        ``hosts`` are all IP addresses of the child. Where none are given, they are searched among those of all pods of the NIC.
        """

    def members(self, of: Share | None = None) -> tuple[Member, ...]:
        """Return the members of all shares, or of one share, in the order of share and address. Raises HardwareError.

        Reading one share is O(1) in the number of others. A share that is not installed as in ``of`` has no members.
        """

    def members_at(self, mac: str) -> tuple[Member, ...]:
        """Return the members with this address, at most one for each NIC. Raises HardwareError.

        The call is O(1) in the number of members.
        """

    def check(self, uplink: Uplink, shares: Sequence[Share]) -> tuple[str, ...]:
        """Return how this NIC differs from exactly these shares, as texts for the operator. Raises HardwareError."""

    def repair(self, uplink: Uplink, shares: Sequence[Share]) -> tuple[str, ...]:
        """Fix every difference of this NIC from exactly these shares, and return what was fixed. Correct shares keep working.

        Raises HardwareError.
        """

    def traffic(self) -> tuple[Traffic, ...]:
        """Return the counters of all installed shares in the order of their ids. Raises HardwareError."""

    def watch(self) -> Watch:
        """Return a watch of this machine. Raises HardwareError."""
