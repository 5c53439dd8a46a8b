"""Pools that belong to no single node: what a publisher of the whole cluster offers.

The pool says once which nodes can use its devices (a selector, or all nodes), or leaves it to each device. Its slices have no owner, so they stay
until the publisher withdraws them.
"""

import dataclasses

from drakit.core import errors, names
from drakit.core import inventory as inventories
from drakit.core import reach as reaches


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """One pool of the cluster; raises InventoryError where pool and devices do not say between them, exactly once, which nodes are meant."""

    name: str
    reach: reaches.OfPool
    inventory: inventories.Inventory

    def __post_init__(self) -> None:
        names.check_pool(self.name)
        try:
            check(self.inventory, self.reach)
        except errors.InventoryError as error:
            raise error.under(f"pool[{self.name}]") from error


def check(offered: inventories.Inventory, place: reaches.OfPool | None) -> None:
    """Whether each device says its nodes just where the pool leaves that to devices; ``place`` is None for a pool of one node."""
    chooses = isinstance(place, reaches.PerDevice)
    for item in offered.devices:
        field = f"devices[{item.name}].reach"
        if chooses and item.reach is None:
            raise errors.InventoryError("is required, because the pool leaves it to each device", field=field)
        if not chooses and item.reach is not None:
            raise errors.InventoryError("may be given only where the pool leaves it to each device (reach.PerDevice)", field=field)
