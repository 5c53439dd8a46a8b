"""The names of the devices of interfaces, which stay the same while a claim uses one, and the two forms of an interface: shared and whole."""

import base64
from collections.abc import Iterable, Mapping

import drakit
from drakit_nic import port
from drakit_nic.discovery import attributes

WHOLE_SUFFIX = "-whole"
_PCI = "pci-"
_ENCODED = "net-"


def by_name(interfaces: Iterable[port.Interface]) -> Mapping[str, port.Interface]:
    """Return the interfaces by device name. Names are valid and unique for any set of interfaces of one namespace.

    An interface behind a PCI function is named after its address (``pci-0000-8a-00-0``), because interface names may change with a boot, a udev rule
    or a rename, and a claim must keep the same hardware. Where several interfaces share one function, the one with the lowest index has that
    name. All others have the interface's name where it is a DNS label, else ``net-`` and the name in base 32.
    """
    named: dict[str, port.Interface] = {}
    for interface in sorted(interfaces, key=lambda interface: interface.ifindex):
        name = _name_by_pci(interface)
        named[_name_by_interface(interface.name) if not name or name in named else name] = interface
    return named


def is_whole(device: drakit.Device) -> bool:
    """Return whether a device is the exclusive form of an interface."""
    return device.attributes.get(attributes.FORM) == attributes.WHOLE


def base_name(device: drakit.Device) -> str:
    """Return the device name of the interface, which is that of the shared form."""
    return device.name.removesuffix(WHOLE_SUFFIX) if is_whole(device) else device.name


def gone(device: drakit.Device) -> str:
    """Return what is told about a device whose interface was removed from the machine, with the fix."""
    name = attributes.text(str(device.attributes.get(attributes.IF_NAME, "")))
    return f"the interface {name} is no longer there; plug the NIC in (or create its virtual functions) again, and delete the pod and its claim"


def _name_by_pci(interface: port.Interface) -> str:
    if interface.is_virtual or interface.pci is None:
        return ""
    name = _PCI + interface.pci.bus_id.lower().replace(":", "-").replace(".", "-")
    return name if drakit.is_label(name) else ""


def _name_by_interface(name: str) -> str:
    if drakit.is_label(name) and not name.startswith((_PCI, _ENCODED)):
        return name
    return _ENCODED + base64.b32encode(name.encode(errors="surrogateescape")).decode().rstrip("=").lower()
