"""Proves early that requests cannot be satisfied, by counting. Only a shortage is proven, never that a solution exists.

Over the requests still to come:

- *per want*: a block gives at most as many devices as are free in it, and, of a counter that every such device draws, at most what is
  left divided by the smallest draw;
- *per kind of counter* (all memory of a pool, whichever GPU's): every request draws at least the smallest draw of any device that suits;
- *packed*: what all blocks can give together (``packing``), which costs more and is asked only of long searches.

How many devices of each want blocks can give together: the exact answer, without constraints, to "is there still room for the rest?".

For one state of one block the possible numbers per want form a set of vectors; only those that no other exceeds are kept. Vectors of
several blocks add up. Blocks of one class in one state have the same set, and sets added in sorted order share their partial sums, so that
a step of the search, which changes one block, costs little. Both kinds of work are bounded: when a budget is used up, the answer is
"perhaps" for good, which is always safe.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from drakit_cluster.scheduling.allocator.inventory import Device
from drakit_cluster.scheduling.allocator.problem import Problem
from drakit_cluster.scheduling.allocator.requests import Mode, Want
from drakit_cluster.scheduling.allocator.symmetry import Block, Symmetry
from drakit_cluster.scheduling.allocator.world import World

Kind = tuple[int, str]
Key = TypeVar("Key", int, Kind)


@dataclass(frozen=True, slots=True)
class _Needs:
    """What a tail of the requests needs at least: devices per want, and amounts per kind of counter."""

    devices: dict[Want, int]
    amounts: dict[Kind, int]


class Bounds:
    """The counts of one problem."""

    def __init__(self, problem: Problem, world: World, symmetry: Symmetry) -> None:
        self._problem = problem
        self._world = world
        self._symmetry = symmetry
        self._floors: dict[tuple[int, int], tuple[int, dict[int, int]]] = {}
        self._needs: dict[int, _Needs] = {}
        self._counters: dict[Kind, list[int]] = {}
        for position, kind in enumerate(problem.inventory.kinds):
            self._counters.setdefault(kind, []).append(position)
        self._countable: dict[int, bool] = {
            want.number: not want.admin and not any(map(problem.suitability.shared, symmetry.suiting(want))) for want in problem.wants
        }

        self._packing = Packing(world, symmetry, self._needed(0).devices)

    def short(self, request: int) -> bool:
        """Return whether too little is left for the requests from ``request`` on."""
        needs = self._needed(request)
        remaining = self._world.remaining
        for kind, amount in needs.amounts.items():
            if sum(max(remaining[position], 0) for position in self._counters[kind]) < amount:
                return True
        return any(not self._enough(want, needed, request) for want, needed in needs.devices.items())

    def unpackable(self, request: int, chosen: int) -> bool:
        """Return whether the blocks have no room for all devices still to come; ``chosen`` of the first request's are chosen already.

        More work than :meth:`short`, and exact but for constraints.
        """
        needs = dict(self._needed(request).devices)
        want = self._problem.requests[request].options[0].want
        if want in needs:
            needs[want] -= chosen
        return not self._packing.perhaps(needs, request)

    def _enough(self, want: Want, needed: int, request: int) -> bool:
        for block in self._symmetry.relevant(request):
            if want.number in block.wanted_by:
                needed -= self._at_best(want, block)
                if needed <= 0:
                    return True
        return needed <= 0

    def _needed(self, request: int) -> _Needs:
        if request not in self._needs:
            needs = _Needs({}, {})
            for later in self._problem.requests[request:]:
                option = later.options[0]
                if later.prioritized or option.mode is not Mode.COUNT or not self._countable[option.want.number]:
                    continue
                needs.devices[option.want] = needs.devices.get(option.want, 0) + option.count
                for kind, least in self._least_draws(option.want).items():
                    needs.amounts[kind] = needs.amounts.get(kind, 0) + least * option.count
            self._needs[request] = needs
        return self._needs[request]

    def _least_draws(self, want: Want) -> dict[Kind, int]:
        """Return what any device that suits draws at least of each kind of counter."""
        return _least([self._draws_by_kind(device) for device in self._symmetry.suiting(want)])

    def _draws_by_kind(self, device: Device) -> dict[Kind, int]:
        draws: dict[Kind, int] = {}
        for position, amount in device.draws:
            kind = self._problem.inventory.kinds[position]
            draws[kind] = draws.get(kind, 0) + amount
        return draws

    def _at_best(self, want: Want, block: Block) -> int:
        mask, floors = self._floor(want, block)
        free = self._symmetry.state(block)[0]
        best = (free & mask).bit_count() if isinstance(free, int) else 0
        for position, least in floors.items():
            best = min(best, max(self._world.remaining[position], 0) // least)
        return best

    def _floor(self, want: Want, block: Block) -> tuple[int, dict[int, int]]:
        """Return the block's devices that suit, as bits, and the smallest draw of each counter that all of them draw."""
        key = (want.number, block.number)
        if key not in self._floors:
            suiting = {device.index for device in self._symmetry.suiting(want)}
            devices = [device for device in block.devices if device.index in suiting]
            mask = sum(1 << block.places[device.index] for device in devices)
            self._floors[key] = (mask, _least([dict(device.draws) for device in devices]))
        return self._floors[key]


