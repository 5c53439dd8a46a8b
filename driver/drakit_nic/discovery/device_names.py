"""The names of the devices of interfaces, which stay the same while a claim uses one.

An interface has up to three forms: shared, whole, and for virtual machines.
"""

import base64
from collections.abc import Iterable, Mapping

import drakit
from drakit_nic import port
from drakit_nic.discovery import attributes

WHOLE_SUFFIX, VFIO_SUFFIX = "-whole", "-vfio"
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
    """Return whether a device is the exclusive form of an interface that moves into a pod."""
    return device.attributes.get(attributes.FORM) == attributes.WHOLE


def is_vfio(device: drakit.Device) -> bool:
    """Return whether a device is the form of an interface for virtual machines."""
    return device.attributes.get(attributes.FORM) == attributes.VFIO


def base_name(device: drakit.Device) -> str:
    """Return the device name of the interface, which is that of the shared form."""
    suffix = WHOLE_SUFFIX if is_whole(device) else VFIO_SUFFIX if is_vfio(device) else ""
    return device.name.removesuffix(suffix)


def of_function(bus_id: str) -> str:
    """Return the device name of the PCI function at an address."""
    return _PCI + bus_id.lower().replace(":", "-").replace(".", "-")


def gone(device: drakit.Device) -> str:
    """Return what is told about a device whose interface was removed from the machine, with the fix."""
    name = attributes.text(str(device.attributes.get(attributes.IF_NAME, "")))
    return f"the interface {name} is no longer there; plug the NIC in (or create its virtual functions) again, and delete the pod and its claim"


def _name_by_pci(interface: port.Interface) -> str:
    if interface.is_virtual or interface.pci is None:
        return ""
    name = of_function(interface.pci.bus_id)
    return name if drakit.is_label(name) else ""


def _name_by_interface(name: str) -> str:
    if drakit.is_label(name) and not name.startswith((_PCI, _ENCODED)):
        return name
    return _ENCODED + base64.b32encode(name.encode(errors="surrogateescape")).decode().rstrip("=").lower()
