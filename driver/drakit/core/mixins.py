"""Mixins: named parts that devices, counter sets and consumptions include instead of repeating them (KEP-4815, Mixins; KEP-5234).

They are a form for authors and for compact slices; no released API server stores them. The law of flattening: includes apply in order, a later
include wins over an earlier one, and what is written on the including value wins over all.
"""

import dataclasses
import types
from collections.abc import Iterable, Mapping
from typing import TypeVar

from drakit.core import attribute, counters, errors, names, policy, quantity

Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceMixin:
    """Attributes and capacities shared by devices."""

    name: str
    attributes: Mapping[str, attribute.AttributeValue] = dataclasses.field(default_factory=dict)
    capacity: Mapping[str, policy.Capacity] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        names.check_label(self.name, "mixins.device.name")
        object.__setattr__(self, "attributes", freeze_attributes(self.attributes, f"mixins.device[{self.name}].attributes"))
        object.__setattr__(self, "capacity", freeze_capacity(self.capacity, f"mixins.device[{self.name}].capacity"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CounterSetMixin:
    """Counters shared by counter sets."""

    name: str
    counters: Mapping[str, quantity.Quantity]

    def __post_init__(self) -> None:
        names.check_label(self.name, "mixins.counterSet.name")
        object.__setattr__(self, "counters", counters.freeze_counters(self.counters, f"mixins.counterSet[{self.name}].counters"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConsumptionMixin:
    """Counters that several devices consume, each from a set of its own."""

    name: str
    counters: Mapping[str, quantity.Quantity]

    def __post_init__(self) -> None:
        names.check_label(self.name, "mixins.deviceCounterConsumption.name")
        field = f"mixins.deviceCounterConsumption[{self.name}].counters"
        object.__setattr__(self, "counters", counters.freeze_counters(self.counters, field))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixins:
    """All mixins of an inventory or of one slice; names are unique within each of the three kinds."""

    device: tuple[DeviceMixin, ...] = ()
    counter_set: tuple[CounterSetMixin, ...] = ()
    consumption: tuple[ConsumptionMixin, ...] = ()

    def __post_init__(self) -> None:
        for kind in (self.device, self.counter_set, self.consumption):
            seen = [mixin.name for mixin in kind]
            for name in seen:
                if seen.count(name) > 1:
                    raise errors.InventoryError(f"{name!r} is defined twice", field="mixins")

    def __bool__(self) -> bool:
        return bool(self.device or self.counter_set or self.consumption)

    def __len__(self) -> int:
        return len(self.device) + len(self.counter_set) + len(self.consumption)


def merge(own: Mapping[str, Value], included: Iterable[Mapping[str, Value]]) -> Mapping[str, Value]:
    """Included mappings in order, then the own one over them."""
    merged: dict[str, Value] = {}
    for part in included:
        merged.update(part)
    merged.update(own)
    return types.MappingProxyType(merged)


def freeze_attributes(values: Mapping[str, attribute.AttributeValue], field: str) -> Mapping[str, attribute.AttributeValue]:
    """A read-only copy with checked names and values; raises InventoryError."""
    return types.MappingProxyType(
        {names.check_qualified(name, field): attribute.check(value, f"{field}[{name}]") for name, value in values.items()}
    )


def freeze_capacity(values: Mapping[str, "policy.Capacity | int | str | quantity.Quantity"], field: str) -> Mapping[str, policy.Capacity]:
    """A read-only copy with checked names; plain amounts become capacities; raises InventoryError."""
    return types.MappingProxyType(
        {names.check_qualified(name, field): _capacity(value, f"{field}[{name}]") for name, value in values.items()}
    )


def _capacity(value: "policy.Capacity | int | str | quantity.Quantity", field: str) -> policy.Capacity:
    try:
        return policy.Capacity.of(value)
    except errors.QuantityError as error:
        raise errors.InventoryError(error.reason, field=field) from error
