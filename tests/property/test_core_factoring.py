"""Laws of factoring: exact, never larger, within the limits."""

from hypothesis import given, settings

from drakit.core import counters, factoring, inventory
from fakes.core_strategies import inventories


@settings(max_examples=50)
@given(inventories(with_mixins=False, largest=80))
def test_factoring_changes_nothing_but_the_form(flat: inventory.Inventory) -> None:
    made = factoring.factor(flat)
    assert repr(made.flat().by_name().keys()) == repr(flat.by_name().keys())
    assert made.flat() == flat
    assert factoring.estimate(made) <= factoring.estimate(flat)
    for item in made.devices:
        assert max(len(item.includes), *(len(part.includes) for part in item.consumes), 0) <= counters.INCLUDES_MAX


@settings(max_examples=50)
@given(inventories(largest=40))
def test_factoring_what_has_mixins_keeps_its_meaning(source: inventory.Inventory) -> None:
    made = factoring.factor(source)
    assert made.flat() == source.flat()
    assert factoring.estimate(made) <= min(factoring.estimate(source), factoring.estimate(source.flat()))
