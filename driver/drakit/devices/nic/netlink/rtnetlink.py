"""A plain rtnetlink socket: requests with acknowledgement, dumps, attributes, and the numbers of other network namespaces.

Why no library does it: ADR 72. Layouts: linux/netlink.h, linux/rtnetlink.h.

A socket stays in the network namespace in which it was opened, whichever thread uses it. What the kernel refuses is an OSError with the kernel's own
message (NETLINK_EXT_ACK) where it sends one.

A network namespace knows others by numbers (nsid). With a number, links in another namespace can be listed without a descriptor and without the right
to enter it. A number is valid as long as both namespaces exist; the kernel may then reuse it. Constants and layouts: linux/net_namespace.h. Raises
OSError.
"""

import concurrent.futures
import contextlib
import ctypes
import errno
import functools
import os
import pathlib
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Self, TypeVar

from drakit.core import errors

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
_ANSWER_SECONDS = 10.0
_DUMP_TRIES = 10
_NAMESPACES = pathlib.Path("/run/netns")
_CLONE_NEWNET = 0x40000000

READING, READING_MASK = 0xDA0A0000, 0xFFFF0000
"""The first bits of the sequence number of a request that only reads: the kernel sends answers about queueing to every listener, with this number."""

Attributes = Mapping[int, bytes]
Answer = TypeVar("Answer")


def _nothing() -> None:
    """Do nothing after a request: the default of ``after_effect``."""


class Socket:
    """One rtnetlink conversation; use it as a context and from one thread at a time.

    ``after_effect`` is called between the effect of a request that may change something and its answer, which is where a test dies.
    """

    def __init__(self, sock: socket.socket, after_effect: Callable[[], None] = _nothing) -> None:
        self._socket = sock
        self._sequence = 0
        self._after_effect = after_effect

    @classmethod
    def open(cls, namespace: str | int | None = None, after_effect: Callable[[], None] = _nothing) -> Self:
        """Return a socket in a namespace: None for the process's own, else a name under /run/netns, a path, or an open descriptor. Raises OSError."""
        return cls(listen(0, namespace), after_effect)

    @classmethod
    def scratch(cls) -> Self:
        """Return a socket in an empty network namespace of its own, which the kernel removes when the socket is closed. Raises OSError."""
        with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
            return cls(thread.submit(_open_apart).result())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def cookie(self) -> int:
        """The cookie of the socket's network namespace: unique until reboot, never used again. Raises OSError before Linux 5.14."""
        return cookie_of(self._socket)

    def ask(self, kind: int, body: bytes, flags: int = 0) -> tuple[bytes, ...]:
        """Send one request, wait for its acknowledgement, and return the bodies that came before it."""
        answers = tuple(body for _, body in self._exchange(kind, body, flags | ACK))
        if kind % _VERBS != _GET:
            self._after_effect()
        return answers

    def dump(self, kind: int, body: bytes) -> tuple[bytes, ...]:
        """Return a whole table, read again where it changed meanwhile."""
        answers = whole_table(lambda: tuple(self._exchange(kind, body, _DUMP)), lambda answer: answer[0])
        return tuple(answer for _, answer in answers)

    def _exchange(self, kind: int, body: bytes, flags: int) -> Iterator[tuple[int, bytes]]:
        self._sequence = (self._sequence + 1) & ~READING_MASK | (READING if kind % _VERBS == _GET else 0)
        header = _HEADER.pack(_HEADER.size + len(body), kind, REQUEST | flags, self._sequence, 0)
        self._socket.sendall(header + body)
        while True:
            for answer, marks, sequence, content in _messages(self._socket.recv(_BUFFER)):
                if sequence != self._sequence:
                    continue
                if answer == _ERROR:
                    _raise(content, marks)
                    return
                if answer == _DONE:
                    return
                yield marks, content


def whole_table(read: Callable[[], tuple[Answer, ...]], flags_of: Callable[[Answer], int]) -> tuple[Answer, ...]:
    """Return the result of ``read``, repeated while the kernel marks a message as of an interrupted dump (NLM_F_DUMP_INTR). Raises OSError."""
    for _ in range(_DUMP_TRIES):
        answers = read()
        if not any(flags_of(answer) & _INTERRUPTED for answer in answers):
            return answers
    raise OSError(errno.EAGAIN, f"the table changed during each of {_DUMP_TRIES} reads")


def listen(groups: int, namespace: str | int | None = None) -> socket.socket:
    """Return a plain socket in a namespace, given as to ``Socket.open``, that receives events of these multicast groups. Raises OSError."""
    return run_in(namespace, functools.partial(_open, groups))


def run_in(namespace: str | int | None, work: Callable[[], Answer]) -> Answer:
    """Return the result of ``work`` in a namespace, given as to ``Socket.open``. Raises OSError.

    Another namespace than the process's is entered by a thread that ends afterwards, so no other thread of the process is ever moved.
    """
    if namespace is None:
        return work()
    with opened(namespace) as descriptor, concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_run_inside, descriptor, work).result()


def cookie_of(sock: socket.socket) -> int:
    """Return the cookie of the network namespace a socket belongs to (SO_NETNS_COOKIE, Linux 5.14)."""
    return int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8), "little" if struct.pack("=H", 1)[0] else "big")


@contextlib.contextmanager
def failing_as(call: str) -> Iterator[None]:
    """Turn an OSError into a HardwareError of that call, with the kernel's own words."""
    try:
        yield
    except OSError as error:
        raise errors.HardwareError(call, error.strerror or str(error)) from error


