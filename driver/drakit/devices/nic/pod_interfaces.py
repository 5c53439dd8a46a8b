"""Interfaces inside pods' network namespaces: the protocol by which the driver configures and moves them, and its values.

The configuration of a claim is applied to a child of a NIC, and a whole interface is moved into a pod and returned to the host. Both are idempotent.
Nothing that a pod can write decides which interface is returned (``passthrough.identity``). Adapters: the kernel (``passthrough.kernel_pods``) and a
mock machine (``mock.mock_pods``). Every failure is a HardwareError that names the call.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Protocol

from drakit.core import records
from drakit.devices.nic import config
from drakit.devices.nic.passthrough import host_routes
from drakit.devices.nic.passthrough import identity as identities

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
    identity: identities.Identity = dataclasses.field(default_factory=identities.Identity)
    routes: tuple[host_routes.HostRoute, ...] = ()
    routes_left_out: int = 0


class Location(enum.Enum):
    """Where a whole interface is: on the host, in the sandbox that was asked about, in another one, or in no namespace that can be seen.

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
    placement: identities.Placement | None = None

    @property
    def identity(self) -> identities.Identity:
        """What distinguishes it from every other, as last seen on the host."""
        moved = self.placement
        return self.host_state.identity if moved is None or moved.is_of_earlier_version else moved.identity


class Pods(Protocol):
    """The part of the port that reaches into pods."""

    def apply(self, child: InterfaceRef, wanted: InterfaceConfig) -> None:
        """Configure the interface as wanted and set it up; it must exist under the wanted name. What it has already stays.

        Raises HardwareError; what was applied before the error ends with the interface, except rules, which ``remove_config`` removes.
        """

    def remove_config(self, child: InterfaceRef, wanted: InterfaceConfig) -> None:
        """Remove what would outlive the interface in the pod (its rules); rules that are gone are success. Raises HardwareError."""

    def observed(self, child: InterfaceRef) -> ObservedInterface | None:
        """Return the interface as it is in the pod now; None where it does not exist. Raises HardwareError."""

    def host_state(self, name: str) -> HostState | None:
        """Return the state of an interface of the host, to be recorded before it is moved; None where there is none. Raises HardwareError."""

    def mark(self, host_state: HostState, mark: str) -> None:
        """Write whose an interface of the host is (into its ifalias), for people and for drivers. Raises HardwareError."""

    def locate(self, whole: Passthrough, sandbox: InterfaceRef | None = None) -> Location:
        """Return where the interface is; HERE is the namespace of ``sandbox``. Raises HardwareError."""

    def planned_placement(self, whole: Passthrough, sandbox: InterfaceRef, pod: str) -> identities.Placement:
        """Return what to record before the interface is moved from the host into the sandbox.

        Raises HardwareError where the host does not have it, or an interface in another namespace sits on it and no pod of ours can have made that.
        """

    def move_in(self, whole: Passthrough, child: InterfaceRef, wanted: InterfaceConfig) -> None:
        """Move the interface from the host into the pod under the wanted name, and configure it. Where it is in the pod already, only configure it.

        Raises HardwareError when the host does not have it, or the pod has another interface of that name.
        """

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
    return {
        "name": host_state.name,
        "mac": host_state.mac,
        "mtu": host_state.mtu,
        "up": host_state.up,
        "addresses": host_state.addresses,
        "alias": host_state.alias,
        "identity": identities.to_record(host_state.identity),
        "routes": [host_routes.to_record(route) for route in host_state.routes],
    }


def from_record(record: object) -> HostState | None:
    """Return the host state that a record describes; None for anything else."""
    if not isinstance(record, Mapping):
        return None
    match record:
        case {"name": str(name), "mac": str(mac), "mtu": int(mtu), "up": bool(up), "addresses": (*addresses,)}:
            alias, identity = str(record.get("alias") or ""), identities.from_record(record.get("identity") or record)
            listed = record.get("routes")
            found = map(host_routes.from_record, listed if isinstance(listed, list | tuple) else ())
            kept = tuple(route for route in found if route is not None)
            listed_addresses = tuple(map(str, addresses))
            return HostState(name=name, mac=mac, mtu=mtu, up=up, addresses=listed_addresses, alias=alias, identity=identity, routes=kept)
        case _:
            return None
