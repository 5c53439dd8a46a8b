"""The properties of a whole interface on the host: each is read before the interface moves to a pod, and restored when it is back.

A pod's root can change each of them, and the kernel keeps most across a move. So the host's value is recorded in the claim's intent, which no pod can
write. ``TABLE`` is in the order of restoring: what limits another property comes before it. A property that cannot be restored never stops the
return. The name is not in the table, because an interface that cannot get its name back is not back.
"""

import contextlib
import dataclasses
import functools
import struct
from collections.abc import Callable, Iterator, Mapping

import drakit
from drakit_nic.netlink import ethtool, interface_sysctls, link_requests, rtnetlink
from drakit_nic.passthrough import programs

MAC, MTU, UP, ADDRESSES = "mac", "mtu", "up", "addresses"
OF_STATE = (MAC, MTU, UP, ADDRESSES)
"""The properties that are fields of ``HostState``, and that are restored also where the interface never left the host."""

_PROMISCUOUS, _ALL_MULTICAST, _MULTICAST, _NO_ARP = 0x100, 0x200, 0x1000, 0x80
_BROADCAST, _QUEUE_LENGTH, _LINK_MODE, _GROUP = 2, 13, 17, 27
_PROTO_DOWN, _GSO_SEGMENTS, _GSO_SIZE, _PROTO_DOWN_REASON = 39, 40, 41, 55
_GRO_SIZE, _GSO_IPV4_SIZE, _GRO_IPV4_SIZE = 58, 63, 64
_REASON_MASK, _REASON_VALUE = 1, 2
_ALL_REASONS = 0xFFFFFFFF
_log = drakit.get_logger(__name__)
_NESTED = 0x8000


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenInterface:
    """An interface in the open namespace ``descriptor``, with a socket there."""

    sock: rtnetlink.Socket
    descriptor: int
    link: link_requests.Link
    driver: ethtool.Ethtool

    def again(self) -> "OpenInterface":
        """Return the interface as it is now. Raises OSError where it is gone."""
        link = link_requests.at(self.sock, self.link.ifindex)
        if link is None:
            raise OSError(f"{self.link.name} is gone")
        return dataclasses.replace(self, link=link)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Property:
    """One property. ``read`` returns None if the interface has no such property. ``is_as`` compares an interface with a record."""

    name: str
    read: Callable[[OpenInterface], drakit.Json]
    write: Callable[[OpenInterface, drakit.Json], None]
    is_as: Callable[[OpenInterface, drakit.Json], bool] | None = None

    def holds(self, interface: OpenInterface, recorded: drakit.Json) -> bool:
        """Return whether the interface has the recorded value now."""
        return self.read(interface) == recorded if self.is_as is None else self.is_as(interface, recorded)


@contextlib.contextmanager
def opened(sock: rtnetlink.Socket, descriptor: int, link: link_requests.Link) -> Iterator[OpenInterface]:
    """Yield a link of the socket's namespace, which is open as ``descriptor``, for reading and writing its properties. Raises OSError."""
    with ethtool.opened(descriptor) as generic:
        yield OpenInterface(sock=sock, descriptor=descriptor, link=link, driver=ethtool.Ethtool(generic))


def read(interface: OpenInterface) -> drakit.Record:
    """Return the value of every property in ``TABLE`` that the interface has, without those of ``OF_STATE``."""
    values = {row.name: _read_optional(row, interface) for row in TABLE if row.name not in OF_STATE}
    return {name: value for name, value in values.items() if value is not None}


def _read_optional(row: Property, interface: OpenInterface) -> drakit.Json:
    """Return a property's value, None if the kernel driver refuses to tell it, because the claim can be served without."""
    try:
        return row.read(interface)
    except OSError as error:
        _log_unreadable(interface.link.name, row.name, error.strerror or str(error))
        return None


@functools.lru_cache(maxsize=1024)
def _log_unreadable(interface: str, name: str, reason: str) -> None:
    """Log a property that cannot be read, once."""
    _log.warning("interface property not read", interface=interface, property=name, error=reason)


def restore(interface: OpenInterface, recorded: drakit.Record) -> Mapping[str, str]:
    """Restore the recorded properties that differ, and return the error of each that cannot be restored, by name."""
    failed: dict[str, str] = {}
    for row in TABLE:
        if row.name not in recorded:
            continue
        wanted = recorded[row.name]
        try:
            interface = interface.again()
            if not row.holds(interface, wanted):
                row.write(interface, wanted)
                interface = interface.again()
                if not row.holds(interface, wanted):
                    failed[row.name] = f"is {row.read(interface)!r}, and was {wanted!r}"
        except OSError as error:
            failed[row.name] = error.strerror or str(error)
        except (TypeError, ValueError) as error:  # Somebody edited the record.
            failed[row.name] = f"the record {wanted!r} cannot be used: {error}"
    return failed


