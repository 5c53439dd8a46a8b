"""The kernel's settings of one interface in a pod (``net.ipv4.conf`` and ``net.ipv6.conf``): the driver's choice for each, and the allowed values.

A new network namespace inherits these settings from the host or from what the container runtime wrote into ``default``. The driver sets each of them
on a claim's interface instead, before the link goes up. The rule of the choice: packets from the wire never configure the pod, and the interface
neither answers nor forwards for other interfaces. A DeviceClass may choose other values.

Names are as under /proc/sys/net without ``conf/<interface>``. Source: Documentation/networking/ip-sysctl.rst of the kernel.
"""

import dataclasses
import types
from collections.abc import Mapping

_SWITCH = frozenset({0, 1})
_LEVELS = frozenset({0, 1, 2})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sysctl:
    """A setting: the driver's choice, and the values that a DeviceClass may choose.

    Of one ``raised_by_all`` the kernel uses the larger value of the interface and of ``all`` (include/linux/inetdevice.h, net/ipv6).
    """

    chosen: int
    values: frozenset[int] = _SWITCH
    raised_by_all: bool = False


TABLE: Mapping[str, Sysctl] = types.MappingProxyType(
    {
        "ipv4.accept_local": Sysctl(chosen=0, raised_by_all=True),
        "ipv4.accept_redirects": Sysctl(chosen=0, raised_by_all=True),
        "ipv4.accept_source_route": Sysctl(chosen=0),
        "ipv4.arp_accept": Sysctl(chosen=0, values=_LEVELS, raised_by_all=True),
        "ipv4.arp_announce": Sysctl(chosen=2, values=_LEVELS, raised_by_all=True),
        "ipv4.arp_filter": Sysctl(chosen=0, raised_by_all=True),
        "ipv4.arp_ignore": Sysctl(chosen=1, values=frozenset({0, 1, 2, 3, 8}), raised_by_all=True),
        "ipv4.arp_notify": Sysctl(chosen=1, raised_by_all=True),
        "ipv4.proxy_arp": Sysctl(chosen=0, raised_by_all=True),
        "ipv4.route_localnet": Sysctl(chosen=0, raised_by_all=True),
        "ipv4.rp_filter": Sysctl(chosen=2, values=_LEVELS, raised_by_all=True),
        "ipv4.secure_redirects": Sysctl(chosen=1, raised_by_all=True),
        "ipv4.send_redirects": Sysctl(chosen=0, raised_by_all=True),
        "ipv6.accept_dad": Sysctl(chosen=1, values=_LEVELS, raised_by_all=True),
        "ipv6.accept_ra": Sysctl(chosen=0, values=_LEVELS),
        "ipv6.accept_ra_defrtr": Sysctl(chosen=1),
        "ipv6.accept_ra_pinfo": Sysctl(chosen=1),
        "ipv6.accept_redirects": Sysctl(chosen=0),
        "ipv6.accept_source_route": Sysctl(chosen=0, values=frozenset({-1, 0, 1})),
        "ipv6.addr_gen_mode": Sysctl(chosen=0, values=frozenset({0, 1, 3})),
        "ipv6.autoconf": Sysctl(chosen=0),
        "ipv6.dad_transmits": Sysctl(chosen=1, values=frozenset({0, 1, 2, 3})),
        "ipv6.disable_ipv6": Sysctl(chosen=0),
        "ipv6.ndisc_notify": Sysctl(chosen=1, raised_by_all=True),
        "ipv6.proxy_ndp": Sysctl(chosen=0, raised_by_all=True),
        "ipv6.seg6_enabled": Sysctl(chosen=0),
        "ipv6.use_tempaddr": Sysctl(chosen=0, values=_LEVELS),
    }
)
"""The settings that a DeviceClass may set by ``sysctls``. Each changes that interface alone."""

ANNOUNCING: Mapping[int, str] = types.MappingProxyType({4: "ipv4.arp_notify", 6: "ipv6.ndisc_notify"})
"""The settings by which the kernel announces addresses, by IP version. Where one is off, the driver does not announce them either."""

FORWARDING = ("ipv4.forwarding", "ipv6.forwarding")
"""The settings of the field ``forwarding``, off without it."""


def in_pod(of_class: Mapping[str, int], *, forwarding: bool) -> Mapping[str, int]:
    """Return all settings of an interface in a pod: those of its class, and the driver's choice for the others."""
    chosen = {name: sysctl.chosen for name, sysctl in TABLE.items()}
    return {**chosen, **of_class, **dict.fromkeys(FORWARDING, int(forwarding))}


def defaults(wanted: Mapping[str, int]) -> frozenset[str]:
    """Return the names of the settings with the driver's choice. A kernel without such a setting, as without IPv6, needs no other."""
    return frozenset(name for name, value in wanted.items() if value == (TABLE[name].chosen if name in TABLE else 0))
