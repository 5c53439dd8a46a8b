"""Opaque parameters of claims and classes for GPUs, in the format of NVIDIA's DRA driver.

``gpu.drakit.dev/v1`` has kinds ``GpuConfig`` (whole GPUs) and ``MigConfig`` (partitions). Where claims were written for NVIDIA's driver, the same
fields are accepted under its API name, ``resource.nvidia.com/v1beta1`` with kinds ``GpuConfig`` and ``MigDeviceConfig``.

A claim may not change what affects other users of a GPU: ``class_only`` names the fields that only a DeviceClass may set.
"""

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import ClassVar

import drakit
from drakit_gpu import port
from drakit_gpu.inventory import attributes

API_VERSION = "gpu.drakit.dev/v1"
NVIDIA_API_VERSION = "resource.nvidia.com/v1beta1"
LIMIT_MIN = drakit.Quantity.binary(1 << 20)
_PERCENT = range(1, 101)


class Strategy(enum.Enum):
    """The way processes share a device: in turns, or at once through NVIDIA's Multi-Process Service."""

    TIME_SLICING = "TimeSlicing"
    MPS = "MPS"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeSlicing:
    """The time a process runs before the next one does."""

    interval: port.TimeSlice = port.TimeSlice.DEFAULT


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mps:
    """Limits of every process that uses the device through MPS.

    ``default_active_thread_percentage`` is from 1 to 100. ``default_pinned_device_memory_limit`` is at least 1Mi, and that for single devices is
    keyed by their UUID. ``multi_user`` lets processes of several user ids share one server.
    """

    default_active_thread_percentage: int | None = None
    default_pinned_device_memory_limit: drakit.Quantity | None = None
    default_per_device_pinned_memory_limit: Mapping[str, drakit.Quantity] = dataclasses.field(default_factory=dict)
    multi_user: bool = False

    def __post_init__(self) -> None:
        percentage = self.default_active_thread_percentage
        if percentage is not None and percentage not in _PERCENT:
            raise drakit.ConfigError(f"must be from 1 to 100, not {percentage}", field="defaultActiveThreadPercentage")
        _check_limit(self.default_pinned_device_memory_limit, "defaultPinnedDeviceMemoryLimit")
        for uuid, limit in self.default_per_device_pinned_memory_limit.items():
            field = f"defaultPerDevicePinnedMemoryLimit[{uuid}]"
            if not uuid.startswith(("GPU-", "MIG-")):
                raise drakit.ConfigError(
                    "must be keyed by the device's UUID; an index is ambiguous where devices are allocated", field=field
                )
            _check_limit(limit, field)

    def limit(self, uuid: str) -> drakit.Quantity | None:
        """Return the memory limit of a device."""
        return self.default_per_device_pinned_memory_limit.get(uuid, self.default_pinned_device_memory_limit)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharing:
    """The sharing of a device by the processes of a claim."""

    strategy: Strategy
    time_slicing_config: TimeSlicing | None = None
    mps_config: Mps | None = None

    def __post_init__(self) -> None:
        if self.strategy is not Strategy.TIME_SLICING and self.time_slicing_config is not None:
            raise drakit.ConfigError("is for strategy TimeSlicing", field="timeSlicingConfig")
        if self.strategy is not Strategy.MPS and self.mps_config is not None:
            raise drakit.ConfigError("is for strategy MPS", field="mpsConfig")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MigSharing(Sharing):
    """The sharing of a MIG device by the processes of a claim; its time slice cannot be changed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.time_slicing_config is not None:
            raise drakit.ConfigError("is not for MIG devices: their time slice cannot be changed", field="timeSlicingConfig")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuConfig:
    """Parameters of a whole GPU."""

    api_version: ClassVar[str] = API_VERSION
    kind: ClassVar[str] = "GpuConfig"

    sharing: Sharing | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MigConfig:
    """Parameters of a MIG partition."""

    api_version: ClassVar[str] = API_VERSION
    kind: ClassVar[str] = "MigConfig"

    sharing: MigSharing | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class NvidiaGpuConfig(GpuConfig):
    """Parameters of a whole GPU, as written for NVIDIA's driver."""

    api_version: ClassVar[str] = NVIDIA_API_VERSION


