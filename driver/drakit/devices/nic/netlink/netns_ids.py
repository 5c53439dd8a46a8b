"""The numbers (nsid) by which one network namespace knows others.

With a number, links in another namespace can be listed without a descriptor and without the right to enter it. A number is valid as long as both
namespaces exist; the kernel may then reuse it. Constants and layouts: linux/net_namespace.h. Raises OSError.
"""

import contextlib
import errno
import struct

from drakit.devices.nic.netlink import rtnetlink

NONE = -1
"""What the kernel answers for a namespace that has no number."""

_NEWNSID, _GETNSID = 88, 90
_GENERIC = struct.Struct("=B3x")
_NSID, _DESCRIPTOR = 1, 3
_TARGET = 46


def number_of(host: rtnetlink.Socket, descriptor: int) -> int:
    """The number that the socket's namespace has for the one open as ``descriptor``, else NONE."""
    return next(map(_number, host.ask(_GETNSID, _of(descriptor))), NONE)


def assign(host: rtnetlink.Socket, descriptor: int) -> int:
    """The same; a namespace without a number is given one."""
    found = number_of(host, descriptor)
    if found == NONE:
        with contextlib.suppress(FileExistsError):
            host.ask(_NEWNSID, _of(descriptor) + rtnetlink.pack(_NSID, struct.pack("=i", NONE)))
        found = number_of(host, descriptor)
    if found == NONE:
        raise OSError(errno.ENOENT, "the network namespace got no number")
    return found


def numbers(host: rtnetlink.Socket) -> tuple[int, ...]:
    """Every number that the socket's namespace has given, ascending."""
    return tuple(sorted({_number(answer) for answer in host.dump(_GETNSID, _GENERIC.pack(0))} - {NONE}))


def target(number: int) -> bytes:
    """The attribute that directs a request of links to the namespace of this number (IFLA_TARGET_NETNSID)."""
    return rtnetlink.pack(_TARGET, struct.pack("=i", number))


def _of(descriptor: int) -> bytes:
    return _GENERIC.pack(0) + rtnetlink.number(_DESCRIPTOR, descriptor)


def _number(answer: bytes) -> int:
    found: int = struct.unpack("=i", rtnetlink.attributes(answer[_GENERIC.size :])[_NSID])[0]
    return found
