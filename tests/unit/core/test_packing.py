"""What fits together is what trying every choice of devices finds."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import hypothesis
from hypothesis import strategies as st

from drakit.core import packing
from drakit.core.packing import Kind

KINDS = [Kind(name="small"), Kind(name="large"), Kind(name="whole"), Kind(name="large", shared=True)]
WIDTH = 3


@st.composite
def boards(draw: st.DrawFn) -> packing.Board:
    """Return a board of up to seven devices that draw on three counters, some of them not at all."""
    draws = st.dictionaries(st.integers(0, WIDTH - 1), st.integers(1, 3), max_size=WIDTH).map(lambda drawn: tuple(sorted(drawn.items())))
    groups = st.sampled_from([(), (), ((0, 0b01),), ((0, 0b10),), ((0, 0b110),)])
    items = st.lists(st.builds(packing.Item, kind=st.sampled_from(KINDS), draws=draws, groups=groups), max_size=7)
    room = st.tuples(*(st.integers(-1, 5) for _ in range(WIDTH)))
    return packing.Board(items=tuple(draw(items)), room=draw(room), common=(draw(st.sampled_from([packing.ANY_GROUPS, 0b011])),))


def fits(items: Sequence[packing.Item], board: packing.Board) -> bool:
    drawn: Counter[int] = Counter()
    common = board.common[0] if board.common else packing.ANY_GROUPS
    for item in items:
        drawn.update(dict(item.draws))
        common &= dict(item.groups).get(0, packing.ANY_GROUPS)
    return common != 0 and all(amount <= board.room[position] for position, amount in drawn.items())


def every_set(board: packing.Board) -> Iterator[Counter[Kind]]:
    """Yield every set that fits together, by counts."""
    for size in range(len(board.items) + 1):
        for items in itertools.combinations(board.items, size):
            if fits(items, board):
                yield Counter(item.kind for item in items)


@hypothesis.given(boards(), st.permutations(KINDS))
def test_a_fill_is_the_best_of_all_sets_in_its_order(board: packing.Board, order: Sequence[Kind]) -> None:
    best = max([counts[kind] for kind in order] for counts in every_set(board))
    filled = packing.fill(board, order)
    assert filled.exact
    assert [filled.counts.get(kind, 0) for kind in order] == best


@hypothesis.given(boards())
def test_what_fits_together_is_maximal_and_each_set_differs(board: packing.Board) -> None:
    sets = [filled.counts for filled in packing.distinct(packing.together(board))]
    everything = [dict(counts) for counts in every_set(board)]
    assert len(sets) <= 3
    assert all(sets.count(counts) == 1 for counts in sets)
    for counts in sets:
        assert counts in everything
        assert not any(dict(Counter(counts) + Counter([kind])) in everything for kind in KINDS)
    assert bool(sets) == any(everything)


@hypothesis.given(boards(), st.data())
def test_moves_gain_what_the_best_arrangement_of_the_devices_in_use_allows(board: packing.Board, data: st.DataObject) -> None:
    used = data.draw(st.lists(st.sampled_from(board.items), max_size=3, unique_by=id)) if board.items else []
    free = packing.Board(items=tuple(item for item in board.items if item not in used), room=board.room)
    places = [[other for other in board.items if other.kind == item.kind] for item in used]
    best: dict[Kind, int] = {}
    for arranged in itertools.product(*places):
        if fits(arranged, board):
            drawn: Counter[int] = Counter()
            for item in arranged:
                drawn.update(dict(item.draws))
            common = board.common[0]
            for item in arranged:
                common &= dict(item.groups).get(0, packing.ANY_GROUPS)
            left = tuple(amount - drawn[position] for position, amount in enumerate(board.room))
            for kind, count in alone(packing.Board(items=free.items, room=left, common=(common,))).items():
                best[kind] = max(best.get(kind, 0), count)
    empty = packing.Board(items=(), room=board.room, common=board.common)
    assert packing.alone_after_moves(free, empty, places) == best


def alone(board: packing.Board) -> Mapping[Kind, int]:
    return {kind: max(counts[kind] for counts in every_set(board)) for kind in board.kinds}


def test_many_equal_devices_are_counted_at_once() -> None:
    """A board of 128 devices, each with a counter of its own and one of 40 common tokens, has more choices than can be tried."""
    items = tuple(packing.Item(kind=Kind(name="vf"), draws=((0, 1), (number + 1, 1))) for number in range(128))
    filled = packing.fill(packing.Board(items=items, room=(40, *[1] * 128)), (Kind(name="vf"),))
    assert (dict(filled.counts), filled.exact) == ({Kind(name="vf"): 40}, True)


def test_a_board_with_too_many_choices_gets_a_lower_bound_that_says_so() -> None:
    amounts = [2**number + 1 for number in range(24)]
    items = tuple(packing.Item(kind=Kind(name="odd"), draws=((0, amount), (1, 2**24 - amount))) for amount in amounts)
    filled = packing.fill(packing.Board(items=items, room=(sum(amounts) // 2, 2**24 * 8)), (Kind(name="odd"),))
    assert not filled.exact
    assert 1 <= filled.counts[Kind(name="odd")] <= len(items)
