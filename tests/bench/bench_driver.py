"""A driver whose hardware takes no time, so that what is measured is drakit; and slow devices, whose hardware takes 50 ms.

It is started as any author's driver is: ``python bench_driver.py run --node node-1 --folder DIR --kubeconfig FILE``.
"""

import os
import time
from collections.abc import Iterator

import drakit

DRIVER, UNITS, SLOW = "bench.example.com", 208, 16
HARDWARE_SECONDS = 0.05
VOLATILE = "BENCH_VOLATILE"
"""Environment variable that, set to anything, asks for a volatile driver."""


class BenchDriver(drakit.Driver[drakit.NoConfig]):
    """A pipe that a thousand claims share, as many units as a node of eight GPUs has partitions, and sixteen slow devices."""

    name = DRIVER

    def discover(self) -> drakit.Inventory:
        return drakit.Inventory.of(list(_devices()))

    def plan(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Record:
        return {"identity": grant.share_id or grant.device.name}

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        _work(grant)
        identity = str(grant.intent["identity"])
        return drakit.Prepared(edits=drakit.Edits(env={"BENCH": identity}), record={"made": identity})

    def unprepare(self, grant: drakit.Grant[drakit.NoConfig]) -> None:
        _work(grant)


def _devices() -> Iterator[drakit.Device]:
    yield drakit.Device(name="pipe", capacity={"bandwidth": drakit.Capacity.of("100G")}, allow_multiple_allocations=True)
    for number in range(UNITS):
        yield drakit.Device(
            name=f"unit-{number}", attributes={"index": number, "model": "bench"}, capacity={"memory": drakit.Capacity.of("4864Mi")}
        )
    for number in range(SLOW):
        yield drakit.Device(name=f"slow-{number}", attributes={"index": number})


def _work(grant: drakit.Grant[drakit.NoConfig]) -> None:
    if grant.device.name.startswith("slow"):
        time.sleep(HARDWARE_SECONDS)


class VolatileDriver(BenchDriver):
    """The same, of hardware that forgets."""

    volatile = True


if __name__ == "__main__":
    drakit.run(VolatileDriver if os.environ.get(VOLATILE) else BenchDriver)
