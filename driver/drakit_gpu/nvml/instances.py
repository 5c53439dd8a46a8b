"""MIG's profiles and instances, and the processes on a GPU, read from NVML.

Profiles are read by NVML's enum and named by their hardware id everywhere else.
"""

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pynvml

from drakit_gpu import nvml_errors, port
from drakit_gpu.nvml import properties, session

Result = TypeVar("Result")
ComputeProfiles = Mapping[int, pynvml.c_nvmlComputeInstanceProfileInfo_t]

_MIB = 1 << 20
_V1, _V2 = 1, 2
_NO_SUCH_PROFILE = frozenset({nvml_errors.Code.NOT_SUPPORTED, nvml_errors.Code.INVALID_ARGUMENT})
_OLD_LIBRARY = frozenset({nvml_errors.Code.FUNCTION_NOT_FOUND, nvml_errors.Code.ARGUMENT_VERSION_MISMATCH})


def gpu_instance_profiles(handle: pynvml.c_nvmlDevice_t) -> tuple[port.GpuInstanceProfile, ...]:
    """Return the profiles of a GPU, by enum. If two enums have one hardware id, the lower enum counts."""
    total = pynvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB
    infos = ((enum, _gpu_instance_profile(handle, enum)) for enum in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT))
    profiles = {info.id: _profile(enum, info, total) for enum, info in reversed([(enum, info) for enum, info in infos if info is not None])}
    return tuple(sorted(profiles.values(), key=lambda profile: profile.enum))


def _gpu_instance_profile(
    handle: pynvml.c_nvmlDevice_t, enum: int
) -> pynvml.c_nvmlGpuInstanceProfileInfo_v2_t | pynvml.c_nvmlGpuInstanceProfileInfo_t | None:
    """Return NVML's description of a profile; None for one the GPU does not have."""
    return _profile_or_none(functools.partial(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, enum))


def _profile_or_none(call: Callable[[int], Result]) -> Result | None:
    """Return a profile by the newest call the library knows; ``call`` takes the version."""
    for version in (_V2, _V1):
        try:
            return call(version)
        except pynvml.NVMLError as error:
            code = session.code_of(error)
            if code in _NO_SUCH_PROFILE:
                return None
            if version == _V1 or code not in _OLD_LIBRARY:
                raise
    return None


def _profile(enum: int, info: pynvml.c_nvmlGpuInstanceProfileInfo_t, total_mib: int) -> port.GpuInstanceProfile:
    if isinstance(info, pynvml.c_nvmlGpuInstanceProfileInfo_v2_t):
        name = info.name.removeprefix("MIG ")
    else:
        name = properties.computed_profile_name(enum, info.sliceCount, info.memorySizeMB, total_mib)
    return port.GpuInstanceProfile(
        enum=enum,
        id=info.id,
        name=name,
        slices=info.sliceCount,
        instances=info.instanceCount,
        multiprocessors=info.multiprocessorCount,
        copy_engines=info.copyEngineCount,
        decoders=info.decoderCount,
        encoders=info.encoderCount,
        jpeg_engines=info.jpegCount,
        ofa_engines=info.ofaCount,
        memory_mib=info.memorySizeMB,
    )


def possible_placements(handle: pynvml.c_nvmlDevice_t, profile_id: int) -> tuple[port.Placement, ...]:
    """Return the possible placements of a profile, sorted."""
    count = ctypes.c_uint(0)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, None, ctypes.byref(count))
    placements = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, placements, ctypes.byref(count))
    return tuple(sorted(port.Placement(start=placement.start, size=placement.size) for placement in placements[: count.value]))


def gpu_instances(handle: pynvml.c_nvmlDevice_t, profiles: Sequence[port.GpuInstanceProfile]) -> tuple[port.GpuInstance, ...]:
    """Return all GPU instances, by placement."""
    present: list[port.GpuInstance] = []
    for profile in profiles:
        count = ctypes.c_uint(profile.instances)
        listed = (pynvml.c_nvmlGpuInstance_t * profile.instances)()
        pynvml.nvmlDeviceGetGpuInstances(handle, profile.id, listed, ctypes.byref(count))
        present += map(instance, listed[: count.value])
    return tuple(sorted(present, key=lambda gpu_instance: gpu_instance.placement))


def instance(handle: pynvml.c_nvmlGpuInstance_t) -> port.GpuInstance:
    """Return a GPU instance from its handle."""
    info = pynvml.nvmlGpuInstanceGetInfo(handle)
    placement = port.Placement(start=info.placement.start, size=info.placement.size)
    return port.GpuInstance(id=info.id, profile_id=info.profileId, placement=placement)


def compute_profiles(instance: pynvml.c_nvmlGpuInstance_t) -> ComputeProfiles:
    """Return the compute instance profiles of an instance, by enum."""
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    call = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    infos = ((enum, _profile_or_none(functools.partial(call, instance, enum, shared))) for enum in _COMPUTE_ENUMS)
    return {enum: info for enum, info in infos if info is not None}


_COMPUTE_ENUMS = range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)


def compute_instances(instance: pynvml.c_nvmlGpuInstance_t, profiles: ComputeProfiles) -> tuple[port.ComputeInstance, ...]:
    """Return all compute instances of a GPU instance, by id; NVML lists them by profile."""
    present: dict[int, port.ComputeInstance] = {}
    for info in profiles.values():
        count = ctypes.c_uint(info.instanceCount)
        listed = (pynvml.c_nvmlComputeInstance_t * info.instanceCount)()
        pynvml.nvmlGpuInstanceGetComputeInstances(instance, info.id, listed, ctypes.byref(count))
        present |= {compute_instance.id: compute_instance for compute_instance in map(compute, listed[: count.value])}
    return tuple(present[key] for key in sorted(present))


def compute(handle: pynvml.c_nvmlComputeInstance_t) -> port.ComputeInstance:
    """Return a compute instance from its handle."""
    info = pynvml.nvmlComputeInstanceGetInfo_v2(handle)
    return port.ComputeInstance(id=info.id, profile_id=info.profileId, mig_uuid=pynvml.nvmlDeviceGetUUID(info.device))


def processes(handle: pynvml.c_nvmlDevice_t) -> Sequence[pynvml.c_nvmlProcessInfo_t]:
    """Return the processes with a compute or graphics context on a GPU."""
    graphics = session.optional(lambda: pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(handle))
    return [*pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle), *(graphics or ())]
