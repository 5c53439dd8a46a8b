"""IP addresses and networks, as Kubernetes' CEL libraries read them: no zones, no IPv4 inside IPv6, no leading zeros."""

import ipaddress
import re
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Cidr, Ip, Value

_LENGTH: Final = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_LINK_LOCAL_GROUPS: Final = ipaddress.ip_network("224.0.0.0/24")
_BROADCAST: Final = ipaddress.ip_address("255.255.255.255")


def parse_ip(text: Value) -> Ip:
    """`ip(text)`. Raises EvalError."""
    if not isinstance(text, str):
        raise errors.no_such_overload()
    return Ip(_address(text))


def _address(text: str) -> values.Address:
    if "%" in text:
        raise errors.EvalError(f'IP address "{text}" with zone value is not allowed')
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise errors.EvalError(f'IP Address "{text}" parse error during conversion from string') from error
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise errors.EvalError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


def parse_cidr(text: Value) -> Cidr:
    """`cidr(text)`. Raises EvalError."""
    if not isinstance(text, str):
        raise errors.no_such_overload()
    body, slash, length = text.rpartition("/")
    if not slash or not _LENGTH.fullmatch(length):
        raise errors.EvalError("network address parse error during conversion from string")
    address = _address(body)
    if int(length) > address.max_prefixlen:
        raise errors.EvalError("network address parse error during conversion from string: prefix length out of range")
    return Cidr(address, int(length))


def _accepts(parse: Callable[[Value], Value]) -> Callable[[Value], bool]:
    def accepted(text: Value) -> bool:
        if not isinstance(text, str):
            raise errors.no_such_overload()
        try:
            parse(text)
        except errors.EvalError:
            return False
        return True

    return accepted


def is_canonical(text: Value) -> bool:
    """`ip.isCanonical(text)`."""
    return bool(str(parse_ip(text).address) == text)


def to_ip(value: Value) -> Ip:
    """`ip(text)`, or `cidr.ip()`."""
    return Ip(value.address) if isinstance(value, Cidr) else parse_ip(value)


def contains_ip(network: Value, other: Value) -> bool:
    """`cidr.containsIP(other)`; the other one may be a string."""
    address = (parse_ip(other) if isinstance(other, str) else _checked(other, Ip)).address
    whole = _checked(network, Cidr)
    same_family = bool(address.version == whole.address.version)
    return same_family and _prefix(Cidr(address, whole.length)) == _prefix(whole)


def contains_cidr(network: Value, other: Value) -> bool:
    """`cidr.containsCIDR(other)`; the other one may be a string."""
    inner = parse_cidr(other) if isinstance(other, str) else _checked(other, Cidr)
    whole = _checked(network, Cidr)
    return inner.length >= whole.length and contains_ip(whole, Ip(inner.address))


def _prefix(network: Cidr) -> int:
    return int(network.address) >> (network.address.max_prefixlen - network.length)


def _checked(value: Value, kind: type) -> Value:
    if not isinstance(value, kind):
        raise errors.no_such_overload()
    return value


def _of_address(ask: Callable[[values.Address], Value]) -> Callable[[Value], Value]:
    return lambda value: ask(_checked(value, Ip).address)


def _link_local_group(address: values.Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in _LINK_LOCAL_GROUPS
    return int(address) >> 112 & 0xFF0F == 0xFF02


def _global_unicast(address: values.Address) -> bool:
    if address.is_unspecified or address == _BROADCAST:
        return False
    return not (address.is_loopback or address.is_multicast or address.is_link_local)


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "ip": to_ip,
    "isIP": _accepts(parse_ip),
    "ip.isCanonical": is_canonical,
    "family": _of_address(lambda address: address.version),
    "isUnspecified": _of_address(lambda address: address.is_unspecified),
    "isLoopback": _of_address(lambda address: address.is_loopback),
    "isLinkLocalMulticast": _of_address(_link_local_group),
    "isLinkLocalUnicast": _of_address(lambda address: address.is_link_local),
    "isGlobalUnicast": _of_address(_global_unicast),
    "cidr": parse_cidr,
    "isCIDR": _accepts(parse_cidr),
    "containsIP": contains_ip,
    "containsCIDR": contains_cidr,
    "prefixLength": lambda value: _checked(value, Cidr).length,
    "masked": lambda value: _checked(value, Cidr).masked(),
}
