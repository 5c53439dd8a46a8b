"""The kernel's events of links and queueing (RTNLGRP_LINK, RTNLGRP_TC), and the socket filter that drops irrelevant ones.

The kernel also sends events of the driver's own requests, so a check drains those that it caused. Messages are not decoded: a check reads the state.

On a busy node nearly all events are of other pods' veths. A classic BPF filter (Documentation/networking/filter.rst) on the socket passes

- every event of interfaces given by their index,
- link events of interfaces without a kind, which are hardware, and of bonds and teams,
- link events of interfaces whose name has a given prefix,

and drops the rest, also the events of a driver's own requests that read queueing (rtnetlink.READING). Layouts: struct nlmsghdr, ifinfomsg and tcmsg
(linux/netlink.h, linux/rtnetlink.h); the index is at the same offset in both.
"""

import contextlib
import ctypes
import errno
import os
import re
import select
import socket
import struct
from collections.abc import Collection, Iterator

import drakit
from drakit_nic import port
from drakit_nic.netlink import rtnetlink
from drakit_nic.shaping import ifb_links

_GROUPS = 1 << 0 | 1 << 3
_log = drakit.get_logger(__name__)
_WILD = re.compile(r"[*?\[]")

_TYPE_AT, _SEQUENCE_AT, _FAMILY_AT, _INDEX_AT, _ATTRIBUTES_AT = 4, 8, 16, 20, 32
_HEADER = 4
_NEWLINK, _DELLINK = 16, 17
_NAME, _LINKINFO, _INFO_KIND = 3, 18, 1
_AGGREGATES = ("bond", "team")

_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _LOAD_BYTE_AT_X = 0x20, 0x28, 0x30, 0x50
_SET, _SET_X, _COPY_TO_X, _AND, _IF_EQUAL, _RETURN = 0x00, 0x01, 0x07, 0x54, 0x15, 0x06
# The kernel's functions to find an attribute of type X from offset A on, and one within the attribute at A. The result is its offset, or 0.
_FIND, _FIND_NESTED = 0xFFFFF000 + 12, 0xFFFFF000 + 16
_PASS, _DROP = (_RETURN, 0, 0, 0xFFFFFFFF), (_RETURN, 0, 0, 0)
_STEPS_MAX = 2000
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_STEP = struct.Struct("=HBBI")

Step = tuple[int, int, int, int]


class KernelWatch:
    """A listener for events in a namespace, given as to ``namespaces.run_in``. Raises OSError."""

    def __init__(self, namespace: str | int | None = None) -> None:
        self._socket = rtnetlink.listen(_GROUPS, namespace)
        self._socket.setblocking(False)
        self._namespace, self._filter, self._is_refusal_logged = namespace, b"", False
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def narrow(self, interest: port.Interest) -> bool:
        with rtnetlink.failing_as("RTM_GETLINK"), rtnetlink.Socket.open(self._namespace) as route:
            shared = {ifindex for nic, link in ifb_links.ours(route).items() for ifindex in (nic, link.ifindex)}
        program = filter_program(interest.ifindexes | shared, {ifb_links.PREFIX, *map(_fixed_prefix, interest.globs)})
        if program == self._filter:
            return False
        was_filtered, self._filter = bool(self._filter), b""
        try:
            _attach_filter(self._socket, program)
            self._filter = program
        except OSError as error:
            _detach_filter(self._socket)
            if not self._is_refusal_logged:
                _log.warning("event filter refused", error=str(error))
            self._is_refusal_logged = True
        return was_filtered

    def wait(self, seconds: float) -> bool:
        poll = select.poll()  # select(2) fails for descriptors from 1024 on.
        for descriptor in (self._socket.fileno(), self._wake_reader):
            poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(max(seconds, 0.0) * 1000))

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_reader, 1 << 12)
        while True:
            try:
                self._socket.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:  # ENOBUFS: events were lost, which counts as an event.
                continue

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # The pipe is full, so a wake-up is pending already.
            os.write(self._wake_writer, b"!")

    def close(self) -> None:
        self._socket.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)


def _fixed_prefix(glob: str) -> str:
    """Return the fixed prefix of all names that match a glob, empty for a glob that is not compared with the name."""
    return "" if ":" in glob else _WILD.split(glob, maxsplit=1)[0]


def _attach_filter(sock: socket.socket, program: bytes) -> None:
    """Attach the filter to the socket, in place of an earlier one. Raises OSError."""
    buffer = ctypes.create_string_buffer(program, len(program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program) // _STEP.size, ctypes.addressof(buffer)))


def _detach_filter(sock: socket.socket) -> None:
    """Remove the socket's filter, if it has one. Raises OSError."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def filter_program(ifindexes: Collection[int], prefixes: Collection[str]) -> bytes:
    """Return the filter for these interfaces and name prefixes, or one that passes all events where the filter would be too long."""
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
    yield _DROP  # The kernel reports bridge ports twice: as links, and as ports.
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
    """Yield the steps that pass an event whose attribute at X starts with this text. Each letter that differs jumps past the end."""
    letters = beginning.encode(errors="surrogateescape")
    for at, letter in enumerate(letters):
        yield _LOAD_BYTE_AT_X, 0, 0, _HEADER + at
        yield _IF_EQUAL, 0, 2 * (len(letters) - at) - 1, letter
    yield _PASS


def _as_loaded(layout: str, number: int) -> int:
    """Return a number of the machine's byte order as the filter loads it, which is in network byte order."""
    return int.from_bytes(struct.pack(layout, number), "big")
