"""The speed an interface had while it had a link.

Without a link hardware reports no speed, and an interface of unknown speed is not offered; but a device must not vanish from its slice because a
cable was pulled for a minute. After a restart without a link nothing is remembered: then only a rule's speed keeps the interface offered.
"""

import dataclasses
from collections.abc import Iterable

from drakit.devices.nic import port


class LastSpeeds:
    """The last speed of each interface, by place or name."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def filled(self, interfaces: Iterable[port.Interface]) -> tuple[port.Interface, ...]:
        """The interfaces, those without a link with the speed they had."""
        return tuple(map(self._filled, interfaces))

    def _filled(self, interface: port.Interface) -> port.Interface:
        key = interface.pci.bus_id if interface.pci else interface.name
        if interface.speed is not None:
            self._known[key] = interface.speed
        elif not interface.carrier and key in self._known:
            return dataclasses.replace(interface, speed=self._known[key])
        return interface
