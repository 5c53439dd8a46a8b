"""The protocol ``Port``, by which the NIC driver uses a machine, and its values.

"Port" is meant as in ports and adapters. The adapters are the kernel (``kernel_port``) and a machine's file (``mock_port``). ``interfaces`` only
reads; every other call is idempotent. Every failure of a call is a HardwareError that names the call. Rates are bits per second.
"""

import dataclasses
import enum
from collections.abc import Sequence
from typing import Protocol

from drakit.devices.nic import pod_interfaces
from drakit.devices.nic.passthrough import sriov

PHYSICAL = "physical"
LOOPBACK = "loopback"
ETHERNET = "ether"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PciFunction:
    """The PCI function behind an interface.

    ``bus_id`` is ``dddd:bb:dd.f``; ``root`` is the root complex (``pci0000:00``), empty when unknown; ``numa_node`` is None where the firmware
    names none. ``physical_function`` is the bus id of the SR-IOV parent of a virtual function, else empty, and ``function_number`` its number there;
    ``virtual_functions`` is how many a physical function can have (sriov_totalvfs). ``vendor`` is four hexadecimal digits. ``rdma_device`` is the
    RDMA device beside the interface (``mlx5_0``), empty when there is none.
    """

    bus_id: str
    root: str = ""
    numa_node: int | None = None
    physical_function: str = ""
    virtual_functions: int = 0
    function_number: int | None = None
    vendor: str = ""
    rdma_device: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface as the kernel describes it, uninterpreted.

    ``mac`` is lower-case hexadecimal with colons, empty where the link layer has none. ``mtu`` is in bytes. ``kind`` is the kernel's link kind
    (``veth``, ``bond``, ``macvlan``), ``physical`` for hardware, ``loopback`` for lo. ``encapsulation`` is the link layer, ``ether`` for Ethernet.
    ``speed`` is what the driver reports in bits per second, also where it is made up, as a veth's is; None when it reports none. ``state`` is the
    operational state of RFC 2863 in lower case. ``master`` is the index of the bond or bridge it is enslaved to; ``lower`` of the interface it
    sits on, in the same namespace. ``default_route`` says that a default route leaves by it; ``addressed`` that it has an address of global scope.
    ``queueing`` names another program's root qdisc (``fq 8001:``); empty for the kernel's default and for ours. ``sharer`` is the other
    driver that shares it out, if any.
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
    driver: str = ""
    pci: PciFunction | None = None
    master: int | None = None
    lower: int | None = None
    default_route: bool = False
    addressed: bool = False
    queueing: str = ""
    sharer: str = ""

    @property
    def is_virtual(self) -> bool:
        """Whether no hardware is directly behind it."""
        return self.kind != PHYSICAL


class Classifier(enum.Enum):
    """The key that classifies egress frames: the sender's network namespace, the source address, or none."""

    NETNS = "netns"
    MAC = "mac"
    NONE = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shaping:
    """The machine's ability to enforce rates; ``missing`` names what is missing where it cannot.

    ``fair_queues`` is set where the flows of one sandbox get equal parts of its bandwidth.
    """

    classifier: Classifier
    missing: str = ""
    fair_queues: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uplink:
    """A NIC as it is shared: ``speed`` is what all its traffic together may use in each direction, ``reserve`` what of it the host keeps.

    ``ceil`` is the admin's bound of what a share may use while others do not; None: the speed.
    """

    interface: str
    ifindex: int
    mac: str
    speed: int
    reserve: int = 0
    ceil: int | None = None

    def allowed(self, share: "Share") -> "Share":
        """Return the share as it is to be installed: its own ceil, but not above the admin's."""
        return share if self.ceil is None or share.ceil <= self.ceil else dataclasses.replace(share, ceil=self.ceil)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """One claim's part of one interface: the identity and figures by which it is installed and found again.

    ``id`` is unique on the node for ever; ``mac`` is the address of the share's own interface; ``bandwidth`` is what it always gets and ``ceil``
    what it may use while others do not (0: no more than ``bandwidth``). ``minor`` is the number of its HTB class, unique on the node.
    """

    id: str
    interface: str
    ifindex: int
    mac: str
    bandwidth: int
    ceil: int = 0
    minor: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """One sandbox that uses a share: the cookie of its network namespace (SO_NETNS_COOKIE) and the address of its interface."""

    share_id: str
    cookie: int
    mac: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counters:
    """One direction of a share: the rates applied as the kernel gives them back, what passed, what was dropped, what waits (bytes)."""

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
    """The interfaces whose changes matter: those with these indices, those that carry shares, and those that come under a name that a glob fits.

    Of other hardware only link events matter.
    """

    ifindexes: frozenset[int] = frozenset()
    globs: tuple[str, ...] = ()


