"""Split an inventory into pages, one for each ResourceSlice, by the API's limits.

The result is deterministic. Laws: every device and counter set is on exactly one page. Devices keep the inventory's order, which is policy (with
TOGETHER, each page keeps the order, and pages follow the order of their first devices). A page has only the mixins that it uses, in the order of
their definition. An empty inventory gives one empty page, which shows that the driver runs.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from drakit.core import device as devices
from drakit.core import errors
from drakit.core import inventory as inventories
from drakit.core.slices import resource_slice

Mixin = TypeVar("Mixin", inventories.DeviceMixin, inventories.CounterSetMixin, inventories.ConsumptionMixin)


class _Use(NamedTuple):
    """A mixin that a page includes: its kind (a field of ``inventory.Mixins``) and its name."""

    kind: str
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Group:
    """The parts that must share a page: positions of devices and counter sets in the inventory, and their mixins."""

    devices: tuple[int, ...] = ()
    counter_sets: tuple[int, ...] = ()
    uses: frozenset[_Use] = frozenset()
    detailed: bool = False

    def __add__(self, other: "_Group") -> "_Group":
        return _Group(
            devices=self.devices + other.devices,
            counter_sets=self.counter_sets + other.counter_sets,
            uses=self.uses | other.uses,
            detailed=self.detailed or other.detailed,
        )

    @property
    def fits(self) -> bool:
        """Return whether the group is within the limits of one slice."""
        limit = resource_slice.DEVICES_MAX_DETAILED if self.detailed else resource_slice.DEVICES_MAX
        within = len(self.devices) <= limit and len(self.counter_sets) <= resource_slice.COUNTER_SETS_MAX
        return within and (not self.uses or len(self.devices) + len(self.uses) < resource_slice.DEVICES_MAX)


def paginate(
    inventory: inventories.Inventory, *, form: resource_slice.Form, layout: resource_slice.Layout
) -> tuple[resource_slice.Page, ...]:
    """Return the pages of a pool, at least one. Raises InventoryError if too many devices must share a slice (TOGETHER)."""
    source = inventory.flat() if form is resource_slice.Form.FLAT else inventory
    if layout is resource_slice.Layout.TOGETHER:
        groups = _pack(_together(source))
    else:
        groups = _pack(map(_set_group, range(len(source.counter_sets)), source.counter_sets))
        groups += _pack(map(_device_group, range(len(source.devices)), source.devices))
    empty = resource_slice.Page(skip_node_operations=source.skip_node_operations)
    return tuple(_page(source, group) for group in groups) or (empty,)


def _pack(groups: Iterable[_Group]) -> list[_Group]:
    """Fill pages in order; a group that no longer fits opens the next page."""
    pages: list[_Group] = []
    for group in groups:
        if pages and (merged := pages[-1] + group).fits:
            pages[-1] = merged
        else:
            pages.append(group)
    return pages


def _device_group(index: int, device: devices.Device) -> _Group:
    drawn = (_Use("consumption", name) for part in device.consumes for name in part.includes)
    return _Group(
        devices=(index,),
        uses=frozenset({*(_Use("device", name) for name in device.includes), *drawn}),
        detailed=_is_detailed(device),
    )


def _set_group(index: int, counter_set: devices.CounterSet) -> _Group:
    return _Group(counter_sets=(index,), uses=frozenset(_Use("counter_set", name) for name in counter_set.includes))


def _is_detailed(device: devices.Device) -> bool:
    """Return whether the lower limit of devices in a slice applies."""
    return bool(device.taints or device.consumes) or any(isinstance(value, tuple) for value in device.attributes.values())


def _together(source: inventories.Inventory) -> list[_Group]:
    """Return groups of counter sets with all their devices in order of the first device, single devices without a set, and unused sets last."""
    roots = _roots(source)
    parts: dict[str, _Group] = {}
    for index, device in enumerate(source.devices):
        key = f"set {roots[device.consumes[0].counter_set]}" if device.consumes else f"device {device.name}"
        parts[key] = parts.get(key, _Group()) + _device_group(index, device)
    for index, counter_set in enumerate(source.counter_sets):
        key = f"set {roots[counter_set.name]}"
        parts[key] = parts.get(key, _Group()) + _set_group(index, counter_set)
    for group in parts.values():
        if not group.fits:
            raise _too_large(source, group)
    return list(parts.values())


def _roots(source: inventories.Inventory) -> dict[str, str]:
    """Return the representative of each counter set; devices that consume from two sets join these sets."""
    roots = {counter_set.name: counter_set.name for counter_set in source.counter_sets}
    for device in source.devices:
        joined = {roots[part.counter_set] for part in device.consumes}
        if len(joined) > 1:
            root = min(joined)
            roots = {name: root if old in joined else old for name, old in roots.items()}
    return roots


def _too_large(source: inventories.Inventory, group: _Group) -> errors.InventoryError:
    name = source.counter_sets[group.counter_sets[0]].name
    return errors.InventoryError(
        f"{len(group.devices)} devices, {len(group.counter_sets)} counter sets and {len(group.uses)} mixins must share one slice, "
        f"which holds {resource_slice.DEVICES_MAX_DETAILED} devices and {resource_slice.COUNTER_SETS_MAX} counter sets",
        field=f"sharedCounters[{name}]",
    )


def _page(source: inventories.Inventory, group: _Group) -> resource_slice.Page:
    offered = tuple(source.devices[index] for index in sorted(group.devices))
    return resource_slice.Page(
        devices=offered,
        partition_type=source.partition_type if any(device.consumes for device in offered) else "",
        skip_node_operations=source.skip_node_operations,
        counter_sets=tuple(source.counter_sets[index] for index in group.counter_sets),
        mixins=inventories.Mixins(
            device=_used(source.mixins.device, "device", group),
            counter_set=_used(source.mixins.counter_set, "counter_set", group),
            consumption=_used(source.mixins.consumption, "consumption", group),
        ),
    )


def _used(defined: Sequence[Mixin], kind: str, group: _Group) -> tuple[Mixin, ...]:
    return tuple(mixin for mixin in defined if _Use(kind, mixin.name) in group.uses)
