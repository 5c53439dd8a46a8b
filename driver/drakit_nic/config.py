"""Opaque parameters of NIC claims: ``NicConfig``, the configuration of the interface in the pod for a share or a whole NIC.

Only a DeviceClass may set the fields of ``CLASS_ONLY``, because they affect others (bandwidth beyond the share, siblings, sysctls, leased addresses).
A claim may set all other fields, which affect only its pod. ``settle`` merges the two: the last configuration that applies replaces the earlier ones,
but the class-only fields of the last class that sets any are added. So a claim's configuration cannot override those of its class.

A configuration is checked on construction, and the merged one by ``check``, both before anything changes.
"""

import dataclasses
import enum
import ipaddress
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import drakit
from drakit_nic import sysctls as sysctl_table
from drakit_nic.addresses import ip_pools

CLASS_ONLY = ("addressPools", "ceil", "forwarding", "linkState", "mac", "mode", "spoofCheck", "sysctls", "trust", "vlan")
_FUNCTION_ONLY = ("vlan", "spoof_check", "trust", "link_state")
MTU_MIN, MTU_MAX = 68, 65535
MTU_MIN_IPV6 = 1280
MAIN_TABLE = 254
_LOCAL_TABLE = 255
_TABLE_MAX = 2**32 - 1
_PRIORITIES = range(1, 32766)
_VLANS = range(1, 4095)
_MAX_ENTRIES: Mapping[str, int] = {"addresses": 16, "routes": 64, "rules": 32, "neighbours": 64, "address_pools": 64, "sysctls": 32}
_IF_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,14}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_NULL_MAC = "00:00:00:00:00:00"


class Mode(enum.Enum):
    """The macvlan mode: whether the children of one NIC can reach each other inside the host, past the NIC's limits."""

    PRIVATE = "private"
    BRIDGE = "bridge"


