"""Counter sets and what devices draw from them (KEP-4815, resource.k8s.io/v1 sharedCounters and consumesCounters).

A set's counters say how much there is; a device's consumption says how much its allocation takes away. ``includes`` name mixins and exist only
in the author form; after flattening they are empty.
"""

import dataclasses
import types
from collections.abc import Mapping

from drakit.core import errors, names, quantity

COUNTERS_MAX = 32
INCLUDES_MAX = 8


def freeze_counters(counters: Mapping[str, "int | str | quantity.Quantity"], field: str) -> Mapping[str, quantity.Quantity]:
    """A read-only copy with checked names and parsed values; raises InventoryError."""
    if len(counters) > COUNTERS_MAX:
        raise errors.InventoryError(f"{len(counters)} counters are over the limit of {COUNTERS_MAX}", field=field)
    return types.MappingProxyType({names.check_label(name, field): _amount(value, f"{field}[{name}]") for name, value in counters.items()})


def _amount(value: "int | str | quantity.Quantity", field: str) -> quantity.Quantity:
    try:
        amount = quantity.Quantity.of(value)
    except errors.QuantityError as error:
        raise errors.InventoryError(error.reason, field=field) from error
    if amount < quantity.ZERO:
        raise errors.InventoryError("a counter cannot be negative", field=field)
    return amount


def check_includes(includes: tuple[str, ...], field: str) -> None:
    """Mixin names, at most eight; raises InventoryError."""
    if len(includes) > INCLUDES_MAX:
        raise errors.InventoryError(f"{len(includes)} includes are over the limit of {INCLUDES_MAX}", field=field)
    for name in includes:
        names.check_label(name, field)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CounterSet:
    """What one physical device has: counter name to amount."""

    name: str
    counters: Mapping[str, quantity.Quantity] = dataclasses.field(default_factory=dict)
    includes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names.check_label(self.name, "counterSet.name")
        object.__setattr__(self, "counters", freeze_counters(self.counters, f"sharedCounters[{self.name}].counters"))
        check_includes(self.includes, f"sharedCounters[{self.name}].includes")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CounterConsumption:
    """What one device takes from one counter set while it is allocated."""

    counter_set: str
    counters: Mapping[str, quantity.Quantity] = dataclasses.field(default_factory=dict)
    includes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names.check_label(self.counter_set, "consumesCounters.counterSet")
        object.__setattr__(self, "counters", freeze_counters(self.counters, f"consumesCounters[{self.counter_set}].counters"))
        check_includes(self.includes, f"consumesCounters[{self.counter_set}].includes")
