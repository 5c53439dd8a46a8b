"""The profile ``gpu``: made-up GPUs, whole or in partitions, for one claim at a time or shared.

A whole GPU and its partitions draw on one counter set, so the scheduler gives out either.
"""

import dataclasses
import enum
from collections.abc import Iterator
from typing import ClassVar

import drakit
from everything_driver import profile, settings

MEMORY, COMPUTE = 80 << 30, 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(settings.Settings):
    """Settings of the profile ``gpu``."""

    partitions: int = 0
    """Partitions of each GPU; 0 offers whole GPUs only."""

    allow_multiple_allocations: bool = False
    """Whether several claims may share a device, each with a part of its memory and compute."""

    binding_conditions: bool = False
    """Whether pods wait for ``bind`` before they are bound to the node."""

    device_status: bool = False
    """Whether the claim's status names UUID, model and driver version of each device."""


class Strategy(enum.Enum):
    """How containers share a GPU."""

    TIME_SLICING = "TimeSlicing"
    SPACE_PARTITIONING = "SpacePartitioning"


class Interval(enum.Enum):
    """How long a time slice is."""

    DEFAULT = "Default"
    SHORT = "Short"
    MEDIUM = "Medium"
    LONG = "Long"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeSlicing:
    """Parameters of TimeSlicing."""

    interval: Interval = Interval.DEFAULT


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpacePartitioning:
    """Parameters of SpacePartitioning."""

    partition_count: int = 1

    def __post_init__(self) -> None:
        if self.partition_count < 0:
            raise drakit.ConfigError(f"{self.partition_count} is below 0", field="partitionCount")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharing:
    """A strategy, and the parameters of that strategy."""

    strategy: Strategy = Strategy.TIME_SLICING
    time_slicing_config: TimeSlicing | None = None
    space_partitioning_config: SpacePartitioning | None = None

    def __post_init__(self) -> None:
        if self.strategy is not Strategy.TIME_SLICING and self.time_slicing_config:
            raise drakit.ConfigError(f"is not for the strategy {self.strategy.value}", field="timeSlicingConfig")
        if self.strategy is not Strategy.SPACE_PARTITIONING and self.space_partitioning_config:
            raise drakit.ConfigError(f"is not for the strategy {self.strategy.value}", field="spacePartitioningConfig")

    def values(self) -> dict[str, str]:
        """Return the strategy and its parameter as a container sees them."""
        if self.strategy is Strategy.TIME_SLICING:
            parameter = {"TIMESLICE_INTERVAL": (self.time_slicing_config or TimeSlicing()).interval.value}
        else:
            parameter = {"PARTITION_COUNT": str((self.space_partitioning_config or SpacePartitioning()).partition_count)}
        return {"SHARING_STRATEGY": self.strategy.value, **parameter}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuConfig:
    """What a claim or a class may write."""

    api_version: ClassVar[str] = "gpu.resource.example.com/v1alpha1"
    kind: ClassVar[str] = "GpuConfig"
    sharing: Sharing = Sharing()


class GpuDriver(profile.Profile[GpuConfig], drakit.Binder[GpuConfig]):
    """Offers GPUs."""

    name = "gpu.example.com"
    kind = "gpu"
    config_types = (GpuConfig,)

    def __init__(self, own: Settings) -> None:
        super().__init__(own)
        self._gpus = own
        self._context: drakit.DriverContext | None = None

    def start(self, context: drakit.DriverContext) -> None:
        """Keep the context for the device status."""
        self._context = context

    def discover(self) -> drakit.Inventory:
        """Return every GPU and its partitions."""
        numbers = range(self._gpus.devices)
        has = {"memory": drakit.Quantity.binary(MEMORY), "compute": drakit.Quantity.of(COMPUTE)}
        sets = tuple(drakit.CounterSet(name=_counters(number), counters=has) for number in (numbers if self._gpus.partitions else ()))
        return drakit.Inventory(devices=tuple(device for number in numbers for device in self._devices(number)), counter_sets=sets)

    def _devices(self, number: int) -> Iterator[drakit.Device]:
        """Yield partitions first: the scheduler takes the first device that fits."""
        if not self._gpus.partitions:
            yield self._device(f"gpu-{number}", number)
            return
        for part in range(self._gpus.partitions):
            yield self._device(f"gpu-{number}-partition-{part}", number, self._gpus.partitions, partition=part, partitionable=True)
        yield self._device(f"gpu-{number}-full", number, partitionable=True, full=True)

    def _device(self, name: str, number: int, parts: int = 1, **more: drakit.AttributeValue) -> drakit.Device:
        memory, compute = drakit.Quantity.binary(MEMORY // parts), drakit.Quantity.of(COMPUTE // parts)
        drawn = drakit.CounterConsumption(counter_set=_counters(number), counters={"memory": memory, "compute": compute})
        return drakit.Device(
            name=name,
            attributes={**self.attributes(number), **more},
            capacity={"memory": self._capacity(memory, "1Gi"), "compute": self._capacity(compute, 1)},
            consumes=(drawn,) if self._gpus.partitions else (),
            allow_multiple_allocations=self._gpus.allow_multiple_allocations,
            binding_conditions=("BindingConditions",) if self._gpus.binding_conditions else (),
            binding_failure_conditions=("BindingFailureConditions",) if self._gpus.binding_conditions else (),
        )

    def _capacity(self, value: drakit.Amount, step: drakit.Amount) -> drakit.Capacity:
        """Return a capacity of which a share takes any number of steps; all of it unless it asks for less."""
        if not self._gpus.allow_multiple_allocations:
            return drakit.Capacity(value=value)
        steps = drakit.ValidRange(min=step, step=step, max=value)
        return drakit.Capacity(value=value, policy=drakit.RequestPolicy(default=value, valid_range=steps))

    def bind(self, grant: drakit.Grant[GpuConfig]) -> None:
        """Make the GPU ready before its pod is bound. Made-up GPUs are ready at once."""

    def prepare(self, grant: drakit.Grant[GpuConfig]) -> drakit.Prepared:
        """Tell the container which GPU it has, how it is shared, and which part of it is the claim's."""
        if self._gpus.device_status and self._context is not None:
            self._context.set_status(grant.claim, _status(grant))
        consumed = {name.upper(): str(amount) for name, amount in grant.consumed_capacity.items()}
        return self.prepared(grant, {"": grant.device.name, **grant.config.sharing.values(), **consumed})


def _counters(number: int) -> str:
    return f"gpu-{number}-counters"


def _status(grant: drakit.Grant[GpuConfig]) -> drakit.DeviceStatus:
    """Return what stays in the claim when the device is published no more."""
    kinds = {"uuid": "string", "model": "string", "driverVersion": "version"}
    values = {name: {kind: str(grant.device.attributes[name])} for name, kind in kinds.items()}
    return drakit.DeviceStatus(device=grant.device.name, share_id=grant.share_id, values=values)
