"""The devices that suit each request before anything is chosen. Each pair of request and device is decided once.

The order of the checks is that of Kubernetes. A selector that fails on a device is an error of the whole allocation, and only devices
that Kubernetes examines may raise it. The order is: in use, binding conditions, class selectors, request selectors, node, capacity,
compatibility groups, counters, taints. Derived attributes are evaluated for devices that suit in all other ways.
"""

import enum
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, Self, TypeVar

from drakit_cluster.objects import json_types, nodes, taints
from drakit_cluster.objects.devices import AllocationError, AttributeValue, DeviceView, SelectorError, SelectorPort
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator.footprints import Footprint
from drakit_cluster.scheduling.allocator.inventory import ANY_GROUPS, NO_GROUPS, UNKNOWN, Device, Groups, Inventory, Selection
from drakit_cluster.scheduling.allocator.requests import Want
from drakit_cluster.scheduling.allocator.state import UNUSED, AllocatedState, Use

_MAX_EXPRESSIONS = 1024
_MAX_VERDICTS = 1 << 16
Result = TypeVar("Result")


class _Results(Generic[Result]):
    """The results of expressions, by the values that an expression reads (``footprints``). Errors are not cached."""

    def __init__(self, evaluate: Callable[[str, DeviceView], Result]) -> None:
        self._evaluate = evaluate
        self._by_expression: dict[str, tuple[Footprint | None, dict[Hashable, Result]]] = {}

    def of(self, expression: str, device: Device) -> Result:
        cached = self._by_expression.get(expression)
        if cached is None:
            if len(self._by_expression) >= _MAX_EXPRESSIONS:
                self._by_expression.pop(next(iter(self._by_expression)))
            cached = self._by_expression[expression] = (Footprint.of(expression), {})
        footprint, results = cached
        read_values = footprint.on(device.driver, device.spec) if footprint is not None and device.plain else None
        if read_values is None:
            return self._evaluate(expression, device.view)
        result = results.get(read_values)
        if result is None:
            result = self._evaluate(expression, device.view)
            if len(results) < _MAX_VERDICTS:
                results[read_values] = result
        return result


class Verdicts:
    """What the expressions of selectors and derived attributes say of devices."""

    def __init__(self, selectors: SelectorPort) -> None:
        self._matches = _Results(selectors.matches)
        self._values = _Results(selectors.derive)

    def matches(self, expression: str, device: Device) -> bool:
        """Return the verdict. Raises SelectorError if the selector fails."""
        return self._matches.of(expression, device)

    def derive(self, expression: str, device: Device) -> AttributeValue:
        """Return the value of a derived attribute. Raises SelectorError if its expression fails."""
        return self._values.of(expression, device)


class Refusal(enum.Enum):
    """The reason that a device does not suit."""

    IN_USE = "in use"
    BINDING_CONDITIONS = "has binding conditions, but their feature is off"
    CLASS_SELECTOR = "not selected by the class"
    SELECTOR = "not selected by the request"
    NODE = "not for this node"
    CAPACITY = "capacity unknown, against its policy, or not enough left"
    COUNTERS_OFF = "consumes shared counters, but their feature gate is off"
    COUNTERS = "not enough left in a shared counter"
    GROUPS_OFF = "its counter set has compatibility groups, but their feature gate is off"
    GROUPS = "has no compatibility group in common with the devices in use"
    TAINT = "tainted, not tolerated"


class Switches(NamedTuple):
    """The feature gates that affect devices, looked up once."""

    binding_conditions: bool
    consumable: bool
    partitionable: bool
    taints: bool
    groups: bool

    @classmethod
    def of(cls, features: FeatureGates) -> Self:
        return cls(
            binding_conditions=features.on(Gate.BINDING_CONDITIONS),
            consumable=features.on(Gate.CONSUMABLE_CAPACITY),
            partitionable=features.on(Gate.PARTITIONABLE_DEVICES),
            taints=features.on(Gate.DEVICE_TAINTS),
            groups=features.on(Gate.COMPATIBILITY_GROUPS),
        )


class Demand(NamedTuple):
    """The amount of one capacity that a share needs, and the amount left for this allocation; both in nanos."""

    name: str
    amount: int
    limit: int


Verdict = Refusal | AllocationError | None
"""The refusal; the error that examining the device raises; None if it suits."""


