"""IP addresses as a claim or a class writes them, and pools of addresses; pure.

Every address must have its canonical form (``10.1.2.3/24``, ``fd00::5/64``). The status of a claim accepts no other form, and an address with two
spellings could be leased twice. Functions raise ConfigError about the given field.
"""

import dataclasses
import fnmatch
import ipaddress
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TypeAlias, TypeVar

import drakit

IPV4, IPV6 = 4, 6
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Interface: TypeAlias = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Parsed = TypeVar("Parsed")

_QUOTE_MAX = 64
_POINT_TO_POINT = 2
_POOL_MAX = 1 << 16
_USUAL_PREFIXES = {IPV4: 24, IPV6: 64}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddressPool:
    """Addresses ``first`` to ``last`` of ``subnet``, both included, on nodes whose name matches one of the globs ``nodes`` (none: on every node).

    Nodes lease addresses independently, so the pools of two nodes on one network must not overlap.
    """

    subnet: str
    first: str
    last: str
    nodes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        subnet = network(self.subnet, "subnet")
        first, last = host(self.first, "first"), host(self.last, "last")
        for end, field in ((first, "first"), (last, "last")):
            if end not in subnet:
                raise drakit.ConfigError(f"{end} is not in {subnet}", field=field)
            _check_interface_address(ipaddress.ip_interface(f"{end}/{subnet.prefixlen}"), field)
        if not 0 <= int(last) - int(first) < _POOL_MAX:
            raise drakit.ConfigError(f"is not 0 to {_POOL_MAX - 1} above first", field="last")

    @property
    def version(self) -> int:
        """Return the IP version, 4 or 6."""
        return ipaddress.ip_network(self.subnet).version

    def holds(self, address: Address) -> bool:
        """Return whether the pool contains this address."""
        first, last = ipaddress.ip_address(self.first), ipaddress.ip_address(self.last)
        return address.version == first.version and int(first) <= int(address) <= int(last)

    def free(self, taken: Container[str], start: int = 0) -> str | None:
        """Return a free address of the pool as CIDR, searched from the offset ``start``, None if none is free.

        ``taken`` has the addresses in use, without prefix.
        """
        subnet, first = ipaddress.ip_network(self.subnet), ipaddress.ip_address(self.first)
        size = int(ipaddress.ip_address(self.last)) - int(first) + 1
        addresses = (first + (start + step) % size for step in range(size))
        address = next((candidate for candidate in addresses if str(candidate) not in taken), None)
        return None if address is None else f"{address}/{subnet.prefixlen}"


def pools_of(pools: Iterable[AddressPool], node: str) -> tuple[AddressPool, ...]:
    """Return all pools of one node, in order."""
    return tuple(pool for pool in pools if not pool.nodes or any(fnmatch.fnmatchcase(node, glob) for glob in pool.nodes))


def take(pools: Sequence[AddressPool], taken: Container[str], *, start: int = 0) -> tuple[str, ...]:
    """Return one address of each family that has pools, as CIDR. Raises DeviceBusyError when the pools of a family are used up."""
    addresses = []
    for version in sorted({pool.version for pool in pools}):
        free = (pool.free(taken, start) for pool in pools if pool.version == version)
        address = next((candidate for candidate in free if candidate), None)
        if address is None:
            raise drakit.DeviceBusyError(f"the address pool for IPv{version} of this node is used up")
        addresses.append(address)
    return tuple(addresses)


def interface(text: str, field: str) -> Interface:
    """Return the interface address in a text, with its prefix."""
    address = _parse(ipaddress.ip_interface, "an address with a prefix, such as 10.1.2.3/24", text, field)
    _check_interface_address(address, field)
    return address


def network(text: str, field: str) -> Network:
    """Return the network in a text: an address with all host bits 0, and a prefix."""
    return _parse(ipaddress.ip_network, "a network, such as 10.1.0.0/16", text, field)


def host(text: str, field: str) -> Address:
    """Return the host address in a text, without a prefix."""
    address = _parse(ipaddress.ip_address, "an address, such as 10.1.2.3", text, field)
    _check_unicast(address, field)
    return address


def _parse(parse: Callable[[str], Parsed], what: str, text: str, field: str) -> Parsed:
    """Return the value of a text in the canonical form. Raises ConfigError for any other text."""
    try:
        parsed = parse(text)
    except ValueError as error:
        raise drakit.ConfigError(f"{text[:_QUOTE_MAX]!r} is not {what}", field=field) from error
    if "%" in text:
        raise drakit.ConfigError("must not name an interface (%)", field=field)
    if text != str(parsed):
        if isinstance(parsed, Interface) and text == str(parsed.ip):
            prefix = _USUAL_PREFIXES[parsed.version]
            raise drakit.ConfigError(f"{text!r} has no prefix; write that of its network too, such as {text}/{prefix}", field=field)
        raise drakit.ConfigError(f"{text[:_QUOTE_MAX]!r} must be written {str(parsed)!r}", field=field)
    return parsed


def _check_unicast(address: Address, field: str) -> None:
    if address.is_unspecified or address.is_multicast or address.is_loopback or str(address) == "255.255.255.255":
        raise drakit.ConfigError(f"{address} is not the address of one host", field=field)


def _check_interface_address(address: Interface, field: str) -> None:
    _check_unicast(address.ip, field)
    subnet = address.network
    if (
        subnet.num_addresses > _POINT_TO_POINT
        and address.version == IPV4
        and address.ip in {subnet.network_address, subnet.broadcast_address}
    ):
        raise drakit.ConfigError(f"{address.ip} is the network's own or its broadcast address", field=field)
    if isinstance(address, ipaddress.IPv6Interface) and (address.ip.ipv4_mapped is not None or subnet.prefixlen == 0):
        raise drakit.ConfigError(f"{address} is not an address an interface can have", field=field)
    if subnet.prefixlen == 0:
        raise drakit.ConfigError(f"{address} is on a network of all addresses", field=field)


def hosts(addresses: Iterable[str]) -> frozenset[str]:
    """Return addresses such as ``10.1.2.3/24`` without their prefixes."""
    return frozenset(address.partition("/")[0] for address in addresses)
