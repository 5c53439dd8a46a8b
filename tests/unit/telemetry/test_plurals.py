"""Nouns agree with their number, and one function makes them agree."""

import pathlib
import re

import pytest

import drakit
import drakit_cluster
from drakit.telemetry import plurals

HAND_WRITTEN = re.compile(r"""(''|"") if .{1,40} == 1 else (f?['"])s\2|(['"])s\3 if .{1,40} (> 1|!= 1) else (''|"")""")


@pytest.mark.parametrize(
    "number, words, text",
    [
        (0, ("claim",), "0 claims"),
        (1, ("claim",), "1 claim"),
        (2, ("claim",), "2 claims"),
        (0, ("claim in progress", "claims in progress"), "0 claims in progress"),
        (1, ("claim in progress", "claims in progress"), "1 claim in progress"),
    ],
)
def test_a_noun_agrees_with_its_number(number: int, words: tuple[str, ...], text: str) -> None:
    assert plurals.counted(number, *words) == text
    assert f"{number} {plurals.noun(number, *words)}" == text


def test_no_other_code_writes_plurals_by_hand() -> None:
    roots = [pathlib.Path(str(package.__file__)).parent for package in (drakit, drakit_cluster)]
    sources = [source for root in roots for source in root.rglob("*.py") if source.name != "plurals.py"]
    assert [source for source in sources if HAND_WRITTEN.search(source.read_text("utf-8"))] == []
    assert HAND_WRITTEN.search("""{'' if number == 1 else 's'}""")
    assert HAND_WRITTEN.search("""{'s' if len(failed) > 1 else ''}""")
