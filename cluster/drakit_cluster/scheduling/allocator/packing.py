"""How many devices of each want blocks can give together: the exact answer, without constraints, to "is there still room for the rest?".

For one state of one block the possible numbers per want form a set of vectors; only those that no other exceeds are kept. Vectors of
several blocks add up. Blocks of one class in one state have the same set, and sets added in sorted order share their partial sums, so that
a step of the search, which changes one block, costs little. Both kinds of work are bounded: when a budget is used up, the answer is
"perhaps" for good, which is always safe.
"""

from collections.abc import Iterable, Mapping

from drakit_cluster.scheduling.allocator.requests import Want
from drakit_cluster.scheduling.allocator.symmetry import Block, Symmetry
from drakit_cluster.scheduling.allocator.world import World

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
