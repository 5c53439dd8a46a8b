"""The devices that an allocation has chosen so far, with exact undo, and the reason when a device cannot be chosen.

Every choice belongs to a step of the search, written as one bit. For each resource that can run out, the world records the steps that used
it. When a device is refused, ``blame`` collects the steps without which it might have been accepted. The search uses this to go back only
to a step that matters.

The world also tracks matchAttribute and distinctAttribute. A device's value is a set: one (type, value) for a scalar, several for a list if
the ListTypeAttributes gate is on. All devices of a matchAttribute share at least one element; the sets of a distinctAttribute are pairwise
disjoint. A device without the attribute satisfies neither. Values of different types are different. A derived attribute of the request comes
before the device's own attribute of that name (KEP-6080); an empty list counts as no attribute.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import AttributeValue
from drakit_cluster.objects.json_types import Json
from drakit_cluster.scheduling.allocator.inventory import Device, Draws, Groups, Inventory
from drakit_cluster.scheduling.allocator.requests import Claim, Constraint, ConstraintSpec, Option, Want
from drakit_cluster.scheduling.allocator.suitability import Demand, Suitability, excluding_set

Value = AttributeValue

_SCALARS = {"string": "strings", "int": "ints", "bool": "bools", "version": "versions"}


class Chosen(NamedTuple):
    """The state of one constraint: how many devices count, and the common (match) or all used (distinct) elements."""

    devices: int
    elements: Value


NONE_CHOSEN = Chosen(0, frozenset())


def value_of(attributes: Mapping[str, Json], driver: str, name: str, *, lists: bool) -> Value | None:
    """Return the value of the fully qualified attribute ``name``; None if the device lacks it.

    An attribute may be published under its full name or, in the driver's own domain, without the domain. The full name wins.
    """
    attribute = attributes.get(name)
    domain, _, identifier = name.partition("/")
    if attribute is None and identifier and domain == driver:
        attribute = attributes.get(identifier)
    if attribute is None:
        return None
    for scalar, plural in _SCALARS.items():
        if (scalar_value := json_types.at(attribute, scalar)) is not None:
            return _elements(scalar, [scalar_value])
        if lists and (list_value := json_types.at(attribute, plural)) is not None:
            return _elements(scalar, json_types.items(list_value))
    return frozenset()


def _elements(scalar: str, values: list[Json]) -> Value:
    return frozenset((scalar, value) for value in values if isinstance(value, (str, int)))


def add(spec: ConstraintSpec, chosen: Chosen, value: Value | None, *, lists: bool) -> Chosen | None:
    """Return the state with one more device, or None if its value is not allowed."""
    if value is None or (lists and not value):
        return None
    if not chosen.devices:
        return Chosen(1, value)
    if spec.kind is Constraint.MATCH:
        common = chosen.elements & value
        return Chosen(chosen.devices + 1, common) if common else None
    if not value or chosen.elements & value:
        return None
    return Chosen(chosen.devices + 1, chosen.elements | value)


class Pick(NamedTuple):
    """One device for one request; ``before`` is the constraint state, ``groups_before`` the common groups that undo restores."""

    claim: int
    option: Option
    device: Device
    bit: int
    draws: Draws
    demands: tuple[Demand, ...]
    shared: bool
    before: tuple[Chosen, ...]
    groups: Groups = ()
    groups_before: tuple[int, ...] = ()


class World:
    """The mutable state of one search."""

    def __init__(self, claims: Sequence[Claim], inventory: Inventory, suitability: Suitability, *, lists: bool) -> None:
        self._suitability = suitability
        self._lists = lists
        self._specs: list[tuple[ConstraintSpec, ...]] = [claim.constraints for claim in claims]
        self._values: dict[tuple[str, int], Value | None] = {}
        size = len(inventory.devices)
        self.remaining = list(suitability.remaining)
        self.common_groups = list(suitability.common_groups)
        """The groups that the devices in use of each counter set with groups have in common."""
        self.marks = [0] * size
        """Claims that chose the device exclusively, as bits."""
        self.shares = [0] * size
        """How often a shared device was chosen without admin access."""
        self.taken: defaultdict[int, dict[str, int]] = defaultdict(dict)
        """The amounts taken of shared devices, in nanos by capacity, by the device's index."""
        self.chosen: list[tuple[Chosen, ...]] = [(NONE_CHOSEN,) * len(specs) for specs in self._specs]
        self.counts = [0] * len(claims)
        """Results per claim."""
        self.blame = 0
        self.forbidden = False
        self.touched_by = [0] * size
        self._drawn_by = [0] * len(self.remaining)
        self._grouped_by = [0] * len(self.common_groups)
        self.bound_by: list[list[int]] = [[0] * len(specs) for specs in self._specs]

    def value(self, attribute: str, device: Device, want: Want) -> Value | None:
        """Return the value of a constraint's attribute if the device is chosen for the want. Raises AllocationError."""
        if attribute in want.derived:
            return self._suitability.derived(want, attribute, device) or None
        key = (attribute, device.index)
        if key not in self._values:
            attributes = json_types.mapping(device.spec, "attributes")
            self._values[key] = value_of(attributes, device.id.driver, attribute, lists=self._lists)
        return self._values[key]

    def available(self, option: Option, claim: int, device: Device) -> bool:
        """Return whether no choice so far uses the device exclusively."""
        blocking = (1 << claim) if option.want.admin else -1
        if self.marks[device.index] & blocking:
            self.blame |= self.touched_by[device.index]
            return False
        return True

    def choose(self, claim: int, option: Option, device: Device, bit: int) -> Pick | None:
        """Choose an available and suitable device, or return None and collect the blame.

        ``forbidden`` is then whether a constraint refused it.
        """
        self.forbidden = False
        index, shared = device.index, self._suitability.shared(device)
        counted = self._suitability.draws(option.want, device) and not self.shares[index]
        draws, groups = (device.draws, device.groups) if counted else ((), ())
        if groups and (excluding := excluding_set(groups, self.common_groups)) is not None:
            self.blame |= self._grouped_by[excluding]
            return None
        for position, amount in draws:
            if self.remaining[position] < amount:
                self.blame |= self._drawn_by[position]
                return None
        before = self.chosen[claim]
        after = self._constrained(claim, option, device) if before else before
        if after is None:
            self.forbidden = True
            return None
        demands = (self._suitability.demands(option.want, device) or ()) if shared else ()
        taken = self.taken[index] if demands else None
        if taken and any(taken.get(demand.name, 0) + demand.amount > demand.limit for demand in demands):
            self.blame |= self.touched_by[index]
            return None
        groups_before = tuple(self.common_groups[number] for number, _ in groups)
        pick = Pick(claim, option, device, bit, draws, demands, shared, before, groups, groups_before)
        self.chosen[claim] = after
        self._apply(pick, 1)
        return pick

    def _constrained(self, claim: int, option: Option, device: Device) -> tuple[Chosen, ...] | None:
        """Return the claim's constraint state with the device, or None and the blame."""
        after = []
        for position, spec in enumerate(self._specs[claim]):
            chosen = self.chosen[claim][position]
            if spec.applies(option):
                added = add(spec, chosen, self.value(spec.attribute, device, option.want), lists=self._lists)
                if added is None:
                    self.blame |= self.bound_by[claim][position]
                    return None
                chosen = added
            after.append(chosen)
        return tuple(after)

    def undo(self, pick: Pick) -> None:
        self.chosen[pick.claim] = pick.before
        self._apply(pick, -1)

    def _apply(self, pick: Pick, sign: int) -> None:
        index = pick.device.index
        self.counts[pick.claim] += sign
        self.touched_by[index] ^= pick.bit
        for position, spec in enumerate(self._specs[pick.claim]):
            if spec.applies(pick.option):
                self.bound_by[pick.claim][position] ^= pick.bit
        for position, amount in pick.draws:
            self.remaining[position] -= sign * amount
            self._drawn_by[position] ^= pick.bit
        for (number, bits), groups_before in zip(pick.groups, pick.groups_before, strict=True):
            self.common_groups[number] = groups_before & bits if sign > 0 else groups_before
            self._grouped_by[number] ^= pick.bit
        if not pick.shared:
            self.marks[index] ^= 1 << pick.claim
            return
        if not pick.option.want.admin:
            self.shares[index] += sign
        taken = self.taken[index]
        for demand in pick.demands:
            taken[demand.name] = taken.get(demand.name, 0) + sign * demand.amount
