"""What the NIC driver needs of the machine, as a protocol, and the facts it is told.

Two adapters: the kernel (``netlink``) and a machine file (``mock``). ``interfaces`` is a pure read; ``install`` and ``remove`` are idempotent.
Every failure of a call is a HardwareError that names the call.
"""

import dataclasses
from typing import Protocol

PHYSICAL = "physical"
LOOPBACK = "loopback"
ETHERNET = "ether"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PciFunction:
    """The PCI function behind an interface.

    ``bus_id`` is ``dddd:bb:dd.f``; ``root`` is the root complex (``pci0000:00``), empty when unknown; ``numa_node`` is None where the firmware
    names none. ``physical_function`` is the bus id of the SR-IOV parent of a virtual function, else empty; ``virtual_functions`` is how many a
    physical function can have (sriov_totalvfs).
    """

    bus_id: str
    root: str = ""
    numa_node: int | None = None
    physical_function: str = ""
    virtual_functions: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface as the kernel describes it, uninterpreted.

    ``mac`` is lower-case hexadecimal with colons, empty where the link layer has none. ``mtu`` is in bytes. ``kind`` is the kernel's link kind
    (``veth``, ``bond``, ``macvlan``), ``physical`` for hardware, ``loopback`` for lo. ``encapsulation`` is the link layer, ``ether`` for Ethernet.
    ``speed`` is what the driver reports in bits per second, also where it is made up, as a veth's is; None when it reports none. ``state`` is the
    operational state of RFC 2863 in lower case. ``master`` is the index of the bond or bridge it is enslaved to; ``lower`` of the interface it
    sits on, in the same namespace. ``default_route`` says that a default route leaves by it; ``addressed`` that it has an address of global scope.
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

    @property
    def is_virtual(self) -> bool:
        """Whether no hardware is directly behind it."""
        return self.kind != PHYSICAL


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """One claim's part of one interface: the identity and figures by which it is installed and found again.

    ``id`` is unique on the node for ever; ``mac`` is the address of the share's own interface; ``bandwidth`` is in bits per second.
    """

    id: str
    interface: str
    ifindex: int
    mac: str
    bandwidth: int


class Port(Protocol):
    """The machine's network hardware."""

    def interfaces(self) -> tuple[Interface, ...]:
        """All interfaces there are now, by rising index; raises HardwareError."""

    def interface(self, name: str) -> Interface | None:
        """The interface of exactly this name, or None; its cost does not grow with the number of interfaces. Raises HardwareError."""

    def install(self, share: Share) -> None:
        """Make the share real; installing it again, or over an older form of itself, leaves exactly this one. Raises HardwareError."""

    def remove(self, share_id: str) -> None:
        """Take the share away; nothing to take away is success. Raises HardwareError."""

    def shares(self) -> tuple[Share, ...]:
        """The shares that are installed, by id; raises HardwareError."""
