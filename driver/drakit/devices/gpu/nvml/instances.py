"""MIG's profiles and instances, and who uses a GPU, read from NVML.

Profiles are asked for by NVML's enum and named by their hardware id everywhere else.
"""

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pynvml

from drakit.devices.gpu import port
from drakit.devices.gpu.nvml import nvml_names, session

Result = TypeVar("Result")

_MIB = 1 << 20
_V1, _V2 = 1, 2
_NO_SUCH_PROFILE = frozenset({port.Code.NOT_SUPPORTED, port.Code.INVALID_ARGUMENT})
_OLD_LIBRARY = frozenset({port.Code.FUNCTION_NOT_FOUND, port.Code.ARGUMENT_VERSION_MISMATCH})


def gpu_instance_profiles(handle: pynvml.c_nvmlDevice_t) -> tuple[port.GpuInstanceProfile, ...]:
    """The profiles of a GPU, by enum; of two enums with one hardware id the lower."""
    total = pynvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB
    asked = ((enum, _gpu_instance_profile(handle, enum)) for enum in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT))
    found = {told.id: _profile(enum, told, total) for enum, told in reversed([(enum, told) for enum, told in asked if told is not None])}
    return tuple(sorted(found.values(), key=lambda profile: profile.enum))


def _gpu_instance_profile(
    handle: pynvml.c_nvmlDevice_t, enum: int
) -> pynvml.c_nvmlGpuInstanceProfileInfo_v2_t | pynvml.c_nvmlGpuInstanceProfileInfo_t | None:
    """What NVML tells of a profile; None for one the GPU does not have."""
    return _profile_or_none(functools.partial(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, enum))


def _profile_or_none(ask: Callable[[int], Result]) -> Result | None:
    """A profile by the newest call the library knows; ``ask`` takes the version."""
    for version in (_V2, _V1):
        try:
            return ask(version)
        except pynvml.NVMLError as error:
            code = session.code_of(error)
            if code in _NO_SUCH_PROFILE:
                return None
            if version == _V1 or code not in _OLD_LIBRARY:
                raise
    return None


def _profile(enum: int, told: pynvml.c_nvmlGpuInstanceProfileInfo_t, total_mib: int) -> port.GpuInstanceProfile:
    if isinstance(told, pynvml.c_nvmlGpuInstanceProfileInfo_v2_t):
        name = nvml_names.profile_name(told.name)
    else:
        name = nvml_names.computed_profile_name(enum, told.sliceCount, told.memorySizeMB, total_mib)
    return port.GpuInstanceProfile(
        enum=enum,
        id=told.id,
        name=name,
        slices=told.sliceCount,
        instances=told.instanceCount,
        multiprocessors=told.multiprocessorCount,
        copy_engines=told.copyEngineCount,
        decoders=told.decoderCount,
        encoders=told.encoderCount,
        jpeg_engines=told.jpegCount,
        ofa_engines=told.ofaCount,
        memory_mib=told.memorySizeMB,
    )


def possible_placements(handle: pynvml.c_nvmlDevice_t, profile_id: int) -> tuple[port.Placement, ...]:
    """Where an instance of a profile may lie, sorted."""
    count = ctypes.c_uint(0)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, None, ctypes.byref(count))
    found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, found, ctypes.byref(count))
    return tuple(sorted(port.Placement(start=item.start, size=item.size) for item in found[: count.value]))


def gpu_instances(handle: pynvml.c_nvmlDevice_t, profiles: Sequence[port.GpuInstanceProfile]) -> tuple[port.GpuInstance, ...]:
    """All GPU instances, by placement."""
    found: list[port.GpuInstance] = []
    for profile in profiles:
        count = ctypes.c_uint(profile.instances)
        listed = (pynvml.c_nvmlGpuInstance_t * profile.instances)()
        pynvml.nvmlDeviceGetGpuInstances(handle, profile.id, listed, ctypes.byref(count))
        found += map(instance, listed[: count.value])
    return tuple(sorted(found, key=lambda item: item.placement))


def instance(handle: pynvml.c_nvmlGpuInstance_t) -> port.GpuInstance:
    """A GPU instance from its handle."""
    told = pynvml.nvmlGpuInstanceGetInfo(handle)
    placement = port.Placement(start=told.placement.start, size=told.placement.size)
    return port.GpuInstance(id=told.id, profile_id=told.profileId, placement=placement)


def compute_profiles(instance: pynvml.c_nvmlGpuInstance_t) -> Mapping[int, pynvml.c_nvmlComputeInstanceProfileInfo_t]:
    """The compute instance profiles of an instance, by enum."""
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    ask = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    asked = ((enum, _profile_or_none(functools.partial(ask, instance, enum, shared))) for enum in _COMPUTE_ENUMS)
    return {enum: told for enum, told in asked if told is not None}


_COMPUTE_ENUMS = range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)


def compute_instances(instance: pynvml.c_nvmlGpuInstance_t) -> tuple[port.ComputeInstance, ...]:
    """All compute instances of a GPU instance, by id."""
    found: dict[int, port.ComputeInstance] = {}
    for told in compute_profiles(instance).values():
        count = ctypes.c_uint(told.instanceCount)
        listed = (pynvml.c_nvmlComputeInstance_t * told.instanceCount)()
        pynvml.nvmlGpuInstanceGetComputeInstances(instance, told.id, listed, ctypes.byref(count))
        found |= {item.id: item for item in map(compute, listed[: count.value])}
    return tuple(found[key] for key in sorted(found))


def compute(handle: pynvml.c_nvmlComputeInstance_t) -> port.ComputeInstance:
    """A compute instance from its handle."""
    told = pynvml.nvmlComputeInstanceGetInfo_v2(handle)
    return port.ComputeInstance(id=told.id, profile_id=told.profileId, mig_uuid=pynvml.nvmlDeviceGetUUID(told.device))


def processes(handle: pynvml.c_nvmlDevice_t) -> Sequence[pynvml.c_nvmlProcessInfo_t]:
    """Who has a context on a GPU, for compute or graphics."""
    graphics = session.optional(lambda: pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(handle))
    return [*pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle), *(graphics or ())]
