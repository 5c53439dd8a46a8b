"""The group ``gpu`` of the settings file."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import pydantic

import drakit
from drakit import settings


def _namespaced_name(value: str | None) -> str | None:
    namespace, slash, name = (value or "").partition("/")
    if value is not None and not (slash and drakit.is_label(namespace) and drakit.is_subdomain(name)):
        raise ValueError(f"{value!r} is not NAMESPACE/NAME")
    return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuOptions:
    """The GPU driver."""

    enabled: bool = True
    """Whether the driver serves GPUs, on nodes that have any."""

    driver_name: str = "gpu.drakit.dev"
    """Driver name. gpu.nvidia.com serves claims that were written for NVIDIA's driver."""

    library: settings.Folder | None = None
    """Path of libnvidia-ml.so.1. Needed if it is not below gpu.driver_root and the loader does not find it."""

    driver_root: settings.Folder = pathlib.Path("/")
    """Folder below which NVIDIA's driver is installed, as this process sees it."""

    driver_root_on_host: settings.Folder | None = None
    """Path of gpu.driver_root on the host, if it differs. The container runtime mounts the driver's files from there."""

    library_folders: tuple[str, ...] = ()
    """Folders below gpu.driver_root with the libraries of NVIDIA's driver, searched before the usual ones of Linux distributions."""

    kernel_root: settings.Folder = pathlib.Path("/")
    """Folder with the proc and sys of NVIDIA's kernel driver: proc/devices, proc/driver/nvidia and sys/bus/pci. Not / with a mock NVML."""

    dev_root: settings.Folder = pathlib.Path("/")
    """Folder with the host's dev, as this process sees it. The driver creates device nodes that are missing there."""

    toolkit: bool = True
    """Whether the driver asks nvidia-ctk, if it is installed below gpu.driver_root, which files a container needs."""

    share_memory: bool = False
    """Also offer every GPU as a shared device. Each claim gets a part of its memory, in steps of 1Mi."""

    shares: Annotated[int, pydantic.Field(ge=0, le=1000)] = 0
    """Also offer every GPU as a device that at most this many claims share. 0 turns it off; with gpu.share_memory, 0 means no limit."""

    share_mig: bool = False
    """Apply gpu.share_memory and gpu.shares to MIG devices too."""

    vfio: bool = False
    """Also offer every whole GPU to virtual machines: the driver binds it to vfio-pci while a claim has it."""

    vfio_nodes: Literal["group", "iommufd"] = "group"
    """Device nodes for a virtual machine. group: /dev/vfio/vfio and the group's. iommufd: /dev/iommu and the device's."""

    health: bool = True
    """Monitor the GPUs: taint those that have a fault, report health to the kubelet, and publish again when hardware changes."""

    evict: bool = True
    """Evict the pods of a GPU after a fault that no program survives (taint effect NoExecute). Without it, the fault only keeps new pods away."""

    mps_template: Annotated[str | None, pydantic.BeforeValidator(settings.none_if_empty), pydantic.AfterValidator(_namespaced_name)] = None
    """NAMESPACE/NAME of the PodTemplate from which the driver makes a pod for each MPS daemon. Without it, claims with MPS are not prepared."""

    ignored_xids: tuple[Annotated[int, pydantic.Field(ge=1, le=9999)], ...] = ()
    """Xids that are no fault of the GPU here, in addition to those that programs cause according to NVIDIA's catalog."""
