"""Proves early that requests cannot be satisfied: counts what each block could give at best.

Requests with one want are counted together: a block gives at most as many devices as are free in it, and, of a counter that every such
device draws, at most what is left divided by the smallest draw. Only a shortage is proven, never that a solution exists.
"""

from drakit.cluster.problem import Problem
from drakit.cluster.requests import Mode, Want
from drakit.cluster.symmetry import Block, Symmetry
from drakit.cluster.world import World


class Bounds:
    """Upper bounds for one problem."""

    def __init__(self, problem: Problem, world: World, symmetry: Symmetry) -> None:
        self._problem = problem
        self._world = world
        self._symmetry = symmetry
        self._floors: dict[tuple[int, int], tuple[int, dict[int, int]]] = {}
        self._needs: dict[int, dict[Want, int]] = {}
        self._sharing = frozenset(
            want.number for want in problem.wants if any(problem.suitability.shared(device) for device in symmetry.suiting(want))
        )

    def shortage(self, request: int) -> Want | None:
        """Return a want of the requests from ``request`` on that cannot be satisfied in the present world, or None."""
        for want, needed in self._needed(request).items():
            if want.admin or want.number in self._sharing:
                continue
            found = 0
            for block in self._symmetry.relevant(request):
                if want.number in block.wanted_by:
                    found += self._at_best(want, block)
                    if found >= needed:
                        break
            if found < needed:
                return want
        return None

    def _needed(self, request: int) -> dict[Want, int]:
        if request not in self._needs:
            needs: dict[Want, int] = {}
            for later in self._problem.requests[request:]:
                option = later.options[0]
                if not later.prioritized and option.mode is Mode.COUNT:
                    needs[option.want] = needs.get(option.want, 0) + option.count
            self._needs[request] = needs
        return self._needs[request]

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
            draws = [dict(device.draws) for device in devices]
            common = set(draws[0]).intersection(*draws[1:]) if draws else set()
            self._floors[key] = (mask, {position: min(draw[position] for draw in draws) for position in common})
        return self._floors[key]