def differing(interface: OpenInterface, recorded: drakit.Record) -> tuple[str, ...]:
    """Return the names of the recorded properties that the interface does not have now. Raises OSError."""
    return tuple(row.name for row in TABLE if row.name in recorded and not row.holds(interface, recorded[row.name]))


def _number(name: str, attribute: int, form: str = "=I") -> Property:
    """Return the property of one number of the link."""
    layout = struct.Struct(form)

    def read_number(interface: OpenInterface) -> drakit.Json:
        content = interface.link.attributes.get(attribute)
        value: int | None = None if content is None else layout.unpack(content[: layout.size])[0]
        return value

    def write_number(interface: OpenInterface, value: drakit.Json) -> None:
        more = rtnetlink.pack(attribute, layout.pack(_integer(value)))
        link_requests.set_attributes(interface.sock, interface.link.ifindex, more)

    return Property(name=name, read=read_number, write=write_number)


def _flag(name: str, flag: int) -> Property:
    def write_flag(interface: OpenInterface, value: drakit.Json) -> None:
        link_requests.set_flags(interface.sock, interface.link.ifindex, flag if value else 0, flag)

    return Property(name=name, read=lambda interface: bool(interface.link.flags & flag), write=write_flag)


def _group(name: str, group: ethtool.Group) -> Property:
    """Return the property of a group of settings of the interface's driver."""

    def is_as(interface: OpenInterface, recorded: drakit.Json) -> bool:
        return ethtool.is_as(_mapping(recorded), interface.driver.read(group, interface.link.ifindex) or drakit.EMPTY_RECORD)

    return Property(
        name=name,
        read=lambda interface: interface.driver.read(group, interface.link.ifindex),
        write=lambda interface, value: interface.driver.write(group, interface.link.ifindex, _mapping(value)),
        is_as=is_as,
    )


def _write_mac(interface: OpenInterface, value: drakit.Json) -> None:
    """Set the MAC with the link down, because some drivers require that."""
    link_requests.alter(interface.sock, interface.link.ifindex, up=False)
    link_requests.alter(interface.sock, interface.link.ifindex, mac=str(value))


def _write_broadcast(interface: OpenInterface, value: drakit.Json) -> None:
    more = rtnetlink.pack(_BROADCAST, bytes.fromhex(str(value).replace(":", "")))
    link_requests.set_attributes(interface.sock, interface.link.ifindex, more)


def _write_proto_down(interface: OpenInterface, value: drakit.Json) -> None:
    """Set whether a protocol holds the link down. It cannot be cleared while it has reasons."""
    reasons = rtnetlink.number(_REASON_MASK, _ALL_REASONS) + rtnetlink.number(_REASON_VALUE, 0)
    if not value:
        link_requests.set_attributes(interface.sock, interface.link.ifindex, rtnetlink.pack(_PROTO_DOWN_REASON | _NESTED, reasons))
    link_requests.set_attributes(interface.sock, interface.link.ifindex, rtnetlink.pack(_PROTO_DOWN, bytes([bool(value)])))


def _write_altnames(interface: OpenInterface, value: drakit.Json) -> None:
    """Remove other names and add the missing ones, each by itself, because another interface may have got one meanwhile."""
    wanted, present = set(_texts(value)), set(interface.link.altnames)
    link_requests.delete_altnames(interface.sock, interface.link.ifindex, present - wanted)
    for name in sorted(wanted - present):
        link_requests.add_altnames(interface.sock, interface.link.ifindex, [name])


def _read_sysctls(interface: OpenInterface) -> drakit.Json:
    """Return the settings that are not the namespace's default. The kernel gives the default to an interface that moves in."""
    name = interface.link.name
    return interface_sysctls.read_own(interface.descriptor, name)


def _write_sysctls(interface: OpenInterface, value: drakit.Json) -> None:
    failed = interface_sysctls.restore(interface.descriptor, interface.link.name, _settings(value))
    if failed:
        raise OSError("; ".join(f"{name}: {error}" for name, error in failed.items()))


def _has_sysctls(interface: OpenInterface, recorded: drakit.Json) -> bool:
    return not interface_sysctls.differing(interface.descriptor, interface.link.name, _settings(recorded))


