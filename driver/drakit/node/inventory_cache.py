"""What the driver offers now: the last inventory that discover() gave, and its devices by name.

A failed discovery keeps the last inventory: hardware that cannot be read for a moment has not disappeared.
"""

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

from drakit.core import claim, device, driver
from drakit.core import inventory as inventories
from drakit.core.slices import feature_gates

Author = driver.Driver[Any]
"""The object that the driver's author wrote. ``node`` calls it the author, to tell it from the process and from the kernel's drivers.

Its configuration type does not matter here: the node passes configurations on and never looks inside.
"""


class InventoryCache:
    """The current inventory of one driver, shared by the engine and the publisher; safe between threads.

    ``stores_sharing`` says whether the API server stores what makes a device shared, None while that is not known. Where it does not, devices are
    offered, granted and prepared in their exclusive form.
    """

    def __init__(self, author: Author) -> None:
        self._author = author
        self._discovering = threading.Lock()
        self._seen = _Seen()
        self.stores_sharing: Callable[[], bool | None] = lambda: True

    @property
    def inventory(self) -> inventories.Inventory:
        """The last inventory discovered, in the author's form."""
        return self._seen.authored

    @property
    def flat(self) -> inventories.Inventory:
        """The last inventory discovered, flat."""
        return self._seen.flat

    @property
    def drawing(self) -> Mapping[str, frozenset[str]]:
        """The names of the devices that draw from each counter set."""
        return self._seen.drawing

    @property
    def changes(self) -> int:
        """How often the inventory was found changed."""
        return self._seen.number

    def refresh(self) -> None:
        """Discover again. Raises what discover() raises, and then nothing has changed."""
        with self._discovering:
            found = self._author.discover()
            if not isinstance(found, inventories.Inventory):
                raise TypeError(f"discover() returned {type(found).__name__}; return drakit.Inventory.of(devices)")
            before = self._seen
            if found != before.authored or not before.number:
                flat = found.flat()
                self._seen = _Seen(authored=found, flat=flat, devices=flat.by_name(), drawing=drawing(flat), number=before.number + 1)

    def seen(self, name: str) -> device.Device | None:
        """The flat device of this name as the last discovery gave it; hardware is not asked."""
        return self._seen.devices.get(name)

    def granted(self, result: claim.AllocationResult) -> device.Device | None:
        """The device of an allocation in the form in which it was offered; hardware is asked once more before the answer is None.

        While it is not known what the server stores, the allocation says it: a server that stores no shares has no share ids.
        """
        stored = self.stores_sharing()
        return self._in_form(result.device, is_shared=result.share_id is not None or result.admin_access if stored is None else stored)

    def _in_form(self, name: str, *, is_shared: bool) -> device.Device | None:
        if name not in self._seen.devices:
            self.refresh()
        found = self._seen.devices.get(name)
        return found if found is None or is_shared else feature_gates.as_exclusive(found)

    def device(self, name: str) -> device.Device | None:
        """The flat device of this name in the form in which it is offered; hardware is asked once more before the answer is None."""
        return self._in_form(name, is_shared=self.stores_sharing() is not False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Seen:
    """One discovery's result; ``number`` counts those that differed from the one before, 0 before the first."""

    authored: inventories.Inventory = dataclasses.field(default_factory=inventories.Inventory)
    flat: inventories.Inventory = dataclasses.field(default_factory=inventories.Inventory)
    devices: Mapping[str, device.Device] = dataclasses.field(default_factory=dict)
    drawing: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    number: int = 0


def drawing(offered: inventories.Inventory) -> Mapping[str, frozenset[str]]:
    """The names of the devices that draw from each counter set."""
    found: dict[str, set[str]] = {}
    for item in offered.devices:
        for part in item.consumes:
            found.setdefault(part.counter_set, set()).add(item.name)
    return {name: frozenset(devices) for name, devices in found.items()}
