"""IP addresses, networks and URLs, as Kubernetes' CEL libraries read them.

Addresses: no zones, no IPv4 inside IPv6, no leading zeros. URLs: as Go's net/url reads a request URI, absolute or a path from the root.
"""

import ipaddress
import re
import urllib.parse
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Address, Cidr, Ip, Url, Value

_LENGTH: Final = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_LINK_LOCAL_GROUPS: Final = ipaddress.ip_network("224.0.0.0/24")
_BROADCAST: Final = ipaddress.ip_address("255.255.255.255")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL | re.ASCII)
_PORT: Final = re.compile(r"(?::[0-9]*)?", re.ASCII)
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:<>\"\[\]-]|%[0-9A-Fa-f]{2}|[^\x00-\x7f])*")
_USER: Final = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*", re.ASCII)
_ESCAPED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9_.~!$&'()*+,;=:@/\[\]%-]*", re.ASCII)
_UNESCAPED: Final = "$&+,/:;=@-_.~"


def parse_ip(text: str) -> Ip:
    """Parse an IP address. Raises EvalError."""
    if "%" in text:
        raise errors.EvalError(f'IP address "{text}" with zone value is not allowed')
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise errors.EvalError(f'IP Address "{text}" parse error during conversion from string') from error
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise errors.EvalError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return Ip(address)


def _parse_cidr(text: str) -> Cidr:
    body, slash, length = text.rpartition("/")
    if not slash or not _LENGTH.fullmatch(length):
        raise errors.EvalError("network address parse error during conversion from string")
    address = parse_ip(body).address
    if int(length) > address.max_prefixlen:
        raise errors.EvalError("network address parse error during conversion from string: prefix length out of range")
    return Cidr(address, int(length))


def _contains_ip(network: Cidr, other: Ip | str) -> bool:
    address = (parse_ip(other) if isinstance(other, str) else other).address
    return address.version == network.address.version and _masked(Cidr(address, network.length)) == _masked(network)


def _contains_cidr(network: Cidr, other: Cidr | str) -> bool:
    inner = _parse_cidr(other) if isinstance(other, str) else other
    return inner.length >= network.length and _contains_ip(network, Ip(inner.address))


def _masked(network: Cidr) -> Cidr:
    """Return the network with the bits after the prefix set to zero."""
    return Cidr(ipaddress.ip_network((network.address, network.length), strict=False).network_address, network.length)


def _link_local_group(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in _LINK_LOCAL_GROUPS
    return int(address) >> 112 & 0xFF0F == 0xFF02


def _global_unicast(address: Address) -> bool:
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special and address != _BROADCAST


def parse_url(text: str) -> Url:
    """Return `url(text)`. Raises EvalError."""
    _read(text)
    return _read(text.partition("#")[0])


def _read(text: str) -> Url:
    if not text or any(character < " " or character == "\x7f" for character in text):
        raise _invalid(text, "empty url" if not text else "invalid control character in URL")
    scheme, rest = _without_scheme(text)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if not scheme and text != "*":
            raise _invalid(text, "invalid URI for request")
        return Url(text, scheme, "", "", "", "" if scheme else "*", query)
    authority = ""
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
    if _ESCAPED.search(rest):
        raise _invalid(text, "invalid URL escape")
    host = _host(text, authority)
    name, port = _split(host)
    path = rest if _PLAIN_PATH.fullmatch(rest) else urllib.parse.quote(urllib.parse.unquote(rest), safe=_UNESCAPED)
    return Url(text, scheme, host, name, port, path, query)


def _invalid(text: str, reason: str) -> errors.EvalError:
    return errors.EvalError(f'URL parse error during conversion from string: parse "{text}": {reason}')


def _without_scheme(text: str) -> tuple[str, str]:
    match = _SCHEME.fullmatch(text)
    if match is not None:
        return match.group(1).lower(), match.group(2)
    if text.startswith(":"):
        raise _invalid(text, "missing protocol scheme")
    first, colon, _ = text.partition(":")
    if colon and not set(first) & {*"/?#"}:
        raise _invalid(text, "first path segment in URL cannot contain colon")
    return "", text


def _host(text: str, authority: str) -> str:
    user, _, host = authority.rpartition("@")
    if not _USER.fullmatch(user):
        raise _invalid(text, "net/url: invalid userinfo")
    port = host[host.rfind(":") :] if ":" in host else ""
    if host.startswith("["):
        closing = host.rfind("]")
        port = host[closing + 1 :]
        if closing < 0:
            raise _invalid(text, "missing ']' in host")
    if not _PORT.fullmatch(port):
        raise _invalid(text, f'invalid port "{port}" after host')
    if not _HOST.fullmatch(host):
        raise _invalid(text, "invalid character in host name")
    return urllib.parse.unquote(host)


def _split(host: str) -> tuple[str, str]:
    """Return the name without brackets, and the port."""
    name, colon, port = host.rpartition(":")
    if not colon or (not port.isdigit() and port):
        name, port = host, ""
    return (name[1:-1] if name.startswith("[") and name.endswith("]") else name), port


def query(url: Url) -> dict[str, list[str]]:
    """Return `url.getQuery()`: every key with its unescaped values; unreadable pairs are skipped."""
    values_by_key: dict[str, list[str]] = {}
    for pair in url.query.split("&"):
        if pair and ";" not in pair and not _ESCAPED.search(pair):
            key, _, text = pair.partition("=")
            values_by_key.setdefault(urllib.parse.unquote_plus(key), []).append(urllib.parse.unquote_plus(text))
    return values_by_key


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "ip": lambda value: Ip(value.address) if isinstance(value, Cidr) else parse_ip(value),
    "isIP": lambda text: values.is_accepted(parse_ip, text),
    "ip.isCanonical": lambda text: str(parse_ip(text).address) == text,
    "family": lambda ip: ip.address.version,
    "isUnspecified": lambda ip: ip.address.is_unspecified,
    "isLoopback": lambda ip: ip.address.is_loopback,
    "isLinkLocalMulticast": lambda ip: _link_local_group(ip.address),
    "isLinkLocalUnicast": lambda ip: ip.address.is_link_local,
    "isGlobalUnicast": lambda ip: _global_unicast(ip.address),
    "cidr": _parse_cidr,
    "isCIDR": lambda text: values.is_accepted(_parse_cidr, text),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "prefixLength": lambda network: network.length,
    "masked": _masked,
    "url": parse_url,
    "isURL": lambda text: values.is_accepted(parse_url, text),
    "getScheme": lambda url: url.scheme,
    "getHost": lambda url: url.host,
    "getHostname": lambda url: url.hostname,
    "getPort": lambda url: url.port,
    "getEscapedPath": lambda url: url.path,
    "getQuery": query,
}
