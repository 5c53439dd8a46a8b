"""Keep what claims hold out of every other offer, whoever changed the hardware meanwhile.

A held device is *displaced* when the last discovery does not have it, has other hardware under its name, or lets it draw from fewer of the counter
sets that exist: an admin switched MIG off, created another instance in its place, or moved a GPU. The scheduler counts only what is in the slices, so
it would then allocate the claim's hardware again. Until the claim is unprepared, a displaced device is therefore published as it was granted, with a
taint and without counters, and every other device that overlaps it is withheld. Held devices that are not displaced stay as they are. Pure functions.

A driver that is a ``Withholder`` can name a missing device with a reason: the hardware is there and its pods keep it, but no new claim may have it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from drakit.core import advanced, driver, inventory, lifecycle, names
from drakit.core import claim as claims
from drakit.core import context as contexts
from drakit.core import device as devices

CHANGED: Final = "changed"
"""The name of the taint of a displaced device, in the driver's domain."""
EVENT_REASON: Final = "DeviceChanged"
WITHHELD_EVENT_REASON: Final = "DeviceWithheld"
_GONE = "the driver no longer finds it"
_OTHER = "the driver finds it in another form"
_WITHHELD = "; nothing of it is offered to other claims until this claim is unprepared, so delete its pods"
_KEPT = "; new claims do not get it, and the pods that have it keep it"

Overlaps = Callable[[devices.Device, devices.Device], bool]
Holdings = Mapping[str, tuple[devices.Device, tuple[claims.ClaimRef, ...]]]
"""The held devices as they were granted, by name, each with the claims that hold it."""


def withheld_by(author: driver.Driver[Any]) -> Mapping[str, str]:
    """Return the devices that a driver sees and does not offer, with the reason; none if it is no ``advanced.Withholder``."""
    return author.withheld_devices() if isinstance(author, advanced.Withholder) else {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Displaced:
    """A displaced device as it was granted, the claims that hold it, and what discovery says instead.

    ``is_withheld`` is true where the driver sees the hardware and only does not offer it.
    """

    device: devices.Device
    claims: tuple[claims.ClaimRef, ...]
    reason: str
    is_withheld: bool = False

    @property
    def event(self) -> contexts.Event:
        """The Event for the users of the claims."""
        message = f"{self.device.name}: {self.reason}{_KEPT if self.is_withheld else _WITHHELD}"
        if self.is_withheld:
            return contexts.Event(reason=WITHHELD_EVENT_REASON, message=message, type=contexts.EventType.NORMAL)
        return contexts.Event(reason=EVENT_REASON, message=message)


def held(journaled: Iterable[lifecycle.HeldDevice], node_pool: str) -> Holdings:
    """Return those of the journal's held devices that are in the node's own pools, as they were granted first."""
    by_name: dict[str, tuple[devices.Device, dict[claims.ClaimRef, None]]] = {}
    for device, pool, claim in journaled:
        if names.is_pool_of_node(pool, node_pool):
            by_name.setdefault(device.name, (device, {}))[1][claim] = None
    return {name: (device, tuple(holders)) for name, (device, holders) in by_name.items()}


def displaced(
    discovered: Mapping[str, devices.Device],
    counter_sets: Iterable[devices.CounterSet],
    holdings: Holdings,
    overlaps: Overlaps,
    withheld: Callable[[], Mapping[str, str]] = dict,
) -> Mapping[str, Displaced]:
    """Return the held devices that are displaced, by name. ``discovered`` are the flat devices of the last discovery.

    ``withheld`` returns the reasons of ``Withholder``; it is called only where a held device is missing.
    """
    reasons = withheld() if holdings.keys() - discovered.keys() else {}
    present = {counter_set.name for counter_set in counter_sets}
    result: dict[str, Displaced] = {}
    for name, (device, holders) in holdings.items():
        now = discovered.get(name)
        if now is None:
            reason = reasons.get(name, _GONE)
            result[name] = Displaced(
                device=dataclasses.replace(device, taints=()), claims=holders, reason=reason, is_withheld=name in reasons
            )
        elif (_sets(device) & present) - _sets(now) or not overlaps(now, device):
            result[name] = Displaced(device=dataclasses.replace(device, taints=now.taints), claims=holders, reason=_OTHER)
    return result


def with_held(
    authored: inventory.Inventory,
    flat: inventory.Inventory,
    gone: Mapping[str, Displaced],
    *,
    holdings: Iterable[str],
    overlaps: Overlaps,
    taint: devices.Taint,
) -> inventory.Inventory:
    """Return the inventory with the displaced devices, tainted, and without the devices of nobody that overlap one of them.

    ``flat`` is the same inventory, flat; ``holdings`` are the names of all held devices.
    """
    if not gone:
        return authored
    in_use = frozenset(holdings)
    kept = tuple(
        device
        for device, plain in zip(authored.devices, flat.devices, strict=True)
        if device.name not in gone and (device.name in in_use or not any(overlaps(entry.device, plain) for entry in gone.values()))
    )
    held_devices = tuple(
        dataclasses.replace(entry.device, consumes=(), taints=(taint, *entry.device.taints)[: devices.TAINTS_MAX])
        for entry in gone.values()
    )
    return dataclasses.replace(authored, devices=(*kept, *held_devices))


def _sets(device: devices.Device) -> frozenset[str]:
    return frozenset(part.counter_set for part in device.consumes)
