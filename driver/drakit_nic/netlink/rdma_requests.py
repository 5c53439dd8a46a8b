"""RDMA netlink: the RDMA devices of a network namespace, and moves of a device between namespaces.

The RDMA subsystem is in one of two modes. In shared mode, every namespace has every RDMA device. In exclusive mode, each device is in one namespace,
like an interface. Moving a device replaces its character devices, so their numbers can change.

A machine on which no RDMA driver is loaded has no such protocol. ``is_loaded`` tells, and loads nothing. Constants: rdma/rdma_netlink.h. Functions
raise OSError.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Collection
from typing import Self

from drakit_nic.netlink import rtnetlink

CLASSES = pathlib.Path("/sys/class")
_PROTOCOL = 20
_CLIENT = 5 << 10
_GET, _SET, _PORT_GET, _SYS_GET = _CLIENT | 1, _CLIENT | 2, _CLIENT | 5, _CLIENT | 6
_INDEX, _NAME, _PORT_INTERFACE, _MODE, _NAMESPACE = 1, 2, 50, 66, 68
_SHARED = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """An RDMA device. ``index`` is unique on the machine, and the kernel does not reuse it before all others are used up.

    ``interfaces`` has the index of each port's interface, 0 where the socket's namespace does not have it.
    """

    index: int
    name: str
    interfaces: tuple[int, ...] = ()


class Socket(rtnetlink.Socket):
    """A socket of RDMA netlink, used like one of rtnetlink."""

    @classmethod
    def open(cls, namespace: str | int | None = None, after_effect: Callable[[], None] = lambda: None) -> Self:
        return cls(rtnetlink.listen(0, namespace, _PROTOCOL), after_effect)

    def _is_read(self, kind: int) -> bool:
        return kind != _SET


def is_loaded(classes: pathlib.Path = CLASSES) -> bool:
    """Return whether the kernel's RDMA subsystem is loaded."""
    return (classes / "infiniband").is_dir()


def is_exclusive(sock: Socket) -> bool:
    """Return whether the RDMA subsystem is in exclusive mode."""
    (answer,) = sock.ask(_SYS_GET, b"")
    return rtnetlink.attributes(answer)[_MODE][0] != _SHARED


def names(sock: Socket) -> dict[int, str]:
    """Return the names of the RDMA devices of the socket's namespace by their indices."""
    listed = (rtnetlink.attributes(answer) for answer in sock.dump(_GET, b""))
    return {rtnetlink.as_number(attrs[_INDEX]): rtnetlink.as_text(attrs[_NAME]) for attrs in listed}


def devices(sock: Socket, only: Collection[str] | None = None) -> tuple[Device, ...]:
    """Return the RDMA devices of the socket's namespace with their interfaces, in the order of their indices, or ``only`` those of these names.

    A device that is moved or unloaded meanwhile is left out.
    """
    listed = []
    for index, name in sorted((index, name) for index, name in names(sock).items() if only is None or name in only):
        with contextlib.suppress(OSError):
            listed.append(Device(index=index, name=name, interfaces=_interfaces(sock, index)))
    return tuple(listed)


def move(sock: Socket, index: int, descriptor: int) -> None:
    """Move a device to the namespace ``descriptor``. The calling thread must be in the namespace that has the device."""
    sock.ask(_SET, rtnetlink.number(_INDEX, index) + rtnetlink.number(_NAMESPACE, descriptor))


def rename(sock: Socket, index: int, name: str) -> None:
    """Rename a device of the socket's namespace."""
    sock.ask(_SET, rtnetlink.number(_INDEX, index) + rtnetlink.text(_NAME, name))


def _interfaces(sock: Socket, index: int) -> tuple[int, ...]:
    ports = (rtnetlink.attributes(answer) for answer in sock.dump(_PORT_GET, rtnetlink.number(_INDEX, index)))
    return tuple(rtnetlink.as_number(port[_PORT_INTERFACE]) if _PORT_INTERFACE in port else 0 for port in ports)
