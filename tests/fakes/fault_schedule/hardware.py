"""Hardware in a folder, for driver processes that are killed: what exists outlives them, and every file is empty.

Empty, because a driver whose disk is full must still have hardware. ``made/IDENTITY@SPEED`` is a part that was made, ``present/BASE`` a chip or pipe
that is there, ``tainted/DEVICE`` a taint of a device, ``broken/WHAT`` what must never happen, ``control/NAME@VALUE`` a knob. The board beside
chips and pipe has a binding condition: it is made ready before its pod is bound.
"""

import dataclasses
import os
import pathlib
import signal
import time
from collections.abc import Set as AbstractSet

from drakit.core import device, driver, errors, inventory, records
from fakes import author

CHIPS = ("chip-0", "chip-1", "chip-2", "chip-3")
BASES = (*CHIPS, "pipe", "board")
TAINT = device.Taint(key="storm.example.com/tainted", effect=device.TaintEffect.NO_SCHEDULE)
READY, BROKEN = "storm.example.com/ready", "storm.example.com/broken"
LAG, DIE, CLOCK, LIBRARY, BOOT = "lag", "die", "clock", "library", "boot"


class FolderHardware(author.Hardware):
    """``author.Hardware`` in a folder. ``control/die@WHAT`` kills this process at that step, once; ``lag@MS`` slows every step.

    ``control/library@VERSION`` is what containers get beside the hardware; it changes when somebody upgrades it.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    @property
    def library(self) -> str:
        return knob(self.root, LIBRARY) or "1"

    @property
    def made(self) -> dict[str, int]:  # type: ignore[override] # read only here
        return {name: int(speed) for name, _, speed in (path.name.partition("@") for path in (self.root / "made").iterdir())}

    @property
    def present(self) -> AbstractSet[str]:  # type: ignore[override] # read only here
        return {path.name for path in (self.root / "present").iterdir()}

    @property
    def tainted(self) -> AbstractSet[str]:
        return {path.name for path in (self.root / "tainted").iterdir()}

    def make(self, identity: str, speed: int) -> None:
        self._step(f"before make {identity}")
        for rival in self.made:
            if rival == identity or is_part(rival, identity) or is_part(identity, rival):
                touch(self.root / "broken" / f"{identity} made while {rival} is there")
        touch(self.root / "made" / f"{identity}@{speed}")
        self._step(f"after make {identity}")

    def unmake(self, identity: str) -> None:
        self._step(f"before unmake {identity}")
        for path in (self.root / "made").glob(f"{identity}@*"):
            path.unlink(missing_ok=True)
        self._step(f"after unmake {identity}")

    def _step(self, what: str) -> None:
        lag = knob(self.root, LAG)
        if lag:
            time.sleep(int(lag) / 1000)
        if knob(self.root, DIE) == " ".join(what.split()[:2]):
            turn(self.root, DIE, "")
            os.kill(os.getpid(), signal.SIGKILL)


class FaultyDriver(author.FakeDriver):
    """The fake driver on hardware in a folder; a tainted device says so."""

    hardware: FolderHardware

    def bind(self, grant: driver.Grant[author.Tuning]) -> None:
        super().prepare(grant)

    def recall(self, grant: driver.Grant[author.Tuning]) -> records.Record:
        return self.plan(grant)

    def prepare(self, grant: driver.Grant[author.Tuning]) -> driver.Prepared:
        if grant.device.binding_conditions and grant.device.name not in self.hardware.made:
            touch(self.hardware.root / "broken" / f"{grant.device.name} prepared and not bound")
        made = super().prepare(grant)
        result = dataclasses.replace(made.edits, env={**made.edits.env, "LIBRARY": self.hardware.library})
        return dataclasses.replace(made, edits=result)

    def discover(self) -> inventory.Inventory:
        try:
            found, present, tainted = super().discover(), self.hardware.present, self.hardware.tainted
        except OSError as error:
            raise errors.HardwareError("discover()", str(error)) from error
        boards = [BOARD] if BOARD.name in present else []
        named = (vars(item) | {"taints": (TAINT,) if item.name in tainted else ()} for item in (*found.devices, *boards))
        return inventory.Inventory(devices=tuple(device.Device(**fields) for fields in named), counter_sets=found.counter_sets)


def prepare_folder(root: pathlib.Path) -> None:
    """A new machine."""
    for name in ("made", "present", "tainted", "broken", "control"):
        (root / name).mkdir(parents=True)
    for base in BASES:
        touch(root / "present" / base)


BOARD = device.Device(name="board", attributes={"kind": "board"}, binding_conditions=(READY,), binding_failure_conditions=(BROKEN,))


def reboot(root: pathlib.Path) -> None:
    """The machine forgets all that was made; from now on it is another boot."""
    for path in (root / "made").iterdir():
        path.unlink()
    turn(root, BOOT, str(int(knob(root, BOOT) or 1) + 1))


def boot_id(root: pathlib.Path) -> str:
    """Which boot it is."""
    return f"boot-{knob(root, BOOT) or 1}"


def is_part(one: str, other: str) -> bool:
    """Whether a device is a half of another one."""
    return one.startswith(f"{other}-") and one.rpartition("-")[2] in {"left", "right"}


def knob(root: pathlib.Path, name: str) -> str:
    """The value of a knob, empty where it is not turned."""
    return next((path.name.partition("@")[2] for path in (root / "control").glob(f"{name}@*")), "")


def turn(root: pathlib.Path, name: str, value: str) -> None:
    """Set a knob; empty: back to nothing."""
    for path in (root / "control").glob(f"{name}@*"):
        path.unlink(missing_ok=True)
    if value:
        touch(root / "control" / f"{name}@{value}")


def touch(path: pathlib.Path) -> None:
    """An empty file, which needs no room on any disk."""
    path.touch()