class LinkState(enum.Enum):
    """The link of a virtual function: as its parent's, always up (so that functions of one parent reach each other without a cable), or down."""

    AUTO = "auto"
    ENABLE = "enable"
    DISABLE = "disable"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Route:
    """A route by the share's interface, without a ``gateway`` onto the link. ``metric`` 0 is the kernel's default.

    With ``override`` it wins over the pod's routes of the same destination and table, whatever their metric. Raises ConfigError.
    """

    destination: str
    gateway: str = ""
    source: str = ""
    table: int = MAIN_TABLE
    metric: int = 0
    override: bool = False

    def __post_init__(self) -> None:
        destination = ip_pools.network(self.destination, "destination")
        for field in ("gateway", "source"):
            _check_hop(getattr(self, field), destination.version, field)
        _check_table(self.table)
        _check_range(self.metric, range(2**32), "metric")
        if self.override and self.metric:
            raise drakit.ConfigError("a route with override wins whatever its metric; remove metric", field="metric")
        if self.override and destination.prefixlen == destination.max_prefixlen:
            reason = f"{destination} is one address; only a route to several addresses can override another; set a metric instead"
            raise drakit.ConfigError(reason, field="override")

    @property
    def parts(self) -> tuple[Self, ...]:
        """Return the routes to install: with ``override`` the two halves of the destination.

        The kernel prefers the route with the longest prefix. Of two default routes with one metric it takes the one whose gateway answers, so a
        second one beside the pod's own would not win reliably. The pod's own route stays, and counts again when the interface is gone.
        """
        if not self.override:
            return (self,)
        halves = ip_pools.network(self.destination, "destination").subnets()
        return tuple(dataclasses.replace(self, destination=str(half), override=False) for half in halves)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule that looks up ``table`` for packets from ``source``, to ``destination``, or both. Raises ConfigError."""

    priority: int
    table: int
    source: str = ""
    destination: str = ""

    def __post_init__(self) -> None:
        _check_range(self.priority, _PRIORITIES, "priority")
        _check_table(self.table)
        ends = [ip_pools.network(getattr(self, field), field) for field in ("source", "destination") if getattr(self, field)]
        if not ends:
            raise drakit.ConfigError(
                "is required where no destination is given: a rule for every packet is not the share's", field="source"
            )
        if len({end.version for end in ends}) > 1:
            raise drakit.ConfigError("is of another address family than source", field="destination")

    @property
    def version(self) -> int:
        """Return the IP version, 4 or 6."""
        return ipaddress.ip_network(self.source or self.destination).version


@dataclasses.dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A permanent entry of the neighbour table. Raises ConfigError."""

    address: str
    mac: str

    def __post_init__(self) -> None:
        ip_pools.host(self.address, "address")
        _check_mac(self.mac)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NicConfig:
    """The configuration of the interface in the pod. The driver chooses omitted values or leaves them unset.

    ``interface_name``: 1 to 15 letters, digits, '-', '_' and '.', the first one no '.'. ``mtu`` in bytes, at most the NIC's. ``addresses`` in
    canonical CIDR form. Class-only: ``ceil``, the rate in bits per second that the share may borrow up to; ``mode`` of the children; ``mac``;
    ``address_pools`` to take addresses from; ``sysctls`` of the interface; ``forwarding`` between it and others; of a virtual function ``vlan``,
    ``spoof_check`` (whether frames with another source address are dropped), ``trust`` (whether it may be promiscuous and change its address), and
    ``link_state``. With ``dhcp`` a share's IPv4 address comes from the network's server. Raises ConfigError.
    """

    api_version: ClassVar[str] = "nic.drakit.dev/v1"
    kind: ClassVar[str] = "NicConfig"

    interface_name: str = ""
    mtu: int | None = None
    addresses: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    ceil: drakit.Quantity | None = None
    mode: Mode = Mode.PRIVATE
    mac: str = ""
    vlan: int | None = None
    spoof_check: bool | None = None
    trust: bool | None = None
    link_state: LinkState | None = None
    address_pools: tuple[ip_pools.AddressPool, ...] = ()
    sysctls: Mapping[str, int] = dataclasses.field(default_factory=dict)
    forwarding: bool = False
    dhcp: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sysctls", types.MappingProxyType(dict(self.sysctls)))
        for name, limit in _MAX_ENTRIES.items():
            if len(getattr(self, name)) > limit:
                raise drakit.ConfigError(f"has {len(getattr(self, name))} entries, over the limit of {limit}", field=_wire(name))
        _check_name(self.interface_name)
        if self.mtu is not None:
            _check_range(self.mtu, range(MTU_MIN, MTU_MAX + 1), "mtu")
        self._check_addresses()
        if self.mac:
            _check_mac(self.mac)
        if self.vlan is not None:
            _check_range(self.vlan, _VLANS, "vlan")
        if self.ceil is not None and (self.ceil <= drakit.ZERO or self.ceil != drakit.Quantity.of(self.ceil.value)):
            raise drakit.ConfigError(f"{self.ceil} is not a whole number of bits per second above 0", field="ceil")
        _check_sysctls(self.sysctls)
        self._check_once()

    def _check_addresses(self) -> None:
        seen: set[str] = set()
        for index, text in enumerate(self.addresses):
            address = ip_pools.interface(text, f"addresses[{index}]")
            if str(address.ip) in seen:
                raise drakit.ConfigError(f"{address.ip} is listed twice", field=f"addresses[{index}]")
            seen.add(str(address.ip))
            if address.version == ip_pools.IPV6 and self.mtu is not None and self.mtu < MTU_MIN_IPV6:
                raise drakit.ConfigError(f"{self.mtu} is too small for IPv6, which needs {MTU_MIN_IPV6}", field="mtu")
            if address.version != ip_pools.IPV6 and self.dhcp:
                raise drakit.ConfigError(f"the server gives the IPv4 address, so {address.ip} cannot be chosen; remove one", field="dhcp")

    def _check_once(self) -> None:
        installed: set[tuple[str, int, int]] = set()
        for index, route in enumerate(self.routes):
            parts = {(part.destination, part.table, part.metric) for part in route.parts}
            if parts & installed:
                raise drakit.ConfigError("repeats an earlier entry", field=f"routes[{index}]")
            installed |= parts
        keyed: Sequence[tuple[str, Sequence[object]]] = (
            ("rules", [(rule.priority, rule.version) for rule in self.rules]),
            ("neighbours", [neighbour.address for neighbour in self.neighbours]),
        )
        for field, keys in keyed:
            for index, key in enumerate(keys):
                if key in keys[:index]:
                    raise drakit.ConfigError("repeats an earlier entry", field=f"{field}[{index}]")


def rules() -> drakit.Rules:
    """Return the checks of configurations that need no device or node."""

    def check(source: drakit.ConfigSource, parameters: drakit.Record, _: object) -> None:
        _check_author(source, parameters)

    return drakit.Rules(types=(NicConfig,), check=check, warn=_warnings, unique=unique, for_all=True)


def unique(decoded: object) -> Mapping[str, str]:
    """Return the name and the addresses, which two interfaces of one pod cannot both have."""
    if not isinstance(decoded, NicConfig):
        return {}
    name = {"interfaceName": decoded.interface_name} if decoded.interface_name else {}
    return name | {f"addresses[{index}]": str(ipaddress.ip_interface(text).ip) for index, text in enumerate(decoded.addresses)}


