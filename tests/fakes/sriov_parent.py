"""A physical function as its kernel driver answers rtnetlink (linux/if_link.h), in place of ``rtnetlink.Socket``.

It behaves as igb does, as seen on an 82576: no minimum rate, no rate above the link's or without a link, no link state, and no address for a function
but one of a single interface, or zeros to take it back.
"""

import dataclasses
import errno
import os
import struct
from collections.abc import Iterator

_GETLINK, _SETLINK = 18, 19
_IFNAME, _MTU, _VFINFO_LIST, _EXT_MASK = 3, 4, 22, 29
_MAC, _VLAN, _SPOOF_CHECK, _LINK_STATE, _RATE, _TRUST = 1, 2, 4, 5, 6, 9
_UP, _LOWER_UP = 1, 0x10000


@dataclasses.dataclass
class Row:
    """What the driver holds of one function. Rates in Mbit/s."""

    mac: bytes
    vlan: tuple[int, int] = (0, 0)
    rate: tuple[int, int] = (0, 0)
    spoof_check: int = 1
    trust: int = 0
    link_state: int = 0


class Parent:
    """A socket to a kernel with one physical function. ``takes_min`` makes it one of another driver, which takes minimum rates; another refuses
    one by ``refusal``."""

    def __init__(self, name: str, functions: int, *, takes_min: bool = False, refusal: int = errno.EINVAL, link_mbit: int = 1000) -> None:
        self.name, self.takes_min, self.refusal, self.link_mbit = name, takes_min, refusal, link_mbit
        self.rows = {number: Row(mac=bytes([2, 0, 0, 0, 0, number])) for number in range(functions)}
        self.changes: list[tuple[int, int]] = []
        """The number of the function and the attribute of each change, also of a refused one."""

    def ask(self, kind: int, body: bytes, flags: int = 0) -> tuple[bytes, ...]:
        assert flags == 0
        attributes = dict(_walk(body[16:]))
        if kind == _SETLINK:
            ((_, info),) = _walk(attributes[_VFINFO_LIST])
            for attribute, content in _walk(info):
                self._set(attribute, content)
            return ()
        assert kind == _GETLINK
        if _IFNAME in attributes and attributes[_IFNAME].rstrip(b"\0").decode() != self.name:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return (self._link(with_functions=_EXT_MASK in attributes),)

    def _link(self, *, with_functions: bool) -> bytes:
        flags = _UP | (_LOWER_UP if self.link_mbit else 0)
        body = struct.pack("=BxHiII", 0, 1, 7, flags, 0) + _pack(_IFNAME, self.name.encode() + b"\0") + _pack(_MTU, struct.pack("=I", 1500))
        if with_functions:
            body += _pack(_VFINFO_LIST, b"".join(_pack(1, _info(number, row)) for number, row in self.rows.items()))
        return body

    def _set(self, attribute: int, content: bytes) -> None:
        (number,) = struct.unpack_from("=I", content)
        self.changes.append((number, attribute))
        row = self.rows[number]
        if attribute == _MAC:
            mac = content[4:10]
            if mac[0] & 1:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            row.mac = mac
        elif attribute == _VLAN:
            row.vlan = struct.unpack_from("=II", content, 4)
        elif attribute == _RATE:
            least, most = struct.unpack_from("=II", content, 4)
            if least and not self.takes_min:
                raise OSError(self.refusal, os.strerror(self.refusal))
            if not self.link_mbit or most > self.link_mbit:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            row.rate = (least, most)
        elif attribute == _SPOOF_CHECK:
            (row.spoof_check,) = struct.unpack_from("=I", content, 4)
        elif attribute == _TRUST:
            (row.trust,) = struct.unpack_from("=I", content, 4)
        else:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def _info(number: int, row: Row) -> bytes:
    rate = struct.pack("=III", number, *row.rate)
    pairs = ((_SPOOF_CHECK, row.spoof_check), (_LINK_STATE, row.link_state), (_TRUST, row.trust))
    return (
        _pack(_MAC, struct.pack("=I32s", number, row.mac))
        + _pack(_VLAN, struct.pack("=III", number, *row.vlan))
        + _pack(_RATE, rate)
        + b"".join(_pack(kind, struct.pack("=II", number, value)) for kind, value in pairs)
    )


def _pack(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def _walk(content: bytes) -> Iterator[tuple[int, bytes]]:
    while content:
        size, kind = struct.unpack_from("=HH", content)
        yield kind & 0x3FFF, content[4:size]
        content = content[size + -size % 4 :]
