"""A driver whose devices are made ready before pods are bound: chips with binding conditions, on hardware in memory."""

import threading
from typing import ClassVar

from drakit.core import device, driver, edits, errors, inventory
from fakes import author, waits

READY, BROKEN = "example.com/ready", "example.com/broken"


class FpgaDriver(author.FakeDriver):
    """``bound`` counts calls of bind; ``refusals`` are raised by the next ones, one each; ``gate`` holds them until it is set."""

    config_types: ClassVar[tuple[type[object], ...]] = (author.Tuning,)

    def __init__(self, hardware: author.Hardware) -> None:
        super().__init__(hardware)
        self.bound = 0
        self.refusals: list[Exception] = []
        self.gate = threading.Event()
        self.gate.set()

    def discover(self) -> inventory.Inventory:
        chips = sorted(name for name in self.hardware.present if name.startswith("chip"))
        return inventory.Inventory.of(
            device.Device(name=name, binding_conditions=(READY,), binding_failure_conditions=(BROKEN,)) for name in chips
        )

    def bind(self, grant: driver.Grant[author.Tuning]) -> None:
        assert self.gate.wait(waits.SECONDS)
        self.bound += 1
        if self.refusals:
            raise self.refusals.pop(0)
        if grant.device.name not in self.hardware.present:
            raise errors.DeviceGoneError(f"{grant.device.name} is gone")
        if self.hardware.made.get(grant.device.name) != grant.config.speed:
            self.hardware.make(grant.device.name, grant.config.speed)

    def prepare(self, grant: driver.Grant[author.Tuning]) -> driver.Prepared:
        assert self.hardware.made[grant.device.name] == grant.config.speed, "bind comes before prepare"
        return driver.Prepared(edits=edits.Edits(env={"FPGA": grant.device.name}))
