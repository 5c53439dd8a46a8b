"""The rules of CONTRIBUTING.md that no linter holds."""

import ast
import pathlib
import re
import statistics

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "driver" / "drakit"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "_proto" not in path.parts)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(PACKAGE))


def functions(tree: ast.Module) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def length(node: Function) -> int:
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_are_short_and_say_what_they_are_for(path: pathlib.Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 400
    assert ast.get_docstring(parsed(path)), "a module docstring states the job and the invariants"


def test_functions_are_short() -> None:
    lengths = {f"{name_of(path)}:{node.name}": length(node) for path in MODULES for node in functions(parsed(path))}
    assert {name: lines for name, lines in lengths.items() if lines > 60} == {}
    assert statistics.median(lengths.values()) < 10


def test_what_varies_in_a_log_line_is_a_key() -> None:
    found = set()
    for path in MODULES:
        calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        for call in calls:
            if ast.unparse(call.func).startswith("_log.") and (len(call.args) != 1 or isinstance(call.args[0], ast.JoinedStr)):
                found.add(f"{name_of(path)}:{call.lineno}")
    assert found == set()


def test_no_comment_is_a_banner_or_code() -> None:
    for path in MODULES:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            assert not re.match(r"\s*#\s*[-=*#]{4,}", line), f"{name_of(path)}:{number} is a banner"