class Watch(Protocol):
    """Waits for changes of the machine's interfaces or their queueing."""

    def narrow(self, interest: Interest) -> bool:
        """Receive only events of these interfaces from now on; before the first call, all events.

        Return whether events of interfaces may have been missed since the last call, so that the caller must read them again. Raises HardwareError.
        """

    def wait(self, seconds: float) -> bool:
        """Return whether an event came, or ``wake`` was called, within this many seconds."""

    def drain(self) -> None:
        """Discard all pending events."""

    def wake(self) -> None:
        """End a wait, now or the next; from any thread."""

    def close(self) -> None:
        """Close the watch; no thread may be waiting."""


class Port(pod_interfaces.HostInterfaces, sriov.Functions, Protocol):
    """The machine's network hardware."""

    def interfaces(self) -> tuple[Interface, ...]:
        """Return all interfaces by rising index. Raises HardwareError."""

    def interface(self, name: str) -> Interface | None:
        """Return the interface of exactly this name, or None; its cost does not grow with the number of interfaces. Raises HardwareError."""

    def shaping(self) -> Shaping:
        """Return what can be enforced here; it is tried once."""

    def install(self, uplink: Uplink, share: Share) -> None:
        """Install the share in both directions. An older form of it is replaced, and its members stay.

        Raises HardwareError, which names a root qdisc of another program.
        """

    def remove(self, share_id: str, hint: Share | None = None) -> None:
        """Remove the share with its members; a share that is gone is success. Removing the last one restores the NIC as it was before the first.

        ``hint`` is the share as it was planned; without it the share is searched for. Raises HardwareError.
        """

    def shares(self) -> tuple[Share, ...]:
        """Return the shares that are installed, by id; raises HardwareError."""

    def share(self, ifindex: int, minor: int) -> Share | None:
        """Return the share that has this class of an interface, or None; its cost does not grow with the number of shares. Raises HardwareError."""

    def admit(self, share: Share, *, cookie: int, mac: str) -> None:
        """Let a sandbox use the share: its frames count as the share's from now on. The share must be installed. Raises HardwareError."""

    def dismiss(self, share: Share, *, cookie: int, mac: str) -> None:
        """Undo ``admit``; a sandbox or share that does not exist is success. Raises HardwareError."""

    def members(self, of: Share | None = None) -> tuple[Member, ...]:
        """Return every sandbox admitted, or only those to one share, by share and address; raises HardwareError.

        The cost of reading one share's does not grow with the number of others; a share that is not installed as in ``of`` has none.
        """

    def members_at(self, mac: str) -> tuple[Member, ...]:
        """Return the sandboxes admitted with this address, of which each NIC has at most one; raises HardwareError.

        The cost does not grow with the number of others.
        """

    def check(self, uplink: Uplink, shares: Sequence[Share]) -> tuple[str, ...]:
        """Return the differences of this NIC from exactly these shares, as text for the operator. Raises HardwareError."""

    def repair(self, uplink: Uplink, shares: Sequence[Share]) -> tuple[str, ...]:
        """Give the NIC exactly these shares and rates, without interrupting correct ones, and return what was fixed.

        Raises HardwareError.
        """

    def traffic(self) -> tuple[Traffic, ...]:
        """Counters of every share that is installed, by id; raises HardwareError."""

    def watch(self) -> Watch:
        """Return a watch of this machine; raises HardwareError."""
