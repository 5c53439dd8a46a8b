"""The driver and the judge read quantities alike, though they share no code."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drakit.core import errors
from drakit.core import quantity as ours
from drakit_cluster.objects import quantity as judge
from fakes.core_strategies import quantity_texts


@example("9Ei")
@example("1.1Ki")
@example("0.000000000001Ki")
@example("1000E")
@given(quantity_texts())
def test_both_read_the_same_value_and_write_the_same_text(text: str) -> None:
    one, other = ours.Quantity.parse(text), judge.parse(text)
    assert one.nanos == other.nanos
    assert one.format.value == other.format.value
    assert str(one) == str(other)
    assert one.value == other.units


@given(quantity_texts(), quantity_texts())
def test_both_order_and_add_alike(first: str, second: str) -> None:
    mine = [ours.Quantity.parse(text) for text in (first, second)]
    theirs = [judge.parse(text) for text in (first, second)]
    assert (mine[0] < mine[1]) == (theirs[0] < theirs[1])
    assert (mine[0] == mine[1]) == (theirs[0] == theirs[1])
    assert (mine[0] + mine[1]).nanos == (theirs[0] + theirs[1]).nanos


@example(".")
@example("1K")
@example("1i")
@example("+")
@given(st.text("0123456789.+-eEinumkKMGTP", max_size=6))
def test_both_refuse_the_same_texts(text: str) -> None:
    try:
        mine = ours.Quantity.parse(text)
    except errors.QuantityError as error:
        if "beyond" not in str(error):
            with pytest.raises(judge.QuantityError):
                judge.parse(text)
        return
    assert judge.parse(text).nanos == mine.nanos
