"""Real GPUs: the port on NVML, through NVIDIA's own binding (nvidia-ml-py), of which this module is the only importer.

One session lasts as long as the object. Handles are kept by UUID, because NVML can take seconds to find one, and fetched anew when NVML disowns
them, as it does after a GPU was reset or the driver reloaded. Profiles are asked for by NVML's enum and named by their hardware id everywhere else.
Whatever NVML may not support is None. Errors are CallError under the name of the port's method, with NVML's return code.
"""

import contextlib
import ctypes
import functools
import logging
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import pynvml

from drakit.core import errors
from drakit.devices.gpu import host, port, words

Result = TypeVar("Result")

LIBRARY = "libnvidia-ml.so.1"

_log = logging.getLogger(__name__)
_MIB = 1 << 20
_V1, _V2 = 1, 2
# nvml.h: GPU_NOT_FOUND is what newer libraries say for an unknown UUID.
_CODES: Mapping[int, port.Code] = {**{code.value: code for code in port.Code}, 28: port.Code.NOT_FOUND}
_ABSENT = frozenset({port.Code.NOT_SUPPORTED, port.Code.FUNCTION_NOT_FOUND, port.Code.ARGUMENT_VERSION_MISMATCH})
_NO_SUCH_PROFILE = frozenset({port.Code.NOT_SUPPORTED, port.Code.INVALID_ARGUMENT})
_OLD_LIBRARY = frozenset({port.Code.FUNCTION_NOT_FOUND, port.Code.ARGUMENT_VERSION_MISMATCH})
_STALE = frozenset({port.Code.UNINITIALIZED, port.Code.INVALID_ARGUMENT, port.Code.GPU_IS_LOST, port.Code.DRIVER_NOT_LOADED})
_FIXES: Mapping[port.Code, str] = {
    port.Code.LIBRARY_NOT_FOUND: "install the NVIDIA driver, or give the path of libnvidia-ml.so.1, or choose a mock machine",
    port.Code.DRIVER_NOT_LOADED: "load the NVIDIA kernel driver (nvidia-smi must work), or choose a mock machine",
    port.Code.LIB_RM_VERSION_MISMATCH: "library and kernel driver differ: reboot, or reload the kernel driver",
    port.Code.NO_PERMISSION: "run as root, or give access to /dev/nvidiactl",
}


