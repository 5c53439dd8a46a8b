"""No text of API objects or files reaches the terminal as more than text, through whatever command, nor through the log."""

import contextlib
import os
import pathlib
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Protocol

import pytest
import yaml

from fakes import command_line, forked_cli, waits

# Colours, the title of the window, the cursor, a forged line, bidirectional and zero-width characters, C1 controls, a bell.
HOSTILE = "x\x1b[31;8mHIDDEN\x1b]0;title\x07\x1b[2J\rforged\x9b1m\u202egnp\u2066\u200b\x08"
SAFE = re.compile(r"[\n\t\x20-\x7e\u00a1-\uffff]*")
UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


class Run(Protocol):
    """Runs a command and returns all that it writes."""

    def __call__(self, *arguments: str, folder: pathlib.Path, status: Sequence[int] = (0, 1, 2)) -> str:
        """Run it in a folder; fails on another exit status than these."""


@pytest.fixture
def run(commands: forked_cli.Commands) -> Run:
    def run(*arguments: str, folder: pathlib.Path, status: Sequence[int] = (0, 1, 2)) -> str:
        environment = os.environ | {"COLUMNS": "300", "XDG_STATE_HOME": str(folder / "state")}
        ran = commands.run(*arguments, folder=folder, environment=environment)
        assert ran.returncode in status, ran.stderr
        return ran.stdout + ran.stderr

    return run


def assert_harmless(written: str) -> None:
    assert SAFE.fullmatch(written), repr(written)
    assert not UNSEEN.search(written), repr(written)


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Sequence[str]:
    return ("--mock", command_line.MACHINE, "--node", "node-1", "--folder", str(tmp_path / "node"))


def claim(folder: pathlib.Path, **fields: object) -> str:
    shell = command_line.CommandLine(run=lambda *_: command_line.Result(status=0, out="", err=""), folder=folder)
    config = [{"source": "FromClaim", "opaque": {"driver": "gpu.drakit.dev", "parameters": fields}}] if fields else []
    return shell.claim_file(command_line.mig(), config=config)


@pytest.mark.parametrize("level", ["error", "debug"])
def test_prepare_escapes_text_of_a_claims_parameters(run: Run, tmp_path: pathlib.Path, node: Sequence[str], level: str) -> None:
    path = claim(tmp_path, apiVersion="gpu.drakit.dev/v1", kind="MigConfig", **{HOSTILE: HOSTILE})
    written = run("prepare", path, *node, "--set", f"log.level={level}", folder=tmp_path, status=(1,))
    assert_harmless(written)
    assert "HIDDEN" in written


@pytest.mark.parametrize("field", ["name", "namespace", "uid"])
def test_prepare_escapes_the_name_of_a_claim(run: Run, tmp_path: pathlib.Path, node: Sequence[str], field: str) -> None:
    path = pathlib.Path(claim(tmp_path))
    content = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    content["metadata"][field] = HOSTILE
    path.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper))
    assert_harmless(run("prepare", str(path), *node, folder=tmp_path, status=(2,)))


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_prepare_and_show_escape_a_request(run: Run, tmp_path: pathlib.Path, node: Sequence[str], form: str) -> None:
    path = command_line.CommandLine(run=lambda *_: command_line.Result(status=0, out="", err=""), folder=tmp_path).claim_file(
        command_line.mig(request=HOSTILE)
    )
    assert_harmless(run("prepare", path, *node, "-o", form, folder=tmp_path))
    assert_harmless(run("show", *node, "-o", form, folder=tmp_path))
    assert_harmless(run("journal", "show", *node, "-o", form, folder=tmp_path))


def manifests(folder: pathlib.Path) -> str:
    """A file with hostile text wherever a manifest may have text."""
    objects = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "default", "labels": {HOSTILE: HOSTILE}},
            "spec": {"devices": {"requests": [{"name": HOSTILE, "exactly": {"deviceClassName": HOSTILE, HOSTILE: 1}}]}, HOSTILE: HOSTILE},
        }
        for kind in ("ResourceClaim", "ResourceClaimTemplate", HOSTILE)
        for name in ("claim", HOSTILE)
    ]
    path = folder / "objects.yaml"
    path.write_text(yaml.dump_all(objects, Dumper=yaml.CSafeDumper))
    return str(path)


@pytest.mark.parametrize("command", [("lint",), ("allocate",)], ids=["lint", "allocate"])
def test_lint_and_allocate_escape_text_of_manifests(run: Run, tmp_path: pathlib.Path, command: Sequence[str]) -> None:
    written = run(*command, manifests(tmp_path), folder=tmp_path)
    assert_harmless(written)
    assert "HIDDEN" in written


def test_a_files_name_is_escaped_in_errors(run: Run, tmp_path: pathlib.Path, node: Sequence[str]) -> None:
    assert_harmless(run("prepare", "none\x1b[31m\u202e.yaml", *node, folder=tmp_path, status=(1, 2)))
    assert_harmless(run("lint", "none\x1b[31m\u202e.yaml", folder=tmp_path, status=(1, 2)))
    assert_harmless(run("no\x1b[31m\u202ecommand", folder=tmp_path, status=(1, 2)))


def test_on_a_terminal_the_only_control_sequences_are_drakits_own(tmp_path: pathlib.Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "drakit", "lint", manifests(tmp_path)]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment, cwd=tmp_path) as lint:
        os.close(theirs)
        written = b""
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 1 << 16):
                written += piece
        assert lint.wait(waits.SECONDS) == 1
    os.close(ours)
    text = written.decode().replace("\r\n", "\n")
    assert "HIDDEN" in text
    assert "\x1b[31;8m" not in text
    assert_harmless(re.sub(r"\x1b\[[0-9;]*m", "", text))


def test_a_table_on_a_terminal_has_its_colours_and_no_others() -> None:
    code = (
        "from drakit.cli import output, terminal\n"
        "with terminal.escaped_output():\n"
        f"    output.put(output.console(), output.table('', ('name',), [({HOSTILE!r},)]))\n"
        f"    output.console().print({HOSTILE!r}, markup=False)\n"
        f"    print({HOSTILE!r})\n"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stdout=theirs, env=os.environ | {"TERM": "xterm", "COLUMNS": "300"}) as shown:
        os.close(theirs)
        written = b""
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 1 << 16):
                written += piece
        assert shown.wait(waits.SECONDS) == 0
    os.close(ours)
    text = written.decode().replace("\r\n", "\n")
    assert text.startswith("\x1b[1mname")
    assert text.count("HIDDEN") == 3
    assert_harmless(text.replace("\x1b[1m", "").replace("\x1b[0m", ""))
