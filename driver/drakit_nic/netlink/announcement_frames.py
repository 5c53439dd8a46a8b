"""Ethernet frames that announce an address with its MAC to the neighbours: an ARP announcement (RFC 5227), an unsolicited NA (RFC 4861 7.2.6).

A neighbour that knows the address replaces the MAC that it has; the others ignore the frame.
"""

import ipaddress
import struct

_BROADCAST = "ff:ff:ff:ff:ff:ff"
_TYPE_ARP, _TYPE_IPV6 = b"\x08\x06", b"\x86\xdd"
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_ETHERNET, _IPV4, _REQUEST = 1, 0x0800, 1
_EVERYBODY = ipaddress.IPv6Address("ff02::1").packed
_EVERYBODY_MAC = "33:33:00:00:00:01"
_IPV6_HEADER = struct.Struct("!IHBB")
_VERSION, _ICMPV6, _HOP_LIMIT = 6 << 28, 58, 255
_ADVERTISEMENT, _ROUTER, _OVERRIDE = 136, 0x80000000, 0x20000000
_CHECKSUM_AT = 2
_TARGET_MAC = b"\x02\x01"


def announcement(mac: str, address: str, *, is_router: bool = False) -> bytes:
    """Return the frame that announces an address. An advertisement by a host would make neighbours remove it as their router."""
    wanted = ipaddress.ip_address(address)
    if isinstance(wanted, ipaddress.IPv4Address):
        return _arp(_packed(mac), wanted.packed)
    return _advertisement(_packed(mac), wanted.packed, is_router=is_router)


def _arp(mac: bytes, address: bytes) -> bytes:
    return _packed(_BROADCAST) + mac + _TYPE_ARP + _ARP.pack(_ETHERNET, _IPV4, 6, 4, _REQUEST, mac, address, bytes(6), address)


def _advertisement(mac: bytes, address: bytes, *, is_router: bool) -> bytes:
    flags = _OVERRIDE | (_ROUTER if is_router else 0)
    body = struct.pack("!BBHI", _ADVERTISEMENT, 0, 0, flags) + address + _TARGET_MAC + mac
    pseudo_header = address + _EVERYBODY + struct.pack("!II", len(body), _ICMPV6)
    checksum = struct.pack("!H", _checksum(pseudo_header + body))
    body = body[:_CHECKSUM_AT] + checksum + body[_CHECKSUM_AT + len(checksum) :]
    header = _IPV6_HEADER.pack(_VERSION, len(body), _ICMPV6, _HOP_LIMIT) + address + _EVERYBODY
    return _packed(_EVERYBODY_MAC) + mac + _TYPE_IPV6 + header + body


def _checksum(content: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(content) // 2}H", content))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _packed(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))