def _settings(value: drakit.Json) -> Mapping[str, str]:
    return {name: str(setting) for name, setting in _mapping(value).items()}


def _write_addresses(interface: OpenInterface, value: drakit.Json) -> None:
    present = set(link_requests.addresses(interface.sock, interface.link.ifindex))
    for address in _texts(value):
        if address not in present:
            link_requests.add_address(interface.sock, interface.link.ifindex, address)


def _has_addresses(interface: OpenInterface, recorded: drakit.Json) -> bool:
    return set(_texts(recorded)) <= set(link_requests.addresses(interface.sock, interface.link.ifindex))


def _integer(value: drakit.Json) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no number")
    return value


def _mapping(value: drakit.Json) -> drakit.Record:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is no mapping")
    return value


def _texts(value: drakit.Json) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r} is no list")
    return tuple(map(str, value))


TABLE: tuple[Property, ...] = (
    Property(name="altnames", read=lambda interface: tuple(sorted(interface.link.altnames)), write=_write_altnames),
    Property(
        name="xdpPrograms",
        read=lambda interface: programs.xdp(interface.link),
        write=lambda interface, value: programs.write_xdp(interface.sock, interface.link, _mapping(value)),
    ),
    Property(
        name="tcxPrograms",
        read=lambda interface: programs.tcx(interface.descriptor, interface.link),
        write=lambda interface, value: programs.write_tcx(interface.descriptor, interface.link, _mapping(value)),
    ),
    Property(
        name="protoDown",
        read=lambda interface: bool(interface.link.attributes.get(_PROTO_DOWN, b"\0")[0]),
        write=_write_proto_down,
    ),
    _flag("promiscuous", _PROMISCUOUS),
    _flag("allMulticast", _ALL_MULTICAST),
    _flag("multicast", _MULTICAST),
    _flag("noArp", _NO_ARP),
    Property(
        name=MAC,
        read=lambda interface: interface.link.mac,
        write=_write_mac,
    ),
    Property(
        name="broadcast",
        read=lambda interface: interface.link.attributes.get(_BROADCAST, b"").hex(":"),
        write=_write_broadcast,
    ),
    _number("transmitQueueLength", _QUEUE_LENGTH),
    _number("group", _GROUP),
    _number("linkMode", _LINK_MODE, "=B"),
    _group("channels", ethtool.Group(get=17, numbers=(6, 7, 8, 9))),
    _group("rings", ethtool.Group(get=15, numbers=(6, 7, 8, 9, 10, 11, 12, 13, 14, 15))),
    _group("privateFlags", ethtool.Group(get=13, bits=2)),
    _group("features", ethtool.Group(get=11, bits=3, changeable=2)),
    _group("coalescing", ethtool.Group(get=19, numbers=tuple(range(2, 26)))),
    _group("pause", ethtool.Group(get=21, numbers=(2, 3, 4))),
    _group("forwardErrorCorrection", ethtool.Group(get=29, numbers=(3,), bits=2)),
    _group("energyEfficiency", ethtool.Group(get=23, numbers=(5, 6, 7), bits=2)),
    _group("linkSpeed", ethtool.Group(get=4, numbers=(2,), bits=3, fixed=(5, 6))),
    _group("wakeOnLan", ethtool.Group(get=9, numbers=(3,), bits=2)),
    _group("driverMessages", ethtool.Group(get=7, bits=2)),
    _number("gsoMaxSize", _GSO_SIZE),
    _number("gsoMaxSegments", _GSO_SEGMENTS),
    _number("groMaxSize", _GRO_SIZE),
    _number("gsoIpv4MaxSize", _GSO_IPV4_SIZE),
    _number("groIpv4MaxSize", _GRO_IPV4_SIZE),
    Property(
        name=MTU,
        read=lambda interface: interface.link.mtu,
        write=lambda interface, value: link_requests.alter(interface.sock, interface.link.ifindex, mtu=_integer(value)),
    ),
    Property(name="sysctls", read=_read_sysctls, write=_write_sysctls, is_as=_has_sysctls),
    Property(
        name=UP,
        read=lambda interface: interface.link.up,
        write=lambda interface, value: link_requests.alter(interface.sock, interface.link.ifindex, up=bool(value)),
    ),
    Property(
        name=ADDRESSES,
        read=lambda interface: link_requests.addresses(interface.sock, interface.link.ifindex),
        write=_write_addresses,
        is_as=_has_addresses,
    ),
)