@dataclasses.dataclass(frozen=True, kw_only=True)
class NvidiaMigConfig(MigConfig):
    """Parameters of a MIG partition, as written for NVIDIA's driver."""

    api_version: ClassVar[str] = NVIDIA_API_VERSION
    kind: ClassVar[str] = "MigDeviceConfig"


AnyConfig = GpuConfig | MigConfig
TYPES = (GpuConfig, MigConfig, NvidiaGpuConfig, NvidiaMigConfig)

KIND_OF_TYPE: Mapping[str, type[GpuConfig] | type[MigConfig]] = {
    attributes.TYPE_GPU: GpuConfig,
    attributes.TYPE_SHARED_GPU: GpuConfig,
    attributes.TYPE_VFIO: GpuConfig,
    attributes.TYPE_MIG: MigConfig,
    attributes.TYPE_SHARED_MIG: MigConfig,
}
"""The configuration of a device by its attribute ``type``."""


def class_only(sharing: Sharing, *, shared: bool) -> Iterator[str]:
    """Return the fields set here that a claim may not set: those that affect the whole GPU of a shared device, and those that mix users."""
    if sharing.mps_config is not None and sharing.mps_config.multi_user:
        yield "sharing.mpsConfig.multiUser"
    if shared and sharing.time_slicing_config is not None:
        yield "sharing.timeSlicingConfig"


def check_author(source: drakit.ConfigSource | None, sharing: Sharing | None, *, shared: bool) -> None:
    """Raise ConfigError for a claim that sets a field which only a class may set; ``shared`` is set for a share."""
    if sharing is None or source is not drakit.ConfigSource.CLAIM:
        return
    for field in class_only(sharing, shared=shared):
        raise drakit.ConfigError("affects other users of the GPU, so only a DeviceClass may set it, not a claim", field=field)


def rules() -> drakit.Rules:
    """Return the checks that need no device. They assume a GPU that is not shared, where a claim may set more."""

    def check(source: drakit.ConfigSource, _: drakit.Record, decoded: object) -> None:
        if isinstance(decoded, AnyConfig):
            check_author(source, decoded.sharing, shared=False)

    return drakit.Rules(types=TYPES, check=check, fits=_fits, check_device=_check_device)


def changes_gpu(sharing: Sharing) -> bool:
    """Return whether a GPU's settings have to change: for a time slice and for MPS."""
    return sharing.time_slicing_config is not None or sharing.strategy is Strategy.MPS


def refused_in_mig_mode(sharing: Sharing, gpu: str) -> drakit.ConfigError:
    """Return the error of time slices or MPS for a whole GPU that stays in MIG mode. ``gpu`` names it."""
    setting = "MPS" if sharing.strategy is Strategy.MPS else "time slices"
    fix = f"request a partition{' with a MigConfig' if setting == 'MPS' else ''}, or let its admin turn MIG mode off"
    return drakit.ConfigError(f"{gpu} is in MIG mode, in which a whole GPU has no {setting}; {fix}", field="sharing")


def _check_device(decoded: object, values: Mapping[str, object]) -> None:
    """Reject time slices and MPS for a whole GPU whose attributes say that it is in MIG mode and that drakit cannot turn that off."""
    is_whole = values.get(attributes.TYPE) in (attributes.TYPE_GPU, attributes.TYPE_SHARED_GPU)
    sharing = decoded.sharing if isinstance(decoded, GpuConfig) else None
    if is_whole and values.get(attributes.MIG_MODE) == attributes.MIG_ON and sharing is not None and changes_gpu(sharing):
        raise refused_in_mig_mode(sharing, f"{values.get(attributes.PRODUCT_NAME)} {values.get(attributes.UUID)}")


def _fits(decoded: object, values: Mapping[str, object]) -> bool:
    """Return whether a configuration is for a whole GPU or a partition, as the device is. A device that does not say what it is counts as fitting."""
    wanted = KIND_OF_TYPE.get(str(values.get(attributes.TYPE)))
    return wanted is None or isinstance(decoded, wanted)


def _check_limit(limit: drakit.Quantity | None, field: str) -> None:
    if limit is not None and limit < LIMIT_MIN:
        raise drakit.ConfigError(f"must be at least {LIMIT_MIN}", field=field)
