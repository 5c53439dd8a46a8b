"""A node's image has no tools: their commands say what to install, and the others work."""

import os
import pathlib
import subprocess
import sys

import pytest

from drakit import extras
from fakes import waits

WITHOUT = """
import importlib.metadata as metadata, sys
found = metadata.entry_points
def hidden(**chosen):
    return () if chosen.get("group") == "drakit.commands" else found(**chosen)
metadata.entry_points = hidden
sys.argv = ["drakit", *sys.argv[1:]]
import drakit_command
drakit_command.main()
"""


def drakit(*words: str, state: pathlib.Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_STATE_HOME": str(state), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *words], env=environment, capture_output=True, text=True, check=False, timeout=waits.SECONDS
    )


@pytest.mark.parametrize("words", [("lint", "claims.yaml"), ("allocate", "--why", "-f", "x.yaml"), ("new", "fpga", "--name", "a.example")])
def test_a_command_of_missing_tools_says_what_to_install(tmp_path: pathlib.Path, words: tuple[str, ...]) -> None:
    ran = drakit(*words, state=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"drakit: drakit {words[0]} is not installed; run: {extras.command('tools')}\n"


def test_the_commands_of_a_node_need_no_tools(tmp_path: pathlib.Path) -> None:
    assert "gpu.drakit.dev" in drakit("show", "--mock", "dgx-a100-40gb-2gpu", state=tmp_path).stdout
    listed = drakit("--help", state=tmp_path)
    assert listed.returncode == 0
    assert "unprepare" in listed.stdout
    assert "lint" not in listed.stdout


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("journal", "show")])
def test_a_tool_that_cannot_be_loaded_does_not_stop_other_commands(tmp_path: pathlib.Path, words: tuple[str, ...]) -> None:
    metadata = tmp_path / "site" / "broken-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[drakit.commands]\nbroken = broken_module:command\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "XDG_STATE_HOME": str(tmp_path)}
    run = [sys.executable, "-m", "drakit"]
    mock = ("--mock", "dgx-a100-40gb") if words[0] == "journal" else ()
    for more, status in ((words, 0), (("broken",), 2)):
        given = (*more, *mock) if more == words else more
        ran = subprocess.run([*run, *given], env=environment, capture_output=True, text=True, check=False, timeout=waits.SECONDS)
        assert (ran.returncode, "Traceback" in ran.stderr) == (status, False), ran.stderr
    assert "cannot load broken_module:command of broken: ModuleNotFoundError" in ran.stderr
