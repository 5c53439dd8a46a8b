"""Laws of request policies."""

from hypothesis import given
from hypothesis import strategies as st

from drakit.core import capacity as capacities
from drakit.core import errors, quantity

Q = quantity.Quantity.of
AMOUNTS = st.integers(0, 200).map(Q)


@st.composite
def policies(draw: st.DrawFn) -> capacities.RequestPolicy:
    if draw(st.booleans()):
        values = sorted(draw(st.sets(st.integers(0, 100), min_size=1, max_size=10)))
        return capacities.RequestPolicy(default=Q(draw(st.sampled_from(values))), valid_values=tuple(map(Q, values)))
    low, step, steps = draw(st.integers(0, 20)), draw(st.integers(1, 10)), draw(st.integers(1, 8))
    span = capacities.ValidRange(min=Q(low), max=Q(low + step * steps) if draw(st.booleans()) else None, step=Q(step))
    return capacities.RequestPolicy(default=Q(low + step * draw(st.integers(0, steps))), valid_range=span)


@given(policies(), AMOUNTS)
def test_rounding_up_gives_the_smallest_valid_amount(rules: capacities.RequestPolicy, asked: quantity.Quantity) -> None:
    valid = [amount for amount in map(Q, range(401)) if rules.round_up(amount) == amount]
    assert rules.round_up(asked) == next((amount for amount in valid if amount >= asked), None)


@given(policies(), AMOUNTS)
def test_rounding_twice_changes_nothing(rules: capacities.RequestPolicy, asked: quantity.Quantity) -> None:
    rounded = rules.round_up(asked)
    assert rounded is None or (rounded >= asked and rules.round_up(rounded) == rounded)


@given(policies(), st.integers(0, 200), st.none() | AMOUNTS)
def test_a_share_never_takes_more_than_there_is(rules: capacities.RequestPolicy, size: int, asked: quantity.Quantity | None) -> None:
    try:
        (capacity,) = capacities.freeze_capacity({"size": capacities.Capacity(value=Q(size), policy=rules)}, "capacity").values()
    except errors.InventoryError:
        return
    consumed = capacity.consumed_by(asked)
    assert consumed is None or consumed <= capacity.value
    assert asked is not None or consumed == rules.default
