"""Made-up GPUs and a network interface that use most features of DRA: partitions, shared capacity, parameters, health, taints and admin access.

A whole GPU and its partitions draw on one counter set, so the scheduler gives out either. The interface is shared by many claims, each with a part
of its bandwidth. A file with a device's name in the driver's folder marks the device as broken.
"""

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import ClassVar

import drakit

PARTS = 4
MEMORY = "80Gi"
PART = "20Gi"
BROKEN = drakit.Taint(key="everything.example.com/broken", effect=drakit.TaintEffect.NO_SCHEDULE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EverythingConfig:
    """How containers share a GPU."""

    api_version: ClassVar[str] = "everything.example.com/v1"
    kind: ClassVar[str] = "EverythingConfig"
    sharing: str = "time-slicing"

    def __post_init__(self) -> None:
        if self.sharing not in ("time-slicing", "partitioning"):
            raise drakit.ConfigError(f"{self.sharing!r} is not known; known are time-slicing and partitioning", field="sharing")


class EverythingDriver(drakit.Driver[EverythingConfig]):
    """Offers ``gpus`` GPUs with their partitions, and one interface."""

    name = "everything.example.com"
    config_types = (EverythingConfig,)
    device_metadata = True
    watch_interval = 5.0

    def __init__(self, folder: pathlib.Path, *, gpus: int) -> None:
        self._folder = folder
        self._gpus = tuple(f"gpu-{number}" for number in range(gpus))

    def discover(self) -> drakit.Inventory:
        """Return every GPU, its partitions, and the interface."""
        sets = tuple(drakit.CounterSet(name=gpu, counters={"memory": MEMORY}) for gpu in self._gpus)
        return drakit.Inventory(
            devices=(*(device for gpu in self._gpus for device in _parts_and_whole(gpu)), _interface()), counter_sets=sets
        )

    def prepare(self, grant: drakit.Grant[EverythingConfig]) -> drakit.Prepared:
        """Tell the container what it has. A monitor with admin access sees the device and configures nothing."""
        suffix = grant.device.name.upper().replace("-", "_") + (f"_{grant.share_id[:8].upper()}" if grant.share_id else "")
        if grant.admin_access:
            return drakit.Prepared(edits=drakit.Edits(env={f"MONITOR_{suffix}": "true"}))
        bandwidth = grant.consumed_capacity.get("bandwidth")
        value = grant.config.sharing if bandwidth is None else str(bandwidth)
        return drakit.Prepared(edits=drakit.Edits(env={f"EVERYTHING_{suffix}": value}))

    def watch(self, context: drakit.DriverContext) -> None:
        """Report the health of every device, and keep pods away from broken ones."""
        for device in self.discover().devices:
            if (self._folder / device.name).exists():
                context.taint(device.name, BROKEN)
                context.report_health(drakit.HealthReport(device=device.name, health=drakit.Health.UNHEALTHY, message="marked as broken"))
            else:
                context.untaint(device.name, BROKEN.key)
                context.report_health(drakit.HealthReport(device=device.name, health=drakit.Health.HEALTHY))


def _parts_and_whole(gpu: str) -> Iterator[drakit.Device]:
    """Yield partitions first: the scheduler takes the first device that fits."""
    for number in range(PARTS):
        yield _gpu(f"{gpu}-part-{number}", gpu, "partition", PART)
    yield _gpu(gpu, gpu, "gpu", MEMORY)


def _gpu(name: str, gpu: str, kind: str, memory: str) -> drakit.Device:
    return drakit.Device(
        name=name,
        attributes={"type": kind, "parent": gpu, "driverVersion": drakit.Version("1.0.0")},
        capacity={"memory": memory},
        consumes=(drakit.CounterConsumption(counter_set=gpu, counters={"memory": memory}),),
    )


def _interface() -> drakit.Device:
    policy = drakit.RequestPolicy(default="100M", valid_range=drakit.ValidRange(min="100M", step="100M"))
    return drakit.Device(
        name="net-0",
        attributes={"type": "net"},
        capacity={"bandwidth": drakit.Capacity(value="10G", policy=policy)},
        allow_multiple_allocations=True,
    )
