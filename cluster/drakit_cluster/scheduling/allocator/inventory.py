"""The devices of one node, compiled once: candidate devices in order of preference, and counters as one vector of integers.

Counters are keyed by driver, pool, counter set and name. A device holds its draws as (position in the vector, amount); amounts are in
nanos, so that sums are exact. Facts that depend on claims are in :mod:`drakit_cluster.scheduling.allocator.search`.

Compatibility groups (KEP-5963) are kept for the counter sets of which some device names groups. All devices in use of such a set must have
a group in common. A device without groups fits only devices without groups, as if all of those had one group more (:data:`NO_GROUPS`).
"""

import functools
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

from drakit_cluster.objects import capacity, devices, json_types, quantity
from drakit_cluster.objects.capacity import Amounts, Capacity
from drakit_cluster.objects.devices import AllocationError, DeviceId, DeviceView
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.versions import Rule
from drakit_cluster.scheduling.allocator import footprints
from drakit_cluster.scheduling.allocator.pools import Condition, Pool, Slice
from drakit_cluster.scheduling.allocator.state import AllocatedState

Draws = tuple[tuple[int, int], ...]
Groups = tuple[tuple[int, int], ...]
"""The number of a counter set with groups, and the groups that a device has in it, as bits."""
NO_GROUPS = 1
"""The bit of devices without groups."""
ANY_GROUPS = -1
"""The common groups of no devices."""

_MAX_EXPRESSIONS = 1024
_MAX_DEMANDS = 64
UNKNOWN = object()
"""In place of a refusal: not yet examined."""


class Device:
    """One candidate. ``index`` is its place in the order of allocation. Its spec is decoded on first use."""

    def __init__(self, index: int, entry: Slice, spec: Object, pool: "CompiledPool") -> None:
        self.index = index
        self.name = json_types.text(spec, "name")
        self.spec = spec
        self.place = spec if entry.spec.get("perDeviceNodeSelection") is True else entry.spec
        self.pool = pool.number
        self.draws_counters = bool(spec.get("consumesCounters"))
        self.shareable = spec.get("allowMultipleAllocations") is True
        self.skipped_operations = entry.spec.get("skipNodeOperations")
        """The operations of the kubelet that the device needs no driver for (KEP-5945)."""
        self._pool = pool

    @functools.cached_property
    def id(self) -> DeviceId:
        return DeviceId(*self._pool.id, self.name)

    @property
    def driver(self) -> str:
        return self._pool.id.driver

    @functools.cached_property
    def plain(self) -> bool:
        """Whether every attribute and capacity is certain to be readable (``footprints``)."""
        return footprints.is_plain(self.spec)

    @functools.cached_property
    def draws(self) -> Draws:
        """The counters that it consumes. Raises AllocationError for a malformed quantity."""
        return self._pool.draws(self.spec)

    @functools.cached_property
    def groups(self) -> Groups:
        """The groups that it has in each of its counter sets with groups."""
        return self._pool.groups(self.spec)

    @functools.cached_property
    def view(self) -> DeviceView:
        return devices.view_of(self.driver, self.spec)

    @functools.cached_property
    def capacities(self) -> Mapping[str, Capacity]:
        """The published capacity. Raises AllocationError for a malformed quantity."""
        try:
            return capacity.decode_capacities(self.spec.get("capacity"), fractional=self._pool.fractional)
        except quantity.QuantityError as error:
            raise AllocationError(f"device {self.id}: capacity: {error}") from error

    @functools.cached_property
    def _demands(self) -> dict[str, Amounts | None]:
        return {}

    def requested(self, amounts: Amounts) -> Amounts:
        """Return requested amounts by the names that the driver publishes."""
        if not self._pool.qualified:
            return amounts
        return {capacity.published_name(name, self.capacities, self.driver): amount for name, amount in amounts.items()}

    def demand(self, amounts: Amounts, amounts_text: str) -> Amounts | None:
        """Return what the requested ``amounts`` (``amounts_text`` as written) consume; None if impossible. Raises AllocationError."""
        if amounts_text not in self._demands:
            if len(self._demands) >= _MAX_DEMANDS:
                self._demands.clear()
            try:
                self._demands[amounts_text] = capacity.demand(self.requested(amounts), self.capacities)
            except capacity.NotRepresentableError as error:
                raise AllocationError(f"device {self.id}: capacity.requests: {error}") from error
        return self._demands[amounts_text]

    @property
    def selects_node_itself(self) -> bool:
        """Whether the node selection is on the device, not on its slice."""
        return self.place is self.spec


