"""What expressions cost: estimated when an object is created, counted when they run."""

import pytest

from drakit_cluster.cel import COST_LIMIT, RunError, Selectors
from drakit_cluster.objects.devices import view_of
from drakit_cluster.objects.json_types import Object
from unit.cluster_selectors.asking import ALL_OFF, ALL_ON, FISH, A, compiled, verdict

TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
EXPENSIVE = f"{TEN}.all(x, " * 7 + "int('1'.find('[0-9]*')) < 100" + ")" * 7
SMALL_BUDGET = Selectors(cost_limit=COST_LIMIT // 50)
"""Selectors whose budget is spent in milliseconds."""
LOOP = "device.attributes.all(d{0}, "
DOUBLED = "".join(f"cel.bind(x{number + 1}, x{number} + x{number}, " for number in range(60))


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        'A.name == "fish"',
        'A.name.isGreaterThan(semver("v0.0.1", true)) && C.name.isGreaterThan(quantity("1Ki"))',
        'A.services.split("example").exists(part, part == "a")',
        "A.name.exists(x, x > 0)",
        f"{TEN}.all(x, {TEN}.all(y, {TEN}.all(z, x + y + z > 0)))",
        "lists.range(1000).all(x, x >= 0)",
        f"cel.bind(many, {TEN} + {TEN}, many.all(x, many.all(y, many.all(z, x + y + z > 0))))",
        'A.name.replace("-", "").split("").all(c, A.name.split("").exists(d, c == d))',
        'A.?name.orValue("").lowerAscii().contains("fish")',
        'string(A.name).split(".").map(part, part + "x").join(",").contains("1x")',
        f'cel.bind(own, {A}, own.all(k, v, v == "a" || own[k] in ["b", "c"]))',
        'url("http://" + A.name).getHost() == "a"',
        "!format.dns1123Label().validate(A.name).hasValue()",
        '["a", "b"].sortBy(x, x).transformMap(i, x, i).all(k, v, k == v)',
    ],
)
def test_everyday_expressions_are_far_below_the_limit(expression: str) -> None:
    assert compiled(expression, ALL_ON).max_cost < COST_LIMIT / 4


@pytest.mark.parametrize(
    "expression",
    [
        EXPENSIVE,
        "".join(map(LOOP.format, range(4))) + "true" + ")" * 4,
        "lists.range(1000).all(x, lists.range(1000).all(y, x != y))",
        "lists.range(A.name).all(x, x >= 0)",
        f'cel.bind(a, {A}.map(k, k).join(""), a.split("").all(c, a.split("").all(d, c != "q")))',
        'A.model.split("").exists(c, A.model.split("").exists(d, A.model.split("").exists(e, A.model.contains(c + d + e))))',
        'cel.bind(a, A.model.replace("", A.model), a.split("").all(c, a.contains(c)))',
        f"cel.bind(many, {TEN} + {TEN}, " + "".join(f"many.all(x{number}, " for number in range(5)) + "true" + ")" * 6,
    ],
)
def test_loops_in_loops_compile_and_are_known_to_cost_too_much(expression: str) -> None:
    assert compiled(expression, ALL_ON).max_cost > COST_LIMIT


def test_every_loop_over_the_names_of_a_device_counts_32_elements() -> None:
    assert compiled(f"{A}.all(k, {A}.all(l, {A}.all(m, k != l || l != m)))").max_cost < COST_LIMIT
    assert compiled("device.capacity.all(d, device.capacity[d].all(k, device.capacity[d].all(l, k == l || d != '')))").max_cost < COST_LIMIT


@pytest.mark.parametrize("inner", ["int('1'.find('[0-9]*')) < 100", "1 / 0 > 0 || true"])
def test_an_exceeded_budget_ends_the_evaluation_in_any_expression(inner: str) -> None:
    expression = f"{TEN}.all(x, " * 7 + inner + ")" * 7 + " || true"
    with pytest.raises(RunError, match="actual cost limit exceeded"):
        SMALL_BUDGET.verdict(compiled(expression), FISH)


def test_a_given_budget_is_enforced() -> None:
    with pytest.raises(RunError, match="actual cost limit exceeded"):
        Selectors(cost_limit=2).matches('device.driver == "dra.example.com"', FISH)
    assert Selectors(cost_limit=3).matches('device.driver == "dra.example.com"', FISH)


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(9000000000000000000).size() > 0",
        f"cel.bind(x0, 'abcdefghij', {DOUBLED}x60.size() > 0{')' * 61}",
        f"cel.bind(x0, [1, 2], {DOUBLED}x60.size() > 0{')' * 61}",
        "lists.range(100000).distinct().size() > 0",
        "cel.bind(many, lists.range(100000), many.all(x, x in many))",
        "cel.bind(big, lists.range(3000).map(x, '0123456789').join(), lists.range(3000).map(x, big).join().size() > 0)",
        "cel.bind(big, lists.range(3000).map(x, '0123456789').join(), big.replace('0', big).size() > 0)",
        "lists.range(30).map(x, lists.range(1000000)).size() > 0",
        "lists.range(100).all(x, [lists.range(1000000)].size() > 0)",
        "lists.range(20).map(x, lists.range(90000)).size() > 0",
        "cel.bind(big, lists.range(30000).map(x, '0123456789').join(), lists.range(5000).all(x, big + 'a' < big + 'b'))",
        "cel.bind(big, lists.range(30000).map(x, '0123456789').join(), cel.bind(other, big + 'a', lists.range(5000).all(x, big < other)))",
        "cel.bind(many, lists.range(50000), lists.range(50000).map(x, many).flatten().size() > 0)",
    ],
)
def test_values_that_would_grow_too_large_end_the_evaluation(expression: str) -> None:
    with pytest.raises(RunError, match="actual cost limit exceeded"):
        verdict(expression)


