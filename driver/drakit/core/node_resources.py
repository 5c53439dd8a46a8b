"""What a device takes of its node's own resources, such as CPUs or memory (KEP-5517; gate DRANodeAllocatableResources, alpha, off by default).

The scheduler counts it against the node's allocatable resources, beside the requests of pods. ``NodeResource`` is the form of Kubernetes 1.37.
``NodeResourceMapping`` is that of 1.36, which the publisher makes of it for such a server.
"""

import dataclasses
import types
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from drakit.core import arguments, errors, quantity

_AMOUNTS = {
    "per_device": "mapping.deviceMultiplier",
    "per_unit": "mapping.capacityMultiplier",
    "per_pod": "overhead.perPod",
    "per_container": "overhead.perContainer",
}


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeResource:
    """The amount of one resource of the node that comes with a device. The device checks it, and its error names the device.

    A device that is such a resource has either ``per_device``, the amount of each allocated device, or ``capacity`` and ``per_unit``: the amount of
    each unit that a claim consumes of this capacity. Pods cannot share its claims. ``per_pod`` and ``per_container`` are what a pod, and each of its
    containers, needs beside a device that it uses.
    """

    per_device: quantity.Quantity | None = None
    capacity: str = ""
    per_unit: quantity.Quantity | None = None
    per_pod: quantity.Quantity | None = None
    per_container: quantity.Quantity | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            per_device: quantity.Amount | None = None,
            capacity: str = "",
            per_unit: quantity.Amount | None = None,
            per_pod: quantity.Amount | None = None,
            per_container: quantity.Amount | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name, field in _AMOUNTS.items():
            if (amount := getattr(self, name)) is not None:
                try:
                    object.__setattr__(self, name, quantity.Quantity.of(amount))
                except errors.QuantityError as error:
                    raise errors.InventoryError(error.reason, field=field) from error

    def check(self, capacities: Collection[str] | None, field: str) -> None:
        """Raise InventoryError for amounts that the API refuses; ``capacities`` are the device's, None while its mixins are unknown."""
        amounts = {name: getattr(self, name) for name in _AMOUNTS if getattr(self, name) is not None}
        if bool(self.capacity) != (self.per_unit is not None) or (self.capacity and self.per_device is not None):
            raise errors.InventoryError("give either per_device, or capacity and per_unit", field=f"{field}.mapping")
        if not amounts:
            raise errors.InventoryError("give per_device, per_unit, per_pod or per_container", field=field)
        if self.capacity and capacities is not None and self.capacity not in capacities:
            raise errors.InventoryError(f"the device has no capacity {self.capacity!r}", field=f"{field}.mapping.capacityKey")
        for name, amount in amounts.items():
            if amount < quantity.ZERO or (name in {"per_device", "per_unit"} and not amount):
                raise errors.InventoryError(f"{amount} is too small", field=f"{field}.{_AMOUNTS[name]}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeResourceMapping(NodeResource):
    """The form of Kubernetes 1.36: only ``per_device``, or ``capacity`` and ``per_unit``."""


def as_mapping(resource: NodeResource) -> NodeResourceMapping | None:
    """Return the form of Kubernetes 1.36; None if there is none.

    That version has no overhead. ``per_pod`` is added to the amount of each device, which is the same for a claim of one pod; beside ``per_unit``, an
    amount of each unit, it is lost. ``per_container`` is always lost.
    """
    if resource.capacity:
        return NodeResourceMapping(capacity=resource.capacity, per_unit=resource.per_unit)
    amount = (resource.per_device or quantity.ZERO) + (resource.per_pod or quantity.ZERO)
    return NodeResourceMapping(per_device=amount) if amount else None


def freeze(resources: Mapping[str, NodeResource], capacities: Collection[str] | None, field: str) -> Mapping[str, NodeResource]:
    """Return a read-only copy of what a device takes of its node, by the resource's name. Raises InventoryError."""
    for name, resource in resources.items():
        if not name or ("/" in name and "kubernetes.io/" not in name):
            raise errors.InventoryError("must be a resource that nodes have, such as cpu or memory", field=f"{field}[{name}]")
        # Authors may have no type checker.
        if not isinstance(resource, NodeResource):
            raise errors.InventoryError(f"{resource!r} is not a NodeResource; write NodeResource(per_device=...)", field=f"{field}[{name}]")
        resource.check(capacities, f"{field}[{name}]")
    return types.MappingProxyType(dict(resources))
