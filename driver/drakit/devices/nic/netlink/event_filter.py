"""A filter that the kernel runs on each event of links and queueing, so that the changes of other pods' interfaces wake nobody.

It is a socket filter of classic BPF (Documentation/networking/filter.rst) on an rtnetlink socket. It passes

- every event of the interfaces that were named by their index,
- link events of interfaces without a kind, which are hardware, and of bonds and teams,
- link events of interfaces whose name starts in a given way.

All else is dropped: veths of other pods, bridge ports, and the queueing of either; and what a driver of ours was only told because it asked, of which
the kernel tells every listener (rtnetlink.READING). Layouts: struct nlmsghdr, ifinfomsg and tcmsg (linux/netlink.h,
linux/rtnetlink.h); the index is at the same place in both.
"""

import ctypes
import errno
import socket
import struct
from collections.abc import Collection, Iterator

from drakit.devices.nic.netlink import rtnetlink

_TYPE_AT, _SEQUENCE_AT, _FAMILY_AT, _INDEX_AT, _ATTRIBUTES_AT = 4, 8, 16, 20, 32
_HEADER = 4
_NEWLINK, _DELLINK = 16, 17
_NAME, _LINKINFO, _INFO_KIND = 3, 18, 1
_AGGREGATES = ("bond", "team")

_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _LOAD_BYTE_AT_X = 0x20, 0x28, 0x30, 0x50
_SET, _SET_X, _COPY_TO_X, _AND, _IF_EQUAL, _RETURN = 0x00, 0x01, 0x07, 0x54, 0x15, 0x06
# The kernel's own functions: find an attribute of type X from offset A on, and one within the attribute at A. The result is its offset, or 0.
_FIND, _FIND_NESTED = 0xFFFFF000 + 12, 0xFFFFF000 + 16
_PASS, _DROP = (_RETURN, 0, 0, 0xFFFFFFFF), (_RETURN, 0, 0, 0)
_STEPS_MAX = 2000
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_STEP = struct.Struct("=HBBI")

Step = tuple[int, int, int, int]


def attach(sock: socket.socket, program: bytes) -> None:
    """Let the kernel run the program on what this socket would hear from now on, instead of an earlier one. Raises OSError."""
    buffer = ctypes.create_string_buffer(program, len(program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program) // _STEP.size, ctypes.addressof(buffer)))


def detach(sock: socket.socket) -> None:
    """Remove the socket's filter; no filter is success. Raises OSError."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def program(ifindexes: Collection[int], prefixes: Collection[str]) -> bytes:
    """The filter for these interfaces and beginnings of names; one that passes all where it would be too long."""
    steps = list(_steps(ifindexes, prefixes))
    return b"".join(_STEP.pack(*step) for step in (steps if len(steps) <= _STEPS_MAX else [_PASS]))


def _steps(ifindexes: Collection[int], prefixes: Collection[str]) -> Iterator[Step]:
    yield _LOAD_WORD, 0, 0, _SEQUENCE_AT
    yield _AND, 0, 0, _as_loaded("=I", rtnetlink.READING_MASK)
    yield _IF_EQUAL, 0, 1, _as_loaded("=I", rtnetlink.READING)
    yield _DROP
    yield _LOAD_WORD, 0, 0, _INDEX_AT
    for ifindex in sorted(ifindexes):
        yield from _pass_if_equal(_as_loaded("=I", ifindex))
    yield _LOAD_HALF, 0, 0, _TYPE_AT
    yield _IF_EQUAL, 2, 0, _as_loaded("=H", _NEWLINK)
    yield _IF_EQUAL, 1, 0, _as_loaded("=H", _DELLINK)
    yield _DROP
    yield _LOAD_BYTE, 0, 0, _FAMILY_AT
    yield _IF_EQUAL, 1, 0, 0
    yield _DROP  # Of bridge ports the kernel tells twice: as links, and as ports.
    yield from _find(_LINKINFO)
    yield from _pass_if_equal(0)
    yield _SET_X, 0, 0, _INFO_KIND
    yield _LOAD_WORD, 0, 0, _FIND_NESTED
    yield _COPY_TO_X, 0, 0, 0
    for kind in _AGGREGATES:
        yield from _pass_if_text(f"{kind}\0")
    yield from _find(_NAME)
    yield _COPY_TO_X, 0, 0, 0
    for prefix in sorted(prefixes):
        yield from _pass_if_text(prefix)
    yield _DROP


def _find(attribute: int) -> Iterator[Step]:
    yield _SET, 0, 0, _ATTRIBUTES_AT
    yield _SET_X, 0, 0, attribute
    yield _LOAD_WORD, 0, 0, _FIND


def _pass_if_equal(number: int) -> Iterator[Step]:
    yield _IF_EQUAL, 0, 1, number
    yield _PASS


def _pass_if_text(beginning: str) -> Iterator[Step]:
    """Pass where the attribute at X starts with this text; each letter that differs leads past the end."""
    letters = beginning.encode(errors="surrogateescape")
    for at, letter in enumerate(letters):
        yield _LOAD_BYTE_AT_X, 0, 0, _HEADER + at
        yield _IF_EQUAL, 0, 2 * (len(letters) - at) - 1, letter
    yield _PASS


def _as_loaded(layout: str, number: int) -> int:
    """A number of the machine's byte order as the filter sees it, which loads in the network's."""
    return int.from_bytes(struct.pack(layout, number), "big")