class Suitability:
    """The verdicts of one allocation."""

    def __init__(
        self,
        inventory: Inventory,
        allocated: AllocatedState,
        node: Object,
        verdicts: Verdicts,
        switches: Switches,
        *,
        early: bool = True,
        beside_shares: bool = False,
        held_only: bool = False,
    ) -> None:
        """``early``: refuse for counters and taints here; otherwise the search does.

        ``beside_shares``: a device that is no longer shared may be allocated while shares of it remain.
        ``held_only``: only devices that claims have alone consume counters.
        """
        self._early = early
        self._beside_shares = beside_shares
        self._inventory = inventory
        self._uses = [allocated.pool(*pool.id) for pool in inventory.pools]
        self._node = node
        self._selected_by = verdicts
        self._binding_conditions, self._consumable, self._partitionable, self._taints, self._groups = switches
        self._verdicts: dict[int, list[object]] = {}
        self._selections: dict[int, Selection] = {}
        self._demands: dict[tuple[int, int], tuple[Demand, ...] | None] = {}
        self._derived: dict[tuple[str, int], AttributeValue] = {}
        self.remaining = inventory.remaining(allocated, held_only=held_only)
        """The rest of every counter before this allocation, in nanos."""
        self._overdrawn = inventory.overdrawn(self.remaining)
        self.common_groups = inventory.common_groups(allocated)
        """The groups that the devices in use of each counter set with groups have in common."""

    def shared(self, device: Device) -> bool:
        """Return whether several requests may have the device."""
        return self._consumable and device.shareable

    def use(self, device: Device) -> Use:
        """Return the use of the device by earlier allocations."""
        return self._uses[device.pool].get(device.name, UNUSED)

    def in_use(self, device: Device) -> bool:
        """Return whether earlier allocations keep the device from everyone but admins."""
        use = self._uses[device.pool].get(device.name)
        return use is not None and (use.held or (use.shared and not self._beside_shares and not self.shared(device)))

    def draws(self, want: Want, device: Device) -> bool:
        """Return whether choosing the device draws its counters. False for admin access, and if an earlier share has drawn them."""
        return bool(device.draws or device.groups) and not want.admin and not self.drawn(device)

    def drawn(self, device: Device) -> bool:
        """Return whether an earlier share of the device has drawn its counters."""
        return self.shared(device) and self.use(device).shared

    def verdict(self, want: Want, device: Device) -> Verdict:
        """Return why the device does not suit, or None; an error is returned, not raised."""
        verdicts = self._verdicts.get(want.number)
        if verdicts is None:
            verdicts = self._verdicts[want.number] = [UNKNOWN] * len(self._inventory.devices)
        cached = verdicts[device.index]
        if cached is UNKNOWN:
            try:
                cached = self._decide(want, device)
            except AllocationError as error:
                cached = error
            verdicts[device.index] = cached
        return cached  # type: ignore[return-value]  # Only verdicts are stored.

    def suits(self, want: Want, device: Device) -> bool:
        """Return whether the device suits; raise the AllocationError of examining it."""
        verdict = self.verdict(want, device)
        if isinstance(verdict, AllocationError):
            raise verdict
        return verdict is None

    def selected(self, want: Want, start: int) -> Iterator[Device]:
        """Return the devices from the place ``start`` on that the selectors do not exclude, in order; they are examined one by one."""
        selection, everything = self._selection(want), self._inventory.devices
        position = bisect_left(selection.devices, start, key=lambda device: device.index)
        while position < len(selection.devices) or selection.examined < len(everything):
            if position == len(selection.devices):
                self._examine(want, everything[selection.examined], selection)
                continue
            device = selection.devices[position]
            position += 1
            if device.index >= start:
                yield device

    def _examine(self, want: Want, device: Device, selection: Selection) -> None:
        selection.examined += 1
        try:
            refusal = self._selection_refusal(want, device)
        except AllocationError:
            refusal = None  # Raised when the search reaches the device, if the device is not in use.
        if refusal is None:
            selection.devices.append(device)

    def _selection(self, want: Want) -> Selection:
        selection = self._selections.get(want.number)
        if selection is None:
            selection = self._selections[want.number] = self._inventory.selection((want.class_selectors, want.selectors))
        return selection

    def candidates(self, want: Want) -> list[Device]:
        """Return the devices that suit or that raise an error, in order."""
        candidates = []
        for device in self.selected(want, 0):
            verdict = self.verdict(want, device)
            if verdict is None or isinstance(verdict, AllocationError):
                candidates.append(device)
        return candidates

    def all_of(self, want: Want) -> list[Device]:
        """Return "all devices" of the want: those that are selected and large enough, in use or not. Raises AllocationError."""
        return [
            device
            for device in self._inventory.devices
            if self._selection_refusal(want, device) is None and self.demands(want, device) is not None
        ]

    def _decide(self, want: Want, device: Device) -> Refusal | None:
        if not want.admin and self.in_use(device):
            return Refusal.IN_USE
        if (refusal := self._selection_refusal(want, device)) is not None:
            return refusal
        if self.demands(want, device) is None:
            return Refusal.CAPACITY
        if device.draws_counters and (refusal := self._counter_refusal(want, device)) is not None:
            return refusal
        if self._early and self.tainted(want, device):
            return Refusal.TAINT
        for name in want.derived:
            self.derived(want, name, device)
        return None

    def derived(self, want: Want, name: str, device: Device) -> AttributeValue:
        """Return the value of a want's derived attribute. Raises AllocationError if its expression fails on the device."""
        key = (expression := want.derived[name], device.index)
        if key not in self._derived:
            try:
                self._derived[key] = self._selected_by.derive(expression, device)
            except SelectorError as error:
                raise AllocationError(f"derived attribute {name} fails on device {device.id}: {error}") from error
        return self._derived[key]

    def tainted(self, want: Want, device: Device) -> bool:
        """Return whether the device has a taint that the want does not tolerate."""
        if not self._taints or "taints" not in device.spec:
            return False
        return taints.prevents(json_types.objects(device.spec, "taints"), want.tolerations)

    def _counter_refusal(self, want: Want, device: Device) -> Refusal | None:
        if not self._partitionable:
            return Refusal.COUNTERS_OFF
        if device.groups and (refusal := self._group_refusal(want, device)) is not None:
            return refusal
        return Refusal.COUNTERS if self._early and self._lacks_counters(want, device) else None

    def _group_refusal(self, want: Want, device: Device) -> Refusal | None:
        """Return why groups exclude the device. With the gate off, no group can be checked, so Kubernetes 1.37 skips the counter set."""
        if not self.draws(want, device):
            return None
        if not self._groups:
            ungrouped = (ANY_GROUPS, NO_GROUPS)
            if any(bits != NO_GROUPS or self.common_groups[number] not in ungrouped for number, bits in device.groups):
                return Refusal.GROUPS_OFF
        return Refusal.GROUPS if self._early and excluding_set(device.groups, self.common_groups) is not None else None

    def _lacks_counters(self, want: Want, device: Device) -> bool:
        if want.admin or self.drawn(device):
            return False
        return device.pool in self._overdrawn or any(self.remaining[position] < amount for position, amount in device.draws)

    def mismatch(self, want: Want, device: Device) -> Refusal | None:
        """Return why a device, in use or not, is not of the requested kind; None also if a selector fails on it."""
        try:
            return self._selection_refusal(want, device)
        except AllocationError:
            return None

    def _selection_refusal(self, want: Want, device: Device) -> Refusal | None:
        refusals = self._selection(want).refusals
        refusal = refusals[device.index]
        if refusal is UNKNOWN:
            refusal = refusals[device.index] = self._select(want, device)
        return refusal  # type: ignore[return-value]  # Only refusals are stored.

    def _select(self, want: Want, device: Device) -> Refusal | None:
        if not self._binding_conditions and device.spec.get("bindingConditions"):
            return Refusal.BINDING_CONDITIONS
        if not self._selected(want.class_selectors, device, f"class {want.class_name}"):
            return Refusal.CLASS_SELECTOR
        if not self._selected(want.selectors, device, "request"):
            return Refusal.SELECTOR
        if device.selects_node_itself and not nodes.matches(self._node, device.place):
            return Refusal.NODE
        return None

    def _selected(self, expressions: Sequence[str], device: Device, owner: str) -> bool:
        for position, expression in enumerate(expressions):
            verdicts = self._inventory.verdicts(expression)
            verdict = verdicts[device.index]
            if verdict is None:
                try:
                    verdict = verdicts[device.index] = self._selected_by.matches(expression, device)
                except SelectorError as error:
                    raise AllocationError(f"selector #{position} of the {owner} fails on device {device.id}: {error}") from error
            if not verdict:
                return False
        return True

    def demands(self, want: Want, device: Device) -> tuple[Demand, ...] | None:
        """Return the want's demand on each capacity of a shared device; empty if the device is not shared; None if it can never fit."""
        if not self._consumable or (not device.shareable and not want.amounts and not _has_policy(device)):
            return ()
        key = (want.number, device.index)
        if key not in self._demands:
            self._demands[key] = self._demand(want, device)
        return self._demands[key]

    def _demand(self, want: Want, device: Device) -> tuple[Demand, ...] | None:
        amounts = device.demand(want.amounts, want.amounts_text)
        if amounts is None:
            return None
        room = self.room(device)
        demands = tuple(Demand(name, amount.nanos, room[name]) for name, amount in amounts.items())
        if any(demand.amount > demand.limit for demand in demands):
            return None
        return demands if device.shareable else ()

    def room(self, device: Device) -> dict[str, int]:
        """Return the rest of each capacity after earlier allocations, in nanos."""
        taken = self.use(device).taken
        return {name: published.value.nanos - taken.get(name, 0) for name, published in device.capacities.items()}


def excluding_set(groups: Groups, common: Sequence[int]) -> int | None:
    """Return the counter set in which ``groups`` has none of the ``common`` groups; None if it has one in each."""
    return next((number for number, bits in groups if not common[number] & bits), None)


def _has_policy(device: Device) -> bool:
    return any("requestPolicy" in entry for entry in json_types.mapping(device.spec, "capacity").values() if isinstance(entry, dict))
