"""A physical function as its kernel driver answers, in place of the kernel; both classes behave as igb does, as seen on an 82576.

``Parent`` answers rtnetlink (linux/if_link.h), in place of ``rtnetlink.Socket``: no minimum rate, no rate above the link's or without a link, no link
state, and no address for a function but one of a single interface, or zeros to take it back. ``Bus`` creates and removes virtual functions.
"""

import dataclasses
import errno
import os
import struct
from collections.abc import Callable, Iterator

from drakit.core import errors
from drakit_nic import port
from drakit_nic.passthrough import sriov

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


PARENT = port.Interface(
    ifindex=2,
    name="enp1s0",
    mac="02:00:00:00:01:00",
    mtu=1500,
    driver="igb",
    speed=10**9,
    pci=port.PciFunction(bus_id="0000:01:00.0", virtual_functions=7),
)


class Bus:
    """A machine with one physical function, in place of ``kernel_port.KernelPort``: its interfaces, and the virtual functions, which the kernel
    creates only where there are none. ``after_effect`` is called after each change, where tests let the process die."""

    def __init__(self, *, count: int = 0, after_effect: Callable[[], None] = lambda: None) -> None:
        self.parent = PARENT
        self.after_effect = after_effect
        self.others: list[port.Interface] = []
        self.functions: list[port.Interface] = []
        self.drivers: dict[str, str] = {}
        self.away: set[str] = set()
        self.written: list[int] = []
        self.refusal: str = ""
        self.room = 7
        """The number of functions for which the machine has memory."""
        self._next_index = 10
        self._make(count)

    def interfaces(self) -> tuple[port.Interface, ...]:
        on_host = (each for each in (self.parent, *self.functions) if each.pci and each.pci.bus_id not in self.away)
        return (*on_host, *self.others)

    def functions_of(self, bus_id: str) -> tuple[sriov.BusFunction, ...]:
        addresses = [each.pci.bus_id for each in self.functions if each.pci and each.pci.physical_function == bus_id]
        return tuple(sriov.BusFunction(bus_id=address, driver=self.drivers.get(address, "igbvf")) for address in addresses)

    def set_function_count(self, bus_id: str, count: int) -> None:
        assert self.parent.pci is not None
        assert bus_id == self.parent.pci.bus_id
        self.written.append(count)
        if self.refusal or (count and self.functions) or count > self.room:
            raise errors.HardwareError("set_function_count", self.refusal or "Cannot allocate memory")
        self._make(count)
        self.after_effect()

    def _make(self, count: int) -> None:
        self.functions = []
        for number in range(count):
            pci = port.PciFunction(bus_id=f"0000:01:10.{2 * number}", physical_function="0000:01:00.0", function_number=number)
            name = f"enp1s0v{number}"
            mac, index = f"02:00:00:00:00:{number:02x}", self._next_index
            self.functions.append(
                port.Interface(ifindex=index, name=name, mac=mac, mtu=1500, driver="igbvf", state="down", up=False, pci=pci)
            )
            self._next_index += 1


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
