"""What the driver offers now: the last inventory that discover() gave, and its devices by name.

A failed discovery keeps the last inventory: hardware that cannot be read for a moment has not disappeared.
"""

import threading
from collections.abc import Mapping
from typing import Any

from drakit.core import device, driver, inventory

# Whatever its configuration type: the node passes configurations on and never looks inside.
Author = driver.Driver[Any]


class Offer:
    """The current inventory of one driver, shared by the engine and the publisher; safe between threads."""

    def __init__(self, author: Author) -> None:
        self._author = author
        self._lock = threading.Lock()
        self._inventory = inventory.Inventory()
        self._devices: Mapping[str, device.Device] = {}

    @property
    def inventory(self) -> inventory.Inventory:
        """The last inventory discovered, in the author's form."""
        with self._lock:
            return self._inventory

    def refresh(self) -> bool:
        """Discover again; whether anything changed. Raises what discover() raises, and then nothing has changed."""
        found = self._author.discover()
        devices = found.flat().by_name()
        with self._lock:
            changed = found != self._inventory
            self._inventory, self._devices = found, devices
        return changed

    def device(self, name: str) -> device.Device | None:
        """The flat device of this name; hardware is asked once more before the answer is None."""
        with self._lock:
            known = self._devices.get(name)
        if known is None and self.refresh():
            with self._lock:
                known = self._devices.get(name)
        return known
