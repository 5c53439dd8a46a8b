"""The command line, run in this process."""

import pathlib
import sys

import pytest

from drakit import cli
from fakes import command_line


@pytest.fixture
def shell(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> command_line.CommandLine:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> command_line.Result:
        monkeypatch.setattr(sys, "argv", ["drakit", *arguments])
        capsys.readouterr()
        try:
            cli.main()
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
        written = capsys.readouterr()
        return command_line.Result(status=status, out=written.out, err=written.err)

    return command_line.CommandLine(run=run, folder=tmp_path)
