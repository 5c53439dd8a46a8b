"""The pages about Kubernetes' features list every test of them, and every sample with its mend; and nothing else."""

import ast
import pathlib
import re

import pytest

from fakes import feature_samples
from fakes.feature_samples import Sample

HERE = pathlib.Path(__file__).parent
PAGES = HERE.parents[2] / "docs" / "reference" / "kubernetes-features"
_CODE = re.compile(r"`([^`]+)`")


def _tests(pattern: str) -> list[str]:
    files = sorted(set(HERE.glob(pattern)) - {pathlib.Path(__file__)})
    trees = [ast.parse(file.read_text("utf-8")) for file in files]
    return [node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def _rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the rows of the table with a heading."""
    text = (PAGES / page).read_text("utf-8")
    lines = text[text.index(f"{heading}\n") :].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize("page, pattern", [("kep-5075.md", "test_kep_5075_*.py"), ("concepts.md", "test_concepts_*.py")])
def test_a_page_lists_every_test_once_and_every_row_has_a_test_or_a_reason(page: str, pattern: str) -> None:
    rows = _rows(page, "| Seed row | Test |")
    listed = [name for _, cell in rows for name in _CODE.findall(cell) if name.startswith("test_")]
    assert sorted(listed) == sorted(_tests(pattern))
    without = [cell for _, cell in rows if "`test_" not in cell]
    assert all(cell.startswith(("not built", "measured in `tests/bench`", "shown in `tests/scenario/")) for cell in without)


@pytest.mark.parametrize("page, samples", [("kep-5075.md", feature_samples.KEP_5075), ("concepts.md", feature_samples.CONCEPTS)])
def test_a_page_lists_every_sample_and_each_correction(page: str, samples: tuple[Sample, ...]) -> None:
    rows = _rows(page, "| Sample | Mend |")
    assert [_CODE.findall(name) for name, _ in rows] == [[sample.name] for sample in samples]
    assert [not mend.startswith("none") for _, mend in rows] == [sample.is_mended for sample in samples]
