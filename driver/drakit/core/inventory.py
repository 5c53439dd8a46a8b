"""The inventory of a driver: devices, counter sets, mixins, and pools that belong to no single node.

``Inventory`` checks on construction: device and counter set names are unique; every consumption names a counter set and counters that exist; the
devices of one counter set are in one pool; every include names a mixin of the right kind; every flattened device is within the API's limits.

Mixins (KEP-4815; KEP-5234) are named parts that devices, counter sets and consumptions include instead of repeating them. They are a form for authors
and for compact slices. No released API server stores them. Includes apply in order, a later include wins over an earlier one, and values of the
including object win over all includes.
"""

import dataclasses
import types
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

from drakit.core import arguments, device, errors, names, quantity
from drakit.core import capacity as capacities
from drakit.core.slices import node_selection

MixinValue = TypeVar("MixinValue")


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceMixin:
    """Attributes and capacities that several devices have in common."""

    name: str
    attributes: Mapping[str, device.AttributeValue] = dataclasses.field(default_factory=dict)
    capacity: Mapping[str, capacities.Capacity] = dataclasses.field(default_factory=dict)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str,
            attributes: Mapping[str, device.AttributeValue] = ...,
            capacity: Mapping[str, capacities.CapacityValue] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        names.check_label(self.name, "mixins.device.name")
        object.__setattr__(self, "attributes", device.freeze_attributes(self.attributes, f"mixins.device[{self.name}].attributes"))
        object.__setattr__(self, "capacity", capacities.freeze_capacity(self.capacity, f"mixins.device[{self.name}].capacity"))


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class CounterSetMixin:
    """Counters that several counter sets have in common."""

    name: str
    counters: Mapping[str, quantity.Quantity]

    if TYPE_CHECKING:

        def __init__(self, *, name: str, counters: Mapping[str, quantity.Amount]) -> None: ...

    def __post_init__(self) -> None:
        names.check_label(self.name, "mixins.counterSet.name")
        object.__setattr__(self, "counters", device.freeze_counters(self.counters, f"mixins.counterSet[{self.name}].counters"))


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ConsumptionMixin:
    """Counters that several devices consume, each from its own counter set."""

    name: str
    counters: Mapping[str, quantity.Quantity]

    if TYPE_CHECKING:

        def __init__(self, *, name: str, counters: Mapping[str, quantity.Amount]) -> None: ...

    def __post_init__(self) -> None:
        names.check_label(self.name, "mixins.deviceCounterConsumption.name")
        field = f"mixins.deviceCounterConsumption[{self.name}].counters"
        object.__setattr__(self, "counters", device.freeze_counters(self.counters, field))


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixins:
    """All mixins of an inventory or of one slice. Names are unique within each of the three kinds."""

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


def merge_mixins(own: Mapping[str, MixinValue], included: Iterable[Mapping[str, MixinValue]]) -> Mapping[str, MixinValue]:
    """Return the included mappings merged in order, with ``own`` last."""
    merged: dict[str, MixinValue] = {}
    for part in included:
        merged.update(part)
    merged.update(own)
    return types.MappingProxyType(merged)


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Inventory:
    """The devices in order of preference (the scheduler takes the first that fits), their counter sets, and mixins.

    - ``partition_type``: the attribute whose text is the type of each device that consumes counters, such as ``profile`` (KEP-5677, feature gate
      DRAPartitionableDevicesType, alpha and off by default in Kubernetes 1.37). Devices of one type consume the same counters of the same sets.
    - ``skip_node_operations``: the devices of a ``ClusterPool`` need nothing on a node, so that the kubelet calls no driver for them (KEP-5945,
      feature gate DRAOptionalNodeOperations, alpha and off by default in Kubernetes 1.37). Without the gate it calls ``prepare``.
    """

    devices: tuple[device.Device, ...] = ()
    counter_sets: tuple[device.CounterSet, ...] = ()
    mixins: Mixins = dataclasses.field(default_factory=Mixins)
    partition_type: str = ""
    skip_node_operations: bool = False
    _flattened: "Inventory | None" = dataclasses.field(init=False, repr=False, compare=False)
    """The flat form, made once; None if this one is flat."""

    def __post_init__(self) -> None:
        if any(offered_device.pool is not None for offered_device in self.devices):
            _check_device_names(self.devices)
            _set_pools(self.devices)
        _check_unique((offered_device.name for offered_device in self.devices), "devices")
        _check_unique((counter_set.name for counter_set in self.counter_sets), "sharedCounters")
        object.__setattr__(self, "_flattened", None if self.is_flat else self._flatten())
        flat = self.flat()
        sets = {counter_set.name: counter_set.counters for counter_set in flat.counter_sets}
        for name, held in sets.items():
            if not held:
                raise errors.InventoryError("has no counter", field=f"sharedCounters[{name}]")
        for offered_device in flat.devices:
            _check_consumption(offered_device, sets)
        if self.partition_type:
            _check_partition_types(flat.devices, names.check_qualified(self.partition_type, "partitionTypeAttribute"))

    @classmethod
    @arguments.checked_call
    def of(cls, devices: Iterable[device.Device]) -> Self:
        """Return an inventory of devices without counter sets and mixins."""
        return cls(devices=tuple(devices))

    @property
    def is_flat(self) -> bool:
        """Whether no mixin is defined or included."""
        return not (self.mixins or any(counter_set.includes for counter_set in self.counter_sets) or any(map(_uses_mixins, self.devices)))

    def flat(self) -> "Inventory":
        """Return the same devices and counter sets with every mixin applied. Exact and idempotent."""
        return self._flattened or self

    def _flatten(self) -> "Inventory":
        held = {mixin.name: mixin.counters for mixin in self.mixins.counter_set}
        return dataclasses.replace(
            self,
            mixins=Mixins(),
            devices=flat_devices(self.devices, self.mixins),
            counter_sets=tuple(_flat_set(counter_set, held) for counter_set in self.counter_sets),
        )

    def by_name(self) -> Mapping[str, device.Device]:
        """Return the devices by name."""
        return {offered_device.name: offered_device for offered_device in self.devices}


