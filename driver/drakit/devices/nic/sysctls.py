"""The sysctls of one interface that a DeviceClass may set: those that change this interface alone, with the values the kernel knows.

Named as under /proc/sys/net without ``conf/<interface>``: ``ipv4.arp_ignore``. Source: Documentation/networking/ip-sysctl.rst of the kernel.
"""

from collections.abc import Mapping

from drakit.core import errors

_SWITCH = frozenset({0, 1})
ALLOWED: Mapping[str, frozenset[int]] = {
    "ipv4.accept_redirects": _SWITCH,
    "ipv4.arp_accept": frozenset({0, 1, 2}),
    "ipv4.arp_announce": frozenset({0, 1, 2}),
    "ipv4.arp_filter": _SWITCH,
    "ipv4.arp_ignore": frozenset({0, 1, 2, 3, 8}),
    "ipv4.arp_notify": _SWITCH,
    "ipv4.rp_filter": frozenset({0, 1, 2}),
    "ipv4.send_redirects": _SWITCH,
    "ipv6.accept_dad": frozenset({0, 1, 2}),
    "ipv6.accept_ra": frozenset({0, 1, 2}),
    "ipv6.accept_redirects": _SWITCH,
    "ipv6.autoconf": _SWITCH,
    "ipv6.disable_ipv6": _SWITCH,
    "ipv6.ndisc_notify": _SWITCH,
    "ipv6.use_tempaddr": frozenset({0, 1, 2}),
}
FORWARDING = ("ipv4.forwarding", "ipv6.forwarding")


def check(wanted: Mapping[str, int]) -> None:
    """Raises ConfigError for what is not in the list, or a value the kernel does not know."""
    for name, value in wanted.items():
        if name not in ALLOWED:
            raise errors.ConfigError(f"is not allowed; allowed are {', '.join(sorted(ALLOWED))}", field=f"sysctls[{name[:64]!r}]")
        if value not in ALLOWED[name]:
            known = ", ".join(map(str, sorted(ALLOWED[name])))
            raise errors.ConfigError(f"{value} is not one of {known}", field=f"sysctls[{name!r}]")


def path(name: str, interface: str) -> str:
    """Where the kernel has it, below /proc/sys/net: ``ipv4/conf/net1/arp_ignore``."""
    family, _, leaf = name.partition(".")
    return f"{family}/conf/{interface}/{leaf}"
