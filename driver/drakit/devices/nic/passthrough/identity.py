"""What distinguishes a whole interface from any other that a pod could create: facts that a pod's root cannot write; pure.

Name, MAC and alias belong to whoever has NET_ADMIN in the pod, so none of them counts. Hardware is known by its bus address and its burnt-in MAC. A
virtual interface is known by its other end, which is outside the pod: the peer of a veth pair, the NIC under a VLAN. Only a peer in the host's
namespace belongs to one interface alone: the kernel reuses the numbers of other namespaces and the indices in them. In all other cases the index that
the interface was given in the pod must be the same too.
"""

import dataclasses
from collections.abc import Mapping

from drakit.core import records

PAIRS = frozenset({"veth", "netkit", "vxcan"})
HOST = -1
"""The other end is in the host's network namespace."""
INSIDE = -2
"""The other end is in the interface's own network namespace, which is a pod's. No interface of the host's has such an identity."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """``place`` is hardware's bus address and burnt-in MAC, ``port`` the name of its port, both empty for a virtual interface. ``kind`` is the
    kernel's link kind, empty for hardware. ``other`` is the index of the other end, 0 for none, and ``other_nsid`` the number of the namespace it
    is in, as the host's namespace counts, or HOST or INSIDE.
    """

    place: str = ""
    port: str = ""
    kind: str = ""
    other: int = 0
    other_nsid: int = HOST

    @property
    def is_provable(self) -> bool:
        """Whether an interface in a pod can be proved to be this one."""
        return bool(self.place or self.other)

    @property
    def is_unique(self) -> bool:
        """Whether no other interface of the machine can have the same identity while this one exists."""
        return bool(self.place) or (self.kind in PAIRS and bool(self.other) and self.other_nsid == HOST)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """The record of a move into a sandbox, written before the interface is moved.

    ``cookie`` is that of the sandbox's network namespace, ``ifindex`` the index that the interface gets there, ``pod`` the pod's UID for messages.
    ``is_attached`` says that a container has the interface: until then a failure returns it to the host. A record of an earlier version has no
    identity and no index: it proves in which sandbox the interface is, and never that an interface may be taken out of one.
    """

    cookie: int
    pod: str
    identity: Identity = dataclasses.field(default_factory=Identity)
    ifindex: int = 0
    is_attached: bool = False

    @property
    def is_of_earlier_version(self) -> bool:
        """Whether an earlier version wrote the record."""
        return self.identity == Identity()


def is_same(wanted: Identity, seen: Identity) -> bool:
    """Return whether an interface is the wanted one by all facts of its identity."""
    if wanted.place:
        return seen.place == wanted.place and wanted.port in {"", seen.port}
    return bool(wanted.kind) and seen == wanted


def is_in_pod(wanted: Identity, placement: Placement | None, seen: Identity, ifindex: int) -> bool:
    """Return whether an interface in a pod is the wanted one, which was moved there as ``placement`` records, if that is known."""
    return is_same(wanted, seen) and (wanted.is_unique or (placement is not None and ifindex == placement.ifindex))


def to_record(of: Identity) -> records.Record:
    """Return an identity as the journal keeps it."""
    return dataclasses.asdict(of)


def from_record(record: object) -> Identity:
    """Return the identity that a record describes; of what an earlier version wrote, nothing but the place."""
    match record:
        case {"place": str(place), "port": str(port), "kind": str(kind), "other": int(other), "other_nsid": int(other_nsid)}:
            return Identity(place=place, port=port, kind=kind, other=other, other_nsid=other_nsid)
        case {"place": str(place)}:
            return Identity(place=place)
        case _:
            return Identity()


def placement_to_record(placement: Placement) -> records.Record:
    """Return a placement as the journal keeps it. The cookie is text, because 64 bits do not fit every reader's number."""
    return {
        "cookie": f"{placement.cookie:x}",
        "pod": placement.pod,
        "identity": to_record(placement.identity),
        "ifindex": placement.ifindex,
        "attached": placement.is_attached,
    }


def placement_from_record(record: object) -> Placement | None:
    """Return the placement that a record describes, None for anything else.

    Earlier versions recorded cookie and pod only. Where the interface is not on the host, their record means that a container has it.
    """
    match record:
        case {
            "cookie": str(cookie),
            "pod": str(pod),
            "identity": Mapping() as identity,
            "ifindex": int(ifindex),
            "attached": bool(attached),
        }:
            return Placement(cookie=int(cookie, 16), pod=pod, identity=from_record(identity), ifindex=ifindex, is_attached=attached)
        case {"cookie": str(cookie), "pod": str(pod)}:
            return Placement(cookie=int(cookie, 16), pod=pod, is_attached=True)
        case _:
            return None
