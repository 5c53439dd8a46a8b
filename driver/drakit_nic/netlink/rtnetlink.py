"""An rtnetlink socket: requests with acknowledgement, dumps and attributes.

``Socket.change`` changes links, addresses, neighbours, routes and rules by pyroute2. Reads, traffic control, and attributes that the driver keeps and
writes back unread have no library (ADR 72 says why). Layouts: linux/netlink.h, linux/rtnetlink.h.

A socket stays in the network namespace in which it was opened, whichever thread uses it. A request that the kernel refuses raises OSError, with the
kernel's own message (NETLINK_EXT_ACK) where it sends one.
"""

import contextlib
import errno
import functools
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Self

import drakit
from drakit_nic.netlink import iproute, namespaces

REQUEST, ACK, ECHO, CREATE, EXCLUSIVE, REPLACE = 0x1, 0x4, 0x8, 0x400, 0x200, 0x100
_DUMP = 0x300
_INTERRUPTED = 0x10
_CAPPED, _HAS_TEXT = 0x100, 0x200
_ERROR, _DONE = 2, 3
_VERBS, _GET = 4, 2
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_HOP = struct.Struct("=HBBi")
_NESTED_MASK = 0x3FFF
_TEXT = 1
_SOL_NETLINK, _EXT_ACK, _STRICT = 270, 11, 12
_SO_NETNS_COOKIE = 71
_BUFFER = 1 << 16
ANSWER_SECONDS = 10.0
_DUMP_TRIES = 10

READING, READING_MASK = 0xDA0A0000, 0xFFFF0000
"""The first bits of the sequence number of a read. Every listener gets the kernel's answers about queueing and recognizes them by these bits."""

Attributes = Mapping[int, bytes]


def _nothing() -> None:
    """Do nothing after a request: the default of ``after_effect``."""


class Socket:
    """An rtnetlink socket, to be used as a context and from one thread at a time.

    ``after_effect`` is called after each request that may change the kernel, before its answer is returned. Tests let the process die there.
    """

    def __init__(self, sock: socket.socket, after_effect: Callable[[], None] = _nothing) -> None:
        self._socket = sock
        self._sequence = 0
        self._after_effect = after_effect
        self._iproute: iproute.IPRoute | None = None

    @classmethod
    def open(cls, namespace: str | int | None = None, after_effect: Callable[[], None] = _nothing) -> Self:
        """Return a socket in a namespace, given as to ``namespaces.run_in``. Raises OSError."""
        return cls(listen(0, namespace), after_effect)

    @classmethod
    def scratch(cls) -> Self:
        """Return a socket in a new network namespace, which the kernel removes when the socket is closed. Raises OSError."""
        return cls(namespaces.run_in_new(_open))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._iproute is not None:
            self._iproute.close()
        self._socket.close()

    @property
    def cookie(self) -> int:
        """Return the cookie of the socket's network namespace, which is never reused until reboot. Raises OSError before Linux 5.14."""
        return cookie_of(self._socket)

    def change(self, table: str, command: str, /, **fields: object) -> None:
        """Change an entry of a table by pyroute2: ``change("link", "set", index=2, mtu=9000)``. Fields that are None are left out. Raises OSError.

        pyroute2 also leaves out a field whose name it does not know. After the first change, the socket belongs to the thread that made it.
        """
        if self._iproute is None:
            self._iproute = iproute.IPRoute(self._socket)
        self._iproute.request(table, command, fields)
        self._after_effect()

    def ask(self, kind: int, body: bytes, flags: int = 0) -> tuple[bytes, ...]:
        """Send one request, wait for its acknowledgement, and return the bodies of the answers before it. Raises OSError."""
        answers = tuple(body for _, body in self._exchange(kind, body, flags | ACK))
        if not self._is_read(kind):
            self._after_effect()
        return answers

    def dump(self, kind: int, body: bytes) -> tuple[bytes, ...]:
        """Return the entries of a whole table, which is read again where it changed meanwhile. Raises OSError."""
        for _ in range(_DUMP_TRIES):
            answers = tuple(self._exchange(kind, body, _DUMP))
            if not any(flags & _INTERRUPTED for flags, _ in answers):
                return tuple(answer for _, answer in answers)
        raise OSError(errno.EAGAIN, f"the table changed during each of {_DUMP_TRIES} reads")

    def _is_read(self, kind: int) -> bool:
        return kind % _VERBS == _GET

    def _exchange(self, kind: int, body: bytes, flags: int) -> Iterator[tuple[int, bytes]]:
        self._sequence = (self._sequence + 1) & ~READING_MASK | (READING if self._is_read(kind) else 0)
        header = _HEADER.pack(_HEADER.size + len(body), kind, REQUEST | flags, self._sequence, 0)
        self._socket.sendall(header + body)
        while True:
            for answer, marks, sequence, content in _messages(self._socket.recv(_BUFFER)):
                if sequence != self._sequence:
                    continue
                if answer == _ERROR:
                    _raise_error_message(content, marks)
                    return
                if answer == _DONE:
                    return
                yield marks, content