class CompiledPool:
    """One usable pool. ``positions`` are the places of its counters in the vector, by name within their counter set.

    ``grouped`` holds the numbers of its counter sets with groups. ``fractional`` is the gate DRAFractionalCapacityRange.
    ``qualified`` says that requests find capacities with and without the driver's domain.
    """

    def __init__(self, number: int, pool: Pool, group_bits: dict[str, int], features: FeatureGates) -> None:
        self.number = number
        self.id = pool.id
        self.fractional = features.on(Gate.FRACTIONAL_CAPACITY_RANGE)
        self.qualified = features.follows(Rule.QUALIFIED_CAPACITIES)
        self.positions: dict[str, dict[str, int]] = {}
        self.grouped: dict[str, int] = {}
        self._group_bits = group_bits
        self.offered: list[Device] = []
        self._elsewhere = pool.elsewhere
        self._draws_by_name: dict[str, Draws] = {}

    @functools.cached_property
    def _by_name(self) -> Mapping[str, Sequence[Object]]:
        """The published devices that may draw the pool's counters. Names of devices for other nodes are not checked for duplicates."""
        specs = [device.spec for device in self.offered] + [spec for entry in self._elsewhere for spec in entry.devices]
        by_name: dict[str, list[Object]] = {}
        for spec in specs:
            by_name.setdefault(json_types.text(spec, "name"), []).append(spec)
        return by_name

    def draws_of(self, name: str) -> Draws:
        """Return the draws of the devices with a name; empty for an unknown name. Raises AllocationError for a malformed quantity."""
        if name not in self._draws_by_name:
            self._draws_by_name[name] = tuple(draw for spec in self._by_name.get(name, ()) for draw in self.draws(spec))
        return self._draws_by_name[name]

    def groups_in_use(self, names: Collection[str]) -> Iterator[tuple[int, int]]:
        """Yield the groups of the devices with these names, in the order of slices and devices."""
        for name, specs in self._by_name.items() if self.grouped else ():
            for spec in specs if name in names else ():
                yield from self.groups(spec)

    def groups(self, spec: Object) -> Groups:
        """Return the groups of a published device."""
        if not self.grouped or "consumesCounters" not in spec:
            return ()
        entries = [(json_types.text(entry, "counterSet"), entry) for entry in json_types.objects(spec, "consumesCounters")]
        return tuple((self.grouped[name], self._bits(entry)) for name, entry in entries if name in self.grouped)

    def _bits(self, consumption: Object) -> int:
        bits = 0
        for name in json_types.strings(consumption, "compatibilityGroups"):
            bits |= self._group_bits.setdefault(name, NO_GROUPS << (len(self._group_bits) + 1))
        return bits or NO_GROUPS

    def draws(self, spec: Object) -> Draws:
        """Return the draws of a published device; negative amounts count as 0. Raises AllocationError for a malformed quantity."""
        if "consumesCounters" not in spec or not self.positions:
            return ()
        amounts: dict[int, int] = {}
        for consumption in json_types.objects(spec, "consumesCounters"):
            positions = self.positions[json_types.text(consumption, "counterSet")]
            for name, counter in json_types.mapping(consumption, "counters").items():
                position = positions[name]
                amounts[position] = amounts.get(position, 0) + max(_amount(counter, "device", spec, name), 0)
        return tuple((position, amount) for position, amount in amounts.items() if amount)


class Selection:
    """The devices that selectors, binding conditions and node allow for wants with equal selectors, in any allocation on the node.

    ``devices`` are the ones that may suit, in order, among the first ``examined``; ``refusals`` hold the reason for each examined device.
    """

    __slots__ = ("devices", "examined", "refusals")

    def __init__(self, size: int) -> None:
        self.devices: list[Device] = []
        self.examined = 0
        self.refusals: list[object] = [UNKNOWN] * size