_CNI_NAME = "eth0"
"""The pod's own interface with containerd and CRI-O."""


def _warnings(decoded: object) -> Sequence[drakit.ConfigError]:
    """Return what the attachment refuses in a pod of a CNI, as nearly every pod is: its interface's name, and a second default route."""
    is_taken = isinstance(decoded, NicConfig) and decoded.interface_name == _CNI_NAME
    reason = f"{_CNI_NAME} is the name of a pod's own interface, so it is refused at every start of a container; write another name, such as net1"
    return [*([drakit.ConfigError(reason, field="interfaceName")] if is_taken else ()), *_default_routes(decoded)]


def _default_routes(decoded: object) -> Sequence[drakit.ConfigError]:
    """Return the default routes that the attachment refuses in a pod with a default route of its CNI."""
    reason = (
        "is refused at every start of a container in a pod that has a default route of its CNI; "
        "set override: true, so that this route wins, or give it a table and a rule"
    )
    return [
        drakit.ConfigError(f"{route.destination} {reason}", field=f"routes[{number}]")
        for number, route in enumerate(decoded.routes if isinstance(decoded, NicConfig) else ())
        if not (route.override or route.metric or ip_pools.network(route.destination, "destination").prefixlen)
        and route.table == MAIN_TABLE
    ]


def settle(configs: Sequence[drakit.OpaqueConfig]) -> drakit.Record:
    """Return the merged parameters of configurations in order of precedence. Raises ConfigError for a class-only field in a claim."""
    class_only: drakit.Record = {}
    for entry in configs:
        class_only = _check_author(entry.source, entry.parameters) or class_only
    return {**configs[-1].parameters, **class_only}


def _check_author(source: drakit.ConfigSource, parameters: drakit.Record) -> drakit.Record:
    """Return the class-only fields. Raises ConfigError where a claim has any."""
    class_only = {key: value for key, value in parameters.items() if key in CLASS_ONLY}
    if class_only and source is drakit.ConfigSource.CLAIM:
        raise drakit.ConfigError(
            "may be set only by an admin in the DeviceClass, not in a claim; take it out of the claim",
            field=min(class_only),
        )
    return class_only


def of(grant: drakit.Grant[Any]) -> NicConfig:
    """Return the configuration of a grant, the default one where it has no ``NicConfig``."""
    return grant.config if isinstance(grant.config, NicConfig) else NicConfig()


def check_no_function(config: NicConfig, device: str) -> None:
    """Raise ConfigError for a field of virtual functions in the configuration of another device. ``device`` is a clause that says what that is."""
    for name in _FUNCTION_ONLY:
        if getattr(config, name) is not None:
            reason = f"{device}; only a whole virtual function can have {_wire(name)}; remove it from the DeviceClass"
            raise drakit.ConfigError(reason, field=_wire(name))


def check_ipvlan(config: NicConfig, name: str) -> None:
    """Raise ConfigError for a configuration that an ipvlan of the NIC of this name cannot have."""
    reason = f"pods get ipvlans of {name} (child in nic.rules)"
    if config.mac:
        raise drakit.ConfigError(f"{reason}, which have its MAC address; remove mac from the DeviceClass", field="mac")
    if config.mode is not Mode.PRIVATE:
        fix = "the kernel has one mode for all ipvlans of a NIC; remove mode from the DeviceClass"
        raise drakit.ConfigError(f"{reason}, which cannot reach each other: {fix}", field="mode")
    if not (config.addresses or config.address_pools or config.dhcp):
        fix = "set addresses or dhcp in the claim, or addressPools in the DeviceClass"
        raise drakit.ConfigError(f"{reason}, whose traffic is received by IP address; {fix}", field="addresses")


def check_passed(config: NicConfig, *, is_function: bool) -> None:
    """Raise ConfigError for a field that only the virtual machine to which a NIC is passed can set in the NIC."""
    allowed = {*_FUNCTION_ONLY, "mac", "ceil"} if is_function else set()
    for field in dataclasses.fields(config):
        if field.name not in allowed and getattr(config, field.name) != getattr(NicConfig(), field.name):
            who = "the virtual machine configures the interface itself; remove it"
            reason = who if is_function else f"{who}, or use a virtual function, of which the host can set some"
            raise drakit.ConfigError(reason, field=_wire(field.name))


