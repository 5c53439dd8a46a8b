"""A driver with hardware in memory: two chips that can be cut in half, and a pipe that many claims share.

The hardware outlives the driver object, as real hardware outlives a process: pass one ``Hardware`` to several drivers.
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

from drakit.core import capacity as capacities
from drakit.core import device, driver, edits, errors, inventory, quantity, records


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Opaque parameters of the fake driver."""

    api_version: ClassVar[str] = "fake.example.com/v1"
    kind: ClassVar[str] = "Tuning"
    speed: int = 1

    def __post_init__(self) -> None:
        if self.speed < 1:
            raise errors.ConfigError("must be at least 1", field="speed")


class Hardware:
    """What exists: cut parts and pipe shares, by identity. ``step`` is called before and after every effect."""

    def __init__(self) -> None:
        self.made: dict[str, int] = {}
        self.present = {"chip-0", "chip-1", "pipe"}
        self.step: Callable[[str], None] = lambda _: None

    def make(self, identity: str, speed: int) -> None:
        self.step(f"before make {identity}")
        self.made[identity] = speed
        self.step(f"after make {identity}")

    def unmake(self, identity: str) -> None:
        self.step(f"before unmake {identity}")
        self.made.pop(identity, None)
        self.step(f"after unmake {identity}")


class FakeDriver(driver.Driver[Tuning]):
    """Offers chip-0 and chip-1 (whole), their halves, and the pipe."""

    name = "fake.example.com"
    config_types: ClassVar[tuple[type[object], ...]] = (Tuning,)

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.failure: Exception | None = None

    def discover(self) -> inventory.Inventory:
        chips = sorted(name for name in self.hardware.present if name.startswith("chip"))
        halves = [_half(chip, side) for chip in chips for side in ("left", "right")]
        pipe = [_pipe()] if "pipe" in self.hardware.present else []
        sets = tuple(device.CounterSet(name=chip, counters={"left": quantity.ONE, "right": quantity.ONE}) for chip in chips)
        return inventory.Inventory(devices=(*halves, *map(_whole, chips), *pipe), counter_sets=sets)

    def plan(self, grant: driver.Grant[Tuning]) -> records.Record:
        return {"identity": grant.share_id or grant.device.name}

    def prepare(self, grant: driver.Grant[Tuning]) -> driver.Prepared:
        if self.failure is not None:
            raise self.failure
        base = grant.device.name.removesuffix("-left").removesuffix("-right")
        if base not in self.hardware.present:
            raise errors.DeviceGoneError(f"{base} is gone")
        identity = str(grant.intent["identity"])
        if self.hardware.made.get(identity) != grant.config.speed:
            self.hardware.make(identity, grant.config.speed)
        return driver.Prepared(edits=edits.Edits(env={_variable(grant): identity}), record={"made": identity})

    def unprepare(self, grant: driver.Grant[Tuning]) -> None:
        # Without an intent (the journal was lost, and no CDI file says what was prepared) it is what would be chosen.
        identity = str((grant.intent or self.plan(grant))["identity"])
        if identity in self.hardware.made:
            self.hardware.unmake(identity)


def _variable(grant: driver.Grant[Tuning]) -> str:
    """What tells a container its part; shares have one each, because a container may have two."""
    suffix = f"_{grant.share_id[:8]}" if grant.share_id else ""
    return f"FAKE_{grant.device.name.upper().replace('-', '_')}{suffix}"


def _half(chip: str, side: str) -> device.Device:
    drawn = device.CounterConsumption(counter_set=chip, counters={side: quantity.ONE})
    return device.Device(name=f"{chip}-{side}", attributes={"kind": "half"}, consumes=(drawn,))


def _whole(chip: str) -> device.Device:
    drawn = device.CounterConsumption(counter_set=chip, counters={"left": quantity.ONE, "right": quantity.ONE})
    return device.Device(name=chip, attributes={"kind": "whole"}, consumes=(drawn,))


def _pipe() -> device.Device:
    span = capacities.ValidRange(min=quantity.Quantity.parse("100M"), step=quantity.Quantity.parse("100M"))
    rule = capacities.RequestPolicy(default=quantity.Quantity.parse("100M"), valid_range=span)
    capacity = capacities.Capacity(value=quantity.Quantity.parse("10G"), policy=rule)
    return device.Device(name="pipe", attributes={"kind": "pipe"}, capacity={"bandwidth": capacity}, allow_multiple_allocations=True)
