"""A command starts without the modules of the other commands, and without the libraries that only some runs of it need."""

import pathlib
import subprocess
import sys

import pytest

from fakes import command_line, waits

RUN = """
import atexit, sys
from drakit_command import main
atexit.register(lambda: print("\\n".join(sys.modules), file=sys.stderr))
main()
"""
LIBRARIES = {"grpc", "kubernetes", "prometheus_client", "urllib3"}


def loaded(*arguments: str) -> set[str]:
    ran = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, timeout=waits.SECONDS, check=True)
    return set(ran.stderr.splitlines())


@pytest.mark.parametrize("command, module", [("journal", "drakit.cli.commands.journal"), ("new", "drakit_tools.commands.new")])
def test_no_other_command_is_loaded(command: str, module: str) -> None:
    commands = {name for name in loaded(command, "--help") if name.startswith(("drakit.cli.commands.", "drakit_tools.commands."))}
    assert module in commands
    assert all(name.startswith(module) for name in commands)


def test_slices_of_mock_hardware_need_no_library_of_other_commands(tmp_path: pathlib.Path) -> None:
    modules = loaded("slices", "--mock", command_line.MACHINE, "--folder", str(tmp_path))
    assert "drakit_gpu.driver" in modules
    assert not LIBRARIES & modules
