"""What expressions cost: estimated when an object is created, counted when they run.

The estimates are those that Kubernetes expects of itself for the same expressions.
"""

import pytest

from drakit_cluster.cel import COST_LIMIT, EnvType, Gates, RunError, Selectors
from drakit_cluster.objects.devices import view_of
from drakit_cluster.objects.json_types import Object
from unit.cluster_selectors.asking import ALL_OFF, ALL_ON, FISH, compiled, verdict

TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
EXPENSIVE = f"{TEN}.all(x, " * 7 + "int('1'.find('[0-9]*')) < 100" + ")" * 7

ESTIMATES = {
    "true": 0,
    'device.attributes["nope"].x.isGreaterThan(quantity("0"))': 6,
    '"nope" in device.attributes': 3,
    'device.driver == ""': 2,
    'device.driver == "dra.example.com"': 4,
    "A.name": 4,
    'device.attributes["dra.example.com"]["name"]': 4,
    'cel.bind(d, device.attributes["dra.example.com"], d.name)': 15,
    "A.name > 0": 5,
    'A.name == "fish"': 5,
    'A.name.isGreaterThan(semver("v0.0.1", true)) && isSemver("v1.0.0", true)': 7,
    'C.name.isGreaterThan(quantity("1Ki"))': 6,
    '!("name" in device.capacity["dra.example.com"]) || C.name.isGreaterThan(quantity("1Ki"))': 11,
    "A.a && A.b && A.c": 12,
    'device.attributes.exists_one(x, x == "dra.example.com")': 164,
    'A.exists_one(x, x == "services")': 133,
    'A.services.split("example").size() >= 2': 19,
    'A.services.matches("[^a]?sym")': 18,
    EXPENSIVE: 85555551,
}
LIST_ESTIMATES = {
    "A.name.exists(x, x > 0)": 5 + 6 * 64,
    'A.name.all(x, x != "")': 5 + 4 * 64,
    'A.name.exists(x, x.isGreaterThan(semver("0.0.1")))': 5 + 7 * 64,
    'A.name.includes("fish")': 4 + 48,
    '1 in device.attributes["dra.example.com"].names': 4 + 64,
}


@pytest.mark.parametrize("expression, cost", ESTIMATES.items())
@pytest.mark.parametrize("gates", [ALL_OFF, ALL_ON])
def test_the_estimated_cost_is_that_of_kubernetes(expression: str, cost: int, gates: Gates) -> None:
    assert compiled(expression, gates, EnvType.STORED).max_cost == cost


@pytest.mark.parametrize("expression, cost", LIST_ESTIMATES.items())
def test_attributes_that_may_be_lists_are_counted_as_such(expression: str, cost: int) -> None:
    assert compiled(expression, ALL_ON).max_cost == cost


def test_too_expensive_expressions_compile_but_are_known_to_be() -> None:
    assert compiled(EXPENSIVE).max_cost > COST_LIMIT


@pytest.mark.parametrize("inner", ["int('1'.find('[0-9]*')) < 100", "1 / 0 > 0 || true"])
def test_an_exceeded_budget_ends_the_evaluation_in_any_expression(inner: str) -> None:
    expression = f"{TEN}.all(x, " * 7 + inner + ")" * 7 + " || true"
    with pytest.raises(RunError, match="actual cost limit exceeded"):
        verdict(expression)


def test_a_given_budget_is_enforced() -> None:
    with pytest.raises(RunError, match="actual cost limit exceeded"):
        Selectors(cost_limit=3).matches('device.driver == "dra.example.com"', FISH)
    assert Selectors(cost_limit=4).matches('device.driver == "dra.example.com"', FISH)


def test_a_range_beyond_the_budget_is_not_created() -> None:
    with pytest.raises(RunError, match="actual cost limit exceeded"):
        verdict("lists.range(9000000000000000000).size() > 0")


@pytest.mark.parametrize(
    "expression, cost",
    [
        ("true", 0),
        ('device.driver == "dra.example.com"', 4),
        ("A.b", 4),
        ("A.i > 3", 5),
        ("A.i in [1, 2, 5]", 4),
        ("int('5') == 5", 1),
        ("[1, 2, 3].all(x, x > 0)", 3 * (2 + 3) + 1),
        ("[A.i].size() == 1", 4 + 10 + 1 + 1),
        ("has(A.s)", 3),
        ('device.attributes["dra.example.com"].?nope.hasValue()', 3 + 1),
        ("device.attributes[device.driver].b", 5),
    ],
)
def test_running_costs_what_is_evaluated(expression: str, cost: int) -> None:
    selectors = Selectors(ALL_OFF)
    program = compiled(expression)
    assert program.evaluate(selectors._variables(FISH))[1] == cost


def test_running_costs_no_more_than_the_worst_case_on_the_fullest_device() -> None:
    attributes: Object = {f"{'x' * 29}-{number:02}": {"string": "a" * 64} for number in range(32)}
    full = view_of("d" * 63, {"attributes": attributes})
    name = "d" * 63
    for expression in (
        f'device.attributes["{name}"].all(k, k != "a")',
        f'device.attributes["{name}"].exists(k, v, v == "b")',
        f'device.attributes["{name}"].map(k, k).size() == 32',
        "device.attributes.all(d, device.attributes[d].size() < 40)",
    ):
        program = compiled(expression)
        assert program.evaluate(Selectors(ALL_OFF)._variables(full))[1] <= program.max_cost
