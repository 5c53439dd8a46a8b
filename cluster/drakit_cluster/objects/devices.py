"""A device as the scheduler sees it: its name in the cluster, and the view that selectors see.

A :class:`DeviceView` holds exactly what a CEL expression may read (``device`` in the environment of a DeviceClass or claim selector);
it is frozen, and one view exists per published device, so that the results of selectors can be cached by the identity of the view.

The interface that the allocator needs, and the errors that it raises.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object

Element: TypeAlias = tuple[str, Json]
"""One value of an attribute, with its type: string, int, bool or version."""
AttributeValue: TypeAlias = frozenset[Element]
"""The value of a device for one attribute: several elements for a list; empty for an unknown type."""


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
    published; ``capacity`` maps names to quantities as published.
    """

    driver: str
    attributes: Mapping[str, Mapping[str, Json]]
    capacity: Mapping[str, str]
    allow_multiple_allocations: bool


def view_of(driver: str, device: Object) -> DeviceView:
    """Return the view of one entry of ``ResourceSlice.spec.devices``; values of the wrong type are left out."""
    attributes = json_types.mapping(device, "attributes")
    capacities = json_types.mapping(device, "capacity")
    return DeviceView(
        driver=driver,
        attributes=_objects(attributes),
        capacity={name: str(value["value"]) for name, value in capacities.items() if isinstance(value, dict) and "value" in value},
        allow_multiple_allocations=device.get("allowMultipleAllocations") is True,
    )


def plain_attributes(driver: str, device: Object) -> Mapping[str, Json]:
    """Return the values of a device's attributes by name, without the driver's own domain."""
    return {
        name.removeprefix(f"{driver}/"): next(iter(value.values()), None)
        for name, value in _objects(json_types.mapping(device, "attributes")).items()
    }


def _objects(values: Object) -> Mapping[str, Mapping[str, Json]]:
    """Return the entries that are objects. If all are, as in the API, return the mapping itself."""
    objects = {name: value for name, value in values.items() if isinstance(value, dict)}
    return values if len(objects) == len(values) else objects  # type: ignore[return-value]  # All values are objects here.


class SelectorError(Exception):
    """An expression that does not compile, or that fails on a device. The message says which and why."""


class SelectorPort(Protocol):
    """Evaluates CEL device selectors."""

    def matches(self, expression: str, device: DeviceView) -> bool:
        """Return whether ``expression`` selects ``device``; raise :class:`SelectorError` if it fails."""
        ...

    def derive(self, expression: str, device: DeviceView) -> AttributeValue:
        """Return the value of a derived attribute (KEP-6080); raise :class:`SelectorError` if it fails."""
        ...


class AllocationError(Exception):
    """Allocation cannot be decided: a claim, class, selector or pool is wrong. A claim that does not fit is not an error.

    The message names claim, request and field.
    """


class UnusablePoolError(AllocationError):
    """A pool of a node is incomplete or invalid, so that a claim cannot be served there. Other nodes may serve it."""
