"""Laws of quantities."""

import fractions

from hypothesis import given

from drakit.core import quantity
from fakes.core_strategies import quantities, quantity_texts


@given(quantity_texts())
def test_a_written_quantity_is_read_back(text: str) -> None:
    once = quantity.Quantity.parse(text)
    again = quantity.Quantity.parse(str(once))
    assert again == once
    assert str(again) == str(once)


@given(quantities(), quantities())
def test_order_agrees_with_exact_arithmetic(one: quantity.Quantity, other: quantity.Quantity) -> None:
    assert (one < other) == (fractions.Fraction(one.nanos) < other.nanos)
    assert (one == other) == (str(quantity.Quantity(one.nanos)) == str(quantity.Quantity(other.nanos)))
    assert (one == other) <= (hash(one) == hash(other))


@given(quantities(), quantities())
def test_subtraction_undoes_addition(one: quantity.Quantity, other: quantity.Quantity) -> None:
    assert (one + other) - other == one
    assert one + other == other + one


@given(quantities())
def test_the_whole_value_is_the_next_integer_away_from_zero(one: quantity.Quantity) -> None:
    exact = fractions.Fraction(one.nanos, 10**9)
    assert abs(one.value) >= abs(exact)
    assert abs(one.value) - abs(exact) < 1
    assert one.value * exact >= 0
