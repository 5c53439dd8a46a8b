"""The page about the port of dra-example-driver: its lines of code are counted, its tests exist, and its demos are the files that there are."""

import ast
import dataclasses
import pathlib
import re

from unit.docs import markdown

PAGE = markdown.ROOT / "docs" / "howto" / "from-dra-example-driver.md"
EXAMPLE = markdown.ROOT / "examples" / "everything"
PACKAGE = EXAMPLE / "everything_driver"
GO_TOTAL = 2891
_NAME = re.compile(r"`((?:__main__|[a-z]+)\.[A-Za-z_.]+)`")
_MODULES = {file.stem for file in PACKAGE.glob("*.py")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A feature: the lines that the page gives for Go and for drakit, the symbols of drakit, and the tests."""

    feature: str
    go_lines: int
    symbols: tuple[str, ...]
    lines: int
    tests: tuple[str, ...]


def rows() -> list[Row]:
    section = PAGE.read_text("utf-8").partition("\n## Features\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| ")]
    return [
        Row(
            feature=feature,
            go_lines=int(go_lines),
            symbols=()
            if "counted above" in drakit
            else tuple(name for name in _NAME.findall(drakit) if name.partition(".")[0] in _MODULES),
            lines=int(lines),
            tests=tuple(re.findall(r"`(test_\w+)`", tests)),
        )
        for feature, _, go_lines, drakit, lines, tests in cells[2:]
    ]


def code(text: str, first: int = 1, last: int | None = None) -> int:
    """The lines that are neither blank nor a comment."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines()[first - 1 : last])


def counted(symbol: str) -> int:
    """The lines of code of ``module.Name`` or ``module.Name.method``, with what decorates it."""
    module, *names = symbol.split(".")
    text = (PACKAGE / f"{module}.py").read_text("utf-8")
    node: ast.AST = ast.parse(text)
    for name in names:
        body = getattr(node, "body", [])
        (node,) = [found for found in body if isinstance(found, ast.ClassDef | ast.FunctionDef) and found.name == name]
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    return code(text, min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]), node.end_lineno)


def test_the_lines_of_every_feature_are_those_of_the_example() -> None:
    *features, total = rows()
    assert {row.feature: row.lines for row in features} == {row.feature: sum(map(counted, row.symbols)) for row in features}
    symbols = [symbol for row in features for symbol in row.symbols]
    assert len(symbols) == len(set(symbols)), "a line is counted once"
    assert total.lines == sum(code(file.read_text("utf-8")) for file in PACKAGE.glob("*.py"))
    assert (total.go_lines, sum(row.go_lines for row in features)) == (GO_TOTAL, GO_TOTAL)


def test_every_feature_has_tests_and_they_exist() -> None:
    files = [*(markdown.ROOT / "tests").rglob("test_*.py"), *(EXAMPLE / "tests").glob("test_*.py")]
    written = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)}
    *features, _ = rows()
    assert [row.feature for row in features if not row.tests] == []
    assert {test for row in features for test in row.tests} - written == set()


def test_every_demo_is_on_the_page_and_is_run_by_a_test() -> None:
    section = PAGE.read_text("utf-8").partition("\n## Demos\n")[2].partition("\n## ")[0]
    listed = {span for row in markdown.table_names(section) for span in [row] if span.endswith(".yaml")}
    files = {file.name for file in (EXAMPLE / "demo").iterdir()}
    assert listed == files
    tests = (EXAMPLE / "tests" / "test_demo.py").read_text("utf-8")
    assert [name for name in sorted(files) if f'"{pathlib.Path(name).stem}"' not in tests] == []


def test_every_setting_of_the_example_is_on_the_page() -> None:
    text = PAGE.read_text("utf-8").partition("\n## Settings\n")[2].partition("\n## ")[0]
    fields = {name for kind in ("settings", "gpu", "cpu") for name in _fields(kind)} - {"node", "folder"}
    assert [name for name in sorted(fields) if f".{name}`" not in text] == []


def _fields(module: str) -> list[str]:
    tree = ast.parse((PACKAGE / f"{module}.py").read_text("utf-8"))
    (kind,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings"]
    return [node.target.id for node in kind.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
