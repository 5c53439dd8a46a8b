"""The profile ``cpu``: made-up NUMA nodes. Many claims share one, each with some of its CPUs. ``examples/cpu`` has real ones, and pins containers."""

import dataclasses

import drakit
from everything_driver import profile, settings

CAPACITY = "cpu.example.com/cpu"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(settings.Settings):
    """Settings of the profile ``cpu``; its devices are NUMA nodes."""

    cpus: int = 4
    """CPUs of each NUMA node."""


class CpuDriver(profile.Profile[drakit.NoConfig]):
    """Offers NUMA nodes."""

    name = "cpu.example.com"
    kind = "cpu"

    def __init__(self, own: Settings) -> None:
        super().__init__(own)
        self._cpus = own.cpus

    def discover(self) -> drakit.Inventory:
        """Return every NUMA node."""
        return drakit.Inventory.of(
            drakit.Device(
                name=f"numa-{number}",
                attributes={"numaNodeID": number},
                capacity={CAPACITY: self._cpus},
                allow_multiple_allocations=True,
            )
            for number in range(self._own.devices)
        )

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        """Tell the container its NUMA node and how many CPUs of it are the claim's."""
        return self.prepared(grant, {"": grant.device.name, "CONSUMED_CPU": str(grant.consumed_capacity[CAPACITY])})
