"""YAML is read as Kubernetes reads it, and no text exhausts memory or stack."""

import resource
import subprocess
import sys

import hypothesis
import pytest
import yaml
from hypothesis import strategies

from drakit.inputs import documents
from fakes import waits

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def refusal(text: str) -> str:
    with pytest.raises(documents.DocumentError) as caught:
        documents.load_all(text)
    return str(caught.value)


def test_values_are_those_of_json() -> None:
    assert documents.load("{a: 2026-01-02, 1: [true, null, 1.5], b: &b {c: x}, d: *b}") == {
        "a": "2026-01-02",
        "1": [True, None, 1.5],
        "b": {"c": "x"},
        "d": {"c": "x"},
    }
    assert documents.load("") is None
    assert documents.load_all("a: 1\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]


def test_merged_mappings_and_values_of_other_tags_are_those_of_yaml() -> None:
    text = "base: &b {x: 1, y: 2}\nmade: {<<: *b, y: 3}\nbytes: !!binary aGk=\nset: !!set {a, b}\ntext: !!str 5\n0x10: {~: no}\n"
    made = {"base": {"x": 1, "y": 2}, "made": {"x": 1, "y": 3}, "bytes": b"hi", "set": {"a", "b"}, "text": "5", "16": {"null": False}}
    assert documents.load(text) == made


_VALUES = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats(allow_nan=False) | strategies.text(),
    lambda inside: strategies.lists(inside, max_size=4) | strategies.dictionaries(strategies.text(), inside, max_size=4),
    max_leaves=10,
)


@hypothesis.given(_VALUES)
def test_a_written_value_is_read_back(value: object) -> None:
    assert documents.load(documents.dump(value)) == value
    assert documents.load_all(documents.dump_all([value, value])) == [value, value]


def test_text_that_is_no_utf_8_is_written_escaped() -> None:
    assert documents.dump({"file": "a\udcff"}) == 'file: "a\\uDCFF"\n'


_TOKENS = (
    "- ",
    "? ",
    ": ",
    "a: ",
    "a:",
    "\n",
    "  ",
    " ",
    "\t",
    "[",
    "{",
    "]",
    "}",
    ",",
    "a",
    "'b'",
    "!!map ",
    "!!seq ",
    "|",
    "#",
    "---\n",
    "\u2028",
)


@hypothesis.given(strategies.lists(strategies.sampled_from(_TOKENS), max_size=40))
@hypothesis.example(["?"])
def test_a_text_that_is_not_checked_is_within_the_limits(tokens: list[str]) -> None:
    text = "".join(tokens)
    levels = deepest = values = 0
    try:
        for values, event in enumerate(yaml.parse(text, Loader=yaml.CSafeLoader), 1):  # noqa: B007 - also their number
            levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            deepest = max(deepest, levels)
    except yaml.YAMLError:
        pass
    assert documents.levels_max(text) >= deepest
    assert documents.values_max(text) >= values


def test_aliases_that_multiply_are_refused_before_anything_is_made() -> None:
    assert len(BOMB) < 1000
    assert refusal(BOMB) == "line 5, column 36: aliases stand for more than 100000 values; write them out"


@pytest.mark.parametrize("first", ["%YAML 1.9\n---\n", "%YAML 1.1\n---\n", "\ufeff", "# x\n"])
def test_the_limits_hold_whichever_parser_reads_the_document(first: str) -> None:
    for text in (BOMB, "a: &x [*x]\n", "[" * 5_000):
        refusal(first + text)


def test_more_values_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "VALUES_MAX", 1000)
    assert "has more than 1000 values" in refusal("- []\n" * 500)


def test_numbers_are_those_of_json_and_a_time_is_text() -> None:
    assert documents.load("[1:30, 1:59:59.5, 00:11:22, 0x1f, 1_000, 1.5, .5, 1e3, 1.0e+3]") == [
        "1:30",
        "1:59:59.5",
        "00:11:22",
        31,
        1000,
        1.5,
        0.5,
        "1e3",
        1000.0,
    ]
    assert documents.load(":".join(["1"] + ["59"] * 300) + ".5") is not None


def test_an_alias_of_itself_is_refused() -> None:
    assert refusal("a: &x [*x]\n") == "line 1, column 8: the alias *x leads back to itself; write the values out"
    assert "has no anchor before it" in refusal("a: *x\n")


@pytest.mark.parametrize(
    "text", ["[" * 5_000, "{a: " * 200_000, "- " * 300 + "x", "[" * 101 + "]" * 101], ids=["lists", "maps", "dashes", "whole"]
)
def test_deep_nesting_is_refused_by_place(text: str) -> None:
    assert "is nested more than 100 levels deep" in refusal(text)


def test_a_document_at_the_nesting_limit_is_read() -> None:
    documents.load("[" * 100 + "]" * 100)
    with pytest.raises(documents.DocumentError):
        documents.check_depth(_nested(102))
    documents.check_depth(_nested(100))


def _nested(levels: int) -> object:
    value: object = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_many_deep_brackets_end_no_process_and_take_little_memory() -> None:
    program = (
        "import sys; from drakit.inputs import documents\ntry: documents.load('[' * 3_000_000)\nexcept documents.DocumentError: sys.exit(3)"
    )
    limit = 1 << 30
    ended = subprocess.run(
        [sys.executable, "-c", program],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        check=False,
        timeout=waits.SECONDS,
    )
    assert ended.returncode == 3


@pytest.mark.parametrize(
    "text, reason",
    [
        ("{a: 1, a: 2}", "line 1, column 8: the key a is given twice"),
        ("a: [", "did not find expected node content"),
        ("{[x]: 1}", "unhashable"),
        ("!!python/object:os.system {}", "could not determine a constructor"),
        ("- a: !!bool x", "line 1, column 6: a value does not fit its tag (tag:yaml.org,2002:bool)"),
        ('a: !!int ""', "line 1, column 4: a value does not fit its tag"),
        ("a: !!timestamp x", "line 1, column 4: a value does not fit its tag"),
        ("a: !!map [b]", "line 1, column 4: a value does not fit its tag"),
        ("a: \x00", "control characters are not allowed"),
    ],
)
def test_a_syntax_error_has_line_and_column(text: str, reason: str) -> None:
    assert reason in refusal(text)
