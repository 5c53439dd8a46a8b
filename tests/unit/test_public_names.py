"""The door for driver authors: exactly the promised names, each importable, each documented."""

import inspect
import pathlib
import subprocess
import sys
import tomllib

import pytest

import drakit

ROOT = pathlib.Path(__file__).parents[2]


def test_every_public_name_is_importable_and_documented() -> None:
    for name in drakit.__all__:
        value = getattr(drakit, name)
        if inspect.isclass(value):
            assert value.__doc__, name


def test_nothing_else_is_public() -> None:
    modules = {name for name, value in vars(drakit).items() if inspect.ismodule(value)}
    shown = {name for name in vars(drakit) if not name.startswith("_")} - modules
    assert shown == set(drakit.__all__)


@pytest.mark.parametrize(
    "module, unneeded",
    [
        ("drakit", "grpc kubernetes pydantic sqlite3 typer yaml"),
        ("drakit.testing", "grpc kubernetes prometheus_client pydantic typer urllib3 yaml"),
    ],
)
def test_an_import_loads_no_library_that_it_does_not_need(module: str, unneeded: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {unneeded.split()} if name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_every_module_is_public_or_forbidden_to_families() -> None:
    """The contract of import-linter lists what is forbidden, so a new internal module must be added to it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (forbidden,) = [one["forbidden_modules"] for one in contracts if one["name"] == "Device families stand on the door that authors use"]
    package = pathlib.Path(drakit.__file__).parent
    modules = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/__init__.py")}
    internal = {name.removeprefix("drakit.") for name in forbidden if name.startswith("drakit.")}
    assert modules - internal == {"__init__", "__main__", "machines", "mountinfo", "numa", "pci", "settings", "tables", "vfio", "wire"}
