"""Device names of interfaces: stable for hardware, readable for the rest.

An interface behind a PCI function is named after its place in the machine (``pci-0000-8a-00-0``), because interface names may change with a
boot, an udev rule or a rename, and a claim must go on meaning the same hardware. Where several interfaces share one function, the one with the
lowest index has that name and the others are named as virtual ones are: the interface name where it is a DNS label, else ``net-`` and the name
in base 32. Names are valid and unique for any set of interfaces of one namespace.
"""

import base64
from collections.abc import Iterable, Mapping

from drakit.core import names
from drakit.devices.nic import port

_PCI = "pci-"
_ENCODED = "net-"


def device_names(interfaces: Iterable[port.Interface]) -> Mapping[str, port.Interface]:
    """Interfaces by device name."""
    named: dict[str, port.Interface] = {}
    for interface in sorted(interfaces, key=lambda item: item.ifindex):
        name = _by_place(interface)
        named[_by_name(interface.name) if not name or name in named else name] = interface
    return named


def _by_place(interface: port.Interface) -> str:
    if interface.is_virtual or interface.pci is None:
        return ""
    name = _PCI + interface.pci.bus_id.lower().replace(":", "-").replace(".", "-")
    return name if names.is_label(name) else ""


def _by_name(name: str) -> str:
    if names.is_label(name) and not name.startswith((_PCI, _ENCODED)):
        return name
    return _ENCODED + base64.b32encode(name.encode(errors="surrogateescape")).decode().rstrip("=").lower()
