"""The Python code of the documentation passes mypy in strict mode, and every driver in it keeps the author's contract."""

import contextlib
import functools
import importlib
import inspect
import os
import pathlib
import re
import subprocess
import sys
import typing
from collections.abc import Iterator

import pytest

import drakit
from drakit import testing
from fakes import examples, wheels
from unit.docs import markdown

SHOWN = {page: [block for block in markdown.blocks(page) if block.language == "python"] for page in markdown.committed()}
FILES = {block.value: block.text for blocks in SHOWN.values() for block in blocks if block.mark == "file"}
RUN = [command.line for page in SHOWN for block in markdown.blocks(page) if block.mark == "run" for command in markdown.commands(block)]


def checked(text: str, name: str) -> Iterator[tuple[str, str]]:
    """The drivers that a program checks, each with the file that defines it."""
    for driver in re.findall(r"check_driver\((?:lambda: )?(\w+)", text):
        imported = re.search(rf"^from (\w+) import .*\b{driver}\b", text, re.MULTILINE)
        yield f"{imported[1]}.py" if imported else name, driver


CHECKED = {driver for name, text in FILES.items() if any(f"python {name}" in line for line in RUN) for driver in checked(text, name)}
"""What programs check that test_shown_output_is_real runs."""
DRIVERS = sorted(
    name
    for name, text in FILES.items()
    if "/" not in name and {(name, kind) for kind in re.findall(r"^class (\w+)\(.*drakit\.Driver\[", text, re.MULTILINE)} - CHECKED
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with every Python file of the documentation."""
    made = tmp_path_factory.mktemp("shown")
    for name, text in FILES.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    return made


def test_every_python_block_of_the_documentation_is_a_file_of_its_own() -> None:
    loose = [
        f"{markdown.name(page)}: {block.text.splitlines()[0]}" for page, blocks in SHOWN.items() for block in blocks if not block.value
    ]
    assert not loose, "mark the block <!-- file: NAME.py -->, and let it be whole"
    assert len(FILES) == sum(map(len, SHOWN.values())), "two blocks have one name"


def test_every_python_file_of_the_documentation_passes_mypy_strict(folder: pathlib.Path, mypy_cache: pathlib.Path) -> None:
    command = [sys.executable, *wheels.strict_mypy(mypy_cache), "--explicit-package-bases", *FILES]
    packages = {name.partition("/")[0] for name in FILES if "/" in name}
    places = os.pathsep.join([str(folder), *(str(folder / package) for package in packages)])
    done = subprocess.run(command, cwd=folder, env={**os.environ, "MYPYPATH": places}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", DRIVERS)
def test_every_driver_of_the_documentation_keeps_its_contract(name: str, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    drivers = list(drivers_of(name))
    every = 5 if examples.FULL else examples.draw(name).randint(50, 100)
    assert drivers
    for kind in drivers:
        hardware = hardware_of(kind)
        report = testing.check_driver(functools.partial(kind, *hardware), hardware=functools.partial(repr, hardware), every=every)
        assert report.count(drakit.Verdict.OK) > 10


def test_the_inventory_of_the_page_about_mixins_is_a_valid_one(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    shown = importlib.import_module("mixins").inventory
    assert shown.mixins
    assert not shown.flat().mixins


def test_the_tutorials_driver_is_checked_by_the_tutorials_own_test() -> None:
    assert "testing.check_driver(" in FILES["lamp/tests/test_driver.py"]


def test_the_tutorial_replaces_the_files_that_it_counts() -> None:
    (page,) = [page for page in SHOWN if page.name == "write-a-driver.md"]
    replaced = [block.value.removeprefix("lamp/") for block in SHOWN[page]]
    named = re.search(r"you replace five files: (.+)\. Steps", page.read_text("utf-8"))
    assert named is not None
    assert sorted(re.findall(r"`(\S+)`", named[1])) == sorted(name.rpartition("/")[2] for name in replaced)
    assert len(replaced) == 5
    hello = markdown.ROOT / "examples" / "hello"
    assert [name for name in replaced if not (hello / name.replace("lamp", "hello")).exists()] == []


def drivers_of(name: str) -> Iterator[type[drakit.Driver[typing.Any]]]:
    """The drivers that a file defines; what it prints is tested elsewhere."""
    with contextlib.redirect_stdout(None):
        module = importlib.import_module(name.removesuffix(".py"))
    for kind in vars(module).values():
        if isinstance(kind, type) and issubclass(kind, drakit.Driver) and kind.__module__ == module.__name__:
            yield kind


def hardware_of(kind: type[drakit.Driver[typing.Any]]) -> list[object]:
    """Empty hardware, or default settings, as the driver's ``__init__`` takes them."""
    if "__init__" not in vars(kind):
        return []
    given = [one.annotation for one in inspect.signature(kind.__init__, eval_str=True).parameters.values() if one.name != "self"]
    return [(typing.get_origin(one) or one)() for one in given]
