"""Where the running kernel keeps the network namespace of a socket, by its own description of its types (BTF).

Traffic control programs have a helper for a namespace's cookie only since Linux 6.15. Before that, a program reads it from the kernel's memory:
``sock_common.skc_net`` is the namespace of a socket, and ``net.net_cookie`` its cookie, the number that ``SO_NETNS_COOKIE`` returns (since Linux
5.14; before 5.12 it is zero until the kernel needs it). Format: Documentation/bpf/btf.rst, ``struct btf_header``, ``struct btf_type`` of linux/btf.h.
"""

import dataclasses
import errno
import pathlib
import struct
from collections.abc import Iterator, Mapping, Sequence

BTF = pathlib.Path("/sys/kernel/btf/vmlinux")

_MAGIC = 0xEB9F
_HEADER, _TYPE, _MEMBER = struct.Struct("=HBBIIIII"), struct.Struct("=III"), struct.Struct("=III")
_STRUCT = 4
_OFFSET_BITS = 0xFFFFFF
_SOCKET, _NAMESPACE = ("sock_common", "skc_net"), ("net", "net_cookie")
_BYTES_AFTER: Mapping[int, tuple[int, int]] = {
    **dict.fromkeys((2, 7, 8, 9, 10, 11, 12, 16, 18), (0, 0)),
    **dict.fromkeys((1, 14, 17), (4, 0)),
    3: (12, 0),
    **dict.fromkeys((4, 5, 15, 19), (0, 12)),
    **dict.fromkeys((6, 13), (0, 8)),
}
"""The bytes that follow a type by its kind: always, and for each of its members."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Offsets:
    """Offsets in bytes: of a socket's namespace, and of a namespace's cookie."""

    namespace: int
    cookie: int


def read(path: pathlib.Path = BTF) -> Offsets:
    """Return the offsets of the running kernel. Raise OSError where the kernel does not describe its types, or has no cookies."""
    try:
        offsets = _offsets(path.read_bytes(), (_SOCKET, _NAMESPACE))
    except (struct.error, KeyError, ValueError) as error:
        raise OSError(errno.EINVAL, f"{path} is not readable as BTF ({error})") from error
    for structure, member in (_SOCKET, _NAMESPACE):
        if (structure, member) not in offsets:
            raise OSError(errno.EOPNOTSUPP, f"{path} has no {structure}.{member}")
    return Offsets(namespace=offsets[_SOCKET], cookie=offsets[_NAMESPACE])


def _offsets(content: bytes, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Return the offsets in bytes of those of the wanted members of structures that the description has."""
    magic, _, _, header, types_at, types_bytes, strings_at, strings_bytes = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        raise ValueError(f"its magic number is {magic:#x}")
    strings = content[header + strings_at : header + strings_at + strings_bytes]
    members_by_structure = {
        _position(strings, structure): (_position(strings, member), (structure, member)) for structure, member in wanted
    }
    first = header + types_at
    found: dict[tuple[str, str], int] = {}
    for at, name, kind, members in _types(content, first, first + types_bytes):
        if kind != _STRUCT or name not in members_by_structure:
            continue
        position, key = members_by_structure[name]
        for number in range(members):
            member_name, _, bits = _MEMBER.unpack_from(content, at + number * _MEMBER.size)
            if member_name == position:
                found.setdefault(key, (bits & _OFFSET_BITS) // 8)
        if len(found) == len(wanted):
            break
    return found


def _position(strings: bytes, name: str) -> int | None:
    at = strings.find(f"\0{name}\0".encode())
    return None if at < 0 else at + 1


def _types(content: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield where the members of each type begin, its name's position, its kind, and the number of its members."""
    while at < end:
        name, info, _ = _TYPE.unpack_from(content, at)
        kind, members = info >> 24 & 0x1F, info & 0xFFFF
        at += _TYPE.size
        yield at, name, kind, members
        always, each = _BYTES_AFTER[kind]
        at += always + members * each
