"""Attributes and capacities of GPU devices, under the names of NVIDIA's own DRA driver, so that claims written for it select here as well.

Some names are drakit's own: ``profileID``, ``placementStart`` and ``placementSize`` identify a MIG partition, which NVIDIA's driver encodes in the
device's name. Others are values that NVIDIA's driver does not publish. A value that a GPU does not report is left out, never guessed. ``brand`` and
``architecture`` are always published, with NVIDIA's word ``Unknown`` where the GPU does not report them: in CEL, a selector on an attribute that
one device lacks is an error, and it fails the allocation even where every other device would match.

With one capacity per engine and those of a shared form, a device stays below the API's limit of 32 attributes and capacities: whole 21, MIG 21.

NVLink: two GPUs are peers when a link joins them, or when both have links to switches, because the switches of a machine are one fabric. A clique is
a set of GPUs that are joined directly or through other GPUs. Its name is that of the multi-node fabric, or without one the UUID of its first GPU.
"""

from collections.abc import Mapping, Sequence

import drakit
from drakit import numa
from drakit_gpu import port
from drakit_gpu.mig import partitioning

TYPE = "type"
UUID = "uuid"
PARENT_UUID = "parentUUID"
PROFILE = "profile"
PROFILE_ID = "profileID"
PLACEMENT_START = "placementStart"
PLACEMENT_SIZE = "placementSize"
TYPE_GPU = "gpu"
TYPE_MIG = "mig"
TYPE_SHARED_GPU = "shared-gpu"
TYPE_SHARED_MIG = "shared-mig"
TYPE_VFIO = "vfio"
MIG_MODE = "migMode"
MIG_ON = "on"
PRODUCT_NAME = "productName"
UNKNOWN = "Unknown"

_STANDARD = "resource.kubernetes.io"
PCI_BUS_ID = f"{_STANDARD}/pciBusID"

_PEERS_MAX = 16

Attributes = Mapping[str, drakit.AttributeValue]


def system(versions: port.Versions) -> Attributes:
    """Return the attributes that all GPUs of a node share."""
    return _reported(
        {
            "driverVersion": drakit.Version.lenient(versions.driver),
            "cudaDriverVersion": drakit.Version.lenient(versions.cuda),
            "ccMode": versions.cc_mode,
        }
    )


def product(gpu: port.Gpu) -> Attributes:
    """Return the attributes that all GPUs of a product share."""
    capability = gpu.compute_capability
    return _reported(
        {
            PRODUCT_NAME: drakit.truncate_text(gpu.product_name),
            "brand": gpu.brand or UNKNOWN,
            "architecture": gpu.architecture or UNKNOWN,
            "addressingMode": gpu.addressing_mode,
            "cudaComputeCapability": None if capability is None else drakit.Version(f"{capability[0]}.{capability[1]}.0"),
        }
    )


def board(gpu: port.Gpu) -> Attributes:
    """Return identity and location of a GPU; the location has the names that Kubernetes defines for all drivers (KEP-4381)."""
    return _reported(
        {
            "serial": None if gpu.serial is None else drakit.truncate_text(gpu.serial),
            "gpuModuleID": gpu.module_id,
            "eccEnabled": gpu.ecc,
            PCI_BUS_ID: gpu.pci_bus_id,
            f"{_STANDARD}/pcieRoot": gpu.pcie_root,
            **numa.attribute(gpu.numa_nodes),
        }
    )


def links(gpu: port.Gpu, peers: Sequence[port.Gpu], clique: str | None) -> Attributes:
    """Return the NVLink attributes of a whole GPU; partitions have none.

    ``nvlinkPeers`` is a text of minor numbers, for servers that do not store ``nvlinkPeerMinors``, because list attributes are behind a feature gate.
    """
    joined = ",".join(str(peer.minor) for peer in peers)
    state = None if gpu.fabric is None else gpu.fabric.state
    return _reported(
        {
            "nvlinkPeers": drakit.truncate_text(joined) or None,
            # A longer list would exceed the API's 48 values of a device.
            "nvlinkPeerMinors": tuple(peer.minor for peer in peers) if 0 < len(peers) <= _PEERS_MAX else None,
            "nvlinkClique": clique,
            "fabricState": state,
        }
    )


