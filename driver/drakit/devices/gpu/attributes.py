"""Names and values of what GPU devices say of themselves: those of NVIDIA's own DRA driver, so that claims written for it select here as well.

Two more identify a MIG partition, which NVIDIA's driver leaves to the device's name: ``profileID`` with ``placementStart`` and
``placementSize``. What a GPU does not tell is left out, never guessed.
"""

from collections.abc import Mapping

from drakit.core import attribute, policy, quantity
from drakit.devices.gpu import mig, port

TYPE = "type"
UUID = "uuid"
PARENT_UUID = "parentUUID"
PROFILE = "profile"
PROFILE_ID = "profileID"
PLACEMENT_START = "placementStart"
PLACEMENT_SIZE = "placementSize"
TYPE_GPU = "gpu"
TYPE_MIG = "mig"

_STANDARD = "resource.kubernetes.io"

Attributes = Mapping[str, attribute.AttributeValue]


def system(versions: port.Versions) -> Attributes:
    """What all GPUs of a node share."""
    return _known(
        {"driverVersion": attribute.Version.lenient(versions.driver), "cudaDriverVersion": attribute.Version.lenient(versions.cuda)}
    )


def product(gpu: port.Gpu) -> Attributes:
    """What all GPUs of a product share."""
    capability = gpu.compute_capability
    return _known(
        {
            "productName": attribute.cut(gpu.product_name),
            "brand": gpu.brand,
            "architecture": gpu.architecture,
            "cudaComputeCapability": None if capability is None else attribute.Version(f"{capability[0]}.{capability[1]}.0"),
        }
    )


def location(gpu: port.Gpu) -> Attributes:
    """Where a GPU is, by the names Kubernetes defines for all drivers (KEP-4381 and after)."""
    numa = gpu.numa_node if gpu.numa_node is not None and gpu.numa_node >= 0 else None
    return _known({f"{_STANDARD}/pciBusID": gpu.pci_bus_id, f"{_STANDARD}/pcieRoot": gpu.pcie_root, f"{_STANDARD}/numaNode": numa})


def profile(found: port.GpuInstanceProfile) -> Attributes:
    """What all partitions of a profile share."""
    return {TYPE: TYPE_MIG, PROFILE: found.name, PROFILE_ID: found.id}


def placement(found: port.Placement) -> Attributes:
    """Where a partition lies on its GPU, in memory slices."""
    return {PLACEMENT_START: found.start, PLACEMENT_SIZE: found.size}


def capacity(counters: mig.Counters) -> Mapping[str, policy.Capacity]:
    """Capacities under NVIDIA's names from counters: ``copy-engines`` becomes ``copyEngines``; memory slices are no capacity."""
    return {_camel(name): policy.Capacity(value=amount) for name, amount in counters.items() if not name.startswith("memory-slice-")}


def memory_only(gpu: port.Gpu) -> Mapping[str, policy.Capacity]:
    """The capacity of a GPU that is not partitioned."""
    return {} if gpu.memory is None else {"memory": policy.Capacity(value=quantity.Quantity.binary(gpu.memory))}


def _known(values: Mapping[str, attribute.AttributeValue | None]) -> Attributes:
    return {name: value for name, value in values.items() if value is not None}


def _camel(name: str) -> str:
    first, *rest = name.split("-")
    return first + "".join(part.capitalize() for part in rest)
