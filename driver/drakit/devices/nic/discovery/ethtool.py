"""What the driver of an interface says of itself, by the ethtool ioctl on a socket of the interface's namespace.

The ioctl and not ethtool netlink, because the driver's name and its bus address exist only there. Reading needs no privilege.
Structures: ``ethtool_drvinfo`` and ``ethtool_link_settings`` of linux/ethtool.h.
"""

import ctypes
import dataclasses
import errno
import fcntl
import re
import socket
import struct

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
_NOT_TOLD = frozenset({errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL, errno.EBUSY, errno.ENETDOWN, errno.EIO, errno.EPERM})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """``driver`` is the kernel driver's name, ``bus_id`` a PCI address, ``speed`` the link's in bits per second; empty or None: not told."""

    driver: str = ""
    bus_id: str = ""
    speed: int | None = None


def ask(sock: socket.socket, name: str) -> Report:
    """What the interface tells; an interface that tells nothing or has just gone gives an empty report. Raises OSError for what is unforeseen."""
    drvinfo = _call(sock, name, struct.pack("=I", _GDRVINFO).ljust(_DRVINFO.size, b"\0"))
    driver, bus_id = "", ""
    if drvinfo is not None:
        fields = _DRVINFO.unpack(drvinfo)
        driver, bus_id = _text(fields[1]), _text(fields[4]).lower()
    return Report(driver=driver, bus_id=bus_id if _BDF.fullmatch(bus_id) else "", speed=_speed(sock, name))


def _speed(sock: socket.socket, name: str) -> int | None:
    """Link speed. The first call, with no room for mode masks, answers minus the number of 32-bit words each of the three masks needs."""
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
    """One ioctl; None where the driver does not tell."""
    buffer = ctypes.create_string_buffer(request, len(request))
    ifreq = struct.pack("16sP16x", name.encode(errors="surrogateescape"), ctypes.addressof(buffer))
    try:
        fcntl.ioctl(sock.fileno(), _SIOCETHTOOL, ifreq)
    except OSError as error:
        if error.errno in _NOT_TOLD:
            return None
        raise
    return buffer.raw


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="replace")