def mig_mode(gpu: port.Gpu, mode: port.MigMode | None, *, is_partitioned: bool) -> str | None:
    """Return ``on-demand`` where drakit creates partitions for claims, else ``on`` or ``off``; None for a GPU without MIG.

    A whole GPU without partitions has it off for its claims: where it is on and needs no reset, drakit turns it off.
    """
    if mode is None:
        return None
    if gpu.switches_mig_at_once:
        return "on-demand" if is_partitioned else "off"
    return MIG_ON if mode.current else "off"


def profile(instance_profile: port.GpuInstanceProfile) -> Attributes:
    """Return the attributes that all partitions of a profile share."""
    return {TYPE: TYPE_MIG, PROFILE: instance_profile.name, PROFILE_ID: instance_profile.id}


def placement(place: port.Placement) -> Attributes:
    """Return the place of a partition on its GPU, in memory slices."""
    return {PLACEMENT_START: place.start, PLACEMENT_SIZE: place.size}


def capacity(counters: partitioning.Counters) -> Mapping[str, drakit.Capacity]:
    """Return counters as capacities under NVIDIA's names: ``copy-engines`` becomes ``copyEngines``. Memory slices are left out."""
    return {_camel(name): drakit.Capacity(value=amount) for name, amount in counters.items() if not name.startswith("memory-slice-")}


def memory(gpu: port.Gpu) -> drakit.Quantity | None:
    """Return the memory of a GPU."""
    return None if gpu.memory is None else drakit.Quantity.binary(gpu.memory)


def memory_only(gpu: port.Gpu) -> Mapping[str, drakit.Capacity]:
    """Return the capacity of a GPU that is not partitioned."""
    amount = memory(gpu)
    return {} if amount is None else {"memory": drakit.Capacity(value=amount)}


def _reported(values: Mapping[str, drakit.AttributeValue | None]) -> Attributes:
    return {name: value for name, value in values.items() if value is not None}


def _camel(name: str) -> str:
    first, *rest = name.split("-")
    return first + "".join(part.capitalize() for part in rest)


_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"

NvlinkPeers = Mapping[port.GpuUuid, tuple[port.Gpu, ...]]


def nvlink_peers(gpus: Sequence[port.Gpu]) -> NvlinkPeers:
    """Return the peers of every GPU, in the given order; empty for one without NVLink."""
    return {gpu.uuid: tuple(other for other in gpus if other is not gpu and _are_joined(gpu, other)) for gpu in gpus}


def nvlink_clique(gpu: port.Gpu, peers: NvlinkPeers) -> str | None:
    """Return the name of the GPU's clique: ``<cluster UUID>.<clique>`` of a multi-node fabric, else a GPU's UUID; None without peers."""
    fabric = gpu.fabric
    if fabric is not None and fabric.cluster not in (None, _NO_CLUSTER):
        return f"{fabric.cluster}.{fabric.clique}"
    if not peers.get(gpu.uuid):
        return None
    members, queue = {gpu.uuid: gpu}, [gpu]
    while queue:
        for other in peers[queue.pop().uuid]:
            if other.uuid not in members:
                members[other.uuid] = other
                queue.append(other)
    return min(members.values(), key=lambda member: member.minor).uuid


def _are_joined(gpu: port.Gpu, other: port.Gpu) -> bool:
    wired = other.pci_bus_id in gpu.nvlinks.gpus or gpu.pci_bus_id in other.nvlinks.gpus
    return wired or (gpu.nvlinks.switched and other.nvlinks.switched)
