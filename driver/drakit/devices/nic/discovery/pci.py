"""What the PCI bus says of the function behind an interface, from /sys/bus/pci.

Unlike /sys/class/net, which shows the interfaces of the namespace in which sysfs was mounted, this tree is the machine's and the same from every
network namespace, so an address learnt in any of them may be looked up here.
"""

import pathlib
import re

from drakit.devices.nic import port
from drakit.devices.nic.discovery import rdma

DEVICES = pathlib.Path("/sys/bus/pci/devices")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def look_up(bus_id: str, devices: pathlib.Path = DEVICES, classes: pathlib.Path = rdma.CLASSES) -> port.PciFunction:
    """The function at ``dddd:bb:dd.f``; facts that sysfs does not give stay unknown."""
    folder = devices / bus_id
    node = _number(folder / "numa_node")
    parent = folder / "physfn"
    return port.PciFunction(
        bus_id=bus_id,
        root=next((part for part in folder.resolve().parts if _ROOT.fullmatch(part)), ""),
        numa_node=None if node is None or node < 0 else node,
        physical_function=parent.resolve().name if parent.exists() else "",
        virtual_functions=_number(folder / "sriov_totalvfs") or 0,
        function_number=_place_in(parent, bus_id),
        vendor=_text(folder / "vendor").removeprefix("0x"),
        rdma_device=rdma.device_of(bus_id, classes),
    )


def _place_in(parent: pathlib.Path, bus_id: str) -> int | None:
    """The number of a virtual function: N of the parent's link ``virtfnN`` that leads to it."""
    links = parent.glob("virtfn*") if parent.exists() else ()
    numbers = (link.name.removeprefix("virtfn") for link in links if link.resolve().name == bus_id)
    return next((int(number) for number in numbers if number.isdecimal()), None)


def _text(file: pathlib.Path) -> str:
    try:
        return file.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def _number(file: pathlib.Path) -> int | None:
    try:
        return int(file.read_text("ascii"))
    except (OSError, ValueError):
        return None
