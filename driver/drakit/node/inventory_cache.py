"""Cache the last inventory that discover() returned, and its devices by name.

A failed discovery keeps the last inventory: hardware that cannot be read for a moment has not disappeared.
"""

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

from drakit.core import claim, device, driver, errors
from drakit.core import inventory as inventories
from drakit.core.slices import feature_gates

Author = driver.Driver[Any]
"""The driver object that the author wrote. ``node`` calls it the author, to distinguish it from the process and from the kernel's drivers.

Its configuration type does not matter here: the node only passes configurations on.
"""


class InventoryCache:
    """The current inventory of one driver, shared by the engine and the publisher; thread-safe.

    ``stores_sharing`` returns whether the API server stores the fields of shared devices, None while that is unknown. If it does not store them,
    devices are offered, granted and prepared in their exclusive form. ``not_ready`` is why discover() raised RetryError, until a discovery succeeds.
    """

    def __init__(self, author: Author) -> None:
        self._author = author
        self._discovering = threading.Lock()
        self._current = _Discovery()
        self.not_ready = ""
        self.stores_sharing: Callable[[], bool | None] = lambda: True

    @property
    def inventory(self) -> inventories.Inventory:
        """Return the last discovered inventory, in the author's form."""
        return self._current.authored

    @property
    def flat(self) -> inventories.Inventory:
        """Return the last discovered inventory, flat."""
        return self._current.flat

    @property
    def consumers(self) -> Mapping[str, frozenset[str]]:
        """Return the names of the devices that consume from each counter set."""
        return self._current.consumers

    @property
    def changes(self) -> int:
        """Return the number of discoveries that changed the inventory."""
        return self._current.number

    def refresh(self) -> None:
        """Discover again. Raise the errors of discover(), and then keep the last inventory."""
        with self._discovering:
            try:
                discovered = self._author.discover()
            except errors.RetryError as error:
                self.not_ready = str(error) or "the hardware is not ready"
                raise
            if not isinstance(discovered, inventories.Inventory):
                raise TypeError(f"discover() returned {type(discovered).__name__}; return drakit.Inventory.of(devices)")
            before, self.not_ready = self._current, ""
            if discovered != before.authored or not before.number:
                flat = discovered.flat()
                self._current = _Discovery(
                    authored=discovered,
                    flat=flat,
                    devices=flat.by_name(),
                    consumers=counter_set_consumers(flat),
                    number=before.number + 1,
                )

    def seen(self, name: str) -> device.Device | None:
        """Return the flat device of this name from the last discovery, without a new discovery."""
        return self._current.devices.get(name)

    def granted(self, result: claim.AllocationResult) -> device.Device | None:
        """Return the device of an allocation in the form in which it was offered. Discover once more before returning None.

        While ``stores_sharing`` is unknown, the allocation decides: a server that stores no shares has no share ids.
        """
        stored = self.stores_sharing()
        return self._in_form(result.device, is_shared=result.share_id is not None or result.admin_access if stored is None else stored)

    def _in_form(self, name: str, *, is_shared: bool) -> device.Device | None:
        if name not in self._current.devices:
            self.refresh()
        flat = self._current.devices.get(name)
        return flat if flat is None or is_shared else feature_gates.as_exclusive(flat)

    def device(self, name: str) -> device.Device | None:
        """Return the flat device of this name in the form in which it is offered. Discover once more before returning None."""
        return self._in_form(name, is_shared=self.stores_sharing() is not False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Discovery:
    """The result of one discovery. ``number`` counts the results that differed from the one before; it is 0 before the first."""

    authored: inventories.Inventory = dataclasses.field(default_factory=inventories.Inventory)
    flat: inventories.Inventory = dataclasses.field(default_factory=inventories.Inventory)
    devices: Mapping[str, device.Device] = dataclasses.field(default_factory=dict)
    consumers: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    number: int = 0


def counter_set_consumers(offered: inventories.Inventory) -> Mapping[str, frozenset[str]]:
    """Return the names of the devices that consume from each counter set."""
    consumers: dict[str, set[str]] = {}
    for offered_device in offered.devices:
        for consumption in offered_device.consumes:
            consumers.setdefault(consumption.counter_set, set()).add(offered_device.name)
    return {name: frozenset(devices) for name, devices in consumers.items()}
