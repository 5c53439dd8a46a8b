"""The GPUs of this machine, read through NVML.

A session begins with the first call that needs one. While there is no library or no kernel driver, or the two differ, every such call raises that
error and the next one tries again: so a driver that is installed, loaded or upgraded later is used without a restart. Handles are cached by UUID,
because NVML can take seconds to find one. A handle that NVML rejects, as after a reset of the GPU or a reload of the driver, is fetched again. A
value that NVML does not support is None. Errors are CallError under the name of the port's method, with NVML's return code.
"""

import ctypes
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypeVar

import pynvml

import drakit
from drakit_gpu import driver_root, host, nvml_errors, port, programs
from drakit_gpu.health import signals
from drakit_gpu.nvml import events, instances, library, properties, session

Result = TypeVar("Result")

_log = drakit.get_logger(__name__)
_STALE = frozenset(
    {nvml_errors.Code.UNINITIALIZED, nvml_errors.Code.INVALID_ARGUMENT, nvml_errors.Code.GPU_IS_LOST, nvml_errors.Code.DRIVER_NOT_LOADED}
)

_ENDED = frozenset({nvml_errors.Code.UNINITIALIZED, nvml_errors.Code.DRIVER_NOT_LOADED, nvml_errors.Code.LIB_RM_VERSION_MISMATCH})

_COMPUTE_MODES = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: port.ComputeMode.DEFAULT,
    pynvml.NVML_COMPUTEMODE_PROHIBITED: port.ComputeMode.PROHIBITED,
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: port.ComputeMode.EXCLUSIVE_PROCESS,
}


_SMI_SECONDS = 15.0
_TIME_SLICE_NUMBERS: Mapping[port.TimeSlice, str] = {
    port.TimeSlice.DEFAULT: "0",
    port.TimeSlice.SHORT: "1",
    port.TimeSlice.MEDIUM: "2",
    port.TimeSlice.LONG: "3",
}


class NvidiaSmi:
    """nvidia-smi of a driver root."""

    def __init__(self, root: driver_root.DriverRoot) -> None:
        self._root = root

    def set_time_slice(self, gpu: port.GpuUuid, interval: port.TimeSlice) -> None:
        """Change the time slice of a GPU; raises CallError, NOT_SUPPORTED where nvidia-smi is missing or reports that."""
        program = self._root.program("nvidia-smi")
        if program is None:
            raise nvml_errors.CallError(
                nvml_errors.CALLS["set_time_slice"], nvml_errors.Code.NOT_SUPPORTED, f"no nvidia-smi below {self._root.path}"
            )
        preloaded = self._root.library(library.NAME)
        env = {} if preloaded is None else {"LD_PRELOAD": str(preloaded)}
        try:
            programs.run_program(
                program, "compute-policy", "-i", gpu, "--set-timeslice", _TIME_SLICE_NUMBERS[interval], seconds=_SMI_SECONDS, env=env
            )
        except programs.ProgramError as error:
            unsupported = "not supported" in str(error).lower()
            raise nvml_errors.CallError(
                nvml_errors.CALLS["set_time_slice"], nvml_errors.Code.NOT_SUPPORTED if unsupported else nvml_errors.Code.UNKNOWN, str(error)
            ) from error


