"""Interfaces inside pods' network namespaces: the values to configure, move and recognize them (``passthrough.kernel_pods``).

The driver configures a child of a NIC in a pod, or moves a whole interface into a pod and returns it to the host. Both are idempotent. Every failure
is a HardwareError that names the call. A mock machine has no pods, so a whole interface stays on the host.

``interface_identity`` recognizes an interface that was moved.
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Annotated, Protocol

import drakit
from drakit import wire
from drakit_nic import config, interface_identity
from drakit_nic import sysctls as sysctl_table
from drakit_nic.passthrough import host_routes, rdma_devices

_FORMAT = wire.Format(ignore_unknown=True)
PROPERTIES = wire.Converter(lambda value: value if isinstance(value, Mapping) else drakit.EMPTY_RECORD, lambda value: value)
HOST = ""
OnFailed = Callable[[Mapping[str, str]], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class InterfaceRef:
    """An interface in a namespace. ``namespace`` is a name under /run/netns, a path, an open descriptor, or HOST for the NICs' own."""

    namespace: str | int
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class InterfaceConfig:
    """The wanted configuration of an interface in a pod.

    ``mtu`` 0 and ``mac`` "" keep the present value. ``sysctls`` are values by name (``ipv4.arp_ignore``).
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
    """The present state of an interface in a pod. ``addresses`` are in canonical CIDR form, sorted, without link-local IPv6 ones."""

    name: str
    mac: str
    mtu: int
    up: bool
    addresses: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostState:
    """The state of a whole interface on the host, from which it is restored. ``alias`` is the admin's ifalias.

    ``identity`` distinguishes it from every other interface. ``routes`` are the host's routes by it, at most ``host_routes.MOST``, without those of
    the kernel and of routing daemons. ``routes_left_out`` is the number of further ones. It is not recorded, because such an interface is not moved.
    ``properties`` are the others in ``passthrough.properties.TABLE`` that the interface has, by name. A record of an earlier version has none.
    ``rdma`` is the RDMA device that moves with the interface, None where it has none that containers can use.
    """

    name: str
    mac: str
    mtu: int
    up: bool
    addresses: tuple[str, ...] = ()
    alias: str = ""
    identity: interface_identity.Identity = dataclasses.field(default_factory=interface_identity.Identity)
    routes: Annotated[tuple[host_routes.HostRoute, ...], host_routes.LISTED] = ()
    routes_left_out: int = 0
    properties: Annotated[Mapping[str, object], PROPERTIES] = dataclasses.field(default_factory=lambda: drakit.EMPTY_RECORD)
    rdma: rdma_devices.RdmaDevice | None = None


class Location(enum.Enum):
    """The location of a whole interface: the host, the given sandbox, another sandbox, or no visible namespace.

    Hardware that exists but is in no visible namespace is RETURNING: the kernel returns it to the host when the namespace that has it ends.
    """

    HOST = "host"
    HERE = "here"
    ELSEWHERE = "elsewhere"
    RETURNING = "returning"
    GONE = "gone"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passthrough:
    """A whole interface of a claim: its ``mark`` on the host, its former state there, and the record of its move, if there is one."""

    mark: str
    host_state: HostState
    placement: interface_identity.Placement | None = None

    @property
    def identity(self) -> interface_identity.Identity:
        """Return the identity that was last read on the host."""
        placement = self.placement
        return self.host_state.identity if placement is None or placement.is_of_earlier_version else placement.identity


def ignore(failed: Mapping[str, str]) -> None:
    """Ignore what could not be restored. It is in the log."""
    del failed


class HostInterfaces(Protocol):
    """The part of the port for whole interfaces: their state, marks, configuration and return to the host."""

    def apply(self, child: InterfaceRef, wanted: InterfaceConfig) -> None:
        """Configure the interface of the wanted name and set it up. Settings that it has already stay.

        Raises HardwareError. Settings applied before the error are deleted with the interface, except rules, which ``remove_config`` removes.
        """

    def host_state(self, name: str) -> HostState | None:
        """Return the state of an interface of the host, to record before it is moved, None if there is none. Raises HardwareError."""

    def alias(self, name: str) -> str:
        """Return the ifalias of an interface of the host, empty where there is none. Raises HardwareError."""

    def mark(self, host_state: HostState, mark: str) -> None:
        """Write the mark of its claim into the ifalias of an interface of the host. Raises HardwareError."""

    def return_to_host(self, whole: Passthrough, sandbox: InterfaceRef | None = None, on_failed: OnFailed = ignore) -> bool:
        """Return the interface to the host and restore its state. ``sandbox`` is an open namespace that may have it.

        ``on_failed`` is called once with the errors of the properties that could not be restored, usually none, by name.

        Return False, without a change, when the interface is gone (a virtual one is deleted with its pod), or no interface in a pod is proved to be
        it. Routes are restored where it was away. A route that fails is logged and skipped.

        Raises HardwareError, for example when the host has another interface of its name, or the namespace that has it cannot be entered.
        """


def interface_config(chosen: config.NicConfig, *, name: str, mac: str = "", addresses: tuple[str, ...] = ()) -> InterfaceConfig:
    """Return the wanted configuration of an interface with this name and the addresses leased for one sandbox."""
    return InterfaceConfig(
        name=name,
        mtu=chosen.mtu or 0,
        mac=chosen.mac or mac,
        mode=chosen.mode,
        addresses=addresses or chosen.addresses,
        routes=tuple(part for route in chosen.routes for part in route.parts),
        rules=chosen.rules,
        neighbours=chosen.neighbours,
        sysctls=sysctl_table.in_pod(chosen.sysctls, forwarding=chosen.forwarding),
    )


def announced_versions(wanted: InterfaceConfig) -> frozenset[int]:
    """Return the IP versions whose addresses are announced: those for which the DeviceClass does not turn off the kernel's announcements."""
    return frozenset(version for version, name in sysctl_table.ANNOUNCING.items() if wanted.sysctls.get(name, 1))


def mark_of(share_id: str) -> str:
    """Return the mark of the whole interface of a grant."""
    return f"drakit whole {share_id}"


def returning_mark(mark: str) -> str:
    """Return the mark of an interface that was in a pod and is not restored completely, so that a driver continues to restore it."""
    return f"{mark} coming back"


def properties_of(host_state: HostState, *, was_away: bool) -> drakit.Record:
    """Return the recorded properties of an interface, by the names of ``passthrough.properties``. Most are of one that was away only."""
    always = {"mac": host_state.mac, "mtu": host_state.mtu, "up": host_state.up, "addresses": host_state.addresses}
    return drakit.freeze_record({**(host_state.properties if was_away else {}), **always})


def to_record(host_state: HostState) -> drakit.Record:
    """Return a host state as the journal stores it."""
    record = _FORMAT.encode(host_state)
    del record["routesLeftOut"]
    return record


def from_record(record: object) -> HostState:
    """Return the host state in a record. Raises ConfigError for anything else."""
    host_state = _FORMAT.decode(HostState, record)
    if host_state.identity != interface_identity.Identity():
        return host_state
    # An earlier version wrote the place beside the name.
    return dataclasses.replace(host_state, identity=interface_identity.identity_from_record(record))


HOST_STATE = wire.Converter(from_record, to_record)
