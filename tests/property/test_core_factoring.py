"""Laws of factoring: exact, never larger, deterministic, within the limits, and near what is possible at all where it matters."""

import collections
import itertools
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drakit import machines
from drakit.core import device, inventory
from drakit.core.slices import mixin_factoring
from fakes import examples, installed_drivers, slice_document
from fakes.core_strategies import inventories


@settings(max_examples=examples.count(50))
@given(inventories(with_mixins=False, largest=80))
def test_factoring_changes_nothing_but_the_form(flat: inventory.Inventory) -> None:
    made = mixin_factoring.factor(flat)
    assert repr(made.flat().by_name().keys()) == repr(flat.by_name().keys())
    assert made.flat() == flat
    assert mixin_factoring.estimate(made) <= mixin_factoring.estimate(flat)
    assert repr(mixin_factoring.factor(flat)) == repr(made)
    for item in made.devices:
        assert max(len(item.includes), *(len(part.includes) for part in item.consumes), 0) <= device.INCLUDES_MAX


@settings(max_examples=examples.count(50))
@given(inventories(largest=40))
def test_factoring_what_has_mixins_keeps_its_meaning(source: inventory.Inventory) -> None:
    made = mixin_factoring.factor(source)
    assert made.flat() == source.flat()
    assert mixin_factoring.estimate(made) <= min(mixin_factoring.estimate(source), mixin_factoring.estimate(source.flat()))


FACTS = [("attributes", f"a{number}", "x" * number) for number in range(7)]


@given(st.lists(st.lists(st.sampled_from(FACTS), unique=True), max_size=20))
def test_counting_by_kinds_of_rows_gives_the_result_of_counting_by_pairs(rows: list[list[tuple[str, str, str]]]) -> None:
    counted = mixin_factoring._Rows(rows, per_slice=8)
    pairs = collections.Counter(one & other for one, other in itertools.combinations(counted._own, 2))
    del pairs[0]
    by_worth = sorted(pairs, key=lambda mask: (-pairs[mask] * counted._size(mask), mask))
    assert counted._candidates() == by_worth[: mixin_factoring._CANDIDATES_MAX]


def least(flat: inventory.Inventory) -> int:
    """No factoring takes fewer bytes: everything as it is, but each fact once, and references for nothing."""
    rows = [mixin_factoring._device_facts(item) for item in flat.devices]
    rows += [mixin_factoring._counter_facts(part.counters) for item in flat.devices for part in item.consumes]
    rows += [mixin_factoring._counter_facts(one.counters) for one in flat.counter_sets]
    facts = [fact for row in rows for fact in row]
    return mixin_factoring.estimate(flat) - sum(map(mixin_factoring._fact_size, facts)) + sum(map(mixin_factoring._fact_size, set(facts)))


def kep_4815() -> inventory.Inventory:
    return slice_document.load(pathlib.Path(__file__).parents[1] / "golden" / "kep-4815-two-gpus.yaml").flat()


def machine(name: str, folder: pathlib.Path) -> inventory.Inventory:
    choice = machines.Choice(name=name, directory=folder, owner="node-1")
    return installed_drivers.build("gpu", node="node-1", machine=choice).discover().flat()


MACHINES = ("dgx-a100-40gb-2gpu", "dgx-h100", "server-a30", "mixed-16gpu")


def check_gain(flat: inventory.Inventory) -> None:
    factored = mixin_factoring.factor(flat)
    whole, made, floor = mixin_factoring.estimate(flat), mixin_factoring.estimate(factored), least(flat)
    assert floor < made < whole
    gained = (whole - made) / (whole - floor)
    assert gained > 0.65, f"{made} of {whole} bytes, at least {floor}: {gained:.2f} of what could be gained"
    assert len(factored.mixins) < len(flat.devices)


def test_factoring_saves_most_of_the_possible_bytes_in_the_kep_s_example() -> None:
    check_gain(kep_4815())


@pytest.mark.parametrize("name", MACHINES)
def test_factoring_saves_most_of_the_possible_bytes_on_every_machine(name: str, tmp_path: pathlib.Path) -> None:
    check_gain(machine(name, tmp_path))
