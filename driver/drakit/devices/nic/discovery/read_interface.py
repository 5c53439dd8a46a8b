"""Reads one interface of the kernel by its name through plain rtnetlink: the same facts as a listing, in a fraction of the time.

Every prepare and every plan needs one, so the cost does not grow with the number of interfaces: addresses and routes are requested by the interface's
index (NETLINK_GET_STRICT_CHK; an older kernel answers with all, and the others are skipped here). Constants and layouts: linux/if_link.h,
linux/if_addr.h, linux/rtnetlink.h. Raises OSError.
"""

import errno
import socket
import struct
from collections.abc import Iterator

from drakit.devices.nic import port
from drakit.devices.nic.discovery import hardware
from drakit.devices.nic.netlink import rtnetlink
from drakit.devices.nic.passthrough import identity
from drakit.devices.nic.shaping import ifb_links, parts, tc_messages

LOOPBACK_FLAG = 0x8
UNICAST = 1
SCOPE_LINK = 253
ENCAPSULATIONS = {1: port.ETHERNET, 772: port.LOOPBACK, 32: "infiniband", 65534: "none", 512: "ppp", 768: "ipip", 776: "sit"}

_GETLINK, _GETADDR, _GETROUTE = 18, 22, 26
_IFINFO, _IFADDR, _RTMSG = struct.Struct("=BxHiII"), struct.Struct("=BBBBI"), struct.Struct("=BBBBBBBBI")
_ADDRESS, _NAME, _MTU, _LOWER, _MASTER, _STATE, _LINKINFO, _CARRIER, _OTHER_NAMESPACE, _PROPERTIES = 1, 3, 4, 5, 10, 16, 18, 33, 37, 52
_INFO_KIND, _ALTERNATIVE_NAME = 1, 53
_RTA_OIF, _RTA_MULTIPATH = 4, 9
_STATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")


def read(route: rtnetlink.Socket, plain: socket.socket, name: str, *, owner: str = "") -> port.Interface | None:
    """The interface of exactly this name; None also where the kernel knows it by this name only as an alternative one.

    ``owner`` is the name of the driver that asks; one without a name knows no other.
    """
    try:
        answers = route.ask(_GETLINK, _IFINFO.pack(0, 0, 0, 0, 0) + rtnetlink.text(_NAME, name))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise
    found = (_interface(route, plain, answer, owner) for answer in answers)
    return next((interface for interface in found if interface.name == name), None)


def _interface(route: rtnetlink.Socket, plain: socket.socket, answer: bytes, owner: str) -> port.Interface:
    _, layer, index, flags, _ = _IFINFO.unpack_from(answer)
    attrs = rtnetlink.attributes(answer[_IFINFO.size :])
    name, kind = rtnetlink.as_text(attrs[_NAME]), _kind(attrs, flags)
    report = hardware.ethtool(plain, name)
    return port.Interface(
        ifindex=index,
        name=name,
        altnames=tuple(_alternative_names(attrs.get(_PROPERTIES, b""))),
        mac=attrs.get(_ADDRESS, b"").hex(":"),
        mtu=rtnetlink.as_number(attrs[_MTU]),
        kind=kind,
        encapsulation=ENCAPSULATIONS.get(layer, f"type-{layer}"),
        speed=report.speed,
        carrier=bool(attrs.get(_CARRIER, b"\0")[0]),
        state=_state(attrs.get(_STATE, b"\0")[0]),
        driver=report.driver,
        pci=hardware.pci_function(report.bus_id) if report.bus_id else None,
        master=_index(attrs, _MASTER),
        lower=None if kind in identity.PAIRS or _OTHER_NAMESPACE in attrs else _index(attrs, _LOWER),
        default_route=_is_uplink(route, index),
        addressed=_is_addressed(route, index),
        queueing=parts.chosen_by_others(tc_messages.qdisc(route, index, tc_messages.AT_ROOT)),
        sharer=parts.other_owner(ifb_links.find(route, index), owner) if owner else "",
    )


def _kind(attrs: rtnetlink.Attributes, flags: int) -> str:
    if flags & LOOPBACK_FLAG:
        return port.LOOPBACK
    return rtnetlink.as_text(rtnetlink.attributes(attrs.get(_LINKINFO, b"")).get(_INFO_KIND, b"")) or port.PHYSICAL


def _alternative_names(properties: bytes) -> Iterator[str]:
    """Each alternative name is an attribute of one kind, so they are walked through rather than looked up."""
    return (rtnetlink.as_text(content) for kind, content in rtnetlink.walk(properties) if kind == _ALTERNATIVE_NAME)


def _state(number: int) -> str:
    return _STATES[number] if number < len(_STATES) else "unknown"


def _index(attrs: rtnetlink.Attributes, kind: int) -> int | None:
    return rtnetlink.as_number(attrs[kind]) or None if kind in attrs else None


def _is_addressed(route: rtnetlink.Socket, index: int) -> bool:
    """Whether it has an address of global scope."""
    found = (_IFADDR.unpack_from(answer) for answer in route.dump(_GETADDR, _IFADDR.pack(0, 0, 0, 0, index)))
    return any(owner == index and scope < SCOPE_LINK for _, _, _, scope, owner in found)


def _is_uplink(route: rtnetlink.Socket, index: int) -> bool:
    """Whether a default route of any table and metric leaves by it; a spare uplink is an uplink too."""
    asked = (
        _RTMSG.pack(family, 0, 0, 0, 0, 0, 0, 0, 0) + rtnetlink.number(_RTA_OIF, index) for family in (socket.AF_INET, socket.AF_INET6)
    )
    return any(index in _default_by(answer) for body in asked for answer in route.dump(_GETROUTE, body))


def _default_by(answer: bytes) -> list[int]:
    """The interfaces by which a route leaves, where it is a default one."""
    fields = _RTMSG.unpack_from(answer)
    if fields[1] or fields[7] != UNICAST:
        return []
    attrs = rtnetlink.attributes(answer[_RTMSG.size :])
    single = [rtnetlink.as_number(attrs[_RTA_OIF])] if _RTA_OIF in attrs else []
    return [*single, *(ifindex for ifindex, *_ in rtnetlink.hops(attrs.get(_RTA_MULTIPATH, b"")))]
