"""YAML is read as Kubernetes reads it, and no text exhausts memory or stack."""

import resource
import subprocess
import sys

import pytest

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
        ("a: \x00", "control characters are not allowed"),
    ],
)
def test_a_syntax_error_has_line_and_column(text: str, reason: str) -> None:
    assert reason in refusal(text)
