"""SR-IOV virtual functions, as a protocol and as rtnetlink messages: the settings that a physical function enforces on them.

The parent enforces them in hardware, outside of the pod. Rates in messages are whole Mbit/s. Drivers differ in what they support, so each setting
that differs is sent in a request of its own. A refusal then names the setting, and no driver is asked for one that nobody changes. Many drivers take
no minimum rate. ``takes_min_rate`` tries it once for each parent. Layouts: linux/if_link.h.
"""

import dataclasses
import errno
import os
import pathlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple, Protocol

import drakit
from drakit import wire
from drakit_nic import config
from drakit_nic.netlink import link_requests, rtnetlink

NULL_MAC = "00:00:00:00:00:00"
"""As a setting: the parent sets no address, and the virtual function may choose its own."""

_IFLA_EXT_MASK, _IFLA_VFINFO_LIST = 29, 22
_WITH_FUNCTIONS = rtnetlink.number(_IFLA_EXT_MASK, 1)
_VF_INFO = 1
_VF_MAC, _VF_VLAN, _VF_SPOOF_CHECK, _VF_LINK_STATE, _VF_RATE, _VF_TRUST = 1, 2, 4, 5, 6, 9
_MAC, _PAIR, _TRIPLE = struct.Struct("=I32s"), struct.Struct("=II"), struct.Struct("=III")
_MAC_BYTES = 6
_BITS_PER_MEGABIT = 10**6
_FORMAT = wire.Format(ignore_unknown=True)
_SWITCH = wire.Field(converter=wire.Converter({"on": True, "off": False}.get, {True: "on", False: "off"}.get))
"""On or off in records, because the format leaves out what is False."""
_LINK_STATES = (config.LinkState.AUTO, config.LinkState.ENABLE, config.LinkState.DISABLE)
_ENOTSUPP = 524
_NOT_TAKEN = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, errno.ERANGE, _ENOTSUPP})
"""What drivers answer to a minimum rate that they do not take. The kernel's own ENOTSUPP reaches programs from some."""
_RATE = "rate"
_PCI_DEVICES = pathlib.Path("/sys/bus/pci/devices")
_FIXES: Mapping[str, str] = {
    "mac": "choose another NicConfig.mac in the DeviceClass",
    "vlan": "choose another NicConfig.vlan in the DeviceClass, or remove it",
    "spoofCheck": "remove NicConfig.spoofCheck from the DeviceClass, or use a NIC whose driver supports it",
    "trust": "remove NicConfig.trust from the DeviceClass, or use a NIC whose driver supports it",
    "linkState": "remove NicConfig.linkState from the DeviceClass, or use a NIC whose driver supports it",
    _RATE: "the parent must have a link that is at least as fast as the claim's bandwidth and the class's ceil",
}
"""The fix by setting."""
_NOT_WRITABLE = "give the driver's container a writable /sys/devices, as the Helm chart does where settings.nic.sriov is set"
_NO_ROOM = "the machine has no bus numbers or memory for that many: lower vfs, or turn SR-IOV on in the firmware and boot with pci=realloc"
_NO_SUPPORT = "use the NIC's own kernel driver, and one that creates functions by sriov_numvfs"
_COUNT_FIX = "the kernel's log may say more (dmesg)"
_COUNT_FIXES: Mapping[int, str] = {
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), _NOT_WRITABLE),
    **dict.fromkeys((errno.ENOMEM, errno.ENOSPC, errno.EIO), _NO_ROOM),
    **dict.fromkeys((errno.ENOENT, errno.ENOSYS, errno.EOPNOTSUPP), _NO_SUPPORT),
    errno.EBUSY: "another program has just created functions; let only one do it",
    errno.ERANGE: "lower vfs",
}
"""The fix by what the kernel answers to a number of functions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Function:
    """The address of a virtual function: its parent's interface and its number there."""

    parent: str
    number: int

    def __str__(self) -> str:
        return f"virtual function {self.number} of {self.parent}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BusFunction:
    """A virtual function on the PCI bus: its address, and the driver that it is bound to, empty without one."""

    bus_id: str
    driver: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that the parent enforces. ``vlan`` 0 is none. Rates are in bits per second, 0 for no limit or guarantee.

    The last three are None where the parent's driver does not report them, and where they are not to be changed.
    """

    mac: str
    vlan: int = 0
    quality: int = 0
    min_rate: int = 0
    max_rate: int = 0
    spoof_check: Annotated[bool | None, _SWITCH] = None
    trust: Annotated[bool | None, _SWITCH] = None
    link_state: config.LinkState | None = None


class Functions(Protocol):
    """The part of the port for physical functions."""

    def function(self, of: Function) -> Settings | None:
        """Return the settings of a virtual function, None if it or its parent does not exist. Raises HardwareError."""

    def set_function(self, of: Function, wanted: Settings) -> None:
        """Change the settings of a virtual function that differ. The call is idempotent.

        A driver that takes no minimum rate gets the maximum alone. Raises HardwareError, with the function, the setting and the fix where the driver
        refuses another setting. Settings before it are then changed already.
        """

    def guarantees(self, parent: str) -> bool:
        """Return whether a virtual function of a physical function has a minimum rate now. Raises HardwareError."""

    def functions_of(self, bus_id: str) -> Sequence[BusFunction]:
        """Return the virtual functions of the physical function at a PCI address, by number. Raises HardwareError."""

    def set_function_count(self, bus_id: str, count: int) -> None:
        """Create this many virtual functions of the physical function at a PCI address, or remove all with 0 (sriov_numvfs).

        The kernel creates them only where there are none. Raises HardwareError with the fix.
        """


def wanted(former: Settings, chosen: config.NicConfig, *, min_rate: int, max_rate: int) -> Settings:
    """Return the settings for a claim. Others keep the former value. Rates are whole Mbit/s, rounded down, and the maximum at least one."""
    return dataclasses.replace(
        former,
        mac=chosen.mac or former.mac,
        vlan=former.vlan if chosen.vlan is None else chosen.vlan,
        quality=former.quality if chosen.vlan is None else 0,
        min_rate=min_rate // _BITS_PER_MEGABIT * _BITS_PER_MEGABIT,
        max_rate=max(max_rate // _BITS_PER_MEGABIT, 1) * _BITS_PER_MEGABIT,
        spoof_check=former.spoof_check if chosen.spoof_check is None else chosen.spoof_check,
        trust=former.trust if chosen.trust is None else chosen.trust,
        link_state=former.link_state if chosen.link_state is None else chosen.link_state,
    )


def to_record(settings: Settings) -> drakit.Record:
    """Return settings as the journal stores them."""
    return _FORMAT.encode(settings)


def differing(present: Settings, wanted: Settings) -> Sequence[str]:
    """Return the names of the wanted settings that a function does not have, as in the fields of NicConfig, and ``rate``.

    A function without a minimum rate has a driver that takes none.
    """
    taken = wanted if present.min_rate else dataclasses.replace(wanted, min_rate=0)
    return [request.setting for request in _requests(0, present, taken)]


class KernelFunctions:
    """The physical functions of a namespace, given as in ``kernel_pods.KernelPods``."""

    _namespace: str | int | None
    _after_effect: Callable[[], None]

    def function(self, of: Function) -> Settings | None:
        with rtnetlink.failing_as("function"), rtnetlink.Socket.open(self._namespace) as sock:
            return read(sock, of.parent).get(of.number)

    def set_function(self, of: Function, wanted: Settings) -> None:
        with rtnetlink.failing_as("set_function"), rtnetlink.Socket.open(self._namespace, self._after_effect) as sock:
            write(sock, of, wanted)

    def guarantees(self, parent: str) -> bool:
        with rtnetlink.failing_as("guarantees"), rtnetlink.Socket.open(self._namespace) as sock:
            return any(settings.min_rate for settings in read(sock, parent).values())

    def functions_of(self, bus_id: str) -> Sequence[BusFunction]:
        with rtnetlink.failing_as("functions_of"):
            return bus_functions(bus_id)

    def set_function_count(self, bus_id: str, count: int) -> None:
        with rtnetlink.failing_as("set_function_count"):
            write_count(bus_id, count)
        self._after_effect()


def bus_functions(bus_id: str, devices: pathlib.Path = _PCI_DEVICES) -> Sequence[BusFunction]:
    """Return the virtual functions that sysfs links to a physical function, by number. Raises OSError."""
    links = [link for link in (devices / bus_id).glob("virtfn*") if link.name.removeprefix("virtfn").isdecimal()]
    links.sort(key=lambda link: int(link.name.removeprefix("virtfn")))
    return tuple(BusFunction(bus_id=link.resolve().name, driver=_driver_of(link)) for link in links)


def _driver_of(folder: pathlib.Path) -> str:
    driver = folder / "driver"
    return driver.resolve().name if driver.exists() else ""


def write_count(bus_id: str, count: int, devices: pathlib.Path = _PCI_DEVICES) -> None:
    """Write the number of virtual functions of a physical function. Raises OSError, with the fix."""
    file = devices / bus_id / "sriov_numvfs"
    try:
        # Opened for writing only, because a file that is not there must not be created.
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"%d" % count)
        finally:
            os.close(descriptor)
    except OSError as error:
        reason = f"the kernel refuses {count} in {file} ({error.strerror or error})"
        raise OSError(error.errno, f"{reason}; {_COUNT_FIXES.get(error.errno or 0, _COUNT_FIX)}") from error


def read(sock: rtnetlink.Socket, parent: str) -> Mapping[int, Settings]:
    """Return the virtual functions of a parent by number, none without the parent. Raises OSError."""
    link = link_requests.find(sock, parent, _WITH_FUNCTIONS)
    return {} if link is None else dict(parse(link.attributes.get(_IFLA_VFINFO_LIST, b"")))


def write(sock: rtnetlink.Socket, of: Function, wanted: Settings) -> None:
    """Change the settings of a virtual function that differ. Raises OSError, which names the function, the setting and the fix."""
    present = read(sock, of.parent).get(of.number)
    if present is None:
        raise OSError(errno.ENODEV, f"there is no {of}; sriov_numvfs of {of.parent} may have been changed")
    parent = link_requests.existing(sock, of.parent)
    for request in _requests(of.number, present, wanted):
        try:
            _send_or_without_minimum(sock, parent.ifindex, request)
        except OSError as error:
            reason = f"the driver refuses {request} for {of} ({error.strerror or error})"
            raise OSError(error.errno, f"{reason}; {_FIXES[request.setting]}") from error


class _Request(NamedTuple):
    """The request for one setting, with its wanted value as text. ``without_minimum`` is that of a maximum rate alone, if there is a minimum too."""

    setting: str
    value: str
    attribute: bytes
    without_minimum: bytes = b""

    def __str__(self) -> str:
        return f"{self.setting} {self.value}"


def _requests(number: int, present: Settings, wanted: Settings) -> Iterator[_Request]:
    """Yield a request for each wanted setting that differs."""
    if wanted.mac != present.mac:
        mac = bytes.fromhex(wanted.mac.replace(":", ""))
        yield _Request("mac", wanted.mac, rtnetlink.pack(_VF_MAC, _MAC.pack(number, mac)))
    if (wanted.vlan, wanted.quality) != (present.vlan, present.quality):
        yield _Request("vlan", str(wanted.vlan), rtnetlink.pack(_VF_VLAN, _TRIPLE.pack(number, wanted.vlan, wanted.quality)))
    for setting, kind, value, former in (
        ("spoofCheck", _VF_SPOOF_CHECK, wanted.spoof_check, present.spoof_check),
        ("trust", _VF_TRUST, wanted.trust, present.trust),
    ):
        if value is not None and value != former:
            yield _Request(setting, str(value).lower(), rtnetlink.pack(kind, _PAIR.pack(number, value)))
    if wanted.link_state is not None and wanted.link_state is not present.link_state:
        state = _LINK_STATES.index(wanted.link_state)
        yield _Request("linkState", wanted.link_state.value, rtnetlink.pack(_VF_LINK_STATE, _PAIR.pack(number, state)))
    if (wanted.min_rate, wanted.max_rate) != (present.min_rate, present.max_rate):
        least, most = wanted.min_rate // _BITS_PER_MEGABIT, wanted.max_rate // _BITS_PER_MEGABIT
        yield _Request(_RATE, f"{least} to {most} Mbit/s", _rate(number, least, most), _rate(number, 0, most) if least else b"")


def _rate(number: int, least: int, most: int) -> bytes:
    return rtnetlink.pack(_VF_RATE, _TRIPLE.pack(number, least, most))


def _send_or_without_minimum(sock: rtnetlink.Socket, ifindex: int, request: _Request) -> None:
    """Send a request; if the driver does not take a minimum rate, send the maximum alone."""
    try:
        _send(sock, ifindex, request.attribute)
    except OSError as error:
        if not request.without_minimum or error.errno not in _NOT_TAKEN:
            raise
        _send(sock, ifindex, request.without_minimum)


def _send(sock: rtnetlink.Socket, ifindex: int, attribute: bytes) -> None:
    link_requests.set_attributes(sock, ifindex, rtnetlink.pack(_IFLA_VFINFO_LIST, rtnetlink.pack(_VF_INFO, attribute)))


def parse(listed: bytes) -> tuple[tuple[int, Settings], ...]:
    """Return the functions of IFLA_VFINFO_LIST with their numbers. The list has several attributes of one kind."""
    return tuple(_parse_function(rtnetlink.attributes(content)) for _, content in rtnetlink.walk(listed) if content)


def _parse_function(attrs: rtnetlink.Attributes) -> tuple[int, Settings]:
    number, mac = _MAC.unpack_from(attrs[_VF_MAC])
    _, vlan, quality = _TRIPLE.unpack_from(attrs.get(_VF_VLAN, bytes(_TRIPLE.size)))
    _, min_rate, max_rate = _TRIPLE.unpack_from(attrs.get(_VF_RATE, bytes(_TRIPLE.size)))
    state = _setting(attrs, _VF_LINK_STATE)
    return number, Settings(
        mac=mac[:_MAC_BYTES].hex(":"),
        vlan=vlan,
        quality=quality,
        min_rate=min_rate * _BITS_PER_MEGABIT,
        max_rate=max_rate * _BITS_PER_MEGABIT,
        spoof_check=_flag(attrs, _VF_SPOOF_CHECK),
        trust=_flag(attrs, _VF_TRUST),
        link_state=_LINK_STATES[state] if state is not None and state < len(_LINK_STATES) else None,
    )


def _setting(attrs: rtnetlink.Attributes, kind: int) -> int | None:
    value: int | None = _PAIR.unpack_from(attrs[kind])[1] if kind in attrs else None
    return value


def _flag(attrs: rtnetlink.Attributes, kind: int) -> bool | None:
    """Return a setting that is on or off. A driver that has no such setting leaves all bits set."""
    value = _setting(attrs, kind)
    return bool(value) if value in {0, 1} else None
