"""A driver whose hardware takes no time, so that what is measured is drakit; and slow devices, whose hardware takes 50 ms.

It is started as any author's driver is: ``python bench_driver.py run --node node-1 --folder DIR --kubeconfig FILE``.
"""

import dataclasses
import os
import time
from collections.abc import Iterator

import drakit

DRIVER, UNITS, SLOW = "bench.example.com", 208, 16
HARDWARE_SECONDS = 0.05
KIND = "BENCH_KIND"
"""Environment variable with the kind of driver: none for the plain one, ``VOLATILE`` or ``REPORTING``."""
VOLATILE, REPORTING = "volatile", "reporting"


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


class ReportingDriver(BenchDriver):
    """The same, which reports all that a driver can: a status and an Event of each claim, and a metadata file for its container."""

    device_metadata = True

    def start(self, context: drakit.DriverContext) -> None:
        self._context = context

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        prepared = super().prepare(grant)
        ready = drakit.Condition(type="Ready", status=True, reason="Prepared", message="the device is prepared")
        status = drakit.DeviceStatus(
            device=grant.device.name, share_id=grant.share_id, conditions=(ready,), values={"identity": grant.intent["identity"]}
        )
        self._context.set_status(grant.claim, status)
        event = drakit.Event(reason="Prepared", message=f"device {grant.device.name} is prepared", type=drakit.EventType.NORMAL)
        self._context.record_event(grant.claim, event)
        return dataclasses.replace(prepared, metadata={"identity": str(grant.intent["identity"])})


DRIVERS = {"": BenchDriver, VOLATILE: VolatileDriver, REPORTING: ReportingDriver}

if __name__ == "__main__":
    drakit.run(DRIVERS[os.environ.get(KIND, "")])
