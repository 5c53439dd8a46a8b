"""Laws of request policies."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from drakit.core import capacity as capacities
from drakit.core import errors, quantity
from drakit.core.encoding import wire
from drakit_cluster.objects import capacity as served_capacity
from drakit_cluster.objects import quantity as served_quantity
from drakit_cluster.objects.validation.slices import devices as validation

POLICY = wire.Format().converter(capacities.RequestPolicy)

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


THOUSANDTHS = st.integers(0, 4000).map(lambda number: Q(f"{number}m"))


@st.composite
def fractional_policies(draw: st.DrawFn) -> capacities.RequestPolicy:
    parts = st.sampled_from([50, 100, 250, 300, 500, 1000, 1500])
    if draw(st.booleans()):
        values = sorted(draw(st.sets(parts, min_size=1)))
        return capacities.RequestPolicy(default=f"{draw(st.sampled_from(values))}m", valid_values=[f"{value}m" for value in values])
    low, step, steps = draw(st.sampled_from([0, 50, 100, 250, 1000])), draw(parts), draw(st.integers(0, 5))
    top = f"{low + step * steps}m" if draw(st.booleans()) else None
    span = capacities.ValidRange(min=f"{low}m", max=top, step=f"{step}m" if draw(st.booleans()) else None)
    return capacities.RequestPolicy(default=f"{low + step * draw(st.integers(0, steps))}m", valid_range=span)


def served(value: int, rules: capacities.RequestPolicy) -> dict[str, Any]:
    return {"value": str(value), "requestPolicy": POLICY.encode(rules)}


@given(fractional_policies(), st.integers(1, 10), st.none() | THOUSANDTHS)
def test_a_server_of_1_37_consumes_what_the_driver_computes(
    rules: capacities.RequestPolicy, value: int, asked: quantity.Quantity | None
) -> None:
    try:
        (capacity,) = capacities.freeze_capacity({"size": capacities.Capacity(value=value, policy=rules)}, "capacity").values()
    except errors.InventoryError:
        return
    document = served(value, rules)
    assert not list(validation.shared_capacity(document, "size", fractional=True))
    assert consumed(document, asked, fractional=True) == capacity.consumed_by(asked)


@given(fractional_policies(), st.integers(1, 10), st.none() | THOUSANDTHS)
def test_an_older_server_consumes_only_what_a_fractional_policy_allows(
    rules: capacities.RequestPolicy, value: int, asked: quantity.Quantity | None
) -> None:
    try:
        (capacity,) = capacities.freeze_capacity({"size": capacities.Capacity(value=value, policy=rules)}, "capacity").values()
    except errors.InventoryError:
        return
    document = served(value, rules.in_whole_units())
    assert not list(validation.shared_capacity(document, "size", fractional=False))
    amount = consumed(document, asked, fractional=False)
    assert amount is None or (rules.round_up(amount) == amount and (asked is None or amount >= asked)), (amount, document)
    assert asked is not None or amount == capacity.consumed_by(None)


def consumed(document: dict[str, Any], asked: quantity.Quantity | None, *, fractional: bool) -> quantity.Quantity | None:
    """Return what the scheduler of the local cluster lets a share consume; None if the device cannot serve the request."""
    capacity = served_capacity.decode_capacity(document, fractional=fractional)
    wanted = {} if asked is None else {"size": served_quantity.parse(str(asked))}
    amounts = served_capacity.demand(wanted, {"size": capacity})
    if amounts is None or amounts["size"].nanos > capacity.value.nanos:
        return None
    return quantity.Quantity(amounts["size"].nanos)