class NvmlGpus(port.GpuPort):
    """The GPUs of this machine; raises HardwareError on construction when there is no working NVML.

    ``library`` is the loaded C library (None: found by the loader's own search), ``system`` what the kernel tells.
    """

    def __init__(self, library: object | None = None, *, system: host.Host | None = None) -> None:
        self._host = system or host.Host()
        self._guard = threading.Lock()
        self._handles: dict[port.GpuUuid, pynvml.c_nvmlDevice_t] = {}
        self._profiles: dict[port.GpuUuid, tuple[port.GpuInstanceProfile, ...]] = {}
        # The binding offers no other way to choose a library, and keeps the functions of the one it first used.
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - the binding has no public way to forget them
        _start()

    @classmethod
    def open(cls, path: pathlib.Path | None = None) -> "NvmlGpus":
        """The GPUs as a library at a path shows them; raises SettingsError for a path that cannot be loaded, HardwareError as the class does."""
        if path is None:
            return cls()
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise errors.SettingsError(f"cannot load {path}: {error}; it must be the driver's {LIBRARY}", key="gpu.library") from error
        return cls(library)

    def close(self) -> None:
        """End the session."""
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def boot_id(self) -> str:
        return self._host.boot_id()

    def versions(self) -> port.Versions:
        with _call("versions"):
            cuda = words.cuda_version(pynvml.nvmlSystemGetCudaDriverVersion_v2())
            return port.Versions(driver=pynvml.nvmlSystemGetDriverVersion(), cuda=cuda)

    def gpus(self) -> Sequence[port.Gpu]:
        """All GPUs that say who they are; one that does not is left out and logged."""
        with _call("gpus"):
            count = pynvml.nvmlDeviceGetCount()
        found = [gpu for index in range(count) if (gpu := self._gpu_or_none(index)) is not None]
        return tuple(sorted(found, key=lambda gpu: gpu.minor))

    def mig_mode(self, gpu: port.GpuUuid) -> port.MigMode | None:
        try:
            current, pending = self._on(gpu, "mig_mode", pynvml.nvmlDeviceGetMigMode)
        except port.CallError as error:
            if error.code in _ABSENT:
                return None
            raise
        return port.MigMode(current=current == pynvml.NVML_DEVICE_MIG_ENABLE, pending=pending == pynvml.NVML_DEVICE_MIG_ENABLE)

    def set_mig_mode(self, gpu: port.GpuUuid, *, enabled: bool) -> None:
        call = "set_mig_mode"
        mode = pynvml.NVML_DEVICE_MIG_ENABLE if enabled else pynvml.NVML_DEVICE_MIG_DISABLE
        status = self._on(gpu, call, lambda handle: pynvml.nvmlDeviceSetMigMode(handle, mode))
        self._forget(gpu)  # the change may have reset the GPU
        if status != pynvml.NVML_SUCCESS:
            raise port.CallError(port.CALLS[call], _CODES.get(status, port.Code.UNKNOWN), "the mode is pending and not active")

    def gpu_instance_profiles(self, gpu: port.GpuUuid) -> Sequence[port.GpuInstanceProfile]:
        if gpu not in self._profiles:
            self._profiles[gpu] = self._on(gpu, "gpu_instance_profiles", _gpu_instance_profiles)
        return self._profiles[gpu]

    def possible_placements(self, gpu: port.GpuUuid, profile_id: int) -> Sequence[port.Placement]:
        return self._on(gpu, "possible_placements", lambda handle: _possible_placements(handle, profile_id))

    def gpu_instances(self, gpu: port.GpuUuid) -> Sequence[port.GpuInstance]:
        profiles = self.gpu_instance_profiles(gpu)
        try:
            return self._on(gpu, "gpu_instances", lambda handle: _gpu_instances(handle, profiles))
        except port.CallError as error:
            if error.code is port.Code.NOT_SUPPORTED:
                return ()
            raise

    def create_gpu_instance(self, gpu: port.GpuUuid, profile_id: int, placement: port.Placement) -> port.GpuInstance:
        wanted = pynvml.c_nvmlGpuInstancePlacement_t(placement.start, placement.size)

        def create(handle: pynvml.c_nvmlDevice_t) -> port.GpuInstance:
            return _instance(pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile_id, ctypes.byref(wanted)))

        return self._on(gpu, "create_gpu_instance", create)

    def destroy_gpu_instance(self, gpu: port.GpuUuid, instance_id: int) -> None:
        self._in(gpu, instance_id, "destroy_gpu_instance", pynvml.nvmlGpuInstanceDestroy)

    def compute_instance_profiles(self, gpu: port.GpuUuid, instance_id: int) -> Sequence[port.ComputeInstanceProfile]:
        found = self._in(gpu, instance_id, "compute_instance_profiles", _compute_profiles)
        return tuple(port.ComputeInstanceProfile(enum=enum, id=told.id, slices=told.sliceCount) for enum, told in found.items())

    def compute_instances(self, gpu: port.GpuUuid, instance_id: int) -> Sequence[port.ComputeInstance]:
        return self._in(gpu, instance_id, "compute_instances", _compute_instances)

    def create_compute_instance(self, gpu: port.GpuUuid, instance_id: int, profile_id: int) -> port.ComputeInstance:
        def create(instance: pynvml.c_nvmlGpuInstance_t) -> port.ComputeInstance:
            return _compute(pynvml.nvmlGpuInstanceCreateComputeInstance(instance, profile_id))

        return self._in(gpu, instance_id, "create_compute_instance", create)

    def destroy_compute_instance(self, gpu: port.GpuUuid, instance_id: int, compute_id: int) -> None:
        def destroy(instance: pynvml.c_nvmlGpuInstance_t) -> None:
            pynvml.nvmlComputeInstanceDestroy(pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, compute_id))

        self._in(gpu, instance_id, "destroy_compute_instance", destroy)

    def running_processes(self, gpu: port.GpuUuid, instance_id: int | None = None) -> Sequence[int]:
        found = self._on(gpu, "running_processes", _processes)
        return tuple(sorted({each.pid for each in found if instance_id is None or each.gpuInstanceId == instance_id}))

    def device_majors(self) -> port.DeviceMajors:
        return self._host.device_majors()

    def capability_minors(self, gpu: port.GpuUuid, instance_id: int, compute_id: int) -> port.CapabilityMinors:
        minor = self._on(gpu, "capability_minors", pynvml.nvmlDeviceGetMinorNumber)
        return self._host.capability_minors(minor, instance_id, compute_id)

    def _gpu_or_none(self, index: int) -> port.Gpu | None:
        try:
            with _call("gpus"):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                gpu = self._gpu(handle)
        except port.CallError as error:
            _log.warning("a GPU does not answer and is left out: index=%d error=%s", index, error)
            return None
        self._handles[gpu.uuid] = handle
        return gpu

    def _gpu(self, handle: pynvml.c_nvmlDevice_t) -> port.Gpu:
        pci_bus_id = words.pci_bus_id(pynvml.nvmlDeviceGetPciInfo(handle).busId)
        memory = _optional(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        virtualization = _optional(lambda: pynvml.nvmlDeviceGetVirtualizationMode(handle))
        return port.Gpu(
            uuid=port.GpuUuid(pynvml.nvmlDeviceGetUUID(handle)),
            minor=pynvml.nvmlDeviceGetMinorNumber(handle),
            product_name=pynvml.nvmlDeviceGetName(handle),
            pci_bus_id=pci_bus_id,
            memory=memory,
            brand=words.brand(_optional(lambda: pynvml.nvmlDeviceGetBrand(handle))),
            architecture=words.architecture(_optional(lambda: pynvml.nvmlDeviceGetArchitecture(handle))),
            compute_capability=_optional(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
            pcie_root=self._host.pcie_root(pci_bus_id),
            numa_node=self._host.numa_node(pci_bus_id),
            is_vgpu=virtualization == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU,
        )

    def _on(self, gpu: port.GpuUuid, call: str, act: Callable[[pynvml.c_nvmlDevice_t], Result]) -> Result:
        """``act`` on the GPU's handle; a kept handle that NVML disowns is fetched anew, once: a call it refuses so had no effect."""
        kept = self._handles.get(gpu)
        if kept is not None:
            try:
                with _call(call):
                    return act(kept)
            except port.CallError as error:
                if error.code not in _STALE:
                    raise
                self._refresh(gpu, error.code)
        with _call(call):
            fresh = pynvml.nvmlDeviceGetHandleByUUID(gpu)
            self._handles[gpu] = fresh
            return act(fresh)

    def _in(self, gpu: port.GpuUuid, instance_id: int, call: str, act: Callable[[pynvml.c_nvmlGpuInstance_t], Result]) -> Result:
        """``act`` on the handle of a GPU instance."""
        return self._on(gpu, call, lambda handle: act(pynvml.nvmlDeviceGetGpuInstanceById(handle, instance_id)))

    def _refresh(self, gpu: port.GpuUuid, code: port.Code) -> None:
        self._forget(gpu)
        if code in {port.Code.UNINITIALIZED, port.Code.DRIVER_NOT_LOADED}:
            with self._guard:
                self._handles.clear()
                self.close()
                _start()

    def _forget(self, gpu: port.GpuUuid) -> None:
        self._handles.pop(gpu, None)
        self._profiles.pop(gpu, None)


def _start() -> None:
    """Begin the session; without the flag NVML refuses to start on a machine whose last GPU is gone."""
    try:
        pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
    except pynvml.NVMLError as error:
        code = _CODES.get(error.value, port.Code.UNKNOWN)
        raise port.CallError("nvmlInitWithFlags", code, _FIXES.get(code, str(error))) from error


@contextlib.contextmanager
def _call(call: str) -> Iterator[None]:
    try:
        yield
    except pynvml.NVMLError as error:
        raise port.CallError(port.CALLS[call], _CODES.get(error.value, port.Code.UNKNOWN), str(error)) from error


def _optional(read: Callable[[], Result]) -> Result | None:
    try:
        return read()
    except pynvml.NVMLError as error:
        if _CODES.get(error.value) in _ABSENT:
            return None
        raise


def _gpu_instance_profiles(handle: pynvml.c_nvmlDevice_t) -> tuple[port.GpuInstanceProfile, ...]:
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
            code = _CODES.get(error.value)
            if code in _NO_SUCH_PROFILE:
                return None
            if version == _V1 or code not in _OLD_LIBRARY:
                raise
    return None


def _profile(enum: int, told: pynvml.c_nvmlGpuInstanceProfileInfo_t, total_mib: int) -> port.GpuInstanceProfile:
    if isinstance(told, pynvml.c_nvmlGpuInstanceProfileInfo_v2_t):
        name = words.profile_name(told.name)
    else:
        name = words.computed_profile_name(enum, told.sliceCount, told.memorySizeMB, total_mib)
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


def _possible_placements(handle: pynvml.c_nvmlDevice_t, profile_id: int) -> tuple[port.Placement, ...]:
    count = ctypes.c_uint(0)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, None, ctypes.byref(count))
    found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, found, ctypes.byref(count))
    return tuple(sorted(port.Placement(start=item.start, size=item.size) for item in found[: count.value]))


