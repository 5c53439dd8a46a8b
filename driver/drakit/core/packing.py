"""What fits together: how many devices of each kind the counters of one board allow at the same time. Pure.

A *board* is a group of devices that draw on common counters, such as a GPU with its partitions. A device that draws on none is a board of its
own. Boards are independent of each other, so results for several boards add up.

A set of devices *fits together* if the draws of all its devices are within the room of every counter, and all that name compatibility groups of one
counter set (KEP-5963) have a group in common. It is *maximal* if no other device of the board fits beside it. A board has many maximal sets.
:func:`fill` finds the one that takes as many devices as possible of the first kind, then as many as possible of the second, and so on. It is exact:
of all choices of devices it keeps those that differ in what they leave for later kinds.

The number of these is limited to ``STATES_MAX``. Beyond it a result is a lower bound, and says so.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

STATES_MAX = 4096

Draws = tuple[tuple[int, int], ...]
"""What one device takes: positions of counters in the room, and amounts, sorted by position."""
Room = tuple[int, ...]
"""What is left in each counter."""
Groups = tuple[tuple[int, int], ...]
"""The compatibility groups of a device: numbers of counter sets with groups, and the groups as bits; devices without groups there have a bit too."""
ANY_GROUPS = -1
"""The common groups of no devices."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of device, such as a profile. Devices that several claims may share are another kind than those for one claim each."""

    name: str
    shared: bool = False

    def __str__(self) -> str:
        return f"{self.name} shared" if self.shared else self.name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """One device that a claim could get."""

    kind: Kind
    draws: Draws = ()
    groups: Groups = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fill:
    """How many devices of each kind fit together, the largest kind first; kinds with none are left out. Unless ``exact``, more may fit."""

    counts: Mapping[Kind, int]
    exact: bool = True

    def __str__(self) -> str:
        listed = ", ".join(f"{count} x {kind}" for kind, count in self.counts.items())
        return listed if self.exact else f"at least {listed}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Board:
    """The free devices of one board, what is left in its counters, and the groups that the devices in use of each set have in common."""

    items: tuple[Item, ...]
    room: Room = ()
    common: tuple[int, ...] = ()

    @functools.cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds, the largest first.

        A kind is larger than another if it draws a larger share of the counters that all kinds draw. If these are equal, all counters decide, and
        then the order of the devices, in which larger ones come later.
        """
        first = {item.kind: dict(item.draws) for item in reversed(self.items)}
        most: Counter[int] = Counter()
        for draws in first.values():
            most |= Counter(draws)
        common = [position for position in most if all(position in draws for draws in first.values())]
        places = {item.kind: place for place, item in enumerate(self.items)}

        def size(kind: Kind) -> tuple[float, float, int]:
            shares = {position: amount / most[position] for position, amount in first[kind].items()}
            return sum(shares[position] for position in common), sum(shares.values()), places[kind]

        return tuple(sorted(first, key=size, reverse=True))


@functools.lru_cache(maxsize=4096)
def alone(board: Board) -> Mapping[Kind, Fill]:
    """Return for each kind how many of its devices fit together, if no device of another kind is allocated."""
    return {kind: fill(board, (kind,)) for kind in board.kinds}


@functools.lru_cache(maxsize=4096)
def together(board: Board) -> tuple[Fill, Fill, Fill]:
    """Return three maximal sets of what fits together; some may be equal.

    They take the largest kinds first; the smallest kinds first; and shared devices first, the largest first. The first two take shared devices last.
    """
    single = tuple(kind for kind in board.kinds if not kind.shared)
    shared = tuple(kind for kind in board.kinds if kind.shared)
    return fill(board, (*single, *shared)), fill(board, (*reversed(single), *shared)), fill(board, (*shared, *single))


def total(boards: Sequence[tuple[Fill, ...]], order: Iterable[Kind]) -> tuple[Fill, ...]:
    """Return the sums of fills of several boards, position by position, with kinds in ``order``, which has all of them."""
    listed = list(order)
    sums = []
    for fills in zip(*boards, strict=True):
        counts = {kind: sum(filled.counts.get(kind, 0) for filled in fills) for kind in listed}
        sums.append(Fill(counts={kind: count for kind, count in counts.items() if count}, exact=all(filled.exact for filled in fills)))
    return tuple(sums)


def distinct(fills: Iterable[Fill]) -> tuple[Fill, ...]:
    """Return the fills without repetitions and without empty ones."""
    kept: list[Fill] = []
    for filled in fills:
        if filled.counts and all(filled.counts != other.counts for other in kept):
            kept.append(filled)
    return tuple(kept)


def fill(board: Board, order: Sequence[Kind]) -> Fill:
    """Return the set that has as many devices as possible of the first kind, then of the second, and so on. Other kinds are left out."""
    stages = tuple(tuple(sorted(Counter((item.draws, item.groups) for item in board.items if item.kind == kind).items())) for kind in order)
    counts, exact = _fill((board.room, board.common), stages)
    by_kind = dict(zip(order, counts, strict=True))
    return Fill(counts={kind: by_kind[kind] for kind in board.kinds if by_kind.get(kind)}, exact=exact)


def alone_after_moves(board: Board, empty: Board, used: Iterable[Sequence[Item]]) -> Mapping[Kind, int]:
    """Return what :func:`alone` would return at best if devices in use changed places.

    ``empty`` is the board without devices in use. ``used`` has for each device in use the places that it may take, its own among them.
    """
    left = {(empty.room, empty.common)}
    for places in used:
        costs = {(item.draws, item.groups) for item in places}
        moved = {after for state in left for cost in costs if (after := _take(state, cost, 1)) is not None}
        left = set(sorted(moved, reverse=True)[:STATES_MAX])
    best: dict[Kind, int] = {}
    for room, common in left:
        for kind, filled in alone(Board(items=board.items, room=room, common=common)).items():
            best[kind] = max(best.get(kind, 0), filled.counts.get(kind, 0))
    return best


_Cost = tuple[Draws, Groups]
_State = tuple[Room, tuple[int, ...]]
"""What is left: of each counter, and of the common groups of each set."""
_Stage = tuple[tuple[_Cost, int], ...]
"""The devices of one kind: those of equal cost, and how many there are."""


@functools.lru_cache(maxsize=65536)
def _fill(left: _State, stages: tuple[_Stage, ...]) -> tuple[tuple[int, ...], bool]:
    """Return the number of devices of each stage, and whether it is exact.

    Of each counter a state has no more than later devices can draw: what cannot matter does not distinguish states.
    """
    later = _later(len(left[0]), stages)
    states, counts, exact = {_clipped(left, later[0][0])}, [], True
    for number, stage in enumerate(stages):
        reached = dict.fromkeys(states, 0)
        for place, (cost, number_of_equals) in enumerate(stage):
            grown: dict[_State, int] = {}
            for state, count in reached.items():
                for taken in range(number_of_equals + 1):
                    after = _take(state, cost, taken)
                    if after is None:
                        break
                    key = _clipped(after, later[number][place + 1])
                    grown[key] = max(grown.get(key, 0), count + taken)
            if len(grown) > STATES_MAX:
                exact = False
                grown = dict(sorted(grown.items(), key=lambda entry: (-entry[1], [-amount for amount in entry[0][0]]))[:STATES_MAX])
            reached = grown
        best = max(reached.values())
        counts.append(best)
        states = {state for state, count in reached.items() if count == best}
    return tuple(counts), exact


def _later(width: int, stages: Sequence[_Stage]) -> list[list[Room]]:
    """Return for each place in each stage what all devices from there on draw."""
    total, sums = [0] * width, []
    for stage in reversed(stages):
        made = [tuple(total)]
        for (draws, _), number in reversed(stage):
            for position, amount in draws:
                total[position] += amount * number
            made.append(tuple(total))
        sums.append(made[::-1])
    return sums[::-1] or [[tuple(total)]]


def _clipped(state: _State, most: Room) -> _State:
    return tuple(map(min, state[0], most)), state[1]


def _take(state: _State, cost: _Cost, times: int) -> _State | None:
    """Return the rest; None if it is too little. Nothing can be taken from a counter below zero, but it does not keep other devices away."""
    if not times:
        return state
    left, common = list(state[0]), list(state[1])
    for position, amount in cost[0]:
        left[position] -= amount * times
        if left[position] < 0:
            return None
    for number, bits in cost[1]:
        common[number] &= bits
        if not common[number]:
            return None
    return tuple(left), tuple(common)