def flat_devices(devices: Iterable[device.Device], mixins: Mixins) -> tuple[device.Device, ...]:
    """Return the devices with their mixins applied. Raises InventoryError for a mixin that is not defined."""
    shared = {mixin.name: mixin for mixin in mixins.device}
    drawn = {mixin.name: mixin.counters for mixin in mixins.consumption}
    return tuple(_flat_device(offered_device, shared, drawn) for offered_device in devices)


def _uses_mixins(offered_device: device.Device) -> bool:
    return bool(offered_device.includes or any(part.includes for part in offered_device.consumes))


def _flat_device(
    offered_device: device.Device, shared: Mapping[str, DeviceMixin], drawn: Mapping[str, Mapping[str, quantity.Quantity]]
) -> device.Device:
    if not _uses_mixins(offered_device):
        return offered_device
    field = f"devices[{offered_device.name}]"
    included = [_named(shared, name, f"{field}.includes") for name in offered_device.includes]
    return offered_device._flat(  # noqa: SLF001 - the two modules are one
        attributes=merge_mixins(offered_device.attributes, (part.attributes for part in included)),
        capacity=merge_mixins(offered_device.capacity, (part.capacity for part in included)),
        consumes=tuple(_flat_consumption(part, drawn, f"{field}.consumesCounters") for part in offered_device.consumes),
    )


def _flat_consumption(
    part: device.CounterConsumption, drawn: Mapping[str, Mapping[str, quantity.Quantity]], field: str
) -> device.CounterConsumption:
    if not part.includes:
        return part
    included = [_named(drawn, name, f"{field}[{part.counter_set}].includes") for name in part.includes]
    return part._flat(merge_mixins(part.counters, included))  # noqa: SLF001 - the two modules are one


def _flat_set(counter_set: device.CounterSet, held: Mapping[str, Mapping[str, quantity.Quantity]]) -> device.CounterSet:
    included = [_named(held, name, f"sharedCounters[{counter_set.name}].includes") for name in counter_set.includes]
    return device.CounterSet(name=counter_set.name, counters=merge_mixins(counter_set.counters, included))


def _named(table: Mapping[str, MixinValue], name: str, field: str) -> MixinValue:
    if name not in table:
        raise errors.InventoryError(f"no mixin {name!r} of this kind is defined", field=field)
    return table[name]


