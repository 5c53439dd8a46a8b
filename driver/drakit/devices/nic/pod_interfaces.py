"""Interfaces inside pods' network namespaces: the values by which the driver configures, moves and knows them (``passthrough.kernel_pods``).

The configuration of a claim is applied to a child of a NIC, and a whole interface is moved into a pod and returned to the host. Both are idempotent.
Every failure is a HardwareError that names the call. On a mock machine there are no pods: what is given away whole stays on the host.

Nothing that a pod's root can write decides which interface is returned: an ``Identity`` distinguishes it from any other that a pod could create.
Name, MAC and alias belong to whoever has NET_ADMIN in the pod, so none of them counts. Hardware is known by its bus address and its burnt-in MAC. A
virtual interface is known by its other end, which is outside the pod: the peer of a veth pair, the NIC under a VLAN. Only a peer in the host's
namespace belongs to one interface alone: the kernel reuses the numbers of other namespaces and the indices in them. In all other cases the index
that the interface was given in the pod must be the same too.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Annotated, Protocol

from drakit.core import records
from drakit.core.encoding import wire
from drakit.devices.nic import config
from drakit.devices.nic.passthrough import host_routes

PAIRS = frozenset({"veth", "netkit", "vxcan"})
_FORMAT = wire.Format(ignore_unknown=True)
COOKIE = wire.Converter(lambda text: int(text, 16), lambda cookie: f"{cookie:x}")
"""The cookie of a network namespace is text in records, because 64 bits do not fit every reader's number."""
Cookie = Annotated[int, COOKIE]
HOST_NSID = -1
"""The other end is in the host's network namespace."""
INSIDE_NSID = -2
"""The other end is in the interface's own network namespace, which is a pod's. No interface of the host's has such an identity."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """``place`` is hardware's bus address and burnt-in MAC, ``port`` the name of its port, both empty for a virtual interface. ``kind`` is the
    kernel's link kind, empty for hardware. ``other`` is the index of the other end, 0 for none, and ``other_nsid`` the number of the namespace it
    is in, as the host's namespace counts, or HOST_NSID or INSIDE_NSID.
    """

    place: str = ""
    port: str = ""
    kind: str = ""
    other: int = 0
    other_nsid: Annotated[int, wire.Field(name="other_nsid")] = HOST_NSID

    @property
    def is_provable(self) -> bool:
        """Whether an interface in a pod can be proved to be this one."""
        return bool(self.place or self.other)

    @property
    def is_unique(self) -> bool:
        """Whether no other interface of the machine can have the same identity while this one exists."""
        return bool(self.place) or (self.kind in PAIRS and bool(self.other) and self.other_nsid == HOST_NSID)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """The record of a move into a sandbox, written before the interface is moved.

    ``cookie`` is that of the sandbox's network namespace, ``ifindex`` the index that the interface gets there, ``pod`` the pod's UID for messages.
    ``is_attached`` says that a container has the interface: until then a failure returns it to the host. A record of an earlier version has
    cookie and pod only: it proves in which sandbox the interface is, and never that an interface may be taken out of one. Where the interface is not
    on the host, it means that a container has it.
    """

    cookie: Cookie
    pod: str
    identity: Identity = dataclasses.field(default_factory=Identity)
    ifindex: int = 0
    is_attached: Annotated[bool, wire.Field(name="attached", absent=True)] = False

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


def identity_from_record(record: object) -> Identity:
    """Return the identity that a record describes; of what an earlier version wrote, nothing but the place."""
    return _FORMAT.decode_or_none(Identity, record) or Identity()


def placement_to_record(placement: Placement) -> records.Record:
    """Return a placement as the journal keeps it."""
    return {
        "cookie": COOKIE.encode(placement.cookie),
        "pod": placement.pod,
        "identity": dataclasses.asdict(placement.identity),
        "ifindex": placement.ifindex,
        "attached": placement.is_attached,
    }


def placement_from_record(record: object) -> Placement | None:
    """Return the placement that a record describes, None for anything else."""
    return _FORMAT.decode_or_none(Placement, record)


HOST = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InterfaceRef:
    """An interface in a namespace; ``namespace`` is a name under /run/netns, a path, an open descriptor, or HOST for the NICs' own."""

    namespace: str | int
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class InterfaceConfig:
    """The wanted configuration of an interface in a pod.

    ``mtu`` 0 and ``mac`` "" leave what it has; ``sysctls`` are values by name (``ipv4.arp_ignore``).
    """

    name: str
    mtu: int = 0
    mac: str = ""
    mode: config.Mode = config.Mode.PRIVATE
    addresses: tuple[str, ...] = ()
    routes: tuple[config.Route, ...] = ()
    rules: tuple[config.Rule, ...] = ()
    neighbours: tuple[config.Neighbour, ...] = ()
    sysctls: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservedInterface:
    """An interface in a pod as it is: ``addresses`` in canonical CIDR form, sorted, without the kernel's own link-local ones."""

    name: str
    mac: str
    mtu: int
    up: bool
    addresses: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostState:
    """A whole interface as the host had it, from which it is restored. ``alias`` is what an admin wrote there (ifalias).

    ``identity`` distinguishes it from every other; ``routes`` are the host's by it, ``host_routes.MOST`` at most, without those that the kernel or a
    routing daemon makes; ``routes_left_out`` says how many more there were, and is not kept: an interface that has some is not given away.
    """

    name: str
    mac: str
    mtu: int
    up: bool
    addresses: tuple[str, ...] = ()
    alias: str = ""
    identity: Identity = dataclasses.field(default_factory=Identity)
    routes: Annotated[tuple[host_routes.HostRoute, ...], host_routes.LISTED] = ()
    routes_left_out: int = 0


