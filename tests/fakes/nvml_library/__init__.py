"""libnvidia-ml.so.1 as Python functions over mock GPUs: what NVIDIA's binding calls is answered by the C interface's rules.

Functions have the C symbols' names, take what ctypes would pass, write through the pointers and return an nvmlReturn_t. Handles are numbers that mean
something to this library alone, structures are the binding's own. ``missing`` symbols are not there, ``versions`` says which of two versions of a
profile call exists, ``returns`` answers calls with an error, ``handles_end`` disowns every handle given out before.
"""

from collections.abc import Mapping
from typing import ClassVar

from fakes.nvml_library import boards, cells, happenings, partitions
from fakes.nvml_library.around import host_root, show_capabilities, smi_root

__all__ = ["NvmlLibrary", "host_root", "show_capabilities", "smi_root"]


def ignore(_library: cells.Library, *_args: object) -> None:
    """Succeed."""


FUNCTIONS: Mapping[str, cells.Function] = {
    "nvmlInitWithFlags": ignore,
    "nvmlShutdown": ignore,
    "nvmlSystemGetDriverVersion": boards.driver_version,
    "nvmlSystemGetCudaDriverVersion_v2": boards.cuda_version,
    "nvmlDeviceGetCount_v2": boards.count,
    "nvmlDeviceGetHandleByIndex_v2": boards.by_index,
    "nvmlDeviceGetHandleByUUID": boards.by_uuid,
    "nvmlDeviceGetHandleByPciBusId_v2": boards.by_pci,
    "nvmlDeviceGetUUID": boards.uuid_of,
    "nvmlDeviceGetMinorNumber": boards.minor,
    "nvmlDeviceGetName": boards.name,
    "nvmlDeviceGetPciInfo_v3": boards.pci,
    "nvmlDeviceGetBrand": boards.brand,
    "nvmlDeviceGetArchitecture": boards.architecture,
    "nvmlDeviceGetMemoryInfo": boards.memory,
    "nvmlDeviceGetUtilizationRates": boards.utilization,
    "nvmlDeviceGetTemperature": boards.temperature,
    "nvmlDeviceGetPowerUsage": boards.power,
    "nvmlDeviceGetEnforcedPowerLimit": boards.power_limit,
    "nvmlDeviceGetCudaComputeCapability": boards.capability,
    "nvmlDeviceGetVirtualizationMode": boards.virtualization,
    "nvmlDeviceGetMigMode": partitions.mig_mode,
    "nvmlDeviceSetMigMode": partitions.set_mig_mode,
    "nvmlDeviceGetGpuInstanceProfileInfo": partitions.profile_info,
    "nvmlDeviceGetGpuInstanceProfileInfoV": partitions.profile_info,
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2": partitions.placements,
    "nvmlDeviceCreateGpuInstanceWithPlacement": partitions.create_instance,
    "nvmlDeviceGetGpuInstances": partitions.instances,
    "nvmlDeviceGetGpuInstanceById": partitions.instance_by_id,
    "nvmlGpuInstanceGetInfo": partitions.instance_info,
    "nvmlGpuInstanceDestroy": partitions.destroy_instance,
    "nvmlGpuInstanceGetComputeInstanceProfileInfo": partitions.compute_profile,
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV": partitions.compute_profile,
    "nvmlGpuInstanceCreateComputeInstance": partitions.create_compute,
    "nvmlGpuInstanceGetComputeInstances": partitions.computes,
    "nvmlGpuInstanceGetComputeInstanceById": partitions.compute_by_id,
    "nvmlComputeInstanceGetInfo_v2": partitions.compute_info,
    "nvmlComputeInstanceDestroy": partitions.destroy_compute,
    "nvmlDeviceGetComputeRunningProcesses_v3": partitions.processes,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": ignore,
    "nvmlDeviceGetSerial": boards.serial,
    "nvmlDeviceGetModuleId": boards.module_id,
    "nvmlDeviceGetEccMode": boards.ecc,
    "nvmlDeviceGetMemoryAffinity": boards.memory_affinity,
    "nvmlDeviceGetAddressingMode": boards.addressing,
    "nvmlSystemGetConfComputeState": boards.cc_state,
    "nvmlDeviceGetGpuFabricInfo": boards.fabric,
    "nvmlDeviceGetGpuFabricInfoV": boards.fabric,
    "nvmlDeviceGetNvLinkState": boards.link_state,
    "nvmlDeviceGetNvLinkRemoteDeviceType": boards.link_kind,
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": boards.link_pci,
    "nvmlDeviceGetComputeMode": boards.compute_mode,
    "nvmlDeviceSetComputeMode": boards.set_compute_mode,
    "nvmlEventSetCreate": happenings.create_set,
    "nvmlDeviceRegisterEvents": happenings.register,
    "nvmlDeviceGetSupportedEventTypes": happenings.event_types,
    "nvmlEventSetWait_v2": happenings.wait_for_event,
    "nvmlEventSetFree": happenings.free_set,
    "nvmlDeviceGetFieldValues": happenings.field_values,
}


class NvmlLibrary(cells.Library):
    """The library with all its functions."""

    functions: ClassVar[Mapping[str, cells.Function]] = FUNCTIONS