def listen(groups: int, namespace: str | int | None = None, protocol: int = socket.NETLINK_ROUTE) -> socket.socket:
    """Return a plain socket in a namespace, given as to ``namespaces.run_in``, that receives events of these multicast groups. Raises OSError."""
    return namespaces.run_in(namespace, functools.partial(_open, groups, protocol))


def cookie_of(sock: socket.socket) -> int:
    """Return the cookie of the network namespace a socket belongs to (SO_NETNS_COOKIE). Raises OSError before Linux 5.14."""
    try:
        cookie = sock.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
        raise OSError(error.errno, "this kernel has no cookies of network namespaces, which came with Linux 5.14") from error
    return int.from_bytes(cookie, "little" if struct.pack("=H", 1)[0] else "big")


@contextlib.contextmanager
def failing_as(call: str) -> Iterator[None]:
    """Raise an OSError of the body as a HardwareError of this call, with the kernel's message."""
    try:
        yield
    except OSError as error:
        raise drakit.HardwareError(call, error.strerror or str(error)) from error


def pack(kind: int, content: bytes) -> bytes:
    """Return the message of one attribute, padded."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(content), kind) + content + bytes(-len(content) % 4)


def text(kind: int, value: str) -> bytes:
    """Return the message of a text attribute."""
    return pack(kind, value.encode(errors="surrogateescape") + b"\0")


def number(kind: int, value: int) -> bytes:
    """Return the message of a 32-bit attribute."""
    return pack(kind, struct.pack("=I", value))


def attributes(content: bytes) -> Attributes:
    """Return the attributes of a message's tail by kind, the last one of each kind."""
    return dict(walk(content))


def walk(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the attributes of a message's tail in order, each with its kind. Some lists have several of one kind."""
    at = 0
    while at + _ATTRIBUTE.size <= len(content):
        size, kind = _ATTRIBUTE.unpack_from(content, at)
        if size < _ATTRIBUTE.size:
            return
        yield kind & _NESTED_MASK, content[at + _ATTRIBUTE.size : at + size]
        at += size + -size % 4


def hops(content: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield the next hops in RTA_MULTIPATH (struct rtnexthop): interface index, weight, flags, and the hop's own attributes."""
    at = 0
    while at + _HOP.size <= len(content):
        size, flags, hops_value, ifindex = _HOP.unpack_from(content, at)
        if size < _HOP.size:
            return
        yield ifindex, hops_value + 1, flags, content[at + _HOP.size : at + size]
        at += size + -size % 4


def hop(ifindex: int, weight: int, flags: int, attrs: bytes) -> bytes:
    """Return one next hop for RTA_MULTIPATH."""
    return _HOP.pack(_HOP.size + len(attrs), flags, weight - 1, ifindex) + attrs


def as_text(content: bytes) -> str:
    """Return the value of a text attribute."""
    return content.split(b"\0", 1)[0].decode(errors="surrogateescape")


def as_number(content: bytes) -> int:
    """Return the value of a 32-bit attribute."""
    value: int = struct.unpack("=I", content[:4])[0]
    return value


def _messages(packet: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(packet):
        size, kind, flags, sequence, _ = _HEADER.unpack_from(packet, at)
        yield kind, flags, sequence, packet[at + _HEADER.size : at + size]
        at += size + -size % 4


def _raise_error_message(content: bytes, flags: int) -> None:
    """Raise the OSError of an error message. An acknowledgement is an error of number 0."""
    code = -struct.unpack_from("=i", content)[0]
    if not code:
        return
    message = ""
    if flags & _HAS_TEXT:
        request_size = _HEADER.size if flags & _CAPPED else struct.unpack_from("=I", content, 4)[0]
        message = as_text(attributes(content[4 + request_size :]).get(_TEXT, b""))
    raise OSError(code, f"{os.strerror(code)}{': ' if message else ''}{message}")


def _open(groups: int = 0, protocol: int = socket.NETLINK_ROUTE) -> socket.socket:
    # For netlink, SOCK_DGRAM is the same as SOCK_RAW (netlink(7)). pyroute2 requires the first.
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, protocol)
    try:
        sock.settimeout(ANSWER_SECONDS)
        for option in (_EXT_ACK, _STRICT):
            with contextlib.suppress(OSError):  # Linux before 4.12 and 4.20 lacks these options.
                sock.setsockopt(_SOL_NETLINK, option, 1)
        sock.bind((0, groups))
    except OSError:
        sock.close()
        raise
    return sock
