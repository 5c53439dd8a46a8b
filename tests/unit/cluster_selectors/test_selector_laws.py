"""Laws of versions, quantities and optional values."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from drakit_cluster.cel import CompileError, RunError, Selectors
from drakit_cluster.cel.functions import quantities, semver
from unit.cluster_selectors.asking import ALL_ON

numbers = st.integers(0, 30).map(str)
identifiers = st.one_of(numbers, st.from_regex(r"[a-z-][0-9a-z-]{0,3}", fullmatch=True))
versions = st.builds(
    lambda core, pre, build: ".".join(core) + (f"-{'.'.join(pre)}" if pre else "") + (f"+{'.'.join(build)}" if build else ""),
    st.tuples(numbers, numbers, numbers),
    st.lists(identifiers, max_size=3),
    st.lists(identifiers, max_size=2),
)


def test_versions_are_ordered_as_semver_org_orders_them() -> None:
    ordered = "1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1 1.0.0 1.0.1 2.0.0"
    for one, other in itertools.pairwise(map(semver.parse, ordered.split())):
        assert one < other
        assert one != other


@given(versions, versions, versions)
def test_versions_are_in_a_total_order(first: str, second: str, third: str) -> None:
    one, two, three = (semver.parse(text) for text in (first, second, third))
    assert (one < two) + (one == two) + (one > two) == 1
    assert not (one <= two <= three) or one <= three
    assert one == semver.parse(first.partition("+")[0])


@given(versions)
def test_normalizing_a_strict_version_changes_nothing(text: str) -> None:
    assert semver.parse(semver.normalize(text)) == semver.parse(text)
    assert semver.parse(semver.normalize(f"v{text}")) == semver.parse(text)


amounts = st.builds(
    lambda number, suffix: f"{number}{suffix}",
    st.integers(-(10**6), 10**6),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3"]),
)


@given(amounts, amounts)
def test_subtracting_an_added_quantity_gives_the_original(first: str, second: str) -> None:
    one, two = quantities.parse(first), quantities.parse(second)
    assert one.plus(two).plus(two, -1) == one
    assert one.plus(two) == two.plus(one)
    assert (one.integer is None) or one.integer * 10**9 == one.nanos


values = st.one_of(st.integers(-9, 9).map(str), st.sampled_from(['"a"', "true", "null", "[1]", '{"a": 1}', "1.5"]))


def ours(expression: str) -> bool | str:
    try:
        program = Selectors(ALL_ON).compile(expression)
    except CompileError:
        return "compile error"
    try:
        return program.evaluate({})[0]
    except RunError:
        return "error"


@given(values, values)
def test_optional_values_obey_their_laws(value: str, other: str) -> None:
    for law in (
        f"optional.of({value}).value() == {value}",
        f"optional.of({value}).hasValue() && !optional.none().hasValue()",
        f"optional.of({value}).orValue({value}) == {value}",
        f"optional.none().orValue({value}) == {value}",
        f"optional.of({value}).or(optional.of({value})) == optional.of({value})",
        f"optional.none().or(optional.of({value})) == optional.of({value})",
        f"optional.of({value}).optMap(x, x) == optional.of({value})",
        f"optional.of({value}).optFlatMap(x, optional.of(x)) == optional.of({value})",
        f"optional.of(dyn({value})) != optional.none() && [{value}].first() == [{value}].last()",
        f"(dyn({value}) == dyn({other})) == (optional.of(dyn({value})) == optional.of(dyn({other})))",
    ):
        assert ours(law) is True, law
