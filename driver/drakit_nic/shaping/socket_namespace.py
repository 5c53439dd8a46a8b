"""Where the running kernel keeps the network namespace of a socket, by its own description of its types (BTF).

Traffic control programs have a helper for a namespace's cookie only since Linux 6.15. Before that, a program reads it from the kernel's memory:
``sock_common.skc_net`` is the namespace of a socket, and ``net.net_cookie`` its cookie, the number that ``SO_NETNS_COOKIE`` returns (since Linux
5.14; a kernel before 5.12 has no such field). Format: Documentation/bpf/btf.rst, ``struct btf_header``, ``struct btf_type`` of linux/btf.h.
"""

import dataclasses
import errno
import pathlib
import struct
from collections.abc import Iterator, Mapping

BTF = pathlib.Path("/sys/kernel/btf/vmlinux")

_MAGIC = 0xEB9F
_HEADER, _TYPE, _MEMBER = struct.Struct("=HBBIIIII"), struct.Struct("=III"), struct.Struct("=III")
_STRUCT = 4
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
        content = path.read_bytes()
        offsets = {name: _offset(content, *name) for name in (("sock_common", "skc_net"), ("net", "net_cookie"))}
    except (struct.error, KeyError, ValueError) as error:
        raise OSError(errno.EINVAL, f"{path} is not readable as BTF ({error})") from error
    for (kind, member), offset in offsets.items():
        if offset is None:
            raise OSError(errno.EOPNOTSUPP, f"{path} has no {kind}.{member}")
    namespace, cookie = offsets.values()
    return Offsets(namespace=namespace or 0, cookie=cookie or 0)


def _offset(content: bytes, structure: str, member: str) -> int | None:
    """Return the offset in bytes of a structure's member, None if there is none."""
    magic, _, _, header, types_at, types_bytes, strings_at, strings_bytes = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        raise ValueError(f"its magic number is {magic:#x}")
    strings = content[header + strings_at : header + strings_at + strings_bytes]
    wanted, named = (_position(strings, name) for name in (structure, member))
    if wanted is None or named is None:
        return None
    first = header + types_at
    for at, name, kind, members in _types(content, first, first + types_bytes):
        if (kind, name) == (_STRUCT, wanted):
            for number in range(members):
                member_name, _, bits = _MEMBER.unpack_from(content, at + number * _MEMBER.size)
                if member_name == named:
                    return int(bits & 0xFFFFFF) // 8
    return None


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
