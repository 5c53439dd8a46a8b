"""With --quiet a command writes its result and nothing else; what failed is on standard error, and the exit status says how it went."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest
import typer.core
import typer.main

from drakit.cli import app
from fakes import command_line, waits, wheels

LOGS_ONLY = {"run", "publish", "webhook"}
MACHINE = ("--mock", command_line.MACHINE)


def commands(group: typer.core.TyperGroup) -> dict[str, set[str]]:
    """The options of each command, also of those within a group."""
    made: dict[str, set[str]] = {}
    for name, command in group.commands.items():
        if isinstance(command, typer.core.TyperGroup):
            made |= {f"{name} {inner}": names for inner, names in commands(command).items()}
        else:
            made[name] = {option for parameter in command.params for option in parameter.opts}
    return made


def test_every_command_has_quiet_unless_it_only_logs() -> None:
    group = typer.main.get_command(app.app)
    assert isinstance(group, typer.core.TyperGroup)
    without = {name for name, options in commands(group).items() if not {"--quiet", "-q"} <= options}
    assert without == LOGS_ONLY


def test_doctor_leaves_out_what_is_well(shell: command_line.CommandLine) -> None:
    folder = str(shell.folder / ("x" * 90))  # too long for sockets, which fails the check
    node = ("--node", "node-1", "--folder", folder, "--set", "node.pod_uid=0f0f0f0f-0000-4000-8000-000000000000")
    loud, quiet = (shell.run("doctor", "--no-api", *MACHINE, *node, *more) for more in ((), ("-q",)))
    assert loud.status == quiet.status
    assert {line.split()[0] for line in quiet.out.splitlines()} == {"failed", "unknown", "warning", "fix:"}
    assert set(quiet.out.splitlines()) < set(loud.out.splitlines())


def test_quiet_omits_remarks_and_keeps_errors(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    loud, quiet = (shell.run("slices", *MACHINE, "-o", "json", *more) for more in ((), ("-q",)))
    assert (loud.status, quiet.status, quiet.err, quiet.out) == (0, 0, "", loud.out)
    assert "bytes" in loud.err
    missing = shell.run("lint", str(tmp_path / "none.yaml"), "--quiet")
    assert (missing.status, missing.out) == (2, "")
    assert "none.yaml" in missing.err


def test_prepare_shows_the_devices_and_not_where_their_files_are(shell: command_line.CommandLine) -> None:
    claim = shell.claim_file(command_line.mig())
    loud, quiet = (shell.on_node("prepare", claim, *more) for more in ((), ("-q",)))
    assert (quiet.status, quiet.err) == (0, "")
    assert loud.out.startswith(quiet.out)
    assert loud.out.removeprefix(quiet.out).strip().startswith("CDI files are in ")


def test_quiet_omits_the_summary(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")
    assert "nothing was checked" in shell.run("lint", str(file)).out
    assert shell.run("lint", str(file), "--quiet") == command_line.Result(status=0, out="", err="")
    made = shell.run("new", str(tmp_path / "fpga"), "--name", "fpga.example.com", "--drakit", str(wheels.built().drakit), "-q")
    assert made == command_line.Result(status=0, out="", err="")


@pytest.mark.parametrize("words, start, end", [(("cluster",), "", "kubeconfig"), (("dashboard", *MACHINE), "http://127.0.0.1:", "")])
def test_a_command_that_serves_writes_one_line_for_scripts(tmp_path: pathlib.Path, words: tuple[str, ...], start: str, end: str) -> None:
    command = [sys.executable, "-m", "drakit", *words, "--quiet"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    ) as up:
        assert up.stdout is not None
        line = up.stdout.readline().rstrip("\n")
        up.send_signal(signal.SIGINT)
        rest, problems = up.communicate(timeout=waits.SECONDS)
    assert line.startswith(start)
    assert line.endswith(end)
    assert (rest, problems, up.returncode) == ("", "", 0)
