"""Help teaches by example, and mistakes in a command are told apart from mistakes in what it is given."""

import importlib
import itertools
import os
import pathlib
import re
import subprocess
import sys

import pytest

import drakit
from fakes import command_line, forked_cli

APP = importlib.import_module("drakit.cli.app").app
COMMANDS = [str(command.name or command.callback.__name__) for command in APP.registered_commands]


def test_every_command_is_listed_by_help(shell: command_line.CommandLine) -> None:
    result = shell.run("--help")
    assert result.status == 0
    assert {"demo", "run", "cluster", "slices", "show", "prepare", "unprepare"} <= set(COMMANDS)
    for command in COMMANDS:
        assert re.search(rf"^\W*{command}\b", result.out, re.MULTILINE), command


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_an_example_of_it(shell: command_line.CommandLine, command: str) -> None:
    result = shell.run(command, "--help")
    assert result.status == 0
    _, _, examples = result.out.partition("Examples")
    assert re.search(rf"\bdrakit {command}\b", examples), result.out


def test_examples_survive_the_markup_of_help(shell: command_line.CommandLine) -> None:
    assert "nic.include='[eth1, eth2]'" in " ".join(shell.run("slices", "--help").out.replace("│", "").split())


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_examples_of_help_fit_a_terminal_of_80_columns(
    shell: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, _, examples = re.split("(Examples|Start here)", shell.run(*command.split(), "--help").out, maxsplit=1)
    for line in filter(None, map(str.strip, examples.partition("╭")[0].splitlines())):
        assert line.startswith(("drakit ", "kubectl ", "cd ")), line


def test_the_version_is_that_of_the_package(shell: command_line.CommandLine) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", shell.run("--version").out)


def test_python_knows_the_version_too(shell: command_line.CommandLine) -> None:
    assert shell.run("--version").out == f"{drakit.__version__}\n"
    with pytest.raises(AttributeError, match="module 'drakit' has no attribute 'version'"):
        _ = drakit.version  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "words, completed",
    [
        ("drakit free --li", ["--live"]),
        ("drakit show --mock dgx-h", ["dgx-h100"]),
        ("drakit plan --buy server-a", ["server-a30"]),
    ],
)
def test_a_shell_completes_options_and_machines(commands: forked_cli.Commands, words: str, completed: list[str]) -> None:
    ran = commands.run(environment={**os.environ, **completion(words)})
    assert ran.stdout.split() == completed, ran.stderr


def test_a_shell_completes_commands_of_the_program() -> None:
    program = pathlib.Path(sys.executable).parent / "drakit"
    ran = subprocess.run([program], env={**os.environ, **completion("drakit si")}, capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["simulate"], ran.stderr


def completion(words: str) -> dict[str, str]:
    """Return what a shell sets to complete the last of these words."""
    return {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_DRAKIT_COMPLETE": "complete_bash"}


@pytest.mark.parametrize(
    "arguments", [("frobnicate",), ("show", "--frobnicate"), ("prepare",), ("show", "--node"), ("slices", "--form", "round")]
)
def test_a_wrong_command_line_shows_the_usage_and_exits_with_status_2(shell: command_line.CommandLine, arguments: tuple[str, ...]) -> None:
    result = shell.run(*arguments)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("Usage: drakit ")
    assert "Value error" not in result.err, "the words of a library"


def test_a_misspelt_command_gets_the_nearest_name(shell: command_line.CommandLine) -> None:
    result = shell.run("slicez")
    assert result.status == 2
    assert "Did you mean 'slices'?" in result.err


@pytest.mark.parametrize("command", COMMANDS)
def test_paragraphs_of_help_fill_their_lines(shell: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in shell.run(command, "--help").out.partition("Examples")[0].splitlines()]
    for line, following in itertools.pairwise(lines):
        if line and following and not line.startswith(("Usage", "drakit")):
            assert len(line) + 1 + len(following.split()[0]) > 78, line
