"""The numbers that a network namespace has for other ones (nsid).

With a number, links of another namespace can be listed without a descriptor and without the right to enter it. A number is valid while both
namespaces exist; the kernel may then reuse it. Constants and layouts: linux/net_namespace.h. Functions raise OSError.
"""

import contextlib
import errno
import struct

from drakit_nic.netlink import rtnetlink

NO_NSID = -1
"""The kernel's answer for a namespace without a number."""

_NEWNSID, _GETNSID = 88, 90
_GENERIC = struct.Struct("=B3x")
_NSID, _DESCRIPTOR = 1, 3
_TARGET = 46


def nsid_of(host: rtnetlink.Socket, descriptor: int) -> int:
    """Return the number of the namespace ``descriptor`` in the socket's namespace, NO_NSID where it has none."""
    return next(map(_number, host.ask(_GETNSID, _descriptor_request(descriptor))), NO_NSID)


def assign_nsid(host: rtnetlink.Socket, descriptor: int) -> int:
    """Return the number of the namespace ``descriptor`` in the socket's namespace, assigned now where it has none. Raises OSError."""
    nsid = nsid_of(host, descriptor)
    if nsid == NO_NSID:
        with contextlib.suppress(FileExistsError):
            host.ask(_NEWNSID, _descriptor_request(descriptor) + rtnetlink.pack(_NSID, struct.pack("=i", NO_NSID)))
        nsid = nsid_of(host, descriptor)
    if nsid == NO_NSID:
        raise OSError(errno.ENOENT, "the kernel assigned no number to the network namespace")
    return nsid


def nsids(host: rtnetlink.Socket) -> tuple[int, ...]:
    """Return every number of a namespace in the socket's namespace, in ascending order."""
    return tuple(sorted({_number(answer) for answer in host.dump(_GETNSID, _GENERIC.pack(0))} - {NO_NSID}))


def in_namespace(number: int) -> bytes:
    """Return the attribute that directs a link request to the namespace of this number (IFLA_TARGET_NETNSID)."""
    return rtnetlink.pack(_TARGET, struct.pack("=i", number))


def _descriptor_request(descriptor: int) -> bytes:
    return _GENERIC.pack(0) + rtnetlink.number(_DESCRIPTOR, descriptor)


def _number(answer: bytes) -> int:
    nsid: int = struct.unpack("=i", rtnetlink.attributes(answer[_GENERIC.size :])[_NSID])[0]
    return nsid
