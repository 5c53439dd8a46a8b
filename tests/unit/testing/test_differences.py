"""Two states of hardware are told apart in a few words, however much of it there is."""

import dataclasses

import pytest

from drakit.testing import differences


@dataclasses.dataclass(frozen=True)
class Board:
    """Hardware as a driver's author may show it."""

    slots: dict[str, int]
    lit: frozenset[str] = frozenset()
    note: str = dataclasses.field(default="", compare=False)


@pytest.mark.parametrize(
    "before, after, described",
    [
        ({"a": 1}, {"a": 1, "b": 2}, "['b'] is there that was not: 2"),
        ({"a": 1, "b": 2}, {"a": 1}, "['b'] is missing: 2"),
        ({"a": 1}, {"a": 2}, "['a'] was 1 and is 2"),
        ({"a": {"x": [1]}}, {"a": {"x": [2]}}, "['a']['x'][0] was 1 and is 2"),
        ({"lamp-0"}, {"lamp-0", "lamp-1"}, "'lamp-1' is there that was not"),
        ({"lamp-0", "lamp-1"}, {"lamp-0"}, "'lamp-1' is missing"),
        ([1, 2, 2], [1, 2], "2 is missing"),
        ((1, 2), (1, 3, 2), "3 is there that was not"),
        ({"a": {1}}, {"a": {1, 2}}, "['a']: 2 is there that was not"),
        (Board({}), Board({"a": 1}, note="new"), ".slots['a'] is there that was not: 1"),
        (Board({}, frozenset("ab")), Board({}, frozenset("b")), ".lit: 'a' is missing"),
        (3, 4, "it was 3 and is 4"),
        (None, {"a": 1}, "it was None and is {'a': 1}"),
        ({"a": 1, "b": 2}, {"b": 3, "c": 4}, "['c'] is there that was not: 4; ['a'] is missing: 1; ['b'] was 2 and is 3"),
    ],
)
def test_only_differing_fields_are_reported(before: object, after: object, described: str) -> None:
    assert differences.describe(before, after) == described


def test_many_differences_are_counted_and_long_values_cut() -> None:
    assert differences.describe(set(), set(range(100))).endswith("7 is there that was not; and 92 more")
    assert len(differences.describe({}, {"a": "x" * 10_000})) < 200


def test_a_long_text_is_shown_where_it_becomes_different() -> None:
    described = differences.describe("x" * 5000 + "before", "x" * 5000 + "after")
    assert described == f"it was ...{'x' * 20}before' and is ...{'x' * 20}after'"


def test_values_unequal_in_a_way_of_their_own_are_shown_whole() -> None:
    class Reading:
        def __repr__(self) -> str:
            return "a reading"

    assert differences.describe(Reading(), Reading()) == "it was a reading and is a reading"


def test_dataclasses_unequal_by_their_own_rule_are_shown_whole() -> None:
    @dataclasses.dataclass(eq=False)
    class Reading:
        value: int

    assert "it was " in differences.describe(Reading(1), Reading(1))
