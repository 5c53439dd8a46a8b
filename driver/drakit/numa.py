"""The NUMA nodes near a device, for Kubernetes' standard attribute ``resource.kubernetes.io/numaNode`` (KEP-6072, GA in Kubernetes 1.37).

The kernel names one node for a device. Where a socket is divided into several nodes (sub-NUMA clustering), others of the same socket may be as near:
those whose distance in the firmware's table (ACPI SLIT) is the smallest. A node whose socket is unknown, because it has memory only, counts as near.
"""

import pathlib
from collections.abc import Mapping

ATTRIBUTE = "resource.kubernetes.io/numaNode"
SYSTEM = pathlib.Path("/sys/devices/system")


def of_device(folder: pathlib.Path, system: pathlib.Path = SYSTEM) -> tuple[int, ...]:
    """Return the NUMA nodes of a device by its folder in sysfs: its own, then those that are as near; none if the kernel knows none."""
    _check("of_device: folder", folder, pathlib.Path, "a pathlib.Path, such as that of /sys/bus/pci/devices/0000:3b:00.0")
    try:
        node = int((folder / "numa_node").read_text("ascii"))
    except (OSError, ValueError):
        return ()
    return near(node, system) if node >= 0 else ()


def near(node: int, system: pathlib.Path = SYSTEM) -> tuple[int, ...]:
    """Return a NUMA node, and after it, in order, those of its socket that are nearest. ``system`` is the kernel's folder of nodes and CPUs."""
    _check("near: node", node, int, "a whole number")
    try:
        distances = [int(word) for word in (system / f"node/node{node}/distance").read_text("ascii").split()]
        online = _numbers((system / "node/online").read_text("ascii"))
    except (OSError, ValueError):
        return (node,)
    # The table has a column for each node that is online, whose numbers may have gaps.
    others = {other: distance for other, distance in zip(online, distances, strict=False) if other != node}
    if len(online) != len(distances) or not others:
        return (node,)
    socket, least = _socket(node, system), min(others.values())
    nearest = [other for other, distance in others.items() if distance == least]
    return (node, *(other for other in nearest if socket is None or _socket(other, system) in {socket, None}))


def attribute(nodes: tuple[int, ...]) -> Mapping[str, int | tuple[int, ...]]:
    """Return the standard attribute for these nodes: a number, a list for several, and nothing for none.

    An API server without list attributes gets the first node alone.
    """
    _check("attribute: nodes", nodes, tuple, "a tuple, such as (0,), as of_device and near return it")
    if not nodes:
        return {}
    return {ATTRIBUTE: nodes if len(nodes) > 1 else nodes[0]}


def _check(field: str, value: object, kind: type, wanted: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{field} is {type(value).__name__}; give {wanted}")


def _socket(node: int, system: pathlib.Path) -> int | None:
    """Return the number of a node's socket, that of its first CPU; None if it has no CPU or the kernel does not say."""
    try:
        cpus = _numbers((system / f"node/node{node}/cpulist").read_text("ascii"))
        return int((system / f"cpu/cpu{cpus[0]}/topology/physical_package_id").read_text("ascii")) if cpus else None
    except (OSError, ValueError):
        return None


def _numbers(text: str) -> list[int]:
    """Return the numbers of a list in the kernel's notation: ``0-3,8`` is 0, 1, 2, 3, 8."""
    spans = [part.partition("-") for part in text.strip().split(",") if part]
    return [number for first, _, last in spans for number in range(int(first), int(last or first) + 1)]
