"""Which interface in a pod is the one that was moved there.

Nothing that a pod's root can write decides which interface is returned: an ``Identity`` distinguishes it from any other that a pod could create.
Anyone with NET_ADMIN in the pod can change name, MAC and alias, so these do not count. Hardware is recognized by its bus address and its burnt-in
MAC. A virtual interface is recognized by its other end, which is outside the pod: the peer of a veth pair, the NIC below a VLAN. Only a peer in the
host's namespace belongs to one interface alone, because the kernel reuses the numbers of other namespaces and the indices in them. In all other cases
the interface must also have the index that it got in the pod.
"""

import dataclasses
from typing import Annotated

import drakit
from drakit import wire

PAIRS = frozenset({"veth", "netkit", "vxcan"})
_FORMAT = wire.Format(ignore_unknown=True)
COOKIE = wire.Converter(lambda text: int(text, 16), lambda cookie: f"{cookie:x}")
"""The cookie of a network namespace is text in records, because not every JSON reader supports 64-bit numbers."""
Cookie = Annotated[int, COOKIE]

HOST_NSID = -1
"""The other end is in the host's network namespace."""
INSIDE_NSID = -2
"""The other end is in the interface's own network namespace, which is a pod's. No interface of the host has such an identity."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """The facts that distinguish an interface from any other that a pod could create.

    ``place`` is the bus address and burnt-in MAC of hardware (of an SR-IOV function only the address, because its MAC can be changed from outside),
    ``port`` the name of its port, both empty for a virtual interface. ``kind`` is the
    kernel's link kind, empty for hardware. ``other`` is the index of the other end, 0 for none. ``other_nsid`` is the number of that end's namespace
    in the host's namespace, or HOST_NSID or INSIDE_NSID.
    """

    place: str = ""
    port: str = ""
    kind: str = ""
    other: int = 0
    other_nsid: Annotated[int, wire.Field(name="other_nsid")] = HOST_NSID

    @property
    def is_provable(self) -> bool:
        """Return whether an interface in a pod can be proved to be this one."""
        return bool(self.place or self.other)

    @property
    def is_unique(self) -> bool:
        """Return whether no other interface of the machine can have this identity while the interface exists."""
        return bool(self.place) or (self.kind in PAIRS and bool(self.other) and self.other_nsid == HOST_NSID)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """The record of a move into a sandbox, written before the interface is moved.

    ``cookie`` is that of the sandbox's network namespace, ``ifindex`` the index that the interface gets there, ``pod`` the pod's UID for messages.
    ``is_attached`` is set once a container has the interface; until then a failure returns it to the host. A record of an earlier version has only
    cookie and pod. It proves which sandbox the interface is in, but never that an interface may be moved out of one. Where the interface is not on
    the host, such a record means that a container has it.
    """

    cookie: Cookie
    pod: str
    identity: Identity = dataclasses.field(default_factory=Identity)
    ifindex: int = 0
    is_attached: Annotated[bool, wire.Field(name="attached", absent=True)] = False

    @property
    def is_of_earlier_version(self) -> bool:
        """Return whether an earlier version wrote the record."""
        return self.identity == Identity()


def is_same(wanted: Identity, present: Identity) -> bool:
    """Return whether two identities are of the same interface."""
    if wanted.place:
        places = {wanted.place, wanted.place.partition(" ")[0]}  # An earlier version recorded the MAC of a virtual function too.
        return present.place in places and wanted.port in {"", present.port}
    return bool(wanted.kind) and present == wanted


def is_in_pod(wanted: Identity, placement: Placement | None, present: Identity, ifindex: int) -> bool:
    """Return whether an interface in a pod is the wanted one. ``placement`` is the record of its move, if there is one."""
    return is_same(wanted, present) and (wanted.is_unique or (placement is not None and ifindex == placement.ifindex))


def identity_from_record(record: object) -> Identity:
    """Return the identity in a record, which from an earlier version has only the place."""
    return _FORMAT.decode_or_none(Identity, record) or Identity()


def placement_to_record(placement: Placement) -> drakit.Record:
    """Return a placement as the journal stores it."""
    return {**_FORMAT.encode(placement), "attached": placement.is_attached}


def placement_from_record(record: object) -> Placement | None:
    """Return the placement in a record, None for anything else."""
    return _FORMAT.decode_or_none(Placement, record)
