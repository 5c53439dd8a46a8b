"""The hardware interface of the GPU driver, in NVML's terms.

Every method is one NVML call, or a fixed sequence of them that reads one thing. GPUs are named by UUID. Profile ids are hardware ids
(``profileInfo.id``), never NVML's enum. A value that a GPU does not support is None. Methods raise only ``nvml_errors.CallError``, and several
threads may call them.
"""

import dataclasses
import enum
from collections.abc import Sequence
from typing import NewType, Protocol

from drakit_gpu import nvml_errors
from drakit_gpu.health import signals

GpuUuid = NewType("GpuUuid", str)

_SWITCHES_AT_ONCE = (9, 0)


class ComputeMode(enum.Enum):
    """The compute mode: how many processes may open a GPU for compute (nvml.h, nvmlComputeMode_t)."""

    DEFAULT = "Default"
    PROHIBITED = "Prohibited"
    EXCLUSIVE_PROCESS = "ExclusiveProcess"


class TimeSlice(enum.Enum):
    """The time a process runs on a GPU before the next one does (nvidia-smi compute-policy --set-timeslice)."""

    DEFAULT = "Default"
    SHORT = "Short"
    MEDIUM = "Medium"
    LONG = "Long"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Versions:
    """Versions of the GPU driver (``580.95.05``) and of the CUDA driver API (``13.0``), and the machine's confidential computing mode.

    ``cc_mode`` is ``on``, ``off`` or ``devtools``, the words of NVIDIA's node labels; None if the driver does not report it.
    """

    driver: str
    cuda: str
    cc_mode: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fabric:
    """The NVLink fabric state of a GPU (nvmlGpuFabricInfo): ``state`` as a word; the cluster's UUID and the clique, once registered.

    ``fault`` is why the GPU cannot use the fabric although registration has ended, in one word.
    """

    state: str
    fault: str = ""
    cluster: str | None = None
    clique: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class NvLinks:
    """The active NVLinks of a GPU: PCI addresses of the GPUs it is wired to, sorted, and whether any of its links goes to a switch."""

    gpus: tuple[str, ...] = ()
    switched: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as NVML and sysfs describe it.

    ``minor`` is N of /dev/nvidiaN. ``architecture`` and ``brand`` are NVML's enums as words, ``memory`` is in bytes, ``pci_bus_id`` as sysfs
    writes it (``0000:07:00.0``), ``pcie_root`` the root complex above it (``pci0000:00``), ``numa_nodes`` its NUMA node and those as near.
    ``is_vgpu`` is set in a virtual machine that was given a vGPU, whose partitions are its hypervisor's. ``module_id`` is the number of its socket
    on the baseboard, ``ecc`` whether error correction is on, ``addressing_mode`` ``HMM``, ``ATS`` or ``None`` in NVIDIA's words. A value that the GPU
    does not report is None.
    """

    uuid: GpuUuid
    minor: int
    product_name: str
    pci_bus_id: str
    memory: int | None = None
    brand: str | None = None
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    pcie_root: str | None = None
    numa_nodes: tuple[int, ...] = ()
    is_vgpu: bool = False
    serial: str | None = None
    module_id: int | None = None
    ecc: bool | None = None
    addressing_mode: str | None = None
    nvlinks: NvLinks = NvLinks()
    fabric: Fabric | None = None

    @property
    def switches_mig_at_once(self) -> bool:
        """Whether MIG mode can be changed without resetting the GPU: from Hopper (compute capability 9.0) on; not when that is unknown.

        Such a mode is also cleared when the driver is unloaded, so nothing can rely on it (MIG user guide, "Enable MIG Mode").
        """
        return self.compute_capability is not None and self.compute_capability >= _SWITCHES_AT_ONCE


@dataclasses.dataclass(frozen=True, kw_only=True)
class SilentGpu:
    """A GPU that the library counts but cannot identify: its index in the library, and the error."""

    index: int
    error: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Census:
    """The GPUs that the library counts: those that answer, by minor number, and those that do not, by index."""

    gpus: tuple[Gpu, ...] = ()
    silent: tuple[SilentGpu, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class MigMode:
    """The MIG mode of a GPU now and after the next reset."""

    current: bool
    pending: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuInstanceProfile:
    """A size a GPU instance can have (nvmlGpuInstanceProfileInfo_v2_t).

    ``name`` is without NVML's leading ``MIG ``, for example ``1g.5gb+me``. ``slices`` are compute slices, ``instances`` how many of this
    profile an empty GPU holds.
    """

    enum: int
    id: int
    name: str
    slices: int
    instances: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    memory_mib: int


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Placement:
    """Consecutive memory slices (nvmlGpuInstancePlacement_t)."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """The number after the last slice."""
        return self.start + self.size

    def overlaps(self, other: "Placement") -> bool:
        """Return whether both placements have a memory slice in common."""
        return self.start < other.end and other.start < self.end


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuInstance:
    """A GPU instance that exists; ``id`` is reused after it is destroyed (nvmlGpuInstanceInfo_t)."""

    id: int
    profile_id: int
    placement: Placement


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputeInstanceProfile:
    """A size a compute instance can have within its GPU instance."""

    enum: int
    id: int
    slices: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputeInstance:
    """A compute instance that exists; ``mig_uuid`` is the UUID of the MIG device it is (nvmlComputeInstanceInfo_t, nvmlDeviceGetUUID)."""

    id: int
    profile_id: int
    mig_uuid: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceMajors:
    """Major numbers of the character devices (/proc/devices). ``caps`` is None if the kernel driver has no MIG."""

    nvidia: int
    uvm: int
    caps: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CapabilityMinors:
    """Minor numbers of /dev/nvidia-caps/nvidia-capN that open a MIG device: that of its GPU instance and that of its compute instance."""

    gpu_instance: int
    compute_instance: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sensors:
    """What a GPU measures now; None if it does not report it.

    ``utilization`` is the share of the last second in which a kernel ran, from 0 to 1 (nvmlUtilization_t.gpu); no GPU in MIG mode reports it.
    ``memory_used`` is in bytes, ``temperature`` in degrees Celsius, ``power`` and the enforced ``power_limit`` in watts.
    """

    utilization: float | None = None
    memory_used: int | None = None
    temperature: int | None = None
    power: float | None = None
    power_limit: float | None = None


NO_SENSORS = Sensors()


class GpuPort(Protocol):
    """The GPUs of one node."""

    def boot_id(self) -> str:
        """Return the id of the machine's current boot; no instance survives a boot."""

    def session_error(self) -> nvml_errors.CallError | None:
        """Return why no GPU can be reached, None if calls are answered."""
        return None

    def versions(self) -> Versions:
        """Return the versions of the driver."""

    def census(self) -> Census:
        """Return every GPU that the library counts."""

    def gpus(self) -> Sequence[Gpu]:
        """Return the GPUs that answer, by minor number."""
        return self.census().gpus

    def gpu(self, uuid: GpuUuid) -> Gpu | None:
        """Return one GPU; None when it is not in the machine or does not answer. Its properties may be those of an earlier read."""
        return next((gpu for gpu in self.gpus() if gpu.uuid == uuid), None)

    def known_gpu(self, uuid: GpuUuid) -> Gpu | None:
        """Return one GPU with the properties of the last read, whether or not it still answers; ``gpu`` where it has not been read yet."""
        return self.gpu(uuid)

    def ping(self, gpu: Gpu) -> None:
        """Make a call that a lost GPU cannot answer. NOT_FOUND: it is not in the machine. Any other error: it does not answer."""

    def mig_mode(self, gpu: GpuUuid) -> MigMode | None:
        """Return the GPU's MIG mode; None when it has no MIG."""

    def set_mig_mode(self, gpu: GpuUuid, *, enabled: bool) -> None:
        """Turn MIG mode on or off. NOT_SUPPORTED: no MIG. IN_USE: instances or clients exist. RESET_REQUIRED: the change is pending."""

    def gpu_instance_profiles(self, gpu: GpuUuid) -> Sequence[GpuInstanceProfile]:
        """Return the profiles of the GPU, by enum; also while MIG is off."""

    def possible_placements(self, gpu: GpuUuid, profile_id: int) -> Sequence[Placement]:
        """Return the possible placements of a profile on an empty GPU; also while MIG is off."""

    def gpu_instances(self, gpu: GpuUuid, profile_id: int | None = None) -> Sequence[GpuInstance]:
        """Return the instances of all owners, of one profile or of all, with or without compute instances, by placement; none while MIG is off."""

    def create_gpu_instance(self, gpu: GpuUuid, profile_id: int, placement: Placement) -> GpuInstance:
        """Create a GPU instance. INVALID_ARGUMENT: no such profile or placement. NOT_SUPPORTED: no MIG. INSUFFICIENT_RESOURCES: it is occupied."""

    def destroy_gpu_instance(self, gpu: GpuUuid, instance_id: int) -> None:
        """Delete a GPU instance. NOT_FOUND: it is gone. IN_USE: it still has compute instances or a client."""

    def compute_instance_profiles(self, gpu: GpuUuid, instance: GpuInstance) -> Sequence[ComputeInstanceProfile]:
        """Return the profiles of an instance, by enum. Instances of one profile have equal ones, so adapters may answer from an earlier read."""

    def compute_instances(self, gpu: GpuUuid, instance_id: int) -> Sequence[ComputeInstance]:
        """Return the compute instances of an instance, by id. NOT_FOUND: the instance is gone."""

    def create_compute_instance(self, gpu: GpuUuid, instance_id: int, profile_id: int) -> ComputeInstance:
        """Create a compute instance. NOT_FOUND: the instance is gone. INVALID_ARGUMENT: no such profile. INSUFFICIENT_RESOURCES: slices in use."""

    def destroy_compute_instance(self, gpu: GpuUuid, instance_id: int, compute_id: int) -> None:
        """Delete a compute instance. NOT_FOUND: it is gone. IN_USE: a client uses it."""

    def running_processes(self, gpu: GpuUuid, instance_id: int | None = None) -> Sequence[int]:
        """Return the sorted pids of processes with a context on the GPU, or on one of its instances."""

    def device_majors(self) -> DeviceMajors:
        """Return the major numbers of the device nodes."""

    def capability_minors(self, gpu: GpuUuid, instance_id: int, compute_id: int) -> CapabilityMinors:
        """Return the minor numbers of a MIG device's capabilities. NOT_FOUND: the device is gone."""

    def compute_mode(self, gpu: GpuUuid) -> ComputeMode | None:
        """Return the GPU's compute mode; None when it does not report one."""

    def set_compute_mode(self, gpu: GpuUuid, mode: ComputeMode) -> None:
        """Set the compute mode for all processes of the machine. NOT_SUPPORTED: the GPU cannot. NO_PERMISSION: this process may not."""

    def set_time_slice(self, gpu: GpuUuid, interval: TimeSlice) -> None:
        """Set the time slice of the whole GPU. NOT_SUPPORTED: the GPU cannot, or nvidia-smi is not installed."""

    def recovery_action(self, gpu: GpuUuid) -> signals.RecoveryAction | None:
        """Return the recovery action that the GPU requests; None when it does not report one. GPU_IS_LOST: the GPU no longer answers."""

    def fabric(self, gpu: GpuUuid) -> Fabric | None:
        """Return the GPU's NVLink fabric state now; None without a fabric."""

    def sensors(self, gpu: GpuUuid) -> Sensors:
        """Return what the GPU measures now."""

    def events(self) -> signals.Events:
        """Return the events of all GPUs that answer, starting now."""

    def is_plugged(self, gpu: Gpu) -> bool:
        """Return whether the machine still has the GPU, whether or not it answers."""

    def population(self) -> str:
        """Return a text that changes when a GPU is added or removed, or the kernel driver is reloaded."""

    def renew(self) -> None:
        """Detect the present GPUs again; afterwards events have to be reopened."""

    def lock_for_unbinding(self, pci_bus_id: str) -> None:
        """Close the GPU here, and keep all programs from opening it until it is unbound from its driver or unlocked.

        IN_USE: another program has it open, such as nvidia-persistenced.
        """

    def unlock(self, pci_bus_id: str) -> None:
        """Let programs open a GPU that was locked for unbinding and not unbound."""
