"""What device families and drivers' authors log is on a real process's standard error, with its fields, at the level asked for."""

import json
import os
import pathlib

import pytest

from fakes import command_line, forked_cli

UID = command_line.UID
PACKAGE = {
    "__init__": "",
    "__main__": """
import drakit
from acme_boards import driver

if __name__ == "__main__":
    drakit.run(driver.Boards)
""",
    "driver": """
import logging
import drakit

_log = drakit.get_logger(__name__)
_standard = logging.getLogger(__name__)
_library = logging.getLogger("some_library")


class Unwritable:
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


class Boards(drakit.Driver):
    name = "boards.example.com"

    def discover(self):
        _log.debug("boards counted", boards=1)
        _standard.debug("boards counted again", extra={"boards": 1})
        _library.info("library chats")
        _library.warning("library %s", "warns")
        return drakit.Inventory.of([drakit.Device(name="board-0")])

    def prepare(self, grant):
        _log.info("board opened", device=grant.device.name, level="own", path="/dev/board \\x1b[31m0")
        _standard.info("board opened again", extra={"device": grant.device.name, "event": "own"})
        _standard.info("bad %d", "arguments")
        _log.info("bad field", path=Unwritable())
        _standard.info("bad field again", extra={"path": Unwritable()})
        try:
            raise OSError("no such board")
        except OSError:
            _log.exception("board lost", device=grant.device.name)
        return drakit.Prepared(edits=drakit.Edits(env={"BOARD": "0"}))

    def unprepare(self, grant):
        pass
""",
}


@pytest.fixture
def program(tmp_path: pathlib.Path) -> pathlib.Path:
    package = tmp_path / "acme_boards"
    package.mkdir()
    for name, text in PACKAGE.items():
        (package / f"{name}.py").write_text(text)
    return tmp_path


def stderr_of_prepare(commands: forked_cli.Commands, folder: pathlib.Path, *, level: str, style: str) -> str:
    """What the author's own program writes on standard error while it prepares a claim."""
    claim = command_line.CommandLine(run=lambda *_: command_line.Result(status=0, out="", err=""), folder=folder).claim_file(
        {"request": "r", "driver": "boards.example.com", "pool": "node-1", "device": "board-0"}
    )
    settings = ["--set", f"log.level={level}", "--set", f"log.format={style}"]
    words = ["-m", "acme_boards", "prepare", claim, "--node", "node-1", "--folder", str(folder / "node"), *settings]
    ran = commands.run(*words, folder=folder, environment=os.environ | {"COLUMNS": "200"}, program="python")
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


def events(stderr: str) -> dict[str, dict[str, object]]:
    return {line["event"]: line for line in map(json.loads, stderr.splitlines())}


def test_an_authors_debug_and_info_are_json_lines_with_their_keys_and_the_claims(
    commands: forked_cli.Commands, program: pathlib.Path
) -> None:
    lines = events(stderr_of_prepare(commands, program, level="debug", style="json"))
    counted = {"level": "debug", "logger": "acme_boards.driver", "boards": 1}
    assert counted.items() <= lines["boards counted"].items()
    assert counted.items() <= lines["boards counted again"].items()
    opened = {
        "level": "info",
        "device": "board-0",
        "claim": "default/claim",
        "claim_uid": UID,
        "level_": "own",
        "path": "/dev/board \x1b[31m0",
    }
    assert opened.items() <= lines["board opened"].items()
    assert {"device": "board-0", "claim_uid": UID, "event_": "own"}.items() <= lines["board opened again"].items()
    assert lines["library warns"]["level"] == "warning"
    assert "library chats" not in lines
    assert {"level": "error", "device": "board-0"}.items() <= lines["board lost"].items()
    assert "OSError: no such board" in str(lines["board lost"]["exception"])


def test_a_line_that_cannot_be_written_is_named_and_its_caller_goes_on(commands: forked_cli.Commands, program: pathlib.Path) -> None:
    lines = events(stderr_of_prepare(commands, program, level="info", style="json"))
    assert "TypeError" in str(lines["bad %d"]["error"])
    assert "RuntimeError: no text" in str(lines["bad field"]["error"])
    assert "RuntimeError: no text" in str(lines["bad field again"]["error"])
    assert "boards counted" not in lines


def test_the_console_format_has_the_same_keys(commands: forked_cli.Commands, program: pathlib.Path) -> None:
    written = stderr_of_prepare(commands, program, level="info", style="console")
    [opened] = [line for line in written.splitlines() if "board opened " in line and "again" not in line]
    assert "device=board-0" in opened
    assert f"claim_uid={UID}" in opened
    assert "boards counted" not in written
    assert "library chats" not in written
    assert "no such board" in written
    assert "\x1b" not in written
    assert "\\u001b[31m0" in opened


def test_only_errors_are_written_where_only_errors_are_asked_for(commands: forked_cli.Commands, program: pathlib.Path) -> None:
    assert list(events(stderr_of_prepare(commands, program, level="error", style="json"))) == ["board lost"]
