"""What one node can offer, compiled once: candidate devices in order of preference, and counters as one vector of integers.

Counters are keyed by driver, pool, counter set and name. A device holds its draws as (position in the vector, amount); amounts are in
nanos, so that sums are exact. What depends on claims is not here: see :mod:`drakit.cluster.search`.
"""

from collections.abc import Iterable, Mapping

from drakit.cluster import capacity, devices, json_types, quantity
from drakit.cluster.capacity import Capacity
from drakit.cluster.devices import DeviceId, DeviceView
from drakit.cluster.json_types import Json, Object
from drakit.cluster.pools import Condition, Pool, Slice
from drakit.cluster.ports import AllocationError
from drakit.cluster.state import AllocatedState

Draws = tuple[tuple[int, int], ...]


class Device:
    """One candidate. ``index`` is its place in the order of allocation. The view, and what is learned by it, is made on first use."""

    __slots__ = ("_capacities", "_view", "draws", "draws_counters", "id", "index", "place", "pool", "shareable", "spec", "verdicts")

    def __init__(self, index: int, entry: Slice, spec: Object, pool: int, draws: Draws) -> None:
        self.index = index
        self.id = DeviceId(entry.pool.driver, entry.pool.pool, json_types.text(spec, "name"))
        self.spec = spec
        self.place = spec if entry.spec.get("perDeviceNodeSelection") is True else entry.spec
        self.pool = pool
        self.draws = draws
        self.draws_counters = bool(spec.get("consumesCounters"))
        self.shareable = spec.get("allowMultipleAllocations") is True
        self.verdicts: dict[str, bool] = {}
        self._view: DeviceView | None = None
        self._capacities: dict[str, Capacity] | None = None

    @property
    def view(self) -> DeviceView:
        """What selectors see."""
        if self._view is None:
            self._view = devices.view_of(self.id.driver, self.spec)
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


class Inventory:
    """The devices and counters of the usable pools of one node."""

    def __init__(self, pools: Iterable[Pool]) -> None:
        self.pools = list(pools)
        self.devices: list[Device] = []
        self.totals: list[int] = []
        self.counter_names: list[str] = []
        self.kinds: list[tuple[int, str]] = []
        """Pool and counter name of each counter: those of one kind measure the same in different counter sets."""
        self._elsewhere: list[tuple[DeviceId, Draws]] = []
        for number, pool in enumerate(self.pools):
            if pool.condition is Condition.USABLE:
                self._add(number, pool)

    def _add(self, number: int, pool: Pool) -> None:
        positions = self._add_counters(number, pool)
        for entry in pool.slices:
            for spec in json_types.objects(entry.spec, "devices"):
                draws = _draws(spec, positions)
                self.devices.append(Device(len(self.devices), entry, spec, number, draws))
        for entry in pool.elsewhere:
            for spec in json_types.objects(entry.spec, "devices"):
                if draws := _draws(spec, positions):
                    self._elsewhere.append((DeviceId(*pool.id, json_types.text(spec, "name")), draws))

    def _add_counters(self, number: int, pool: Pool) -> dict[tuple[str, str], int]:
        positions = {}
        for set_name, counters in pool.counter_sets.items():
            for name, counter in counters.items():
                positions[set_name, name] = len(self.totals)
                self.totals.append(_amount(counter, f"pool {pool.id}: counter set", {"name": set_name}, name))
                self.counter_names.append(f"{pool.id}: {set_name}.{name}")
                self.kinds.append((number, name))
        return positions

    def remaining(self, allocated: AllocatedState) -> list[int]:
        """Return what is left of every counter; negative where more is in use than the slices say there is."""
        left = list(self.totals)
        drawn = [(device.id, device.draws) for device in self.devices if device.draws]
        for device, draws in (*drawn, *self._elsewhere):
            if allocated.draws_counters(device):
                for position, amount in draws:
                    left[position] -= amount
        return left

    def overdrawn(self, remaining: list[int]) -> frozenset[int]:
        """Return the pools in which some counter is below zero: nothing that draws counters is allocated from them."""
        return frozenset(self.kinds[position][0] for position, amount in enumerate(remaining) if amount < 0)


def _draws(spec: Object, positions: Mapping[tuple[str, str], int]) -> Draws:
    if "consumesCounters" not in spec or not positions:
        return ()
    amounts: dict[int, int] = {}
    for consumption in json_types.objects(spec, "consumesCounters"):
        set_name = json_types.text(consumption, "counterSet")
        for name, counter in json_types.mapping(consumption, "counters").items():
            position = positions[set_name, name]
            amounts[position] = amounts.get(position, 0) + _amount(counter, "device", spec, name)
    return tuple((position, amount) for position, amount in amounts.items() if amount)


def _amount(counter: Json, kind: str, owner: Object, name: str) -> int:
    value = counter.get("value") if isinstance(counter, dict) else None
    try:
        return 0 if value is None else quantity.parse(value).nanos
    except quantity.QuantityError as error:
        raise AllocationError(f"{kind} {json_types.text(owner, 'name')}: counter {name}: {error}") from error
