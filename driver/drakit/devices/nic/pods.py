"""What the driver does inside pods' network namespaces, as a protocol, and the values it is told.

Two things happen there: a child of a NIC is dressed with all its pod is to have of it, and a whole interface is moved in and brought back. Both are
idempotent. Adapters: the kernel (``netlink_pods``) and a mock machine (``mock_pods``). Every failure is a HardwareError that names the call.
"""

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from drakit.core import records
from drakit.devices.nic import config, host_routes, sysctls

HOST = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Child:
    """An interface in a namespace; ``namespace`` is a name under /run/netns, a path, an open descriptor, or HOST for the NICs' own."""

    namespace: str | int
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outfit:
    """All that an interface in a pod is to be. ``mtu`` 0 and ``mac`` "" leave what it has; ``sysctls`` are values by name (``ipv4.arp_ignore``)."""

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
class Worn:
    """An interface in a pod as it is: ``addresses`` in canonical CIDR form, sorted, without the kernel's own link-local ones."""

    name: str
    mac: str
    mtu: int
    up: bool
    addresses: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Former:
    """A whole interface as the host had it, by which it is brought back. ``alias`` is what an admin had written there (ifalias).

    ``place`` is what of hardware nobody can alter, empty for a virtual interface; ``routes`` are the host's by it, ``host_routes.MOST`` at
    most, without those that the kernel or a routing daemon makes; ``routes_left_out`` says how many more there were, and is not kept: an interface
    that has some is not given away.
    """

    name: str
    mac: str
    mtu: int
    up: bool
    addresses: tuple[str, ...] = ()
    alias: str = ""
    place: str = ""
    routes: tuple[host_routes.HostRoute, ...] = ()
    routes_left_out: int = 0


class Pods(Protocol):
    """The part of the port that reaches into pods."""

    def dress(self, child: Child, outfit: Outfit) -> None:
        """Give the interface everything of the outfit and set it up; it must be there under the outfit's name. What is there already stays.

        Raises HardwareError; what was given before the error goes with the interface, but for rules, which ``undress`` takes away.
        """

    def undress(self, child: Child, outfit: Outfit) -> None:
        """Take away what would outlive the interface in the pod (its rules); nothing to take away is success. Raises HardwareError."""

    def worn(self, child: Child) -> Worn | None:
        """The interface as it is in the pod now; None when it is not there. Raises HardwareError."""

    def former(self, name: str) -> Former | None:
        """An interface of the host, to be remembered before it is moved; None when there is none of this name. Raises HardwareError."""

    def mark(self, former: Former, mark: str) -> None:
        """Mark an interface of the host as about to be moved (by its ifalias), so that it is found again wherever it is. Raises HardwareError."""

    def move_in(self, mark: str, child: Child, outfit: Outfit) -> None:
        """Move the interface with this mark into the pod under the outfit's name, and dress it. In the pod already: only dress it.

        Raises HardwareError when it is in no namespace that can be seen, or the pod has another interface of that name.
        """

    def is_home(self, mark: str, former: Former) -> bool:
        """Whether the interface with this mark is in the host's namespace, under whatever name. Raises HardwareError."""

    def bring_back(self, mark: str, former: Former) -> bool:
        """Make the interface with this mark the host's again, as it was; False when no namespace has it: a virtual one went with its pod.

        Routes are put back where it has been away; one that cannot be is logged, and does not keep the rest from coming back.

        Raises HardwareError, for example when the host has another interface of its name by now.
        """


def outfit_of(chosen: config.NicConfig, *, name: str, mac: str = "", addresses: tuple[str, ...] = ()) -> Outfit:
    """What a configuration makes of an interface, under a name and with addresses chosen for one sandbox (``addresses.Book``)."""
    forwarding = dict.fromkeys(sysctls.FORWARDING, 1) if chosen.forwarding else {}
    return Outfit(
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
    """The mark of an interface that is one grant's whole."""
    return f"drakit whole {share_id}"


def returning(mark: str) -> str:
    """The mark of an interface that has been away and is not yet all that it was: whoever finds it so goes on putting back."""
    return f"{mark} coming back"


def to_record(former: Former) -> records.Record:
    """A former interface as the journal keeps it."""
    return {
        "name": former.name,
        "mac": former.mac,
        "mtu": former.mtu,
        "up": former.up,
        "addresses": former.addresses,
        "alias": former.alias,
        "place": former.place,
        "routes": [host_routes.to_record(route) for route in former.routes],
    }


def from_record(record: object) -> Former | None:
    """The former interface a record describes; None for anything else."""
    if not isinstance(record, Mapping):
        return None
    match record:
        case {"name": str(name), "mac": str(mac), "mtu": int(mtu), "up": bool(up), "addresses": (*addresses,)}:
            alias, place = (str(record.get(key) or "") for key in ("alias", "place"))
            listed = record.get("routes")
            found = map(host_routes.from_record, listed if isinstance(listed, list | tuple) else ())
            kept = tuple(route for route in found if route is not None)
            listed_addresses = tuple(map(str, addresses))
            return Former(name=name, mac=mac, mtu=mtu, up=up, addresses=listed_addresses, alias=alias, place=place, routes=kept)
        case _:
            return None
