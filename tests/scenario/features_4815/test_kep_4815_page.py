"""The page about KEP-4815 and the tests say the same."""

import ast
import pathlib
import re

from fakes import kep_4815_samples

FOLDER = pathlib.Path(__file__).parent
PAGE = (kep_4815_samples.ROOT / "docs" / "reference" / "kubernetes-features" / "kep-4815.md").read_text("utf-8")


def rows(heading: str) -> list[list[str]]:
    """The rows of all tables whose first column has this heading."""
    tables = re.findall(rf"^\| {heading} \|.*\n\| --- .*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for table in tables for line in table.splitlines()]


def written() -> set[str]:
    trees = [ast.parse(path.read_text("utf-8")) for path in FOLDER.glob("test_*.py") if path != pathlib.Path(__file__)]
    return {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_row_has_a_test_that_exists_and_every_test_has_one_row() -> None:
    named = [cell.strip("`") for _, cell in rows("Seed row") if cell.startswith("`test_")]
    assert sorted(named) == sorted(written())


def test_rows_without_a_test_state_the_reason() -> None:
    rest = [cell for _, cell in rows("Seed row") if not cell.startswith("`test_")]
    assert rest
    assert [cell for cell in rest if not cell.startswith(("Not built", "Measured"))] == []


def test_every_sample_is_on_the_page_with_its_corrections() -> None:
    assert sorted(cell.strip("`") for cell, _ in rows("Sample")) == sorted(kep_4815_samples.NAMES)
