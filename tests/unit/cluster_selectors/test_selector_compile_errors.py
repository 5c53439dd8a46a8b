"""What does not compile, and what it is told."""

import pytest

from drakit_cluster.cel import LENGTH_LIMIT, CompileError
from unit.cluster_selectors.asking import ALL_OFF, ALL_ON, compiled, verdict


@pytest.mark.parametrize(
    "expression, message",
    [
        ("?!", "Syntax error"),
        ("true &&", "Syntax error: mismatched input '<EOF>'"),
        ("'unterminated", "Syntax error: token recognition error"),
        ("'\\ud800'", "unable to unescape string"),
        ("if", "reserved identifier: if"),
        ("99999999999999999999 > 1", "invalid int literal"),
        ("1", "must evaluate to bool or the unknown type, not int"),
        ("device.attributes", "not map(string, map(string, ATTRIBUTE))"),
        ("device", "not kubernetes.DRADevice"),
        ("foo(1) == 2", "undeclared reference to 'foo'"),
        ("nope", "undeclared reference to 'nope'"),
        ("device.nope", "undefined field 'nope'"),
        ("device.driver.foo", "type 'string' does not support field selection"),
        ("device.driver == 5", "found no matching overload for '_==_' applied to '(string, int)'"),
        ("C.mem >= quantity('1')", "found no matching overload for '_>=_'"),
        ("C.mem.sign() == 1", "found no matching overload for 'sign' applied to 'kubernetes.Quantity.()'"),
        ("math.greatest(1, 2) == 2", "undeclared reference to 'math'"),
        ("kubernetes.Quantity{} == quantity('0')", "undeclared reference to 'kubernetes.Quantity'"),
        ("[A.i, 1].size() == 2", "expected type 'ATTRIBUTE' but found 'int'"),
        ("[1, 'a'].size() == 2", "expected type 'int' but found 'string'"),
        ("{'a': 1, 'b': 'c'}.size() == 2", "expected type 'int' but found 'string'"),
        ("duration('zz') > duration('30m')", "invalid duration argument"),
        ("timestamp('2020-01-01T00:00:00Z') > timestamp('2019-01-01T00:00:00Z')", "undeclared reference to 'timestamp'"),
        ("A.s.matches('(')", "invalid matches argument"),
        ("A.s.matches('(?=a)')", "invalid matches argument"),
        ("A.s.find('(') == ''", "program instantiation failed: error parsing regexp"),
        ("int('x') == 1", "program instantiation failed: type conversion error"),
        ("'%d'.format([1]) == '1'", "undeclared reference to 'format'"),
        ("[1].all(x.y, true)", "argument must be a simple name"),
        ("has(device)", "invalid argument to has() macro"),
        ("[1, 2, 3].existsOne(x, x > 2)", "undeclared reference to"),
    ],
)
def test_a_compile_error_has_its_reason(expression: str, message: str) -> None:
    for gates in (ALL_OFF, ALL_ON):
        with pytest.raises(CompileError) as caught:
            compiled(expression, gates)
        attribute = "dyn" if gates is ALL_ON else "any"
        assert message.replace("ATTRIBUTE", attribute) in str(caught.value)


def test_a_compile_error_has_its_position() -> None:
    with pytest.raises(CompileError) as caught:
        compiled("true &&\n  nope")
    assert str(caught.value).splitlines() == [
        "compilation failed: ERROR: <input>:2:3: undeclared reference to 'nope' (in container '')",
        " |   nope",
        " | ..^",
    ]


def test_expressions_longer_than_the_api_takes_are_refused() -> None:
    assert compiled("true" + " " * (LENGTH_LIMIT - 4)).output == "bool"
    with pytest.raises(CompileError, match="longer than 10240 bytes"):
        compiled("true" + " " * (LENGTH_LIMIT - 3))


@pytest.mark.parametrize(
    "head, inner, tail",
    [("(", "true", ")"), ("true || (", "true", ")"), ("true ? true : ", "true", ""), ("[1].all(x, ", "true", ")")],
)
def test_250_levels_are_the_limit(head: str, inner: str, tail: str) -> None:
    assert verdict(head * 249 + inner + tail * 249)
    with pytest.raises(CompileError, match="recursion limit exceeded: 250"):
        compiled(head * 250 + inner + tail * 250)


def test_long_chains_of_logic_are_not_nesting() -> None:
    assert verdict(" && ".join(["true"] * 1000))
    assert verdict(" || ".join(["false"] * 1000 + ["true"]))


def test_long_chains_of_arithmetic_count_as_nesting() -> None:
    assert verdict("+".join(["1"] * 200) + " == 200")
    with pytest.raises(CompileError, match="recursion limit exceeded"):
        compiled("+".join(["1"] * 300) + " == 300")