def _check_unique(names: Iterable[str], field: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise errors.InventoryError(f"the name is used {count} times", field=f"{field}[{name}]")


def _check_device_names(offered: Sequence[device.Device]) -> None:
    pools: dict[str, str | None] = {}
    for offered_device in offered:
        if (before := pools.setdefault(offered_device.name, offered_device.pool)) != offered_device.pool:
            raise errors.InventoryError(
                f"the name is used in the pools {_pool_text(before)} and {_pool_text(offered_device.pool)}; "
                "a name is unique across all pools of a node",
                field=f"devices[{offered_device.name}]",
            )


def _pool_text(pool: str | None) -> str:
    return names.pool_of_node("NODE", pool)


def _set_pools(offered: Iterable[device.Device]) -> Mapping[str, str | None]:
    """Return the pool of each counter set. Raises InventoryError if devices of two pools consume from one set."""
    first: dict[str, device.Device] = {}
    for offered_device in offered:
        for part in offered_device.consumes:
            other = first.setdefault(part.counter_set, offered_device)
            if other.pool != offered_device.pool:
                raise errors.InventoryError(
                    f"device {other.name} of pool {_pool_text(other.pool)} consumes counters of this counter set too, and this device is in pool "
                    f"{_pool_text(offered_device.pool)}; put devices that consume counters of one set in one pool",
                    field=f"devices[{offered_device.name}].consumesCounters[{part.counter_set}]",
                )
    return {name: offered_device.pool for name, offered_device in first.items()}


def by_pool(offered: Inventory, node_pool: str) -> Mapping[str, Inventory]:
    """Return the pools of an inventory by name, in the order of their first devices. Without devices there is only the node's own pool.

    A set from which no device consumes is in the node's own pool. Raises InventoryError for a pool name that is too long.
    """
    if all(offered_device.pool is None for offered_device in offered.devices):
        return {node_pool: offered}
    sets = _set_pools(offered.devices)
    return {
        names.check_pool(names.pool_of_node(node_pool, pool)): dataclasses.replace(
            offered,
            devices=tuple(
                dataclasses.replace(offered_device, pool=None) for offered_device in offered.devices if offered_device.pool == pool
            ),
            counter_sets=tuple(counter_set for counter_set in offered.counter_sets if sets.get(counter_set.name) == pool),
        )
        for pool in dict.fromkeys(offered_device.pool for offered_device in offered.devices)
    }


def _check_consumption(offered_device: device.Device, sets: Mapping[str, Mapping[str, quantity.Quantity]]) -> None:
    for part in offered_device.consumes:
        field = f"devices[{offered_device.name}].consumesCounters[{part.counter_set}]"
        if part.counter_set not in sets:
            raise errors.InventoryError("no such counter set", field=field)
        if not part.counters:
            raise errors.InventoryError("consumes no counter", field=field)
        for name in part.counters:
            if name not in sets[part.counter_set]:
                raise errors.InventoryError("the set has no such counter", field=f"{field}.counters[{name}]")


def _check_partition_types(offered: Iterable[device.Device], attribute: str) -> None:
    """Check that each device that consumes counters has a type, and that devices of one type consume the same."""
    first: dict[str, device.Device] = {}
    for offered_device in offered:
        if not offered_device.consumes:
            continue
        field = f"devices[{offered_device.name}]"
        # The driver's domain may be written or left out.
        kind = offered_device.attributes.get(attribute, offered_device.attributes.get(attribute.rpartition("/")[2]))
        if not isinstance(kind, str):
            raise errors.InventoryError("must be a text, because partition_type names it", field=f"{field}.attributes[{attribute}]")
        other = first.setdefault(kind, offered_device)
        if _draws(other) != _draws(offered_device):
            raise errors.InventoryError(
                f"differ from those of device {other.name}, which has the same partition type {kind!r}; devices of one type consume the same",
                field=f"{field}.consumesCounters",
            )


def _draws(offered_device: device.Device) -> Mapping[str, Mapping[str, quantity.Quantity]]:
    return {part.counter_set: part.counters for part in offered_device.consumes}


def with_partition_domain(offered: Inventory, driver: str) -> Inventory:
    """Return the inventory with its partition type's domain, which the API requires and authors of an own attribute leave out."""
    name = offered.partition_type
    return offered if not name or "/" in name else dataclasses.replace(offered, partition_type=f"{driver}/{name}")


def with_taints(offered: Inventory, put: Mapping[str, Sequence[device.Taint]]) -> Inventory:
    """Return the inventory with these taints added to its devices. A taint replaces a discovered one of the same key and effect.

    Taints of devices that are not in the inventory have no effect. Above the API's limit, discovered taints are dropped.
    """
    if not any(offered_device.name in put for offered_device in offered.devices):
        return offered
    return dataclasses.replace(
        offered, devices=tuple(_tainted(offered_device, put.get(offered_device.name, ())) for offered_device in offered.devices)
    )


def _tainted(offered_device: device.Device, put: Sequence[device.Taint]) -> device.Device:
    if not put:
        return offered_device
    replaced = {(taint.key, taint.effect) for taint in put}
    kept = [taint for taint in offered_device.taints if (taint.key, taint.effect) not in replaced]
    return dataclasses.replace(offered_device, taints=(*put, *kept)[: device.TAINTS_MAX])


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterPool:
    """One pool of the cluster. Raises InventoryError unless either the pool or each of its devices states its nodes."""

    name: str
    reach: node_selection.PoolNodes
    inventory: Inventory

    def __post_init__(self) -> None:
        names.check_pool(self.name)
        try:
            check_node_selection(self.inventory, self.reach)
        except errors.InventoryError as error:
            raise error.with_prefix(f"pool[{self.name}]") from error


def check_node_selection(offered: Inventory, place: node_selection.PoolNodes | None) -> None:
    """Check that devices state their nodes if and only if the pool is ``PerDevice``. ``place`` is None for the pools of one node."""
    chooses = isinstance(place, node_selection.PerDevice)
    if offered.skip_node_operations and place is None:
        raise errors.InventoryError(
            "may be given only in a ClusterPool; a node's driver prepares its own devices", field="skipNodeOperations"
        )
    for offered_device in offered.devices:
        if place is not None and offered_device.pool is not None:
            raise errors.InventoryError(
                "may be given only on a node; a ClusterPool has a name", field=f"devices[{offered_device.name}].pool"
            )
        field = f"devices[{offered_device.name}].reach"
        if chooses and offered_device.reach is None:
            raise errors.InventoryError("is required, because the pool leaves it to each device", field=field)
        if not chooses and offered_device.reach is not None:
            raise errors.InventoryError("may be given only where the pool leaves it to each device (node_selection.PerDevice)", field=field)
