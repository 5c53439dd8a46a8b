"""Reads one interface of the kernel by its name, and the hardware behind it.

Every prepare and every plan needs one, so it uses plain rtnetlink: the same facts as a listing, in a fraction of the time. The cost does not grow
with the number of interfaces: addresses and routes are requested by the interface's index (NETLINK_GET_STRICT_CHK; an older kernel answers with all,
and the others are skipped here). Constants and layouts: linux/if_link.h, linux/if_addr.h, linux/rtnetlink.h. Raises OSError.

The hardware is the PCI function, the RDMA device, and what the kernel driver reports by ethtool. PCI facts come from /sys/bus/pci. Unlike
/sys/class/net, which shows the interfaces of the namespace in which sysfs was mounted, this tree is the machine's and the same from every network
namespace. RDMA devices come from /sys/class/infiniband/<device>/device and /sys/class/infiniband_verbs/uverbs<N>/ibdev. RDMA traffic bypasses the
kernel's queueing, so an RDMA device is only given with a whole interface.

The driver's name and bus address come from the ethtool ioctl, because ethtool netlink does not have them. Reading needs no privilege. Structures:
``ethtool_drvinfo`` and ``ethtool_link_settings`` of linux/ethtool.h.
"""

import ctypes
import dataclasses
import errno
import fcntl
import pathlib
import re
import socket
import struct
from collections.abc import Iterator

from drakit.core import edits
from drakit.devices.nic import pod_interfaces, port
from drakit.devices.nic.netlink import rtnetlink
from drakit.devices.nic.shaping import ifb_links, parts, tc_messages

DEVICES = pathlib.Path("/sys/bus/pci/devices")
CLASSES = pathlib.Path("/sys/class")
NODES = "/dev/infiniband"
_SIOCETHTOOL = 0x8946
_GDRVINFO = 0x00000003
_GLINKSETTINGS = 0x0000004C
_DRVINFO = struct.Struct("=I32s32s32s32s32s12s5I")
_SETTINGS_BYTES = 48
_SPEED_AT = 4
_WORDS_AT = 15
_NO_SPEED = frozenset({0, 0xFFFF, 0xFFFFFFFF})
_MEGA = 10**6
_BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NOT_REPORTED = frozenset({errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL, errno.EBUSY, errno.ENETDOWN, errno.EIO, errno.EPERM})
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def pci_function(bus_id: str, devices: pathlib.Path = DEVICES, classes: pathlib.Path = CLASSES) -> port.PciFunction:
    """Return the function at ``dddd:bb:dd.f``; facts that sysfs does not have stay unknown."""
    folder = devices / bus_id
    node = _number(folder / "numa_node")
    parent = folder / "physfn"
    return port.PciFunction(
        bus_id=bus_id,
        root=next((part for part in folder.resolve().parts if _ROOT.fullmatch(part)), ""),
        numa_node=None if node is None or node < 0 else node,
        physical_function=parent.resolve().name if parent.exists() else "",
        virtual_functions=_number(folder / "sriov_totalvfs") or 0,
        function_number=_function_number(parent, bus_id),
        vendor=_text(folder / "vendor").removeprefix("0x"),
        rdma_device=rdma_device_of(bus_id, classes),
    )


def _function_number(parent: pathlib.Path, bus_id: str) -> int | None:
    """Return the number of a virtual function: the N of its parent's link ``virtfnN`` to it."""
    links = parent.glob("virtfn*") if parent.exists() else ()
    numbers = (link.name.removeprefix("virtfn") for link in links if link.resolve().name == bus_id)
    return next((int(number) for number in numbers if number.isdecimal()), None)


def _text(file: pathlib.Path) -> str:
    try:
        return file.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def _number(file: pathlib.Path) -> int | None:
    try:
        return int(file.read_text("ascii"))
    except (OSError, ValueError):
        return None


def rdma_device_of(bus_id: str, classes: pathlib.Path = CLASSES) -> str:
    """Return the name of the RDMA device of a PCI function (``mlx5_0``); empty where it has none."""
    found = (entry.name for entry in _entries(classes / "infiniband") if (entry / "device").resolve().name == bus_id)
    return next(found, "")


def rdma_nodes_of(device: str, classes: pathlib.Path = CLASSES) -> tuple[edits.DeviceNode, ...]:
    """Return the nodes of an RDMA device: its uverbs, and the connection manager that all share."""
    if not device:
        return ()
    verbs = sorted(entry.name for entry in _entries(classes / "infiniband_verbs") if _text(entry / "ibdev") == device)
    return tuple(edits.DeviceNode(path=f"{NODES}/{name}", permissions="rw") for name in (*verbs, "rdma_cm")) if verbs else ()