def pack(kind: int, content: bytes) -> bytes:
    """Return one attribute, padded."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(content), kind) + content + bytes(-len(content) % 4)


def text(kind: int, value: str) -> bytes:
    """Return a text attribute."""
    return pack(kind, value.encode(errors="surrogateescape") + b"\0")


def number(kind: int, value: int) -> bytes:
    """Return a 32-bit attribute."""
    return pack(kind, struct.pack("=I", value))


def attributes(content: bytes) -> Attributes:
    """Return the attributes of a message's tail, by kind; of a kind that comes twice the last."""
    return dict(walk(content))


def walk(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the attributes of a message's tail in their order, each by kind; some lists have many of one kind."""
    at = 0
    while at + _ATTRIBUTE.size <= len(content):
        size, kind = _ATTRIBUTE.unpack_from(content, at)
        if size < _ATTRIBUTE.size:
            return
        yield kind & _NESTED_MASK, content[at + _ATTRIBUTE.size : at + size]
        at += size + -size % 4


def hops(listed: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield the next hops of a route with several (RTA_MULTIPATH, struct rtnexthop): interface index, weight, flags, and the hop's own attributes."""
    at = 0
    while at + _HOP.size <= len(listed):
        size, flags, fewer, ifindex = _HOP.unpack_from(listed, at)
        if size < _HOP.size:
            return
        yield ifindex, fewer + 1, flags, listed[at + _HOP.size : at + size]
        at += size + -size % 4


def hop(ifindex: int, weight: int, flags: int, own: bytes) -> bytes:
    """Return one of the next hops of a route with several."""
    return _HOP.pack(_HOP.size + len(own), flags, weight - 1, ifindex) + own


def as_text(content: bytes) -> str:
    """Return a text attribute's value."""
    return content.split(b"\0", 1)[0].decode(errors="surrogateescape")


def as_number(content: bytes) -> int:
    """Return a 32-bit attribute's value."""
    value: int = struct.unpack("=I", content[:4])[0]
    return value


def _messages(packet: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(packet):
        size, kind, flags, sequence, _ = _HEADER.unpack_from(packet, at)
        yield kind, flags, sequence, packet[at + _HEADER.size : at + size]
        at += size + -size % 4


def _raise(content: bytes, flags: int) -> None:
    """Raise the error of an error message; an acknowledgement is an error of number 0."""
    code = -struct.unpack_from("=i", content)[0]
    if not code:
        return
    attrs = ""
    if flags & _HAS_TEXT:
        echoed = _HEADER.size if flags & _CAPPED else struct.unpack_from("=I", content, 4)[0]
        attrs = as_text(attributes(content[4 + echoed :]).get(_TEXT, b""))
    raise OSError(code, f"{os.strerror(code)}{': ' if attrs else ''}{attrs}")


def _open(groups: int = 0) -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    try:
        sock.settimeout(_ANSWER_SECONDS)
        for option in (_EXT_ACK, _STRICT):
            with contextlib.suppress(OSError):  # Kernels before 4.12 and 4.20 do without.
                sock.setsockopt(_SOL_NETLINK, option, 1)
        sock.bind((0, groups))
    except OSError:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def opened(namespace: str | int) -> Iterator[int]:
    """Yield the descriptor of a namespace, given as to ``Socket.open``; one that is opened here is closed here. Raises OSError."""
    if isinstance(namespace, int):
        yield namespace
        return
    descriptor = os.open(_NAMESPACES / namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _run_inside(descriptor: int, work: Callable[[], Answer]) -> Answer:
    """Enter the namespace and run ``work``, in a thread that ends afterwards because it stays there."""
    _call("setns", descriptor, _CLONE_NEWNET)
    return work()


def _open_apart() -> socket.socket:
    """Open a socket in a new namespace, in a thread that ends afterwards because it stays there."""
    _call("unshare", _CLONE_NEWNET)
    return _open()


def _call(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


NO_NSID = -1
"""The kernel's answer for a namespace without a number."""

_NEWNSID, _GETNSID = 88, 90
_GENERIC = struct.Struct("=B3x")
_NSID, _DESCRIPTOR = 1, 3
_TARGET = 46


def nsid_of(host: Socket, descriptor: int) -> int:
    """Return the number that the socket's namespace has for the one open as ``descriptor``, else NO_NSID."""
    return next(map(_number, host.ask(_GETNSID, _of(descriptor))), NO_NSID)


def assign_nsid(host: Socket, descriptor: int) -> int:
    """Return that number; assign one to a namespace that has none."""
    nsid = nsid_of(host, descriptor)
    if nsid == NO_NSID:
        with contextlib.suppress(FileExistsError):
            host.ask(_NEWNSID, _of(descriptor) + pack(_NSID, struct.pack("=i", NO_NSID)))
        nsid = nsid_of(host, descriptor)
    if nsid == NO_NSID:
        raise OSError(errno.ENOENT, "the network namespace got no number")
    return nsid


def nsids(host: Socket) -> tuple[int, ...]:
    """Return every number that the socket's namespace has given, ascending."""
    return tuple(sorted({_number(answer) for answer in host.dump(_GETNSID, _GENERIC.pack(0))} - {NO_NSID}))


def in_namespace(number: int) -> bytes:
    """Return the attribute that directs a request of links to the namespace of this number (IFLA_TARGET_NETNSID)."""
    return pack(_TARGET, struct.pack("=i", number))


def _of(descriptor: int) -> bytes:
    return _GENERIC.pack(0) + number(_DESCRIPTOR, descriptor)


def _number(answer: bytes) -> int:
    nsid: int = struct.unpack("=i", attributes(answer[_GENERIC.size :])[_NSID])[0]
    return nsid
