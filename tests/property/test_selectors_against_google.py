"""Agreement with Google's own implementation of CEL where the two languages are the same."""

import functools
import importlib
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drakit_cluster.cel import CompileError, RunError, Selectors
from drakit_cluster.cel.syntax import parser
from fakes import examples
from unit.cluster_selectors.asking import ALL_ON


def ours(expression: str) -> bool | str:
    try:
        program = Selectors(ALL_ON).compile(expression)
    except CompileError:
        return "compile error"
    try:
        return program.evaluate({})[0]
    except RunError:
        return "error"


@pytest.fixture(scope="module")
def google() -> Any:
    """Google's implementation with the extensions that both know."""
    cel = importlib.import_module("cel_expr_python.cel")
    extensions = "".join(f"- name: {name}\n" for name in ("sets", "optional", "bindings", "strings"))
    return cel.NewEnv(config=cel.NewEnvConfigFromYaml(f"extensions:\n{extensions}"))


def theirs(google: Any, expression: str) -> bool | str:
    try:
        program = google.compile(expression)
    except RuntimeError:
        return "compile error"
    result = program.eval(google.Activation({})).value()
    return result if isinstance(result, bool) else "error"


Strategy = st.SearchStrategy[str]


@functools.cache
def integers(depth: int) -> Strategy:
    leaves = st.sampled_from(["0", "1", "2", "-3", "9223372036854775807", "-9223372036854775808"])
    if not depth:
        return leaves
    inner = integers(depth - 1)
    return st.one_of(
        leaves,
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/%"), inner),
        st.builds("-({})".format, inner),
        st.builds("({} ? {} : {})".format, truths(depth - 1), inner, inner),
        st.builds("size({})".format, st.one_of(lists(depth - 1), texts(depth - 1))),
        st.builds("{}[{}]".format, lists(depth - 1), inner),
        st.builds("{}.indexOf({})".format, texts(depth - 1), texts(depth - 1)),
    )


@functools.cache
def texts(depth: int) -> Strategy:
    leaves = st.sampled_from(['""', '"a"', '"abc"', "'é'", 'r"\\d"'])
    if not depth:
        return leaves
    inner = texts(depth - 1)
    return st.one_of(
        leaves,
        st.builds("({} + {})".format, inner, inner),
        st.builds("{}.replace({}, {})".format, inner, inner, inner),
        st.builds("{}.substring({})".format, inner, integers(depth - 1)),
        st.builds("string({})".format, integers(depth - 1)),
        st.builds("{}.split({}).join('-')".format, inner, inner),
    )


@functools.cache
def lists(depth: int) -> Strategy:
    elements = integers(max(depth - 1, 0))
    leaves = st.lists(elements, min_size=1, max_size=3).map(lambda items: f"[{', '.join(items)}]")
    if not depth:
        return leaves
    inner = lists(depth - 1)
    return st.one_of(
        leaves,
        st.builds("({} + {})".format, inner, inner),
        st.builds("{}.map(x, x * {})".format, inner, elements),
        st.builds("{}.filter(x, x > {})".format, inner, elements),
    )


@functools.cache
def truths(depth: int) -> Strategy:
    leaves = st.sampled_from(["true", "false"])
    if not depth:
        return leaves
    inner, number, text, items = (make(depth - 1) for make in (truths, integers, texts, lists))
    return st.one_of(
        st.builds("({} {} {})".format, number, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), number),
        st.builds("({} {} {})".format, text, st.sampled_from(["<", "==", "!="]), text),
        st.builds("({} {} {})".format, inner, st.sampled_from(["&&", "||"]), inner),
        st.builds("!{}".format, inner),
        st.builds("({} in {})".format, number, items),
        st.builds("{}.{}(x, {} < x)".format, items, st.sampled_from(["all", "exists", "exists_one"]), number),
        st.builds("{}.contains({})".format, text, text),
        st.builds("sets.contains({}, {})".format, items, items),
        st.builds("cel.bind(y, {}, y == {})".format, number, number),
    )


@settings(max_examples=examples.count(200), deadline=None)
@given(truths(3))
def test_selectors_evaluate_as_in_google_s_cel_implementation(google: Any, expression: str) -> None:
    assume("bind" not in expression or ".all" not in expression)  # Google loses the variable after a loop beside it.
    assume("bind" not in expression or ".exists" not in expression)
    wanted, found = theirs(google, expression), ours(expression)
    if wanted != found:
        assert {wanted, found} == {"error", "compile error"}, "constants that fail may fail early or late, but they fail"


pieces = st.sampled_from(
    ["a", "1", "'b'", ".", ".c", "(", ")", "[", "]", "{", "}", ":", ",", "?", "!", "-", "+", "&&", "in", "==", " ", "f(", "1.5", "2u"]
)


@settings(max_examples=examples.count(300), deadline=None)
@given(st.lists(pieces, min_size=1, max_size=8).map("".join))
def test_exactly_the_expressions_that_google_s_cel_accepts_compile(google: Any, text: str) -> None:
    try:
        google.compile(text, disable_check=True)
        wanted = True
    except RuntimeError:
        wanted = False
    try:
        parser.parse(text)
        found = True
    except CompileError:
        found = False
    assert found is wanted
