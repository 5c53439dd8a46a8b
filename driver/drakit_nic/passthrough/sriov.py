"""SR-IOV virtual functions, as a protocol and as rtnetlink messages: the settings that a physical function enforces on them.

The parent enforces address, VLAN and egress rates in hardware, outside of the pod. Rates in messages are whole Mbit/s. The messages follow
linux/if_link.h and have not been tested on hardware; the mock machine stores the same values.
"""

import dataclasses
import struct
from collections.abc import Callable, Mapping
from typing import Protocol

import drakit
from drakit import wire
from drakit_nic.netlink import link_requests, rtnetlink

_IFLA_EXT_MASK, _IFLA_VFINFO_LIST = 29, 22
_WITH_FUNCTIONS = rtnetlink.number(_IFLA_EXT_MASK, 1)
_VF_INFO = 1
_VF_MAC, _VF_VLAN, _VF_RATE = 1, 2, 6
_MAC = struct.Struct("=I32s")
_TRIPLE = struct.Struct("=III")
_MAC_BYTES = 6
_BITS_PER_MEGABIT = 10**6
_FORMAT = wire.Format(ignore_unknown=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Function:
    """The address of a virtual function: its parent's interface and its number there."""

    parent: str
    number: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that the parent enforces. ``vlan`` 0 is none. Rates are in bits per second, 0 for no limit or guarantee."""

    mac: str
    vlan: int = 0
    quality: int = 0
    min_rate: int = 0
    max_rate: int = 0


class Functions(Protocol):
    """The part of the port for physical functions."""

    def function(self, of: Function) -> Settings | None:
        """Return the settings of a virtual function, None if it does not exist. Raises HardwareError."""

    def set_function(self, of: Function, wanted: Settings) -> None:
        """Set all settings of a virtual function. The call is idempotent. Raises HardwareError, also where the driver supports no rates."""


def wanted(former: Settings, *, mac: str, vlan: int | None, min_rate: int, max_rate: int) -> Settings:
    """Return the settings for a claim. A missing address or VLAN keeps the former one. Rates are whole Mbit/s, and the maximum at least one."""
    return Settings(
        mac=mac or former.mac,
        vlan=former.vlan if vlan is None else vlan,
        quality=former.quality if vlan is None else 0,
        min_rate=min_rate // _BITS_PER_MEGABIT * _BITS_PER_MEGABIT,
        max_rate=max(max_rate // _BITS_PER_MEGABIT, 1) * _BITS_PER_MEGABIT,
    )


def to_record(settings: Settings) -> drakit.Record:
    """Return settings as the journal stores them."""
    return _FORMAT.encode(settings)


class KernelFunctions:
    """The physical functions of a namespace, given as in ``kernel_pods.KernelPods``."""

    _namespace: str | int | None
    _after_effect: Callable[[], None]

    def function(self, of: Function) -> Settings | None:
        with rtnetlink.failing_as("function"), rtnetlink.Socket.open(self._namespace) as sock:
            parent = link_requests.find(sock, of.parent, _WITH_FUNCTIONS)
            return None if parent is None else _functions_of(parent).get(of.number)

    def set_function(self, of: Function, wanted: Settings) -> None:
        with rtnetlink.failing_as("set_function"), rtnetlink.Socket.open(self._namespace, self._after_effect) as sock:
            parent = link_requests.existing(sock, of.parent, _WITH_FUNCTIONS)
            if _functions_of(parent).get(of.number) != wanted:
                link_requests.set_attributes(sock, parent.ifindex, rtnetlink.pack(_IFLA_VFINFO_LIST, encode(of.number, wanted)))


def _functions_of(parent: link_requests.Link) -> Mapping[int, Settings]:
    return dict(parse(parent.attributes.get(_IFLA_VFINFO_LIST, b"")))


def parse(listed: bytes) -> tuple[tuple[int, Settings], ...]:
    """Return the functions of IFLA_VFINFO_LIST with their numbers. The list has several attributes of one kind."""
    return tuple(_parse_function(rtnetlink.attributes(content)) for _, content in rtnetlink.walk(listed) if content)


def encode(number: int, settings: Settings) -> bytes:
    """Return one function as IFLA_VF_INFO."""
    mac = bytes.fromhex(settings.mac.replace(":", ""))
    content = rtnetlink.pack(_VF_MAC, _MAC.pack(number, mac))
    content += rtnetlink.pack(_VF_VLAN, _TRIPLE.pack(number, settings.vlan, settings.quality))
    content += rtnetlink.pack(
        _VF_RATE, _TRIPLE.pack(number, settings.min_rate // _BITS_PER_MEGABIT, settings.max_rate // _BITS_PER_MEGABIT)
    )
    return rtnetlink.pack(_VF_INFO, content)


def _parse_function(attrs: rtnetlink.Attributes) -> tuple[int, Settings]:
    number, mac = _MAC.unpack_from(attrs[_VF_MAC])
    _, vlan, quality = _TRIPLE.unpack_from(attrs.get(_VF_VLAN, bytes(_TRIPLE.size)))
    _, min_rate, max_rate = _TRIPLE.unpack_from(attrs.get(_VF_RATE, bytes(_TRIPLE.size)))
    return number, Settings(
        mac=mac[:_MAC_BYTES].hex(":"),
        vlan=vlan,
        quality=quality,
        min_rate=min_rate * _BITS_PER_MEGABIT,
        max_rate=max_rate * _BITS_PER_MEGABIT,
    )
