"""A claim's life has exactly the moves of the table."""

import itertools

import pytest

from drakit.core import lifecycle
from drakit.core.lifecycle import Move, State

ALLOWED = {
    (State.ABSENT, Move.BEGIN): State.PREPARING,
    (State.PREPARING, Move.REFRESH): State.PREPARING,
    (State.PREPARING, Move.COMPLETE): State.PREPARED,
    (State.PREPARING, Move.BEGIN_UNPREPARE): State.UNPREPARING,
    (State.PREPARED, Move.REFRESH): State.PREPARED,
    (State.PREPARED, Move.BEGIN_UNPREPARE): State.UNPREPARING,
    (State.UNPREPARING, Move.BEGIN_UNPREPARE): State.UNPREPARING,
    (State.UNPREPARING, Move.FINISH_UNPREPARE): State.ABSENT,
}


@pytest.mark.parametrize("state, move", list(itertools.product(State, Move)))
def test_only_the_moves_of_the_table_are_legal(state: State, move: Move) -> None:
    if (state, move) in ALLOWED:
        assert lifecycle.after(state, move) is ALLOWED[state, move]
    else:
        with pytest.raises(lifecycle.IllegalMoveError, match=f"{state.value} cannot {move.value}"):
            lifecycle.after(state, move)


def test_every_state_is_reached_and_left() -> None:
    assert {state for state, _ in lifecycle.TABLE} == set(State)
    assert set(lifecycle.TABLE.values()) == set(State)
