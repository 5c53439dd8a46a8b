"""What one node can offer, compiled once: candidate devices in order of preference, and counters as one vector of integers.

Counters are keyed by driver, pool, counter set and name. A device holds its draws as (position in the vector, amount); amounts are in
nanos, so that sums are exact. What depends on claims is not here: see :mod:`drakit.cluster.search`.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence

from drakit.cluster import capacity, devices, json_types, quantity
from drakit.cluster.capacity import Capacity
from drakit.cluster.devices import DeviceId, DeviceView
from drakit.cluster.json_types import Json, Object
from drakit.cluster.pools import Condition, Pool, Slice
from drakit.cluster.ports import AllocationError
from drakit.cluster.state import AllocatedState

Draws = tuple[tuple[int, int], ...]

_KEPT_EXPRESSIONS = 1024


class Device:
    """One candidate. ``index`` is its place in the order of allocation. The view and the draws are made on first use."""

    __slots__ = ("_capacities", "_draws", "_pool", "_view", "draws_counters", "index", "name", "place", "pool", "shareable", "spec")

    def __init__(self, index: int, entry: Slice, spec: Object, pool: "CompiledPool") -> None:
        self.index = index
        self.name = json_types.text(spec, "name")
        self.spec = spec
        self.place = spec if entry.spec.get("perDeviceNodeSelection") is True else entry.spec
        self.pool = pool.number
        self.draws_counters = bool(spec.get("consumesCounters"))
        self.shareable = spec.get("allowMultipleAllocations") is True
        self._pool = pool
        self._draws: Draws | None = None
        self._view: DeviceView | None = None
        self._capacities: dict[str, Capacity] | None = None

    @property
    def id(self) -> DeviceId:
        """The name in the whole cluster."""
        return DeviceId(*self._pool.id, self.name)

    @property
    def draws(self) -> Draws:
        """What it takes of counters. Raise AllocationError for a malformed quantity."""
        if self._draws is None:
            self._draws = self._pool.draws(self.spec)
        return self._draws

    @property
    def view(self) -> DeviceView:
        """What selectors see."""
        if self._view is None:
            self._view = devices.view_of(self._pool.id.driver, self.spec)
        return self._view

    @property
    def capacities(self) -> Mapping[str, Capacity]:
        """The published capacity. Raise AllocationError for a malformed quantity."""
        if self._capacities is None:
            try:
                self._capacities = capacity.decode_capacities(self.spec.get("capacity"))
            except quantity.QuantityError as error:
                raise AllocationError(f"device {self.id}: capacity: {error}") from error
        return self._capacities

    @property
    def selects_node_itself(self) -> bool:
        """Whether the node selection is on the device, not on its slice."""
        return self.place is self.spec


class CompiledPool:
    """One usable pool. ``positions`` are the places of its counters in the vector, by counter set and name."""

    def __init__(self, number: int, pool: Pool) -> None:
        self.number = number
        self.id = pool.id
        self.positions: dict[tuple[str, str], int] = {}
        self.offered: list[Device] = []
        self._elsewhere = pool.elsewhere

    @functools.cached_property
    def by_name(self) -> Mapping[str, Sequence[Object]]:
        """The published devices that may draw the pool's counters; those for other nodes are not checked for equal names."""
        specs = [device.spec for device in self.offered] + [spec for entry in self._elsewhere for spec in entry.devices]
        found: dict[str, list[Object]] = {}
        for spec in specs:
            found.setdefault(json_types.text(spec, "name"), []).append(spec)
        return found

    def draws(self, spec: Object) -> Draws:
        """Return what a published device draws. Raise AllocationError for a malformed quantity."""
        if "consumesCounters" not in spec or not self.positions:
            return ()
        amounts: dict[int, int] = {}
        for consumption in json_types.objects(spec, "consumesCounters"):
            set_name = json_types.text(consumption, "counterSet")
            for name, counter in json_types.mapping(consumption, "counters").items():
                position = self.positions[set_name, name]
                amounts[position] = amounts.get(position, 0) + _amount(counter, "device", spec, name)
        return tuple((position, amount) for position, amount in amounts.items() if amount)


class Inventory:
    """The devices and counters of the usable pools of one node."""

    def __init__(self, pools: Iterable[Pool]) -> None:
        self.pools = list(pools)
        self.devices: list[Device] = []
        self.totals: list[int] = []
        self.counter_names: list[str] = []
        self.kinds: list[tuple[int, str]] = []
        """Pool and counter name of each counter: those of one kind measure the same in different counter sets."""
        self.usable: list[CompiledPool] = []
        self._verdicts: dict[str, list[bool | None]] = {}
        for number, pool in enumerate(self.pools):
            if pool.condition is Condition.USABLE:
                self._add(number, pool)

    def _add(self, number: int, pool: Pool) -> None:
        compiled = CompiledPool(number, pool)
        self.usable.append(compiled)
        self._add_counters(compiled, pool)
        for entry in pool.slices:
            for spec in entry.devices:
                compiled.offered.append(Device(len(self.devices) + len(compiled.offered), entry, spec, compiled))
        self.devices += compiled.offered

    def _add_counters(self, compiled: CompiledPool, pool: Pool) -> None:
        for set_name, counters in pool.counter_sets.items():
            for name, counter in counters.items():
                compiled.positions[set_name, name] = len(self.totals)
                self.totals.append(_amount(counter, f"pool {pool.id}: counter set", {"name": set_name}, name))
                self.counter_names.append(f"{pool.id}: {set_name}.{name}")
                self.kinds.append((compiled.number, name))

    def verdicts(self, expression: str) -> list[bool | None]:
        """Return what is known of an expression by device, to be added to."""
        known = self._verdicts.get(expression)
        if known is None:
            if len(self._verdicts) >= _KEPT_EXPRESSIONS:
                self._verdicts.pop(next(iter(self._verdicts)))
            known = self._verdicts[expression] = [None] * len(self.devices)
        return known

    def remaining(self, allocated: AllocatedState) -> list[int]:
        """Return what is left of every counter; negative where more is in use than the slices say there is."""
        left = list(self.totals)
        for pool in self.usable:
            for name, use in allocated.pool(*pool.id).items():
                if not use.draws_counters:
                    continue
                for spec in pool.by_name.get(name, ()):
                    for position, amount in pool.draws(spec):
                        left[position] -= amount
        return left

    def overdrawn(self, remaining: list[int]) -> frozenset[int]:
        """Return the pools in which some counter is below zero: nothing that draws counters is allocated from them."""
        return frozenset(self.kinds[position][0] for position, amount in enumerate(remaining) if amount < 0)


def _amount(counter: Json, kind: str, owner: Object, name: str) -> int:
    value = counter.get("value") if isinstance(counter, dict) else None
    try:
        return 0 if value is None else quantity.parse(value).nanos
    except quantity.QuantityError as error:
        raise AllocationError(f"{kind} {json_types.text(owner, 'name')}: counter {name}: {error}") from error
