"""Attributes that are lists, and those that might be: what the ListTypeAttributes gate lets expressions do with them."""

import pytest

from drakit_cluster.cel import CompileError, EnvType, RunError, Selectors
from drakit_cluster.objects.devices import view_of
from drakit_cluster.objects.json_types import Object
from unit.cluster_selectors.asking import ALL_OFF, ALL_ON, compiled


def verdict(expression: str, **attributes: Object) -> bool:
    return Selectors(ALL_ON).verdict(compiled(expression, ALL_ON), view_of("dra.example.com", {"attributes": {**attributes}}))


@pytest.mark.parametrize(
    "expression, attribute, wanted",
    [
        ("A.a.includes(true)", {"bool": True}, True),
        ("A.a.includes(true)", {"bool": False}, False),
        ("A.a.includes(true)", {"bools": [True, False]}, True),
        ("A.a.includes(false)", {"bools": [True, True]}, False),
        ("A.a.includes(1)", {"int": 1}, True),
        ("A.a.includes(1)", {"int": 2}, False),
        ("A.a.includes(1)", {"ints": [2, 1]}, True),
        ("A.a.includes(3)", {"ints": [1, 2]}, False),
        ('A.a.includes("fish")', {"string": "fish"}, True),
        ('A.a.includes("bird")', {"string": "fish"}, False),
        ('A.a.includes("bird")', {"strings": ["fish", "bird"]}, True),
        ('A.a.includes("cat")', {"strings": ["fish", "bird"]}, False),
        ('A.a.includes(semver("1.0.0"))', {"version": "1.0.0"}, True),
        ('A.a.includes(semver("3.0.0"))', {"versions": ["1.0.0", "2.0.0"]}, False),
        ('A.a.includes("v48")', {"strings": [f"v{number}" for number in range(48)]}, False),
        ("A.a.size() == 2", {"bools": [True, False]}, True),
        ("A.a.size() == 2", {"versions": ["1.0.0", "2.0.0"]}, True),
        ("A.a.exists(x, x > 1)", {"ints": [1, 2]}, True),
        ('A.a.all(x, x != "")', {"strings": ["fish", "bird"]}, True),
        ('A.a.all(x, x.isGreaterThan(semver("0.0.1")))', {"versions": ["1.0.0", "2.0.0"]}, True),
        ("1 in A.a", {"ints": [1, 2, 3]}, True),
        ('A.a == ["fish", "bird"]', {"strings": ["fish", "bird"]}, True),
    ],
)
def test_lists_have_list_functions_and_scalars_have_includes(expression: str, attribute: Object, *, wanted: bool) -> None:
    assert verdict(expression.replace("A.a", 'device.attributes["dra.example.com"].a'), a=attribute) is wanted


@pytest.mark.parametrize(
    "expression, attribute",
    [
        ("A.a.exists(x, x > 0)", {"int": 1}),
        ("A.a.exists(x, x)", {"bool": True}),
        ('A.a.exists(x, x == "fish")', {"string": "fish"}),
        ('A.a.exists(x, x.isGreaterThan(semver("0.0.1")))', {"version": "1.0.0"}),
        ("A.a", {"strings": ["fish"]}),
        ('A.a.includes("v49")', {"strings": [f"v{number}" for number in range(49)]}),
    ],
)
def test_a_function_of_another_type_fails_at_evaluation(expression: str, attribute: Object) -> None:
    with pytest.raises(RunError):
        verdict(expression, a=attribute)


def test_without_the_gate_new_expressions_know_no_lists() -> None:
    for expression in ('A.a.includes("fish")', "A.a.exists(x, x > 0)"):
        with pytest.raises(CompileError):
            compiled(expression, ALL_OFF, EnvType.NEW)
