"""The rules of CONTRIBUTING.md that no linter holds."""

import ast
import pathlib
import re
import statistics

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = (ROOT / "driver" / "drakit", ROOT / "cluster" / "drakit_cluster")
MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py") if "_proto" not in path.parts)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


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


def log_calls(path: pathlib.Path) -> list[ast.Call]:
    calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return [call for call in calls if ast.unparse(call.func).startswith("_log.")]


def log_keys(call: ast.Call) -> set[str]:
    """The keys of a line: of the standard library's loggers those in ``extra``, also where a function adds to those that it is given."""
    keys = {keyword.arg for keyword in call.keywords if keyword.arg}
    extras = [keyword.value for keyword in call.keywords if keyword.arg == "extra"]
    for extra in extras:
        if isinstance(extra, ast.Dict):
            keys |= {key.value for key in extra.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        elif isinstance(extra, ast.Call):
            keys |= log_keys(extra)
    return keys


def test_what_varies_in_a_log_line_is_a_key() -> None:
    found = {
        f"{name_of(path)}:{call.lineno}"
        for path in MODULES
        for call in log_calls(path)
        if len(call.args) != 1 or isinstance(call.args[0], ast.JoinedStr)
    }
    assert found == set()


LOG_KEYS = {
    "claim_uid": ("uid",),
    "retry_in_s": ("retry_seconds", "retry_in", "retry_after"),
    "duration_ms": ("seconds", "elapsed", "took", "duration", "duration_s", "milliseconds"),
    "path": ("file", "filename", "directory", "folder", "socket"),
    "interface": ("nic", "link", "ifname"),
    "error": ("err", "exc"),
}
"""The keys of docs/howto/log.md, and other names of each."""


def test_one_thing_has_one_key_in_every_log_line() -> None:
    keys = {name: key for key, names in LOG_KEYS.items() for name in names}
    found = {
        f"{name_of(path)}:{call.lineno}: {name} is {keys[name]}"
        for path in MODULES
        for call in log_calls(path)
        for name in log_keys(call) & keys.keys()
    }
    assert found == set()


def test_no_comment_is_a_banner_or_code() -> None:
    for path in MODULES:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            assert not re.match(r"\s*#\s*[-=*#]{4,}", line), f"{name_of(path)}:{number} is a banner"
