"""The hardware behind an interface: its PCI function, and what its kernel driver reports by ethtool.

PCI facts come from /sys/bus/pci. This tree is the same in every network namespace, unlike /sys/class/net, which shows the interfaces of the namespace
in which sysfs was mounted. ``passthrough.rdma_devices`` finds the function's RDMA device.

The driver's name and bus address come from the ethtool ioctl, because ethtool netlink does not have them. Reading needs no privilege. Structures:
``ethtool_drvinfo`` and ``ethtool_link_settings`` of linux/ethtool.h.
"""

import ctypes
import dataclasses
import errno
import fcntl
import pathlib
import socket
import struct
from collections.abc import Iterable, Mapping

from drakit import numa, pci
from drakit_nic import port

DEVICES = pathlib.Path("/sys/bus/pci/devices")
_SIOCETHTOOL = 0x8946
_GDRVINFO = 0x00000003
_GLINKSETTINGS = 0x0000004C
_DRVINFO = struct.Struct("=I32s32s32s32s32s12s5I")
_SETTINGS_BYTES = 48
_SPEED_AT = 4
_WORDS_AT = 15
_NO_SPEED = frozenset({0, 0xFFFF, 0xFFFFFFFF})
_BITS_PER_MEGABIT = 10**6
_NOT_REPORTED = frozenset({errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL, errno.EBUSY, errno.ENETDOWN, errno.EIO, errno.EPERM})


def pci_function(bus_id: str, devices: pathlib.Path = DEVICES) -> port.PciFunction:
    """Return the PCI function at ``dddd:bb:dd.f``, without its RDMA device. Facts that sysfs does not have stay unknown."""
    folder = devices / bus_id
    parent = folder / "physfn"
    return port.PciFunction(
        bus_id=bus_id,
        root=pci.root(folder) or "",
        numa_nodes=numa.of_device(folder),
        physical_function=parent.resolve().name if parent.exists() else "",
        virtual_functions=_read_number(folder / "sriov_totalvfs") or 0,
        function_number=_function_number(parent, bus_id),
        vendor=_read_text(folder / "vendor").removeprefix("0x"),
    )


def _function_number(parent: pathlib.Path, bus_id: str) -> int | None:
    """Return the number of a virtual function: the N of its parent's link ``virtfnN`` to it, None for another function."""
    links = parent.glob("virtfn*") if parent.exists() else ()
    numbers = (link.name.removeprefix("virtfn") for link in links if link.resolve().name == bus_id)
    return next((int(number) for number in numbers if number.isdecimal()), None)


def rdma_names(bus_id: str, devices: pathlib.Path = DEVICES) -> tuple[str, ...]:
    """Return the names of the RDMA devices at a PCI function, without those in other network namespaces."""
    folder = devices / bus_id / "infiniband"
    return tuple(sorted(entry.name for entry in folder.iterdir())) if folder.is_dir() else ()


def physical_functions(interfaces: Iterable[port.Interface]) -> Mapping[str, port.Interface]:
    """Return the interfaces of hardware by bus id, without virtual functions.

    The representors of a switchdev NIC, and the second port of some, have the bus id too; the physical function has the lowest index.
    """
    by_index = sorted(interfaces, key=lambda interface: interface.ifindex, reverse=True)
    return {interface.pci.bus_id: interface for interface in by_index if interface.pci and not interface.pci.physical_function}


def _read_text(file: pathlib.Path) -> str:
    try:
        return file.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def _read_number(file: pathlib.Path) -> int | None:
    try:
        return int(file.read_text("ascii"))
    except (OSError, ValueError):
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EthtoolReport:
    """The facts that an interface's kernel driver reports by ethtool; empty or None if it does not.

    ``driver`` is the driver's name, ``bus_id`` a PCI address, and ``speed`` the link's speed in bits per second.
    """

    driver: str = ""
    bus_id: str = ""
    speed: int | None = None


def ethtool(sock: socket.socket, name: str) -> EthtoolReport:
    """Return the report of the interface's driver, empty where it reports nothing or the interface is gone. Raises OSError for other failures."""
    drvinfo = _ioctl(sock, name, struct.pack("=I", _GDRVINFO).ljust(_DRVINFO.size, b"\0"))
    driver, bus_id = "", ""
    if drvinfo is not None:
        fields = _DRVINFO.unpack(drvinfo)
        driver, bus_id = _c_text(fields[1]), _c_text(fields[4]).lower()
    return EthtoolReport(driver=driver, bus_id=bus_id if pci.is_address(bus_id) else "", speed=_speed(sock, name))


def _speed(sock: socket.socket, name: str) -> int | None:
    """Return the link speed, None if it is unknown.

    The first call has no space for mode masks. Its answer is minus the number of 32-bit words of each of the three masks.
    """
    size_answer = _ioctl(sock, name, _settings_request(0))
    if size_answer is None:
        return None
    words = -struct.unpack_from("=b", size_answer, _WORDS_AT)[0]
    answer = _ioctl(sock, name, _settings_request(words)) if words > 0 else None
    if answer is None:
        return None
    speed: int = struct.unpack_from("=I", answer, _SPEED_AT)[0]
    return None if speed in _NO_SPEED else speed * _BITS_PER_MEGABIT


def _settings_request(words: int) -> bytes:
    request = bytearray(_SETTINGS_BYTES + 3 * 4 * words)
    struct.pack_into("=I", request, 0, _GLINKSETTINGS)
    struct.pack_into("=b", request, _WORDS_AT, words)
    return bytes(request)


def _ioctl(sock: socket.socket, name: str, request: bytes) -> bytes | None:
    """Make one ioctl and return its answer, None if the driver does not report. Raises OSError."""
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
