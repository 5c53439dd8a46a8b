"""The errors of the GPU driver's hardware interface: NVML's return codes, the call that failed, and what a code says about session and GPU."""

import contextlib
import enum
from collections.abc import Collection, Iterator, Mapping

import drakit

CALLS: Mapping[str, str] = {
    "boot_id": "/proc/sys/kernel/random/boot_id",
    "session_error": "nvmlInitWithFlags",
    "versions": "nvmlSystemGetDriverVersion",
    "gpus": "nvmlDeviceGetHandleByIndex",
    "ping": "nvmlDeviceGetMemoryInfo",
    "sensors": "nvmlDeviceGetMemoryInfo",
    "mig_mode": "nvmlDeviceGetMigMode",
    "set_mig_mode": "nvmlDeviceSetMigMode",
    "gpu_instance_profiles": "nvmlDeviceGetGpuInstanceProfileInfoV",
    "possible_placements": "nvmlDeviceGetGpuInstancePossiblePlacements",
    "gpu_instances": "nvmlDeviceGetGpuInstances",
    "create_gpu_instance": "nvmlDeviceCreateGpuInstanceWithPlacement",
    "destroy_gpu_instance": "nvmlGpuInstanceDestroy",
    "compute_instance_profiles": "nvmlGpuInstanceGetComputeInstanceProfileInfo",
    "compute_instances": "nvmlGpuInstanceGetComputeInstances",
    "create_compute_instance": "nvmlGpuInstanceCreateComputeInstance",
    "destroy_compute_instance": "nvmlComputeInstanceDestroy",
    "running_processes": "nvmlDeviceGetComputeRunningProcesses",
    "device_majors": "/proc/devices",
    "capability_minors": "/proc/driver/nvidia/capabilities",
    "compute_mode": "nvmlDeviceGetComputeMode",
    "set_compute_mode": "nvmlDeviceSetComputeMode",
    "set_time_slice": "nvidia-smi compute-policy",
    "recovery_action": "nvmlDeviceGetFieldValues",
    "fabric": "nvmlDeviceGetGpuFabricInfoV",
    "events": "nvmlEventSetWait",
    "is_plugged": "/sys/bus/pci/devices",
    "population": "/sys/bus/pci/drivers/nvidia",
    "renew": "nvmlInitWithFlags",
    "lock_for_unbinding": "/proc/driver/nvidia/gpus/unbindLock",
    "unlock": "/proc/driver/nvidia/gpus/unbindLock",
}
"""The call that the errors of a method of the port name."""


class Code(enum.Enum):
    """NVML return codes that the driver handles (nvml.h, nvmlReturn_t)."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    MEMORY = 20
    INSUFFICIENT_RESOURCES = 23
    ARGUMENT_VERSION_MISMATCH = 25
    NOT_READY = 27
    INVALID_STATE = 29
    UNKNOWN = 999


# The errors of a machine whose NVIDIA driver is absent, unloaded or half upgraded.
NO_DRIVER = frozenset({Code.LIBRARY_NOT_FOUND, Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH})
# Errors of the session, the library or the kernel driver. While no GPU answers, they do not show which GPU is faulty. A GPU that returns one while
# another GPU answers gets a NoSchedule taint, and its pods keep running.
SESSION_ERRORS = NO_DRIVER | {
    *(Code.UNINITIALIZED, Code.NO_PERMISSION, Code.FUNCTION_NOT_FOUND, Code.OPERATING_SYSTEM, Code.MEMORY, Code.ARGUMENT_VERSION_MISMATCH),
}
# Errors that are a GPU's at any call. NOT_FOUND is only at ``ping``: elsewhere it may be that of an instance.
FAILED_GPU = frozenset({Code.GPU_IS_LOST, Code.RESET_REQUIRED})


class CallError(drakit.HardwareError):
    """A failed NVML call, with its return code."""

    def __init__(self, call: str, code: Code, detail: str = "") -> None:
        super().__init__(call, f"{code.name} ({detail})" if detail else code.name)
        self.code = code


@contextlib.contextmanager
def ignoring(codes: Collection[Code]) -> Iterator[None]:
    """Ignore errors of these codes in this context; raise all others."""
    try:
        yield
    except CallError as error:
        if error.code not in codes:
            raise