def _gpu_instances(handle: pynvml.c_nvmlDevice_t, profiles: Sequence[port.GpuInstanceProfile]) -> tuple[port.GpuInstance, ...]:
    found: list[port.GpuInstance] = []
    for profile in profiles:
        count = ctypes.c_uint(profile.instances)
        listed = (pynvml.c_nvmlGpuInstance_t * profile.instances)()
        pynvml.nvmlDeviceGetGpuInstances(handle, profile.id, listed, ctypes.byref(count))
        found += map(_instance, listed[: count.value])
    return tuple(sorted(found, key=lambda item: item.placement))


def _instance(handle: pynvml.c_nvmlGpuInstance_t) -> port.GpuInstance:
    told = pynvml.nvmlGpuInstanceGetInfo(handle)
    placement = port.Placement(start=told.placement.start, size=told.placement.size)
    return port.GpuInstance(id=told.id, profile_id=told.profileId, placement=placement)


def _compute_profiles(instance: pynvml.c_nvmlGpuInstance_t) -> Mapping[int, pynvml.c_nvmlComputeInstanceProfileInfo_t]:
    """The compute instance profiles of an instance, by enum."""
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    ask = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    asked = ((enum, _profile_or_none(functools.partial(ask, instance, enum, shared))) for enum in _COMPUTE_ENUMS)
    return {enum: told for enum, told in asked if told is not None}


_COMPUTE_ENUMS = range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)


def _compute_instances(instance: pynvml.c_nvmlGpuInstance_t) -> tuple[port.ComputeInstance, ...]:
    found: dict[int, port.ComputeInstance] = {}
    for told in _compute_profiles(instance).values():
        count = ctypes.c_uint(told.instanceCount)
        listed = (pynvml.c_nvmlComputeInstance_t * told.instanceCount)()
        pynvml.nvmlGpuInstanceGetComputeInstances(instance, told.id, listed, ctypes.byref(count))
        found |= {item.id: item for item in map(_compute, listed[: count.value])}
    return tuple(found[key] for key in sorted(found))


def _compute(handle: pynvml.c_nvmlComputeInstance_t) -> port.ComputeInstance:
    told = pynvml.nvmlComputeInstanceGetInfo_v2(handle)
    return port.ComputeInstance(id=told.id, profile_id=told.profileId, mig_uuid=pynvml.nvmlDeviceGetUUID(told.device))


def _processes(handle: pynvml.c_nvmlDevice_t) -> Sequence[pynvml.c_nvmlProcessInfo_t]:
    graphics = _optional(lambda: pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(handle))
    return [*pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle), *(graphics or ())]
