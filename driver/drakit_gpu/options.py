"""The group ``gpu`` of the settings file."""

import dataclasses
import fnmatch
import pathlib
import re
from collections.abc import Mapping
from typing import Annotated, Literal

import pydantic
import pydantic.dataclasses

import drakit
from drakit import settings

_PRODUCT = "product:"
_PROFILE = re.compile(r"[1-9][0-9]*g\.[1-9][0-9]*gb([+-][a-z0-9.]+)*")
_INSTANCES_MAX = 16


def _namespaced_name(value: str | None) -> str | None:
    namespace, slash, name = (value or "").partition("/")
    if value is not None and not (slash and drakit.is_label(namespace) and drakit.is_subdomain(name)):
        raise ValueError(f"{value!r} is not NAMESPACE/NAME")
    return value


def _profile_name(value: str) -> str:
    if not _PROFILE.fullmatch(value):
        raise ValueError(f"{value!r} is not a MIG profile, such as 1g.5gb; nvidia-smi mig -lgip lists them")
    return value


def _glob(value: str) -> str:
    _prefix, colon, rest = value.partition(":")
    if colon and not (value.startswith(_PRODUCT) and rest):
        raise ValueError(f"{value!r} is neither a device name, such as gpu-0 or gpu-*, nor {_PRODUCT}NAME")
    return value


_Profile = Annotated[str, pydantic.AfterValidator(_profile_name)]
_Count = Annotated[int, pydantic.Field(ge=1, le=_INSTANCES_MAX)]


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=pydantic.ConfigDict(extra="forbid"))
class MigLayout:
    """The fixed MIG partitions of the GPUs that match."""

    match: Annotated[str, pydantic.AfterValidator(_glob)]
    """Glob on the device name, for example gpu-0, or on the product: product:NVIDIA A100-*."""

    partitions: Mapping[_Profile, _Count]
    """MIG profiles with their numbers on each of these GPUs. Empty: such a GPU is offered as a whole only."""

    def matches(self, *, device: str, product: str) -> bool:
        """Return whether a GPU has this layout, by the name of its whole device and its product name."""
        if self.match.startswith(_PRODUCT):
            return fnmatch.fnmatchcase(product, self.match.removeprefix(_PRODUCT))
        return fnmatch.fnmatchcase(device, self.match)


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

    mig_layouts: tuple[MigLayout, ...] = ()
    """Fixed MIG partitions by GPU, offered without counters instead of every possible placement. The first layout that matches counts."""

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