class NvmlGpus(port.GpuPort):
    """The GPUs of this machine.

    ``load`` returns the loaded C library for each session, ``system`` reads the kernel's files, ``tools`` runs nvidia-smi.
    """

    def __init__(self, load: Callable[[], object], *, system: host.Host | None = None, tools: NvidiaSmi | None = None) -> None:
        self._load = load
        self._host = system or host.Host()
        self._tools = tools or NvidiaSmi(driver_root.DriverRoot())
        self._handles: dict[port.GpuUuid, pynvml.c_nvmlDevice_t] = {}
        self._addresses: dict[port.GpuUuid, str] = {}
        self._gpus: dict[port.GpuUuid, port.Gpu] = {}
        self._versions: port.Versions | None = None
        self._profiles: dict[port.GpuUuid, tuple[port.GpuInstanceProfile, ...]] = {}
        self._compute_profiles: dict[tuple[port.GpuUuid, int], instances.ComputeProfiles] = {}
        self._uuids: dict[int, port.GpuUuid] = {}
        self._sessions = session.SessionCounter()
        self._silent: tuple[port.SilentGpu, ...] = ()
        self._is_open = False
        self._failure = nvml_errors.CallError(nvml_errors.CALLS["session_error"], nvml_errors.Code.UNINITIALIZED)

    @classmethod
    def open(
        cls, path: pathlib.Path | None = None, *, root: driver_root.DriverRoot | None = None, kernel_root: pathlib.Path = pathlib.Path("/")
    ) -> Self:
        """Return this machine's GPUs with the library at a path (None: that of the driver root, or what the loader finds)."""
        root = root or driver_root.DriverRoot()
        return cls(functools.partial(library.load, path, root), system=host.of_this_machine(kernel_root), tools=NvidiaSmi(root))

    def close(self) -> None:
        """End the session."""
        if self._is_open:
            self._is_open = False
            session.end()

    def session_error(self) -> nvml_errors.CallError | None:
        try:
            self._count()
        except nvml_errors.CallError as error:
            return error
        return None

    def boot_id(self) -> str:
        return self._host.boot_id()

    def versions(self) -> port.Versions:
        """Return the versions. They are read once a session, because a reload of the driver ends the session."""
        if self._versions is None:
            self._ensure_session()
            with session.calling("versions"):
                self._versions = properties.versions()
        return self._versions

    def census(self) -> port.Census:
        """Return all GPUs that NVML counts. Log a GPU that cannot be identified once, and again when its error changes."""
        count = self._count()
        answers = [self._by_index(index) for index in range(count)]
        gpus = sorted((answer for answer in answers if isinstance(answer, port.Gpu)), key=lambda gpu: gpu.minor)
        silent = tuple(answer for answer in answers if isinstance(answer, port.SilentGpu))
        for silent_gpu in silent:
            if silent_gpu not in self._silent:
                _log.warning("GPU does not answer", index=silent_gpu.index, count=count, error=silent_gpu.error)
        self._silent = silent
        return port.Census(gpus=tuple(gpus), silent=silent)

    def ping(self, gpu: port.Gpu) -> None:
        """Read name and memory, for which nvml.h documents GPU_IS_LOST."""
        self._addresses[gpu.uuid] = gpu.pci_bus_id
        self._on(gpu.uuid, "ping", _read_basics)

    def gpu(self, uuid: port.GpuUuid) -> port.Gpu | None:
        """Return one GPU without a call to any other: a GPU that hangs does not block claims on others. One that was read is only pinged."""
        try:
            if uuid in self._gpus:
                self._on(uuid, "gpus", _read_basics)
            if uuid not in self._gpus:
                self._gpus[uuid] = self._on(uuid, "gpus", lambda handle: properties.gpu(handle, self._host))
            return self._gpus.get(uuid)
        except nvml_errors.CallError as error:
            if error.code is not nvml_errors.Code.NOT_FOUND:
                _log.warning("GPU does not answer", gpu=uuid, error=str(error))
            return None

    def known_gpu(self, uuid: port.GpuUuid) -> port.Gpu | None:
        return self._gpus.get(uuid) or self.gpu(uuid)

    def mig_mode(self, gpu: port.GpuUuid) -> port.MigMode | None:
        modes = self._on(gpu, "mig_mode", lambda handle: session.optional(lambda: pynvml.nvmlDeviceGetMigMode(handle)))
        if modes is None:
            return None
        current, pending = (mode == pynvml.NVML_DEVICE_MIG_ENABLE for mode in modes)
        return port.MigMode(current=current, pending=pending)

    def set_mig_mode(self, gpu: port.GpuUuid, *, enabled: bool) -> None:
        call = "set_mig_mode"
        mode = pynvml.NVML_DEVICE_MIG_ENABLE if enabled else pynvml.NVML_DEVICE_MIG_DISABLE
        status = self._on(gpu, call, lambda handle: pynvml.nvmlDeviceSetMigMode(handle, mode))
        self._drop_handle(gpu)  # The change may have reset the GPU.
        if status != pynvml.NVML_SUCCESS:
            raise nvml_errors.CallError(
                nvml_errors.CALLS[call], session.CODES.get(status, nvml_errors.Code.UNKNOWN), "the mode is pending and not active"
            )

    def gpu_instance_profiles(self, gpu: port.GpuUuid) -> Sequence[port.GpuInstanceProfile]:
        profiles = self._profiles.get(gpu)
        if profiles is None:
            self._profiles[gpu] = profiles = self._on(gpu, "gpu_instance_profiles", instances.gpu_instance_profiles)
        return profiles

    def possible_placements(self, gpu: port.GpuUuid, profile_id: int) -> Sequence[port.Placement]:
        return self._on(gpu, "possible_placements", lambda handle: instances.possible_placements(handle, profile_id))

    def gpu_instances(self, gpu: port.GpuUuid, profile_id: int | None = None) -> Sequence[port.GpuInstance]:
        profiles = [profile for profile in self.gpu_instance_profiles(gpu) if profile_id in {None, profile.id}]
        try:
            return self._on(gpu, "gpu_instances", lambda handle: instances.gpu_instances(handle, profiles))
        except nvml_errors.CallError as error:
            if error.code is nvml_errors.Code.NOT_SUPPORTED:
                return ()
            raise

    def create_gpu_instance(self, gpu: port.GpuUuid, profile_id: int, placement: port.Placement) -> port.GpuInstance:
        wanted = pynvml.c_nvmlGpuInstancePlacement_t(placement.start, placement.size)

        def create(handle: pynvml.c_nvmlDevice_t) -> port.GpuInstance:
            return instances.instance(pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile_id, ctypes.byref(wanted)))

        return self._on(gpu, "create_gpu_instance", create)

    def destroy_gpu_instance(self, gpu: port.GpuUuid, instance_id: int) -> None:
        self._in(gpu, instance_id, "destroy_gpu_instance", pynvml.nvmlGpuInstanceDestroy)

    def compute_instance_profiles(self, gpu: port.GpuUuid, instance: port.GpuInstance) -> Sequence[port.ComputeInstanceProfile]:
        profiles = self._compute_profiles.get((gpu, instance.profile_id))
        if profiles is None:
            read = functools.partial(self._profiles_of, gpu, instance.profile_id)
            profiles = self._in(gpu, instance.id, "compute_instance_profiles", read)
        return tuple(port.ComputeInstanceProfile(enum=enum, id=profile.id, slices=profile.sliceCount) for enum, profile in profiles.items())

    def compute_instances(self, gpu: port.GpuUuid, instance_id: int) -> Sequence[port.ComputeInstance]:
        def read(handle: pynvml.c_nvmlGpuInstance_t) -> Sequence[port.ComputeInstance]:
            return instances.compute_instances(handle, self._profiles_of(gpu, instances.instance(handle).profile_id, handle))

        return self._in(gpu, instance_id, "compute_instances", read)

    def create_compute_instance(self, gpu: port.GpuUuid, instance_id: int, profile_id: int) -> port.ComputeInstance:
        def create(instance: pynvml.c_nvmlGpuInstance_t) -> port.ComputeInstance:
            return instances.compute(pynvml.nvmlGpuInstanceCreateComputeInstance(instance, profile_id))

        return self._in(gpu, instance_id, "create_compute_instance", create)

    def destroy_compute_instance(self, gpu: port.GpuUuid, instance_id: int, compute_id: int) -> None:
        def destroy(instance: pynvml.c_nvmlGpuInstance_t) -> None:
            pynvml.nvmlComputeInstanceDestroy(pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, compute_id))

        self._in(gpu, instance_id, "destroy_compute_instance", destroy)

    def running_processes(self, gpu: port.GpuUuid, instance_id: int | None = None) -> Sequence[int]:
        processes = self._on(gpu, "running_processes", instances.processes)
        return tuple(sorted({process.pid for process in processes if instance_id is None or process.gpuInstanceId == instance_id}))

    def device_majors(self) -> port.DeviceMajors:
        return self._host.device_majors()

    def capability_minors(self, gpu: port.GpuUuid, instance_id: int, compute_id: int) -> port.CapabilityMinors:
        known = self.known_gpu(gpu)
        if known is None:
            raise nvml_errors.CallError(nvml_errors.CALLS["capability_minors"], nvml_errors.Code.NOT_FOUND, gpu)
        return self._host.capability_minors(known.minor, instance_id, compute_id)

    def compute_mode(self, gpu: port.GpuUuid) -> port.ComputeMode | None:
        mode = self._on(gpu, "compute_mode", lambda handle: session.optional(lambda: pynvml.nvmlDeviceGetComputeMode(handle)))
        return None if mode is None else _COMPUTE_MODES.get(mode)

    def set_compute_mode(self, gpu: port.GpuUuid, mode: port.ComputeMode) -> None:
        number = next(number for number, member in _COMPUTE_MODES.items() if member is mode)
        self._on(gpu, "set_compute_mode", lambda handle: pynvml.nvmlDeviceSetComputeMode(handle, number))

    def set_time_slice(self, gpu: port.GpuUuid, interval: port.TimeSlice) -> None:
        """Set the time slice by nvidia-smi, because NVML has no call for it."""
        self._tools.set_time_slice(gpu, interval)

    def recovery_action(self, gpu: port.GpuUuid) -> signals.RecoveryAction | None:
        return self._on(gpu, "recovery_action", properties.recovery_action)

    def fabric(self, gpu: port.GpuUuid) -> port.Fabric | None:
        return self._on(gpu, "fabric", properties.fabric)

    def sensors(self, gpu: port.GpuUuid) -> port.Sensors:
        return self._on(gpu, "sensors", properties.sensors)

    def events(self) -> signals.Events:
        """Open events for the GPUs that answer. A GPU that stopped answering in this session is still named by its handle."""
        self._ensure_session()
        number = self._sessions.number
        answering = [gpu.uuid for gpu in self.gpus()]
        handles = {uuid: handle for uuid in answering if (handle := self._handles.get(uuid)) is not None}
        return events.NvmlEvents(handles, self._sessions, number, self._uuids)

    def is_plugged(self, gpu: port.Gpu) -> bool:
        """Check sysfs; where it does not show the GPU, check whether NVML still knows its PCI address."""
        if self._host.has_device(gpu.pci_bus_id):
            return True
        try:
            pynvml.nvmlDeviceGetHandleByPciBusId(gpu.pci_bus_id)
        except pynvml.NVMLError as error:
            return session.code_of(error) is not nvml_errors.Code.NOT_FOUND
        return True

    def population(self) -> str:
        return self._host.population()

    def renew(self) -> None:
        """Start a new session, because NVML detects GPUs only at the start of one."""
        self._replace_session(self._sessions.number)

    def lock_for_unbinding(self, pci_bus_id: str) -> None:
        """End the session, which has every GPU open, and lock the GPU before another thread begins a new one."""
        with self._sessions.replacing(self._sessions.number):
            self._forget_session()
            self._host.lock_for_unbinding(pci_bus_id, locked=True)

    def unlock(self, pci_bus_id: str) -> None:
        self._host.lock_for_unbinding(pci_bus_id, locked=False)

    def _count(self) -> int:
        """Return how many GPUs NVML counts. A session that has ended is replaced."""
        self._ensure_session()
        number = self._sessions.number
        try:
            with session.calling("gpus"):
                return pynvml.nvmlDeviceGetCount()
        except nvml_errors.CallError as error:
            if error.code not in _ENDED:
                raise
        self._replace_session(number)
        with session.calling("gpus"):
            return pynvml.nvmlDeviceGetCount()

    def _by_index(self, index: int) -> port.Gpu | port.SilentGpu:
        try:
            with session.calling("gpus"):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                gpu = properties.gpu(handle, self._host)
        except nvml_errors.CallError as error:
            return port.SilentGpu(index=index, error=str(error))
        self._addresses[gpu.uuid] = gpu.pci_bus_id
        self._gpus[gpu.uuid] = gpu
        self._cache_handle(gpu.uuid, handle)
        return gpu

    def _on(self, gpu: port.GpuUuid, call: str, act: Callable[[pynvml.c_nvmlDevice_t], Result]) -> Result:
        """Run ``act`` on the GPU's handle. A cached handle that NVML rejects is fetched again once: the rejected call had no effect."""
        self._ensure_session()
        number, cached = self._sessions.number, self._handles.get(gpu)
        if cached is not None:
            try:
                with session.calling(call):
                    return act(cached)
            except nvml_errors.CallError as error:
                if error.code not in _STALE:
                    raise
                self._drop_handle(gpu)
                self._gpus.pop(gpu, None)
                if error.code in _ENDED:
                    self._replace_session(number)
        with session.calling(call):
            fresh = self._handle(gpu)
            self._cache_handle(gpu, fresh)
            return act(fresh)

    def _profiles_of(self, gpu: port.GpuUuid, profile_id: int, instance: pynvml.c_nvmlGpuInstance_t) -> instances.ComputeProfiles:
        """Return the compute instance profiles of a GPU instance; those of one profile are equal, so they are read once."""
        profiles = self._compute_profiles.get((gpu, profile_id))
        if profiles is None:
            self._compute_profiles[gpu, profile_id] = profiles = instances.compute_profiles(instance)
        return profiles

    def _handle(self, gpu: port.GpuUuid) -> pynvml.c_nvmlDevice_t:
        """Return a new handle by UUID; by PCI address where that fails, because NVML finds no GPU by UUID while another GPU is lost."""
        try:
            return pynvml.nvmlDeviceGetHandleByUUID(gpu)
        except pynvml.NVMLError:
            if (address := self._addresses.get(gpu)) is None:
                raise
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(address)
        if pynvml.nvmlDeviceGetUUID(handle) != gpu:
            raise nvml_errors.CallError("nvmlDeviceGetHandleByPciBusId", nvml_errors.Code.NOT_FOUND, f"another GPU is at {address}")
        return handle

    def _in(self, gpu: port.GpuUuid, instance_id: int, call: str, act: Callable[[pynvml.c_nvmlGpuInstance_t], Result]) -> Result:
        """Run ``act`` on the handle of a GPU instance."""
        return self._on(gpu, call, lambda handle: act(pynvml.nvmlDeviceGetGpuInstanceById(handle, instance_id)))

    def _ensure_session(self) -> None:
        """Begin a session if there is none. Raises CallError where NVML does not start, also in another thread meanwhile."""
        if not self._is_open:
            self._replace_session(self._sessions.number)
        if not self._is_open:
            raise self._failure

    def _forget_session(self) -> None:
        """End the session with all that was read in it. The caller is replacing it."""
        self._handles.clear()
        self._gpus.clear()
        self._profiles.clear()
        self._compute_profiles.clear()
        self._uuids.clear()
        self._versions = None
        self.close()

    def _replace_session(self, number: int) -> None:
        """Replace the session of that number, unless another thread did so meanwhile."""
        with self._sessions.replacing(number) as is_ours:
            if is_ours:
                self._forget_session()
                try:
                    session.use(self._load())
                    session.start()
                except nvml_errors.CallError as error:
                    self._failure = error
                    raise
                self._is_open = True

    def _cache_handle(self, gpu: port.GpuUuid, handle: pynvml.c_nvmlDevice_t) -> None:
        self._handles[gpu] = handle
        self._uuids[session.address(handle)] = gpu

    def _drop_handle(self, gpu: port.GpuUuid) -> None:
        """Drop the cached handle and profiles of a GPU that may have been reset."""
        self._handles.pop(gpu, None)
        self._profiles.pop(gpu, None)
        for key in [key for key in self._compute_profiles if key[0] == gpu]:
            self._compute_profiles.pop(key, None)


def _read_basics(handle: pynvml.c_nvmlDevice_t) -> None:
    """Read name and memory, as a test that the GPU answers. Raises NVMLError where it does not."""
    session.optional(lambda: pynvml.nvmlDeviceGetName(handle))
    session.optional(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
