"""What this allocation has chosen so far, with exact undo, and who is to blame when a device cannot be chosen.

Every choice belongs to a step of the search, given as one bit. For each thing that can run out the world remembers the steps that used
it: when a device is refused, ``blame`` collects the steps without which it might not have been. The search uses this to go back to a
step that matters, and never to one that does not.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from drakit_cluster.objects import json_types
from drakit_cluster.scheduling.allocator import constraints
from drakit_cluster.scheduling.allocator.constraints import Chosen, Value
from drakit_cluster.scheduling.allocator.inventory import Device, Draws, Inventory
from drakit_cluster.scheduling.allocator.requests import Claim, ConstraintSpec, Option
from drakit_cluster.scheduling.allocator.suitability import Demand, Suitability


@dataclass(frozen=True, slots=True)
class Pick:
    """One device for one request; ``before`` is the constraint state to go back to."""

    claim: int
    option: Option
    device: Device
    bit: int
    draws: Draws
    demands: tuple[Demand, ...]
    shared: bool
    before: tuple[Chosen, ...]


class World:
    """The mutable state of one search."""

    def __init__(self, claims: Sequence[Claim], inventory: Inventory, suitability: Suitability, *, lists: bool) -> None:
        self._suitability = suitability
        self._lists = lists
        self._specs: list[tuple[ConstraintSpec, ...]] = [claim.constraints for claim in claims]
        self._values: dict[tuple[str, int], Value | None] = {}
        size = len(inventory.devices)
        self.remaining = list(suitability.remaining)
        self.marks = [0] * size
        """Claims that chose the device for themselves, as bits."""
        self.shares = [0] * size
        """How often a shared device was chosen by others than admins."""
        self.taken: defaultdict[int, dict[str, int]] = defaultdict(dict)
        """What was taken of shared devices, in nanos by capacity, by the device's index."""
        self.chosen: list[tuple[Chosen, ...]] = [(constraints.NONE_CHOSEN,) * len(specs) for specs in self._specs]
        self.counts = [0] * len(claims)
        """Results per claim."""
        self.blame = 0
        self.forbidden = False
        self.touched_by = [0] * size
        self._drawn_by = [0] * len(self.remaining)
        self.bound_by: list[list[int]] = [[0] * len(specs) for specs in self._specs]

    def value(self, attribute: str, device: Device) -> Value | None:
        """Return the device's value of a constraint's attribute."""
        key = (attribute, device.index)
        if key not in self._values:
            attributes = json_types.mapping(device.spec, "attributes")
            self._values[key] = constraints.value_of(attributes, device.id.driver, attribute, lists=self._lists)
        return self._values[key]

    def available(self, option: Option, claim: int, device: Device) -> bool:
        """Return whether nothing chosen so far uses the device for itself."""
        blocking = (1 << claim) if option.want.admin else -1
        if self.marks[device.index] & blocking:
            self.blame |= self.touched_by[device.index]
            return False
        return True

    def choose(self, claim: int, option: Option, device: Device, bit: int) -> Pick | None:
        """Choose an available and suitable device, or return None and collect the blame.

        ``forbidden`` then says whether it is a constraint that refused it.
        """
        self.forbidden = False
        index, shared = device.index, self._suitability.shared(device)
        draws = device.draws if self._suitability.draws(option.want, device) and not self.shares[index] else ()
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
        pick = Pick(claim, option, device, bit, draws, demands, shared, before)
        self.chosen[claim] = after
        self._apply(pick, 1)
        return pick

    def _constrained(self, claim: int, option: Option, device: Device) -> tuple[Chosen, ...] | None:
        """Return the claim's constraint state with the device, or None and the blame."""
        after = []
        for position, spec in enumerate(self._specs[claim]):
            chosen = self.chosen[claim][position]
            if spec.applies(option):
                added = constraints.add(spec, chosen, self.value(spec.attribute, device), lists=self._lists)
                if added is None:
                    self.blame |= self.bound_by[claim][position]
                    return None
                chosen = added
            after.append(chosen)
        return tuple(after)

    def undo(self, pick: Pick) -> None:
        """Take back the latest pick."""
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
        if not pick.shared:
            self.marks[index] ^= 1 << pick.claim
            return
        if not pick.option.want.admin:
            self.shares[index] += sign
        taken = self.taken[index]
        for demand in pick.demands:
            taken[demand.name] = taken.get(demand.name, 0) + sign * demand.amount