def doubled(first: str, twice: str, result: str) -> str:
    """Return an expression that binds a value of which each holds the earlier one twice, so that it stands for a million of elements."""
    binds = "".join(f"cel.bind(n{number + 1}, {twice.replace('@', f'n{number}')}, " for number in range(20))
    return f"cel.bind(n0, {first}, {binds}{result.replace('@', 'n20')}{')' * 21}"


NESTED = {
    "equality": doubled("[1, 2]", "[@, @]", "@ == @"),
    "inequality": doubled("[1, 2]", "[@, @]", "@ != @"),
    "equality of maps": doubled('{"a": 1}', '{"a": @, "b": @}', "@ == @"),
    "equality of optional values": doubled("optional.of([1, 2])", "optional.of([@, @])", "@ == @"),
    "in": doubled("[1, 2]", "[@, @]", "@ in [@]"),
    "distinct": doubled("[1, 2]", "[@, @]", "[@, @].distinct().size() > 0"),
    "indexOf": doubled("[1, 2]", "[@, @]", "[@].indexOf(@) == 0"),
    "sets": doubled("[1, 2]", "[@, @]", "sets.equivalent([@], [@])"),
}


@pytest.mark.parametrize("expression", NESTED.values(), ids=NESTED)
def test_a_comparison_of_lists_in_lists_costs_all_their_elements(expression: str) -> None:
    assert compiled(expression, ALL_ON).max_cost > COST_LIMIT
    with pytest.raises(RunError, match="actual cost limit exceeded"):
        SMALL_BUDGET.verdict(compiled(expression), FISH)


@pytest.mark.parametrize(
    "expression, most",
    [
        ("[[1, 2], [3, 4]] == [[1, 2], [3, 4]]", 12),
        ("[[1, 2], [3, 4]].distinct().size() == 2", 20),
        ('"name" in device.attributes["dra.example.com"]', 10),
        ("cel.bind(deep, lists.range(40).map(i, lists.range(40)), deep == deep)", 6000),
    ],
)
def test_small_and_looked_up_values_cost_little(expression: str, most: int) -> None:
    program = compiled(expression, ALL_ON)
    assert program.evaluate(Selectors(ALL_ON)._variables(FISH))[1] <= program.max_cost <= most


@pytest.mark.parametrize(
    "expression, most",
    [
        ('A.name.split("-").join(".").split(".").join("-").split("-").join("x") == "y"', 500),
        ('string(A.name).split(".").join(",").split(",").exists(x, string(x) == "a")', 6000),
        ('A.name.split("-", 2).map(p, p.split("").join("-")).join("") == "a"', 500),
    ],
)
def test_the_parts_of_a_text_are_together_no_longer_than_it(expression: str, most: int) -> None:
    program = compiled(expression, ALL_ON)
    full = view_of("dra.example.com", {"attributes": {"name": {"string": "-" * 64}}})
    assert program.evaluate(Selectors(ALL_ON)._variables(full))[1] <= program.max_cost <= most


@pytest.mark.parametrize(
    "expression, cost",
    [
        ("true", 0),
        ('device.driver == "dra.example.com"', 3),
        ("A.b", 4),
        ("A.i > 3", 5),
        ("A.i in [1, 2, 5]", 4),
        ("int('5') == 5", 1),
        ("has(A.s)", 3),
        ('device.attributes["dra.example.com"].?nope.hasValue()', 4 + 1),
    ],
)
def test_running_costs_a_step_for_each_part(expression: str, cost: int) -> None:
    program = compiled(expression)
    assert program.evaluate(Selectors(ALL_OFF)._variables(FISH))[1] == cost


def test_loops_over_the_fullest_device_cost_no_more_than_the_worst_case() -> None:
    attributes: Object = {f"{'x' * 29}-{number:02}": {"string": "a" * 64} for number in range(32)}
    full = view_of("d" * 63, {"attributes": attributes})
    name = "d" * 63
    for expression in (
        f'device.attributes["{name}"].all(k, k != "a")',
        f'device.attributes["{name}"].exists(k, v, v == "b")',
        f'device.attributes["{name}"].map(k, k).size() == 32',
        f'device.attributes["{name}"].transformMap(k, v, v + k).size() == 32',
        f'device.attributes["{name}"].map(k, k.split("")).map(l, l.map(c, c + c)).size() == 32',
        f'device.attributes["{name}"].all(k, k.split("").all(c, k.split("").all(d, c + d != k)))',
        f'device.attributes["{name}"].map(k, v, v).join(",").upperAscii().split(",").all(v, v.contains("A"))'.replace(
            "map(k, v, v)", "transformList(k, v, v)"
        ),
        "device.attributes.all(d, device.attributes[d].size() < 40)",
    ):
        program = compiled(expression)
        assert program.evaluate(Selectors(ALL_OFF)._variables(full))[1] <= program.max_cost
