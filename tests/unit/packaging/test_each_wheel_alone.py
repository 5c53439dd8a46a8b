"""drakit without its other wheels: a command that needs one says what to install, and each wheel adds what it has."""

import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from drakit import exits
from fakes import demo, forked_cli, waits, wheels

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> wheels.CleanEnvironment:
    """A Python with drakit's own wheel and third-party packages."""
    made = wheels.CleanEnvironment(tmp_path_factory.mktemp("clean"))
    install(made, "drakit")
    return made


@pytest.fixture(scope="module")
def alone(clean: wheels.CleanEnvironment) -> Iterator[forked_cli.Commands]:
    """Commands of that Python."""
    with demo.short_folder() as folder:
        made = forked_cli.ForkServer(folder, python=clean.python, modules=forked_cli.NODE)
        yield made
        made.close()


def install(clean: wheels.CleanEnvironment, name: str) -> None:
    """Install a wheel with what it requires, where nothing but drakit's wheels can be found."""
    folder = wheels.built().drakit.parent
    clean.pip_install(folder, "--find-links", str(folder), name)


def drakit(clean: wheels.CleanEnvironment, folder: pathlib.Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the program that pip installed."""
    program = clean.python.parent / "drakit"
    command = [*([program] if program.exists() else [clean.python, "-m", "drakit"]), *arguments]
    return subprocess.run(command, cwd=folder, env=wheels.environment(), capture_output=True, text=True, check=False, timeout=waits.SECONDS)


def test_the_framework_is_a_program_that_needs_no_other_wheel(clean: wheels.CleanEnvironment, tmp_path: pathlib.Path) -> None:
    ran = drakit(clean, tmp_path, "--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "unprepare" in ran.stdout
    assert "lint" not in ran.stdout


@pytest.mark.parametrize("arguments", [("--version",), ("journal", "--help"), ("run", "--help")])
def test_its_commands_need_no_other_wheel(alone: forked_cli.Commands, tmp_path: pathlib.Path, arguments: tuple[str, ...]) -> None:
    ran = alone.run(*arguments, folder=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("lint", "--help"),
        ("lint", "-f", "claim.yaml"),
        ("allocate", "--why", "-f", "x.yaml"),
        ("new", "fpga", "--name", "a.example"),
        ("demo",),
        ("cluster", "--node", "n1"),
    ],
)
def test_a_tool_that_is_not_installed_says_what_to_install(
    alone: forked_cli.Commands, tmp_path: pathlib.Path, arguments: tuple[str, ...]
) -> None:
    ran = alone.run(*arguments, folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"drakit: drakit {arguments[0]} is not installed; run: pip install 'drakit[tools]'\n"


@pytest.mark.parametrize(
    "arguments", [("doctor", "--no-api"), ("show",), ("slices", "--mock", "dgx-h100"), ("run", "--node", "n1", "--folder", "node")]
)
def test_without_a_family_a_command_says_what_to_install(
    alone: forked_cli.Commands, tmp_path: pathlib.Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "node" / "plugins_registry").mkdir(parents=True)  # A kubelet has run here.
    ran = alone.run(*arguments, folder=tmp_path)
    assert ran.returncode == (exits.Exit.NEGATIVE if arguments[0] == "doctor" else exits.Exit.BAD_INPUT)
    assert "no device family is installed; run: pip install 'drakit[gpu,nic]'" in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_familys_wheel_adds_its_devices(clean: wheels.CleanEnvironment, tmp_path: pathlib.Path) -> None:
    made = wheels.CleanEnvironment(tmp_path / "environment", clean)
    install(made, "drakit-gpu")
    ran = drakit(made, tmp_path, "slices", "--mock", "dgx-h100", "--folder", str(tmp_path / "state"))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "gpu.drakit.dev" in ran.stdout
    assert "nic.drakit.dev" not in ran.stdout


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("journal", "show", "--help")])
def test_a_tool_that_cannot_be_loaded_stops_no_other_command(
    alone: forked_cli.Commands, words: tuple[str, ...], broken: dict[str, str]
) -> None:
    ran = alone.run(*words, environment=broken)
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    ran = alone.run("broken", environment=broken)
    assert (ran.returncode, "Traceback" in ran.stderr) == (2, False), ran.stderr
    assert "cannot load broken_module:command of broken: ModuleNotFoundError" in ran.stderr


@pytest.fixture
def broken(tmp_path: pathlib.Path) -> dict[str, str]:
    """An environment where a distribution names a tool that it does not have."""
    metadata = tmp_path / "broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[drakit.commands]\nbroken = broken_module:command\n")
    return {**os.environ, "PYTHONPATH": str(tmp_path)}