class Inventory:
    """The devices and counters of the usable pools of one node."""

    def __init__(self, pools: Iterable[Pool], features: FeatureGates) -> None:
        self.pools = list(pools)
        self.group_bits: dict[str, int] = {}
        """The bit of each compatibility group. Pools share them, so that equal groups have equal bits."""
        self.grouped_sets: list[tuple[CompiledPool, str]] = []
        """The counter sets with groups, by number."""
        self._features = features
        self.devices: list[Device] = []
        self.totals: list[int] = []
        self.kinds: list[tuple[int, str]] = []
        """Pool and counter name of each counter. Counters of one kind measure the same in different counter sets."""
        self.usable: list[CompiledPool] = []
        self._verdicts: dict[str, list[bool | None]] = {}
        self._selections: dict[Hashable, Selection] = {}
        for number, pool in enumerate(self.pools):
            if pool.condition is Condition.USABLE:
                self._add(number, pool)

    def _add(self, number: int, pool: Pool) -> None:
        compiled = CompiledPool(number, pool, self.group_bits, self._features)
        self.usable.append(compiled)
        for name in pool.grouped_sets:
            compiled.grouped[name] = len(self.grouped_sets)
            self.grouped_sets.append((compiled, name))
        self._add_counters(compiled, pool)
        for entry in pool.slices:
            for spec in entry.devices:
                compiled.offered.append(Device(len(self.devices) + len(compiled.offered), entry, spec, compiled))
        self.devices += compiled.offered

    def _add_counters(self, compiled: CompiledPool, pool: Pool) -> None:
        kinds: dict[str, tuple[int, str]] = {}
        for set_name, counters in pool.counter_sets.items():
            positions = compiled.positions[set_name] = {}
            for name, counter in counters.items():
                positions[name] = len(self.totals)
                self.totals.append(_amount(counter, f"pool {pool.id}: counter set", {"name": set_name}, name))
                self.kinds.append(kinds.setdefault(name, (compiled.number, name)))

    @functools.cached_property
    def counters(self) -> Sequence[tuple[CompiledPool, str, str]]:
        return [(pool, set_name, name) for pool in self.usable for set_name, positions in pool.positions.items() for name in positions]

    def verdicts(self, expression: str) -> list[bool | None]:
        """Return the cached verdicts of an expression by device. Callers add to the list."""
        by_device = self._verdicts.get(expression)
        if by_device is None:
            if len(self._verdicts) >= _MAX_EXPRESSIONS:
                self._verdicts.pop(next(iter(self._verdicts)))
            by_device = self._verdicts[expression] = [None] * len(self.devices)
        return by_device

    def selection(self, selectors: Hashable) -> Selection:
        """Return the cached selection of ``selectors``. Callers add to it."""
        cached = self._selections.get(selectors)
        if cached is None:
            if len(self._selections) >= _MAX_EXPRESSIONS:
                self._selections.pop(next(iter(self._selections)))
            cached = self._selections[selectors] = Selection(len(self.devices))
        return cached

    def remaining(self, allocated: AllocatedState, *, held_only: bool = False) -> list[int]:
        """Return the rest of every counter; negative if more is in use than the slices publish.

        ``held_only``: shares of devices count as free.
        """
        left = list(self.totals)
        for pool in self.usable:
            for name, use in allocated.pool(*pool.id).items():
                for position, amount in pool.draws_of(name) if (use.held if held_only else use.draws_counters) else ():
                    left[position] -= amount
        return left

    def common_groups(self, allocated: AllocatedState) -> list[int]:
        """Return the groups that all devices in use of each counter set with groups have in common.

        Devices that were allocated although they do not fit together are counted as Kubernetes 1.37 does: the first one decides whether
        devices without groups or devices with groups fit.
        """
        common = [ANY_GROUPS] * len(self.grouped_sets)
        for pool in self.usable:
            in_use = {name for name, use in allocated.pool(*pool.id).items() if use.draws_counters} if pool.grouped else ()
            for number, bits in pool.groups_in_use(in_use) if in_use else ():
                if common[number] == ANY_GROUPS or NO_GROUPS not in (common[number], bits):
                    common[number] &= bits
        return common

    def overdrawn(self, remaining: list[int]) -> frozenset[int]:
        """Return the pools with a counter below zero. No device that draws counters is allocated from them."""
        return frozenset(self.kinds[position][0] for position, amount in enumerate(remaining) if amount < 0)


def _amount(counter: Json, kind: str, owner: Object, name: str) -> int:
    value = counter.get("value") if isinstance(counter, dict) else None
    try:
        return 0 if value is None else quantity.parse(value).nanos
    except quantity.QuantityError as error:
        raise AllocationError(f"{kind} {json_types.text(owner, 'name')}: counter {name}: {error}") from error
