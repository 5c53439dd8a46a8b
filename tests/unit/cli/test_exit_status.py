"""Every command ends with a status of one table, and the page has it."""

import pathlib
import re
from collections.abc import Mapping

import pytest

from drakit import exits
from drakit.cli import app, tools
from fakes import command_line

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "reference" / "exit-status.md"
UNKNOWN_SETTING = ("--set", "node.nam=x")
BAD_INPUT: Mapping[str, tuple[str, ...]] = {
    "allocate": ("/no/such.yaml",),
    "cluster": ("--gate", "Teleport=true"),
    "dashboard": UNKNOWN_SETTING,
    "demo": ("--folder", "/proc/x"),
    "doctor": ("--no-api", *UNKNOWN_SETTING),
    "free": ("--mock", "pdp-11"),
    "journal": ("show", *UNKNOWN_SETTING),
    "lint": ("/no/such.yaml",),
    "new": ("lamp", "--name", "lamp.example.com", "--drakit", "/no/such.whl"),
    "plan": ("--move", "--ask", "gpu=1:x"),
    "prepare": ("/no/such.yaml",),
    "publish": ("no-such-family",),
    "run": UNKNOWN_SETTING,
    "show": UNKNOWN_SETTING,
    "simulate": ("--mock", "pdp-11"),
    "slices": UNKNOWN_SETTING,
    "top": ("/no/such.json",),
    "uninstall-node": UNKNOWN_SETTING,
    "unprepare": ("no-uid",),
    "webhook": UNKNOWN_SETTING,
}
"""By command: input that it cannot use."""
COMMANDS = {*app.COMMANDS, *tools.KNOWN}


def rows(column: int) -> list[str]:
    """Return the code in one column of the page's tables."""
    cells = (line.split("|")[column].strip() for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| "))
    return [found[1] for cell in cells if (found := re.fullmatch(r"`([^`]+)`", cell))]


def test_the_page_has_every_command_and_every_status() -> None:
    assert {name for name in rows(1) if not name.startswith("python ")} == COMMANDS == BAD_INPUT.keys()
    assert [f"| {status.value} | `{status.name}` |" for status in exits.Exit] == re.findall(
        r"^\| \d+ \| `\w+` \|", PAGE.read_text("utf-8"), re.MULTILINE
    )


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_input_that_a_command_cannot_use_is_one_line_and_status_2(
    shell: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(shell.folder)
    ended = shell.run(command, *BAD_INPUT[command])
    assert (ended.status, ended.out) == (exits.Exit.BAD_INPUT, ""), ended.err
    assert ended.err.startswith("drakit: ")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ("doctor", "--cluster", "--kubeconfig"),
        ("free", "--kubeconfig"),
        ("allocate", "--live", "--kubeconfig"),
        ("plan", "--move", "--ask", "gpu=1", "--kubeconfig"),
    ],
)
def test_a_cluster_that_cannot_be_read_is_no_negative_answer(shell: command_line.CommandLine, command: tuple[str, ...]) -> None:
    config = shell.folder / "kubeconfig"
    config.write_text("{}")
    assert shell.run(*command, str(config)).status == exits.Exit.BAD_INPUT


def test_a_folder_that_cannot_be_written_is_bad_input_as_the_page_says(shell: command_line.CommandLine) -> None:
    names = ("drakit", "drakit_cluster", "drakit_tools")
    wheels = [shell.folder / f"{name}-0.1.0-py3-none-any.whl" for name in names]
    for wheel in wheels:
        wheel.write_bytes(b"")
    ended = shell.run("new", "/proc/lamp", "--name", "lamp.example.com", "--drakit", str(wheels[0]))
    assert ended.status == exits.Exit.BAD_INPUT
    assert "cannot write /proc/lamp" in ended.err
    assert re.search(r"^\| `new` \| Not used: ", PAGE.read_text("utf-8"), re.MULTILINE)


def test_doctor_does_not_examine_a_machine_that_there_is_not(shell: command_line.CommandLine) -> None:
    ended = shell.run("doctor", "--no-api", "--mock", "dgx-a100-40gb-3gpu")
    assert (ended.status, ended.out) == (exits.Exit.BAD_INPUT, "")
    assert "dgx-a100-40gb-2gpu" in ended.err


def test_an_answer_of_no_is_status_1(shell: command_line.CommandLine) -> None:
    fits = ("plan", "--quiet", "--mock", "server-a30", "--move", "--ask")
    assert shell.run(*fits, "mig=1g.6gb:2").status == exits.Exit.OK
    assert shell.run(*fits, "mig=4g.24gb:5").status == exits.Exit.NEGATIVE
