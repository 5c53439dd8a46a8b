"""Attributes and capacity of a NIC device.

Three families of names. In the driver's own domain, written without it: what selectors of this driver use. In ``dra.net``: the names of the
dranet driver, for the facts that mean the same there, so that selectors and constraints written for it go on working. In
``resource.kubernetes.io``: the standard names for matching devices of different drivers.

Every device has the same own and ``dra.net`` attributes, because a CEL selector that reads a missing one is a run-time error that blocks the pod;
an unknown value is written as "", and an unknown NUMA node as -1, as the kernel does. The standard ones are there only when true: they are
compared for equality across drivers, and two unknowns are not equal.
"""

from collections.abc import Mapping

from drakit.core import device
from drakit.devices.nic import port

BANDWIDTH = "bandwidth"
IF_NAME = "ifName"
STANDARD = "resource.kubernetes.io"
DRANET = "dra.net"
SPEED = "speed"
FORM = "form"
SHARED, WHOLE = "shared", "whole"
SLOTS = "shares"
NO_NUMA_NODE = -1


def of(interface: port.Interface, *, speed: int, classifier: port.Classifier, form: str = SHARED) -> Mapping[str, device.AttributeValue]:
    """All attributes; ``speed`` is the speed believed, in bits per second, before the host's reserve."""
    return {**_own(interface, speed, classifier), FORM: form, **_dranet(interface), **_standard(interface)}


def _own(interface: port.Interface, speed: int, classifier: port.Classifier) -> Mapping[str, device.AttributeValue]:
    return {
        IF_NAME: device.truncate_text(_text(interface.name)),
        "mac": device.truncate_text(interface.mac),
        "mtu": interface.mtu,
        "driver": device.truncate_text(_text(interface.driver)),
        "kind": device.truncate_text(interface.kind),
        "state": interface.state,
        "carrier": interface.carrier,
        "virtual": interface.is_virtual,
        SPEED: speed,
        "shaping": classifier.value,
        "vendor": "" if interface.pci is None else interface.pci.vendor,
    }


def _dranet(interface: port.Interface) -> Mapping[str, device.AttributeValue]:
    pci = interface.pci
    node = None if pci is None else pci.numa_node
    values: Mapping[str, device.AttributeValue] = {
        "ifName": device.truncate_text(_text(interface.name)),
        "mac": device.truncate_text(interface.mac),
        "mtu": interface.mtu,
        "encapsulation": interface.encapsulation,
        "state": interface.state,
        "type": device.truncate_text("device" if interface.kind == port.PHYSICAL else interface.kind),
        "virtual": interface.is_virtual,
        "numaNode": NO_NUMA_NODE if node is None else node,
        "pciAddress": "" if pci is None else pci.bus_id,
        "sriov": pci is not None and pci.virtual_functions > 0,
        "sriovVfs": 0 if pci is None else pci.virtual_functions,
        "isSriovVf": pci is not None and bool(pci.physical_function),
        "rdma": pci is not None and bool(pci.rdma_device),
        "rdmaDevice": "" if pci is None else device.truncate_text(pci.rdma_device),
    }
    return {f"{DRANET}/{name}": value for name, value in values.items()}


def _standard(interface: port.Interface) -> Mapping[str, device.AttributeValue]:
    pci = interface.pci
    if pci is None:
        return {}
    values: dict[str, device.AttributeValue] = {"pciBusID": pci.bus_id}
    if pci.root:
        values["pcieRoot"] = pci.root
    if pci.numa_node is not None:
        values["numaNode"] = pci.numa_node
    return {f"{STANDARD}/{name}": value for name, value in values.items()}


def _text(name: str) -> str:
    """A kernel name as text that every encoder takes; names are bytes to the kernel."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
