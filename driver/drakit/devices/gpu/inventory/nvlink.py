"""Which GPUs of a node reach each other over NVLink, from each GPU's own links.

Two GPUs are peers when a link joins them, or when both have links to switches: the switches of a machine are one fabric. A clique is a set of
GPUs joined so, directly or over others. Its name is the fabric's where a multi-node fabric gave one, else the UUID of its first GPU.
"""

from collections.abc import Mapping, Sequence

from drakit.devices.gpu import port

_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"

Peers = Mapping[port.GpuUuid, tuple[port.Gpu, ...]]


def peers(gpus: Sequence[port.Gpu]) -> Peers:
    """The peers of every GPU, in the order given; empty for one without NVLink."""
    return {gpu.uuid: tuple(other for other in gpus if other is not gpu and _are_joined(gpu, other)) for gpu in gpus}


def clique(gpu: port.Gpu, known: Peers) -> str | None:
    """The name of the GPU's clique: ``<cluster UUID>.<clique>`` of a multi-node fabric, else a GPU's UUID; None for one without peers."""
    fabric = gpu.fabric
    if fabric is not None and fabric.cluster not in (None, _NO_CLUSTER):
        return f"{fabric.cluster}.{fabric.clique}"
    if not known.get(gpu.uuid):
        return None
    members, waiting = {gpu.uuid: gpu}, [gpu]
    while waiting:
        for other in known[waiting.pop().uuid]:
            if other.uuid not in members:
                members[other.uuid] = other
                waiting.append(other)
    return min(members.values(), key=lambda member: member.minor).uuid


def _are_joined(one: port.Gpu, other: port.Gpu) -> bool:
    wired = other.pci_bus_id in one.nvlinks.gpus or one.pci_bus_id in other.nvlinks.gpus
    return wired or (one.nvlinks.switched and other.nvlinks.switched)
