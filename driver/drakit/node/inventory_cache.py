"""Cache the last inventory that discover() returned, and its devices by name.

A failed discovery keeps the last inventory: hardware that cannot be read for a moment has not disappeared. What claims hold is kept out of every
other offer, whatever the discovery says (``held_devices``).
"""

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from drakit.core import advanced, device, driver, errors, lifecycle
from drakit.core import inventory as inventories
from drakit.core.slices import feature_gates
from drakit.node import held_devices

Author = driver.Driver[Any]
"""The driver object that the author wrote. ``node`` calls it the author, to distinguish it from the process and from the kernel's drivers.

Its configuration type does not matter here: the node only passes configurations on.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Discovery:
    """The result of one discovery. ``number`` counts the results that differed from the one before; it is 0 before the first.

    ``discovered`` is what the driver returned. ``authored``, in the author's form, and ``flat`` are what is offered of it. ``devices`` has also those
    that are withheld, so that a claim that was allocated one gets an error that names the holder. ``displaced`` are the held devices that discovery
    does not have as they were granted. ``consumers`` are the names of the devices that consume from each counter set.
    """

    discovered: inventories.Inventory = dataclasses.field(default_factory=inventories.Inventory)
    discovered_flat: inventories.Inventory = dataclasses.field(default_factory=inventories.Inventory)
    discovered_devices: Mapping[str, device.Device] = dataclasses.field(default_factory=dict)
    displaced: Mapping[str, held_devices.Displaced] = dataclasses.field(default_factory=dict)
    authored: inventories.Inventory = dataclasses.field(default_factory=inventories.Inventory)
    flat: inventories.Inventory = dataclasses.field(default_factory=inventories.Inventory)
    devices: Mapping[str, device.Device] = dataclasses.field(default_factory=dict)
    consumers: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    number: int = 0


class InventoryCache:
    """The current inventory of one driver, shared by the engine and the publisher; thread-safe.

    ``current`` is the last discovery; read it once for values that must agree. ``not_ready`` is why discover() raised RetryError, until a discovery
    succeeds. ``stores_sharing`` returns whether the API server stores the fields of shared devices, None while that is unknown. If it does not store
    them, devices are offered, granted and prepared in their exclusive form.
    ``held`` returns the devices that claims hold; ``released`` is called when a claim that held a displaced device is unprepared.
    """

    def __init__(self, author: Author, held: Callable[[], held_devices.Holdings] = dict) -> None:
        self._author = author
        self._overlaps = functools.partial(advanced.overlap, author)
        self._held = held
        self.released: Callable[[], None] = lambda: None
        self._discovering = threading.Lock()
        self.current = Discovery()
        self.not_ready = ""
        self.stores_sharing: Callable[[], bool | None] = lambda: True

    def displaced_under(self, wanted: device.Device) -> frozenset[str]:
        """Return the names of the other displaced devices that have hardware in common with a device."""
        gone = self.current.displaced
        return frozenset(name for name, entry in gone.items() if name != wanted.name and self._overlaps(entry.device, wanted))

    def unprepared(self, entry: lifecycle.Entry) -> None:
        """Call ``released`` if the claim, which is unprepared now, held a displaced device."""
        if any(grant.device.name in self.current.displaced for grant in entry.grants):
            self.released()

    def refresh(self) -> None:
        """Discover again. Raises the errors of discover(), and then keep the last inventory."""
        with self._discovering:
            try:
                discovered = self._author.discover()
            except errors.RetryError as error:
                self.not_ready = str(error) or "the hardware is not ready"
                raise
            if not isinstance(discovered, inventories.Inventory):
                raise TypeError(f"discover() returned {type(discovered).__name__}; return drakit.Inventory.of(devices)")
            self.not_ready = ""
            before, holdings = self.current, self._held()
            flat = before.discovered_flat if discovered == before.discovered and before.number else discovered.flat()
            by_name = before.discovered_devices if flat is before.discovered_flat else flat.by_name()
            withheld = functools.partial(held_devices.withheld_by, self._author)
            displaced = held_devices.displaced(by_name, flat.counter_sets, holdings, self._overlaps, withheld)
            if flat is not before.discovered_flat or displaced != before.displaced or not before.number:
                self.current = self._discovery(discovered, flat, by_name, displaced, holdings)

    def _discovery(
        self,
        discovered: inventories.Inventory,
        flat: inventories.Inventory,
        by_name: Mapping[str, device.Device],
        displaced: Mapping[str, held_devices.Displaced],
        holdings: held_devices.Holdings,
    ) -> Discovery:
        taint = device.Taint(key=f"{self._author.name}/{held_devices.CHANGED}")
        authored = held_devices.with_held(discovered, flat, displaced, holdings=holdings, overlaps=self._overlaps, taint=taint)
        devices = {**by_name, **{name: entry.device for name, entry in displaced.items()}}
        return Discovery(
            discovered=discovered,
            discovered_flat=flat,
            discovered_devices=by_name,
            displaced=displaced,
            authored=authored,
            flat=flat if authored is discovered else authored.flat(),
            devices=devices,
            consumers=counter_set_consumers(devices.values()),
            number=self.current.number + 1,
        )

    def device(self, name: str, *, by_share: bool = True) -> device.Device | None:
        """Return the flat device of this name in the form in which it is offered. Discover once more before returning None.

        While ``stores_sharing`` is unknown, the allocation decides, ``by_share`` or not: a server that stores no shares has no share ids.
        """
        stored = self.stores_sharing()
        if name not in self.current.devices:
            self.refresh()
        flat = self.current.devices.get(name)
        return flat if flat is None or (by_share if stored is None else stored) else feature_gates.as_exclusive(flat)


def counter_set_consumers(offered: Iterable[device.Device]) -> Mapping[str, frozenset[str]]:
    """Return the names of the devices that consume from each counter set."""
    consumers: dict[str, set[str]] = {}
    for offered_device in offered:
        for consumption in offered_device.consumes:
            consumers.setdefault(consumption.counter_set, set()).add(offered_device.name)
    return {name: frozenset(devices) for name, devices in consumers.items()}
