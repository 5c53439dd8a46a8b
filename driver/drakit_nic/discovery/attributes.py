"""The attributes of an interface in its ResourceSlice, and the names of its capacities.

Attributes have names in three domains. Those in the driver's own domain, written without it, are for its selectors. Those in ``dra.net`` are
the dranet driver's, for facts with the same meaning, so that its selectors and constraints go on working. Those in ``resource.kubernetes.io`` are the
standard names for matching devices of different drivers.

Every device has the same own and ``dra.net`` attributes, but for ``virtual``, because a CEL selector that reads a missing one fails at run time and
blocks the pod. An unknown value is written as "", and an unknown NUMA node as -1, as in the kernel. A standard attribute is left out where its value
is unknown, because drivers compare them for equality, and two unknown values are not equal.

The API allows 32 attributes and capacities together. A device of which everything is known has 30 attributes, and two capacities where its number of
shares is limited. Only such a device has no room for the own attribute ``virtual``, which ``dra.net/virtual`` repeats.
"""

from collections.abc import Mapping

import drakit
from drakit import numa
from drakit_nic import port

BANDWIDTH = "bandwidth"
IF_NAME = "ifName"
PCI_ADDRESS = "dra.net/pciAddress"
STANDARD = "resource.kubernetes.io"
DRANET = "dra.net"
SPEED = "speed"
FORM = "form"
SHARED, WHOLE, VFIO = "shared", "whole", "vfio"
SLOTS = "shares"
NO_NUMA_NODE = -1
_NO_FUNCTION = port.PciFunction(bus_id="")
_ENTRIES_MAX = 32
"""The API's limit of attributes and capacities of one device."""


def of(
    interface: port.Interface,
    *,
    speed: int,
    classifier: port.Classifier,
    capacities: int = 1,
    form: str = SHARED,
    min_rate: bool = False,
    child: str = "",
) -> Mapping[str, drakit.AttributeValue]:
    """Return all attributes of an interface. ``speed`` is its usable speed in bits per second, before the host's reserve.

    ``child`` is the kind of the interfaces of its shares, empty in another form. ``capacities`` is the number of the device's capacities, with which
    the attributes share the API's limit.
    """
    pci = interface.pci or _NO_FUNCTION
    rdma_device = pci.rdma_device if form == WHOLE else ""  # A share never gets it.
    common: Mapping[str, drakit.AttributeValue] = {
        IF_NAME: drakit.truncate_text(text(interface.name)),
        "mac": drakit.truncate_text(interface.mac),
        "mtu": interface.mtu,
        "state": interface.state,
    }
    own: Mapping[str, drakit.AttributeValue] = {
        **common,
        "driver": drakit.truncate_text(text(interface.driver)),
        "kind": drakit.truncate_text(interface.kind),
        "carrier": interface.carrier,
        SPEED: speed,
        "shaping": classifier.value,
        "vendor": pci.vendor,
        FORM: form,
        "minRate": min_rate,
        "child": child,
    }
    dranet: Mapping[str, drakit.AttributeValue] = {
        **common,
        "encapsulation": interface.encapsulation,
        "virtual": interface.is_virtual,
        "type": drakit.truncate_text("device" if interface.kind == port.PHYSICAL else interface.kind),
        "numaNode": next(iter(pci.numa_nodes), NO_NUMA_NODE),
        "pciAddress": pci.bus_id,
        "sriov": pci.virtual_functions > 0,
        "sriovVfs": pci.virtual_functions,
        "isSriovVf": bool(pci.physical_function),
        "rdma": bool(rdma_device),
        "rdmaDevice": drakit.truncate_text(rdma_device),
    }
    standard = {"pciBusID": pci.bus_id, "pcieRoot": pci.root}
    published = {
        **own,
        **{f"{DRANET}/{name}": value for name, value in dranet.items()},
        **{f"{STANDARD}/{name}": value for name, value in standard.items() if value},
        **numa.attribute(pci.numa_nodes),
    }
    has_room = len(published) + capacities < _ENTRIES_MAX
    return {**published, "virtual": interface.is_virtual} if has_room else published


def text(name: str) -> str:
    """Return a kernel name, which may be any bytes, as text that every encoder accepts."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
