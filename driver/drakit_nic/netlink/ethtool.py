"""Settings of an interface's kernel driver by ethtool netlink: read as records, and written back where they differ.

A record of a group of settings has the raw value of each number in hexadecimal, by the attribute's number as text, and the names of the bits that are
on under ``on``. The kernel's bit numbers change between versions, so they are not recorded. Layouts: linux/ethtool_netlink.h.
"""

import dataclasses
import errno
import functools
import socket
import struct
from collections.abc import Iterator

import drakit
from drakit_nic.netlink import namespaces, rtnetlink

_NETLINK_GENERIC = 16
_CONTROLLER, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_GENERIC = struct.Struct("=BBH")
_HEADER, _DEVICE_INDEX = 1, 1
_NESTED = 0x8000
_NO_MASK, _BITS, _BIT, _BIT_NAME, _BIT_VALUE = 1, 3, 1, 2, 3
_ABSENT = frozenset({errno.EOPNOTSUPP, errno.ENOENT, errno.ENODEV})
ON = "on"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Settings that one message reads and the next one writes.

    ``numbers`` and ``bits`` are attributes; ``bits`` 0 is none. ``changeable`` is the attribute with the bits that may be changed, 0 for all.
    ``fixed`` are numbers that count only where the first of ``numbers`` is 0: the speed of a link without autonegotiation.
    """

    get: int
    numbers: tuple[int, ...] = ()
    bits: int = 0
    changeable: int = 0
    fixed: tuple[int, ...] = ()


class Ethtool:
    """The ethtool family of generic netlink in one network namespace."""

    def __init__(self, sock: rtnetlink.Socket) -> None:
        self._sock = sock
        self._family = functools.cache(functools.partial(_family_number, sock))

    def read(self, group: Group, ifindex: int) -> drakit.Record | None:
        """Return the present settings of an interface, None if its driver has none of this group."""
        try:
            (answer,) = self._ask(group.get, _device(ifindex))
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise
        attrs = rtnetlink.attributes(answer[_GENERIC.size :])
        is_fixed = bool(group.fixed) and not any(attrs.get(group.numbers[0], b""))
        numbers = (*group.numbers, *(group.fixed if is_fixed else ()))
        record: dict[str, drakit.Json] = {str(number): attrs[number].hex() for number in numbers if number in attrs}
        if group.bits in attrs:
            names = set(_names(attrs[group.bits]))
            changeable = set(_names(attrs[group.changeable])) if group.changeable in attrs else names
            record[ON] = tuple(sorted(names & changeable))
        return record or None

    def write(self, group: Group, ifindex: int, wanted: drakit.Record) -> None:
        """Write the settings that differ from a record. Settings that the driver does not report now are skipped."""
        present = self.read(group, ifindex) or {}
        body = b"".join(
            rtnetlink.pack(int(name), bytes.fromhex(str(value)))
            for name, value in wanted.items()
            if name != ON and name in present and present[name] != value
        )
        if is_as(wanted, present):
            return
        if ON in present and ON in wanted:
            body += _changed_bits(group.bits, set(_texts(wanted[ON])), set(_texts(present[ON])))
        self._ask(group.get + 1, _device(ifindex) + body)

    def _ask(self, command: int, body: bytes) -> tuple[bytes, ...]:
        return self._sock.ask(self._family(), _GENERIC.pack(command, 1, 0) + body)


def opened(namespace: str | int | None) -> rtnetlink.Socket:
    """Return a socket of generic netlink in a namespace, given as to ``namespaces.run_in``."""
    return rtnetlink.Socket(namespaces.run_in(namespace, _open))


def is_as(wanted: drakit.Record, present: drakit.Record) -> bool:
    """Return whether the settings that a driver reports now are those of a record."""
    return all(present.get(name, value) == value for name, value in wanted.items())


def _open() -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_GENERIC)
    sock.settimeout(rtnetlink.ANSWER_SECONDS)
    sock.bind((0, 0))
    return sock


def _family_number(sock: rtnetlink.Socket) -> int:
    request = _GENERIC.pack(_GET_FAMILY, 1, 0) + rtnetlink.text(_FAMILY_NAME, "ethtool")
    (answer,) = sock.ask(_CONTROLLER, request)
    number: int = struct.unpack("=H", rtnetlink.attributes(answer[_GENERIC.size :])[_FAMILY_ID][:2])[0]
    return number


def _device(ifindex: int) -> bytes:
    return rtnetlink.pack(_HEADER | _NESTED, rtnetlink.number(_DEVICE_INDEX, ifindex))


def _names(bitset: bytes) -> Iterator[str]:
    """Yield the names of the bits that are on."""
    attrs = rtnetlink.attributes(bitset)
    for _, content in rtnetlink.walk(attrs.get(_BITS, b"")):
        bit = rtnetlink.attributes(content)
        if _BIT_NAME in bit and (_BIT_VALUE in bit or _NO_MASK in attrs):
            yield rtnetlink.as_text(bit[_BIT_NAME])


def _changed_bits(attribute: int, wanted: set[str], present: set[str]) -> bytes:
    def bit(name: str) -> bytes:
        value = rtnetlink.pack(_BIT_VALUE, b"") if name in wanted else b""
        return rtnetlink.pack(_BIT | _NESTED, rtnetlink.text(_BIT_NAME, name) + value)

    changed = b"".join(map(bit, sorted(wanted ^ present)))
    return rtnetlink.pack(attribute | _NESTED, rtnetlink.pack(_BITS | _NESTED, changed)) if changed else b""


def _texts(value: drakit.Json) -> Iterator[str]:
    return map(str, value) if isinstance(value, list | tuple) else iter(())
