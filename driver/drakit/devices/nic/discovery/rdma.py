"""The RDMA device beside an interface, and the device nodes that programs need for it, from sysfs.

An RDMA device belongs to a PCI function, as its interface does. What it sends passes no queueing of the kernel, so it is only ever given with a whole
interface, never with a share. Sources: /sys/class/infiniband/<device>/device, /sys/class/infiniband_verbs/uverbs<N>/ibdev.
"""

import pathlib
from collections.abc import Iterator

from drakit.core import edits

CLASSES = pathlib.Path("/sys/class")
NODES = "/dev/infiniband"


def device_of(bus_id: str, classes: pathlib.Path = CLASSES) -> str:
    """The name of the RDMA device of a PCI function (``mlx5_0``); empty where it has none."""
    found = (entry.name for entry in _entries(classes / "infiniband") if (entry / "device").resolve().name == bus_id)
    return next(found, "")


def nodes_of(device: str, classes: pathlib.Path = CLASSES) -> tuple[edits.DeviceNode, ...]:
    """The nodes of an RDMA device: its uverbs, and the connection manager that all share."""
    if not device:
        return ()
    verbs = sorted(entry.name for entry in _entries(classes / "infiniband_verbs") if _text(entry / "ibdev") == device)
    return tuple(edits.DeviceNode(path=f"{NODES}/{name}", permissions="rw") for name in (*verbs, "rdma_cm")) if verbs else ()


def _entries(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    if folder.is_dir():
        yield from sorted(folder.iterdir())


def _text(file: pathlib.Path) -> str:
    try:
        return file.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
