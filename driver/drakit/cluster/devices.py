"""What a device is to the judge: its name in the cluster, and the view that selectors see.

A :class:`DeviceView` holds exactly what a CEL expression may read (``device`` in the environment of a DeviceClass or claim selector);
it is frozen, and one view exists per published device, so that verdicts can be cached by the view itself (identity).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from drakit.cluster.json_types import Json, Object


class DeviceId(NamedTuple):
    """The name of one device in the whole cluster; pool names are unique per driver only."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class DeviceView:
    """One device as selectors see it. Two views are the same only if they are one object.

    ``attributes`` maps a qualified or unqualified name to ``{"string" | "int" | "bool" | "version" | "strings" | ...: value}`` as
    published; ``capacity`` maps names to quantities as published (strings, or numbers where the JSON had numbers).
    """

    driver: str
    attributes: Mapping[str, Json]
    capacity: Mapping[str, Json]
    allow_multiple_allocations: bool


def view_of(driver: str, device: Object) -> DeviceView:
    """Return the view of a device of ``ResourceSlice.spec.devices``; wrongly typed maps are read as empty."""
    attributes = device.get("attributes")
    capacities = device.get("capacity")
    return DeviceView(
        driver=driver,
        attributes=attributes if isinstance(attributes, dict) else {},
        capacity={
            name: entry.get("value") for name, entry in capacities.items() if isinstance(entry, dict)
        }
        if isinstance(capacities, dict)
        else {},
        allow_multiple_allocations=device.get("allowMultipleAllocations") is True,
    )