class Location(enum.Enum):
    """The location of a whole interface: the host, the given sandbox, another sandbox, or no visible namespace.

    Hardware that is plugged in and nowhere to be seen is RETURNING: the kernel gives it back to the host when the namespace that has it ends.
    """

    HOST = "host"
    HERE = "here"
    ELSEWHERE = "elsewhere"
    RETURNING = "returning"
    GONE = "gone"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passthrough:
    """A whole interface that is given away: its ``mark`` on the host, what it was, and where it was moved, if that is known."""

    mark: str
    host_state: HostState
    placement: Placement | None = None

    @property
    def identity(self) -> Identity:
        """The data that distinguish it from every other interface, as last read on the host."""
        moved = self.placement
        return self.host_state.identity if moved is None or moved.is_of_earlier_version else moved.identity


class HostInterfaces(Protocol):
    """The part of the port that gives interfaces of the host away whole, and gets them back."""

    def apply(self, child: InterfaceRef, wanted: InterfaceConfig) -> None:
        """Configure the interface as wanted and set it up; it must exist under the wanted name. What it has already stays.

        Raises HardwareError; what was applied before the error ends with the interface, except rules, which ``remove_config`` removes.
        """

    def host_state(self, name: str) -> HostState | None:
        """Return the state of an interface of the host, to be recorded before it is moved; None where there is none. Raises HardwareError."""

    def mark(self, host_state: HostState, mark: str) -> None:
        """Write whose an interface of the host is (into its ifalias), for people and for drivers. Raises HardwareError."""

    def return_to_host(self, whole: Passthrough, sandbox: InterfaceRef | None = None) -> bool:
        """Return the interface to the host, as it was; ``sandbox`` is a namespace that is open already and may have it.

        False when it is gone (a virtual one ends with its pod), or no pod's interface is proved to be it: then nothing is changed. Routes are
        restored where it has been away; one that cannot be is logged, and the rest is restored.

        Raises HardwareError, for example when the host has another interface of its name by now, or a namespace has it that cannot be entered.
        """


def interface_config(chosen: config.NicConfig, *, name: str, mac: str = "", addresses: tuple[str, ...] = ()) -> InterfaceConfig:
    """Return the wanted configuration of an interface, with a name and with addresses chosen for one sandbox (``addresses.address_leases``)."""
    forwarding = dict.fromkeys(config.FORWARDING_SYSCTLS, 1) if chosen.forwarding else {}
    return InterfaceConfig(
        name=name,
        mtu=chosen.mtu or 0,
        mac=chosen.mac or mac,
        mode=chosen.mode,
        addresses=addresses or chosen.addresses,
        routes=chosen.routes,
        rules=chosen.rules,
        neighbours=chosen.neighbours,
        sysctls={**chosen.sysctls, **forwarding},
    )


def mark_of(share_id: str) -> str:
    """Return the mark of an interface that one grant has whole."""
    return f"drakit whole {share_id}"


def returning_mark(mark: str) -> str:
    """Return the mark of an interface that was in a pod and is not restored completely: a driver that finds it continues to restore."""
    return f"{mark} coming back"


def to_record(host_state: HostState) -> records.Record:
    """Return a host state as the journal keeps it."""
    record = dataclasses.asdict(host_state)
    del record["routes_left_out"]
    return record


def from_record(record: object) -> HostState:
    """Return the host state that a record describes; raises ConfigError for anything else."""
    host_state = _FORMAT.decode(HostState, record)
    if host_state.identity != Identity():
        return host_state
    return dataclasses.replace(host_state, identity=identity_from_record(record))  # An earlier version wrote the place beside the name.


HOST_STATE = wire.Converter(from_record, to_record)