def check(config: NicConfig, *, node: str) -> None:
    """Raise ConfigError where the fields conflict with each other or with the node."""
    pools = ip_pools.pools_of(config.address_pools, node)
    if config.address_pools and not pools:
        raise drakit.ConfigError(f"the DeviceClass has no address pool for node {node}", field="addressPools")
    for index, text in enumerate(config.addresses):
        address = ipaddress.ip_interface(text).ip
        if any(pool.holds(address) for pool in pools):
            raise drakit.ConfigError(
                f"{address} is in an address pool; only the driver assigns addresses of a pool", field=f"addresses[{index}]"
            )
    linked = [ipaddress.ip_interface(text).network for text in config.addresses]
    linked += [ipaddress.ip_network(pool.subnet) for pool in pools if not _has_static(config, pool)]
    linked += [ipaddress.ip_network(route.destination) for route in config.routes if not route.gateway]
    for index, route in enumerate(config.routes):
        _check_route(config, route, linked, f"routes[{index}]")
    for index, neighbour in enumerate(config.neighbours):
        _check_reached(config, neighbour.address, linked, f"neighbours[{index}].address")


def _check_route(config: NicConfig, route: Route, linked: Sequence[ip_pools.Network], field: str) -> None:
    if route.gateway:
        _check_reached(config, route.gateway, linked, f"{field}.gateway")
    if route.source and route.source not in {str(ipaddress.ip_interface(text).ip) for text in config.addresses}:
        raise drakit.ConfigError(f"{route.source} is none of the addresses", field=f"{field}.source")
    versions = {network.version for network in linked} | ({ip_pools.IPV4} if config.dhcp else set())
    if ipaddress.ip_network(route.destination).version not in versions:
        raise drakit.ConfigError("is of an address family of which the interface has no address", field=f"{field}.destination")


def _check_reached(config: NicConfig, text: str, linked: Sequence[ip_pools.Network], field: str) -> None:
    address = ipaddress.ip_address(text)
    if config.dhcp and address.version == ip_pools.IPV4:
        return  # Only the server knows the link's network, so the kernel checks that.
    if not address.is_link_local and not any(address in network for network in linked if network.version == address.version):
        raise drakit.ConfigError(f"{text} is not on the link: no address and no route without a gateway covers it", field=field)


def _has_static(config: NicConfig, pool: ip_pools.AddressPool) -> bool:
    """Return whether the configuration has static addresses of the pool's family."""
    return any(ipaddress.ip_interface(text).version == pool.version for text in config.addresses)


def _check_name(name: str) -> None:
    if name and not _IF_NAME.fullmatch(name):
        raise drakit.ConfigError(
            f"{name[:64]!r} is not an interface name (1 to 15 letters, digits, '-', '_' and '.', first no '.')", field="interfaceName"
        )
    if name in {"lo", "all", "default"}:
        raise drakit.ConfigError(f"{name!r} is a name the kernel uses itself", field="interfaceName")


def _check_mac(mac: str) -> None:
    if not _MAC.fullmatch(mac):
        raise drakit.ConfigError(f"{mac[:64]!r} is not a MAC address in lower case with colons", field="mac")
    if int(mac[:2], 16) & 1 or mac == _NULL_MAC:
        raise drakit.ConfigError(f"{mac} is not the address of one interface (group or null)", field="mac")


def _check_hop(text: str, version: int, field: str) -> None:
    if text and ip_pools.host(text, field).version != version:
        raise drakit.ConfigError(f"{text} is of another address family than destination", field=field)


def _check_table(table: int) -> None:
    if table == _LOCAL_TABLE or not 0 < table <= _TABLE_MAX:
        raise drakit.ConfigError(f"{table} is not a routing table (1 to {_TABLE_MAX}, not {_LOCAL_TABLE}, the local one)", field="table")


def _check_range(value: int, allowed: range, field: str) -> None:
    if value not in allowed:
        raise drakit.ConfigError(f"{value} is not between {allowed.start} and {allowed.stop - 1}", field=field)


def _wire(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _check_sysctls(wanted: Mapping[str, int]) -> None:
    """Raise ConfigError for a sysctl that is not in the list, or a value the kernel does not accept."""
    for name, value in wanted.items():
        if name not in sysctl_table.TABLE:
            raise drakit.ConfigError(
                f"is not allowed; allowed are {', '.join(sorted(sysctl_table.TABLE))}", field=f"sysctls[{name[:64]!r}]"
            )
        if value not in sysctl_table.TABLE[name].values:
            accepted = ", ".join(map(str, sorted(sysctl_table.TABLE[name].values)))
            raise drakit.ConfigError(f"{value} is not one of {accepted}", field=f"sysctls[{name!r}]")
