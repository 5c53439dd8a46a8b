"""What another user made, or could change, is not used; and no file or folder makes a traceback or a hang."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise

import pytest

from fakes import command_line, forked_cli, waits

DRAKIT = [sys.executable, "-m", "drakit"]
NOBODY = 65534
POD = b"{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}"
ONE_NODE = ("--mock", "dgx-a100-40gb-2gpu")


def in_one_line(ended: command_line.Result) -> str:
    assert ended.status in (1, 2), ended
    assert "Traceback" not in ended.err
    assert ended.err.startswith("drakit: ")
    assert ended.err.count("\n") == 1, ended.err
    return ended.err


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make another user's folder")
@pytest.mark.parametrize("command", ["cluster", "demo", "show", "run"])
def test_a_folder_of_another_user_is_refused(shell: command_line.CommandLine, command: str) -> None:
    folder = shell.folder / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)
    mock = ONE_NODE if command in ("show", "run") else ()
    result = in_one_line(shell.run(command, "--folder", str(folder), *mock))
    assert f"{folder} belongs to user {NOBODY}, who could replace the files in it" in result


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make another user's folder")
@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_below_one_of_another_user_is_refused(shell: command_line.CommandLine, *, is_there: bool) -> None:
    theirs = shell.folder / "theirs"
    theirs.mkdir(mode=0o755)
    if is_there:
        (theirs / "mine").mkdir(mode=0o700)
    os.chown(theirs, NOBODY, NOBODY)
    assert f"{theirs} belongs to user {NOBODY}" in in_one_line(shell.run("show", *ONE_NODE, "--folder", str(theirs / "mine" / "node-1")))


@pytest.mark.parametrize("command", ["cluster", "show"])
def test_a_folder_that_others_can_write_to_is_refused_with_the_fix(shell: command_line.CommandLine, command: str) -> None:
    folder = shell.folder / "open"
    folder.mkdir()
    folder.chmod(0o777)
    mock = ONE_NODE if command == "show" else ()
    assert f"other users can write to {folder}; run: chmod go-w {folder}" in in_one_line(shell.run(command, "--folder", str(folder), *mock))


@pytest.fixture
def short() -> Iterator[pathlib.Path]:
    """A folder whose path is short enough for a node's sockets."""
    made = pathlib.Path(tempfile.mkdtemp(dir="/tmp", prefix="d-"))
    yield made
    shutil.rmtree(made)


@pytest.mark.skipif(os.geteuid() != 0, reason="/tmp belongs to root")
def test_the_fix_for_tmp_is_another_folder_not_chmod(shell: command_line.CommandLine) -> None:
    assert "other users can write to /tmp; choose a folder inside it, such as /tmp/drakit" in in_one_line(
        shell.run("cluster", "--folder", "/tmp")
    )


def test_a_lock_that_is_a_link_is_refused(shell: command_line.CommandLine, short: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (short / ".lock").symlink_to(tmp_path / "elsewhere")
    assert f"cannot use {short / '.lock'}" in in_one_line(shell.run("cluster", "--folder", str(short)))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose right to read everything is taken away")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_a_folder_that_may_not_be_read_is_named(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "good.yaml").write_bytes(POD)
    (folder / "inner").chmod(0)
    without_rights = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", *DRAKIT]
    for place in (folder, folder / "inner"):
        done = subprocess.run([*without_rights, "lint", str(place)], capture_output=True, text=True, check=False, timeout=waits.SECONDS)
        assert (done.returncode, done.stderr) == (2, f"drakit: {folder / 'inner'}: cannot be read: Permission denied\n")


FILE_COMMANDS = [("lint",), ("allocate",), ("prepare", *ONE_NODE), ("slices", "--mock"), ("show", "--config")]


@pytest.mark.parametrize("command", FILE_COMMANDS)
def test_pipes_and_devices_are_refused_at_once(shell: command_line.CommandLine, command: tuple[str, ...]) -> None:
    os.mkfifo(shell.folder / "pipe.yaml")
    assert "is a pipe" in in_one_line(shell.run(*command, str(shell.folder / "pipe.yaml")))
    assert "is a character device" in in_one_line(shell.run(*command, "/dev/zero"))


def test_pipes_in_the_folder_of_a_mock_machine_block_no_command(shell: command_line.CommandLine) -> None:
    folder = shell.folder / "node"
    folder.mkdir(mode=0o700)
    assert shell.run("show", *ONE_NODE, "--folder", str(folder)).status == 0
    made = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    assert {"machine", "boot_id", "nvidia-cuda-mps-control"} <= {path.name for path in made}
    for path in made:
        content, mode = path.read_bytes(), path.stat().st_mode
        path.unlink()
        os.mkfifo(path)
        result = shell.run("show", *ONE_NODE, "--folder", str(folder))
        assert result.status == 0 or "is a pipe" in in_one_line(result), path
        path.unlink()
        path.write_bytes(content)
        path.chmod(mode & 0o7777)


@pytest.mark.parametrize("command", [("lint", "-f"), ("allocate", "-f"), ("prepare", *ONE_NODE, "-f"), ("show", "--config")])
@pytest.mark.parametrize(
    "text", ["[" * 5_000, "{" * 300_000, '{"a":' * 5_000, "a: &a [x, x, x, x, x, x, x, x, x, x]\n"], ids=["lists", "maps", "json", "bomb"]
)
def test_hostile_texts_are_refused_in_one_line(shell: command_line.CommandLine, command: tuple[str, ...], text: str) -> None:
    if text.startswith("a: &a"):
        names = "abcdefghi"
        text += "".join(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in pairwise(names))
    file = shell.folder / "hostile.yaml"
    file.write_text(text)
    reason = in_one_line(shell.run(*command, str(file)))
    assert "nested more than 100 levels" in reason or "aliases stand for more than" in reason


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_journal_that_is_a_link_or_a_pipe_is_not_read(shell: command_line.CommandLine, kind: str) -> None:
    folder = shell.folder / "node"
    folder.mkdir(mode=0o700)
    mock = ("--mock", "dgx-a100-40gb-2gpu", "--folder", str(folder))
    assert shell.run("show", *mock).status == 0
    home = folder / "plugins" / "gpu.drakit.dev"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "journal.db").unlink(missing_ok=True)
    if kind == "link":
        (home / "journal.db").symlink_to("/dev/zero")
    else:
        os.mkfifo(home / "journal.db")
    for command in (("show",), ("journal", "show")):
        result = shell.run(*command, *mock).err
        assert "journal.db is a symbolic link" in result or "journal.db is not a regular file" in result


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_standard_stream_makes_no_traceback(closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join(DRAKIT)} --version {closed}"], capture_output=True, text=True, check=False, timeout=waits.SECONDS
    )
    assert "Traceback" not in done.stderr


def test_a_kubeconfig_that_is_a_pipe_or_too_large_is_refused(commands: forked_cli.Commands, tmp_path: pathlib.Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"

    def refused() -> str:
        done = commands.run(
            "allocate", "--live", "--kubeconfig", str(kubeconfig), "-f", "-", stdin=POD, environment=os.environ | {"COLUMNS": "200"}
        )
        return in_one_line(command_line.Result(status=done.returncode, out=done.stdout, err=done.stderr))

    os.mkfifo(kubeconfig)
    assert f"cannot use kubeconfig {kubeconfig}: is a pipe" in refused()
    kubeconfig.unlink()
    kubeconfig.write_text("[" * 5_000)
    assert "nested more than 100 levels" in refused()
