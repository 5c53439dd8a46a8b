"""Console blocks marked ``<!-- run -->`` are run, and must print what is shown.

The blocks of one page share a folder and a home of their own. A block marked ``<!-- file: NAME -->`` is written first. ``...`` stands for any lines;
``<!-- run: exit 1 -->`` is for a command that fails. Trailing spaces do not count.
"""

import itertools
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import pytest

from fakes import forked_cli, waits
from unit.docs import markdown

RUNNABLE = [page for page in markdown.committed() if any(block.mark == "run" for block in markdown.blocks(page))]
HOME_SHOWN = "/home/you"
ELLIPSIS = "..."


def environment(folder: pathlib.Path, fast: pathlib.Path, commands: forked_cli.Commands) -> dict[str, str]:
    """A clean environment in which nothing can be written outside of the folder, with a ``drakit`` and a ``python`` in ``fast`` that start fast."""
    commands.script(fast)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DRAKIT_", "XDG_", "PYTHONUNBUFFERED"))}
    places = {name: str(folder / "system" / name.lower()) for name in ("PLUGINS_DIR", "REGISTRY_DIR", "CDI_DIR")}
    scripts = pathlib.Path(sys.executable).parent
    return {
        **kept,
        **{f"DRAKIT_NODE__{name}": place for name, place in places.items()},
        "HOME": str(folder / "home"),
        "PATH": f"{fast}:{scripts}:{os.environ['PATH']}",
        "NO_COLOR": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def run(line: str, folder: pathlib.Path, variables: dict[str, str]) -> tuple[int, list[str]]:
    """Exit status and lines of a command, as a reader would see them."""
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=waits.SECONDS,
        check=False,
    )
    return done.returncode, [normal(text.replace(variables["HOME"], HOME_SHOWN)) for text in done.stdout.splitlines()]


def normal(line: str) -> str:
    return line.rstrip()


def agrees(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether the shown lines are the printed ones, any number of lines left out at each ellipsis."""
    if not shown:
        return not printed
    if shown[0] == ELLIPSIS:
        return any(agrees(shown[1:], printed[start:]) for start in range(len(printed) + 1))
    same = list(itertools.takewhile(lambda line: line != ELLIPSIS, shown))
    return list(printed[: len(same)]) == same and agrees(shown[len(same) :], printed[len(same) :])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", RUNNABLE, ids=markdown.name)
def test_every_command_prints_what_the_page_shows(
    page: pathlib.Path, commands: forked_cli.Commands, tmp_path: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    variables = environment(tmp_path, tmp_path_factory.mktemp("bin"), commands)
    pathlib.Path(variables["HOME"]).mkdir()
    for block in markdown.blocks(page):
        if block.mark == "file":
            (tmp_path / block.value).write_text(block.text)
        if block.mark != "run":
            continue
        wanted = int(block.value.removeprefix("exit ") or "0")
        for command in markdown.commands(block):
            if command.line.startswith("export "):
                key, _, value = command.line.removeprefix("export ").partition("=")
                variables[key] = value
                continue
            status, printed = run(command.line, tmp_path, variables)
            shown = [normal(line) for line in command.output]
            assert (status, agrees(shown, printed)) == (wanted, True), "\n".join([f"$ {command.line}", *printed])


def test_the_pages_that_teach_commands_are_run() -> None:
    names = {markdown.name(page) for page in RUNNABLE}
    assert {"docs/tutorial/first-claim.md", "docs/howto/run-without-kubernetes.md", "docs/explanation/mixins.md"} <= names


@pytest.mark.parametrize(
    "shown, printed", [("a b", "a b"), ("... b", "a b"), ("a ...", "a b c"), ("a ... b c", "a b x b c"), ("a ... c", "a c")]
)
def test_lines_may_be_left_out_at_an_ellipsis(shown: str, printed: str) -> None:
    assert agrees(shown.split(), printed.split())


@pytest.mark.parametrize("shown, printed", [("a b", "a b c"), ("a b", "a c"), ("a ... x", "a b c"), ("... b", "a b c"), ("", "a")])
def test_a_difference_would_be_noticed(shown: str, printed: str) -> None:
    assert not agrees(shown.split(), printed.split())