def _entries(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    if folder.is_dir():
        yield from sorted(folder.iterdir())


@dataclasses.dataclass(frozen=True, kw_only=True)
class EthtoolReport:
    """``driver`` is the kernel driver's name, ``bus_id`` a PCI address, ``speed`` the link's in bits per second; empty or None where not reported."""

    driver: str = ""
    bus_id: str = ""
    speed: int | None = None


def ethtool(sock: socket.socket, name: str) -> EthtoolReport:
    """Return what the interface's driver reports, empty where it reports nothing or the interface is gone. Raises OSError for other failures."""
    drvinfo = _call(sock, name, struct.pack("=I", _GDRVINFO).ljust(_DRVINFO.size, b"\0"))
    driver, bus_id = "", ""
    if drvinfo is not None:
        fields = _DRVINFO.unpack(drvinfo)
        driver, bus_id = _c_text(fields[1]), _c_text(fields[4]).lower()
    return EthtoolReport(driver=driver, bus_id=bus_id if _BDF.fullmatch(bus_id) else "", speed=_speed(sock, name))


def _speed(sock: socket.socket, name: str) -> int | None:
    """Return the link speed. The first call has no room for mode masks; its answer is minus the number of 32-bit words of each of the three masks."""
    first = _call(sock, name, _settings(0))
    if first is None:
        return None
    words = -struct.unpack_from("=b", first, _WORDS_AT)[0]
    answer = _call(sock, name, _settings(words)) if words > 0 else None
    if answer is None:
        return None
    speed: int = struct.unpack_from("=I", answer, _SPEED_AT)[0]
    return None if speed in _NO_SPEED else speed * _MEGA


def _settings(words: int) -> bytes:
    head = bytearray(_SETTINGS_BYTES + 3 * 4 * words)
    struct.pack_into("=I", head, 0, _GLINKSETTINGS)
    struct.pack_into("=b", head, _WORDS_AT, words)
    return bytes(head)


def _call(sock: socket.socket, name: str, request: bytes) -> bytes | None:
    """Make one ioctl; None where the driver does not report."""
    buffer = ctypes.create_string_buffer(request, len(request))
    ifreq = struct.pack("16sP16x", name.encode(errors="surrogateescape"), ctypes.addressof(buffer))
    try:
        fcntl.ioctl(sock.fileno(), _SIOCETHTOOL, ifreq)
    except OSError as error:
        if error.errno in _NOT_REPORTED:
            return None
        raise
    return buffer.raw


def _c_text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="replace")


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
    """Return the interface of exactly this name; None also where the kernel knows it by this name only as an alternative one.

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
    report = ethtool(plain, name)
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
        pci=pci_function(report.bus_id) if report.bus_id else None,
        master=_index(attrs, _MASTER),
        lower=None if kind in pod_interfaces.PAIRS or _OTHER_NAMESPACE in attrs else _index(attrs, _LOWER),
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
    """Return each alternative name is an attribute of one kind, so they are walked through rather than looked up."""
    return (rtnetlink.as_text(content) for kind, content in rtnetlink.walk(properties) if kind == _ALTERNATIVE_NAME)


def _state(number: int) -> str:
    return _STATES[number] if number < len(_STATES) else "unknown"


def _index(attrs: rtnetlink.Attributes, kind: int) -> int | None:
    return rtnetlink.as_number(attrs[kind]) or None if kind in attrs else None


def _is_addressed(route: rtnetlink.Socket, index: int) -> bool:
    """Return whether it has an address of global scope."""
    found = (_IFADDR.unpack_from(answer) for answer in route.dump(_GETADDR, _IFADDR.pack(0, 0, 0, 0, index)))
    return any(owner == index and scope < SCOPE_LINK for _, _, _, scope, owner in found)


def _is_uplink(route: rtnetlink.Socket, index: int) -> bool:
    """Return whether a default route of any table and metric leaves by it; a spare uplink is an uplink too."""
    asked = (
        _RTMSG.pack(family, 0, 0, 0, 0, 0, 0, 0, 0) + rtnetlink.number(_RTA_OIF, index) for family in (socket.AF_INET, socket.AF_INET6)
    )
    return any(index in _default_by(answer) for body in asked for answer in route.dump(_GETROUTE, body))


def _default_by(answer: bytes) -> list[int]:
    """Return the interfaces by which a route leaves, where it is a default one."""
    fields = _RTMSG.unpack_from(answer)
    if fields[1] or fields[7] != UNICAST:
        return []
    attrs = rtnetlink.attributes(answer[_RTMSG.size :])
    single = [rtnetlink.as_number(attrs[_RTA_OIF])] if _RTA_OIF in attrs else []
    return [*single, *(ifindex for ifindex, *_ in rtnetlink.hops(attrs.get(_RTA_MULTIPATH, b"")))]
