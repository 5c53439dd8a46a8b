"""What driver authors and adapters build on does not change by accident.

The public classes, fields, methods and functions of the author's contract and of the ports are written down in ``tests/golden/contract.txt``,
read from the source, so that the text is the same on every Python.
"""

import ast
import difflib
import os
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[3]
CORE = ROOT / "driver" / "drakit" / "core"
GOLDEN = ROOT / "tests" / "golden" / "contract.txt"
AUTHORS = (
    "driver",
    "advanced",
    "context",
    "inventory",
    "device",
    "capacity",
    "node_resources",
    "quantity",
    "claim",
    "specs",
    "claim_status",
    "edits",
    "errors",
    "slices.node_selection",
    "records",
    "names",
)
ADAPTERS = ("ports", "lifecycle", "slices.resource_slice")
HOW_TO_CHANGE = """
The author's contract or a port is not what tests/golden/contract.txt says. Drivers and adapters outside this repository build on it.

If you did not mean to change it, undo the change. If you did:
  1. UPDATE_GOLDEN=1 .venv/bin/pytest tests/unit/core/test_contract_is_frozen.py
  2. say in CHANGELOG.md what authors must do, under "Changed" (or "Added", for what has a default);
  3. write an ADR in docs/adr/ that says why.

{diff}"""


def is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__init__"


def described(module: str) -> Iterator[str]:
    """The public classes and functions of a module, one line a member."""
    for node in ast.parse(CORE.joinpath(*f"{module}.py".split(".", module.count("."))).read_text()).body:
        if isinstance(node, ast.ClassDef) and is_public(node.name):
            yield f"{marks(node)}class {module}.{node.name}({', '.join(map(ast.unparse, node.bases))})"
            yield from (f"    {line}" for line in members(node))
        elif isinstance(node, ast.FunctionDef) and is_public(node.name):
            yield f"def {module}.{signature(node)}"


def members(node: ast.ClassDef) -> Iterator[str]:
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and is_public(member.name):
            yield f"{marks(member)}def {signature(member)}"
        elif isinstance(member, ast.AnnAssign | ast.Assign) and is_public(ast.unparse(member).partition("=")[0]):
            yield ast.unparse(member)


def marks(node: ast.ClassDef | ast.FunctionDef) -> str:
    """The decorators, which decide how values are made and whether a method is owed; checks of arguments do neither."""
    return "".join(f"@{text} " for mark in node.decorator_list if (text := ast.unparse(mark)) != "arguments.checked")


def signature(node: ast.FunctionDef) -> str:
    return f"{node.name}({ast.unparse(node.args)}) -> {'?' if node.returns is None else ast.unparse(node.returns)}"


def contract() -> str:
    parts = [("What driver authors see", AUTHORS), ("What adapters implement", ADAPTERS)]
    lines = [line for title, modules in parts for line in (f"# {title}", *(line for module in modules for line in described(module)))]
    return "\n".join(lines) + "\n"


def test_the_public_contract_is_the_golden_file() -> None:
    current = contract()
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(current)
    golden = GOLDEN.read_text()
    if current != golden:
        diff = difflib.unified_diff(
            golden.splitlines(), current.splitlines(), "tests/golden/contract.txt", "driver/drakit/core", lineterm="", n=1
        )
        pytest.fail(HOW_TO_CHANGE.format(diff="\n".join(diff)), pytrace=False)


def test_the_verbs_and_the_fields_of_a_grant_are_part_of_what_is_frozen() -> None:
    text = contract()
    for wanted in (
        "    @abc.abstractmethod def discover(self) -> inventory.Inventory",
        "    @abc.abstractmethod def prepare(self, grant: Grant[Config]) -> Prepared",
        "    def unprepare(self, grant: Grant[Config]) -> None",
        "    share_id: names.ShareId | None = None",
        "class ports.Journal(Protocol)",
        "@dataclasses.dataclass(frozen=True, kw_only=True) class device.Device()",
    ):
        assert wanted in text.splitlines()
