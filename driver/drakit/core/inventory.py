"""Everything a driver offers on a node at one moment, and its flat form.

Invariants, checked on construction: device and counter set names are unique; every consumption names a counter set and counters that exist;
every include names a mixin of the right kind; every device keeps the API's limits once flattened.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self

from drakit.core import counters, device, errors, quantity
from drakit.core import mixins as parts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inventory:
    """Devices in order of preference (the scheduler takes the first that fits), their counter sets, and mixins."""

    devices: tuple[device.Device, ...] = ()
    counter_sets: tuple[counters.CounterSet, ...] = ()
    mixins: parts.Mixins = dataclasses.field(default_factory=parts.Mixins)

    def __post_init__(self) -> None:
        _check_unique((item.name for item in self.devices), "devices")
        _check_unique((item.name for item in self.counter_sets), "sharedCounters")
        flat = self if self.is_flat else self.flat()
        sets = {item.name: item.counters for item in flat.counter_sets}
        for name, held in sets.items():
            if not held:
                raise errors.InventoryError("has no counter", field=f"sharedCounters[{name}]")
        for item in flat.devices:
            _check_consumption(item, sets)

    @classmethod
    def of(cls, devices: Iterable[device.Device]) -> Self:
        """An inventory of plain devices."""
        return cls(devices=tuple(devices))

    @property
    def is_flat(self) -> bool:
        """Whether nothing includes a mixin and none is defined."""
        return not (self.mixins or any(item.includes for item in self.counter_sets) or any(map(_uses_mixins, self.devices)))

    def flat(self) -> "Inventory":
        """The same devices and counter sets with every mixin applied; exact and idempotent."""
        if self.is_flat:
            return self
        shared = {mixin.name: mixin for mixin in self.mixins.device}
        drawn = {mixin.name: mixin.counters for mixin in self.mixins.consumption}
        held = {mixin.name: mixin.counters for mixin in self.mixins.counter_set}
        return Inventory(
            devices=tuple(_flat_device(item, shared, drawn) for item in self.devices),
            counter_sets=tuple(_flat_set(item, held) for item in self.counter_sets),
        )

    def by_name(self) -> Mapping[str, device.Device]:
        """Devices by name."""
        return {item.name: item for item in self.devices}


def _uses_mixins(item: device.Device) -> bool:
    return bool(item.includes or any(part.includes for part in item.consumes))


def _flat_device(
    item: device.Device, shared: Mapping[str, parts.DeviceMixin], drawn: Mapping[str, Mapping[str, quantity.Quantity]]
) -> device.Device:
    field = f"devices[{item.name}]"
    included = [_named(shared, name, f"{field}.includes") for name in item.includes]
    return dataclasses.replace(
        item,
        includes=(),
        attributes=parts.merge(item.attributes, (part.attributes for part in included)),
        capacity=parts.merge(item.capacity, (part.capacity for part in included)),
        consumes=tuple(_flat_consumption(part, drawn, f"{field}.consumesCounters") for part in item.consumes),
    )


def _flat_consumption(
    part: counters.CounterConsumption, drawn: Mapping[str, Mapping[str, quantity.Quantity]], field: str
) -> counters.CounterConsumption:
    included = [_named(drawn, name, f"{field}[{part.counter_set}].includes") for name in part.includes]
    return counters.CounterConsumption(counter_set=part.counter_set, counters=parts.merge(part.counters, included))


def _flat_set(item: counters.CounterSet, held: Mapping[str, Mapping[str, quantity.Quantity]]) -> counters.CounterSet:
    included = [_named(held, name, f"sharedCounters[{item.name}].includes") for name in item.includes]
    return counters.CounterSet(name=item.name, counters=parts.merge(item.counters, included))


def _named(table: Mapping[str, parts.Value], name: str, field: str) -> parts.Value:
    if name not in table:
        raise errors.InventoryError(f"no mixin {name!r} of this kind is defined", field=field)
    return table[name]


def _check_unique(names: Iterable[str], field: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise errors.InventoryError(f"the name is used {count} times", field=f"{field}[{name}]")


def _check_consumption(item: device.Device, sets: Mapping[str, Mapping[str, quantity.Quantity]]) -> None:
    for part in item.consumes:
        field = f"devices[{item.name}].consumesCounters[{part.counter_set}]"
        if part.counter_set not in sets:
            raise errors.InventoryError("no such counter set", field=field)
        if not part.counters:
            raise errors.InventoryError("consumes no counter", field=field)
        for name in part.counters:
            if name not in sets[part.counter_set]:
                raise errors.InventoryError("the set has no such counter", field=f"{field}.counters[{name}]")
