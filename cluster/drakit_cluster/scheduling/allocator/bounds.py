"""Proves early that requests cannot be satisfied, by counting. Only a shortage is proven, never that a solution exists.

It counts over the remaining requests:

- *per want*: a block has at most as many devices as are free in it and, for a counter that every such device draws, at most the rest
  of the counter divided by the smallest draw;
- *per kind of counter* (all memory of a pool, whichever GPU's): every request draws at least the smallest draw of any device that suits;
"""

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
    """The least that the remaining requests need: devices per want, and amounts per kind of counter."""

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

    def short(self, request: int) -> bool:
        """Return whether too little is left for the requests from ``request`` on."""
        needs = self._needed(request)
        remaining = self._world.remaining
        for kind, amount in needs.amounts.items():
            if sum(max(remaining[position], 0) for position in self._counters[kind]) < amount:
                return True
        return any(not self._enough(want, needed, request) for want, needed in needs.devices.items())

    def _enough(self, want: Want, needed: int, request: int) -> bool:
        for block in self._symmetry.relevant(request):
            if want.number in block.wanted_by:
                needed -= self._max_devices(want, block)
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
        """Return the smallest draw of any suitable device, by kind of counter."""
        return _least([self._draws_by_kind(device) for device in self._symmetry.suiting(want)])

    def _draws_by_kind(self, device: Device) -> dict[Kind, int]:
        draws: dict[Kind, int] = {}
        for position, amount in device.draws:
            kind = self._problem.inventory.kinds[position]
            draws[kind] = draws.get(kind, 0) + amount
        return draws

    def _max_devices(self, want: Want, block: Block) -> int:
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
    """Return the smallest draw of each counter that occurs in all of ``draws``."""
    common = set(draws[0]).intersection(*draws[1:]) if draws else set()
    return {key: min(draw[key] for draw in draws) for key in common}
