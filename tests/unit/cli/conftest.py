"""The command line, run in this process."""

import functools
import json
import pathlib
import sys
from collections.abc import Callable

import pytest
import yaml

import drakit_command
from drakit.cli import app
from fakes import command_line, forked_cli


@pytest.fixture(scope="session")
def published(commands: forked_cli.Commands, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """What ``drakit slices`` writes of the GPUs of a mock node, or of ``families``, as YAML; made once for each machine and settings."""

    @functools.cache
    def of(machine: str, *settings: str, families: tuple[str, ...] = ("--family", "gpu")) -> str:
        node = ("--mock", machine, "--node", "node-1", "--folder", str(tmp_path_factory.mktemp("node") / "node"))
        ran = commands.run("slices", *families, "-o", "yaml", *settings, *node)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return of


@pytest.fixture(scope="session")
def published_json(published: Callable[..., str]) -> Callable[..., str]:
    """The same with an object of JSON in each line, after objects of YAML: drakit reads JSON in a tenth of the time."""

    @functools.cache
    def of(machine: str, *settings: str, families: tuple[str, ...] = ("--family", "gpu"), before: str = "") -> str:
        objects = yaml.load_all(f"{before}\n---\n{published(machine, *settings, families=families)}", Loader=yaml.CSafeLoader)
        return "".join(f"{json.dumps(written)}\n" for written in objects if written)

    return of


@pytest.fixture
def shell(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> command_line.CommandLine:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> command_line.Result:
        monkeypatch.setattr(sys, "argv", ["drakit", *arguments])
        capsys.readouterr()
        try:
            app.main(drakit_command.Interrupts("drakit"))
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
        written = capsys.readouterr()
        return command_line.Result(status=status, out=written.out, err=written.err)

    return command_line.CommandLine(run=run, folder=tmp_path)