def _least(draws: list[dict[Key, int]]) -> dict[Key, int]:
    """Return the smallest draw of whatever is drawn in all of ``draws``."""
    common = set(draws[0]).intersection(*draws[1:]) if draws else set()
    return {key: min(draw[key] for draw in draws) for key in common}


Vector = tuple[int, ...]
_Key = tuple[int, int, int, tuple[int, ...]]

BUDGET = 200_000
"""Partial packings looked at in one search."""
_WIDEST = 400
"""Vectors kept per set."""
_LARGEST_BLOCK = 64


class _OverBudgetError(Exception):
    """Too much work for what it would prove."""


class Packing:
    """Packs wants into the blocks of one search; ``limits`` are the numbers beyond which more of a want is of no use."""

    def __init__(self, world: World, symmetry: Symmetry, limits: Mapping[Want, int]) -> None:
        self._world = world
        self._symmetry = symmetry
        self._wants = list(limits)
        self._limits = tuple(limits.values())
        self._spent = 0
        self._over = not limits
        suiting = {want.number: {device.index for device in symmetry.suiting(want)} for want in self._wants}
        self._suits: dict[int, tuple[int, ...]] = {
            device.index: tuple(place for place, want in enumerate(self._wants) if device.index in suiting[want.number])
            for block in symmetry.blocks
            for device in block.devices
        }
        self._packed: dict[_Key, frozenset[Vector]] = {}
        self._sums: dict[tuple[frozenset[Vector], frozenset[Vector]], frozenset[Vector]] = {}
        self._zero = frozenset({(0,) * len(self._wants)})

    def perhaps(self, needs: Mapping[Want, int], request: int) -> bool:
        """Return False if the blocks that requests from ``request`` on could use cannot give ``needs``."""
        if self._over:
            return True
        try:
            vectors = self._together(self._symmetry.relevant(request))
        except _OverBudgetError:
            self._over = True
            return True
        wanted = tuple(needs.get(want, 0) for want in self._wants)
        return any(all(map(int.__ge__, vector, wanted)) for vector in vectors)

    def _together(self, blocks: Iterable[Block]) -> frozenset[Vector]:
        total = self._zero
        sets = [self._of_block(block) for block in blocks]
        for vectors in sorted(sets, key=hash):
            key = (total, vectors)
            if key not in self._sums:
                self._sums[key] = self._kept(tuple(map(int.__add__, one, other)) for one in total for other in vectors)
            total = self._sums[key]
        return total

    def _of_block(self, block: Block) -> frozenset[Vector]:
        if len(block.devices) > _LARGEST_BLOCK:
            raise _OverBudgetError
        marks = sum(1 << place for place, device in enumerate(block.devices) if self._world.marks[device.index])
        return self._pack(block, 0, marks, tuple(self._world.remaining[position] for position in block.counters))

    def _pack(self, block: Block, place: int, marks: int, left: tuple[int, ...]) -> frozenset[Vector]:
        """Return what the devices from ``place`` on can give where ``left`` remains of the block's counters."""
        if place == len(block.devices):
            return self._zero
        key = (block.kind, place, marks >> place, left)
        if key in self._packed:
            return self._packed[key]
        found = set(self._pack(block, place + 1, marks, left))
        device = block.devices[place]
        suits = self._suits[device.index]
        if suits and not marks >> place & 1:
            draws = dict(device.draws)
            after = tuple(amount - draws.get(position, 0) for position, amount in zip(block.counters, left, strict=True))
            if min(after, default=0) >= 0:
                for vector in self._pack(block, place + 1, marks, after):
                    found.update((*vector[:want], vector[want] + 1, *vector[want + 1 :]) for want in suits)
        self._packed[key] = self._kept(found)
        return self._packed[key]

    def _kept(self, vectors: Iterable[Vector]) -> frozenset[Vector]:
        """Return the vectors, cut to the limits, that no other one exceeds."""
        cut = {tuple(map(min, vector, self._limits)) for vector in vectors}
        self._spent += len(cut)
        kept: list[Vector] = []
        for vector in sorted(cut, key=sum, reverse=True):
            if not any(all(map(int.__ge__, other, vector)) for other in kept):
                kept.append(vector)
        if self._spent > BUDGET or len(kept) > _WIDEST:
            raise _OverBudgetError
        return frozenset(kept)
