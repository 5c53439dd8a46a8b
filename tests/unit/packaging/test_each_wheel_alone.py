"""drakit without its other wheels: a command that needs one says what to install, and each wheel adds what it has."""

import pathlib
import subprocess

import pytest

from drakit import exits
from fakes import waits, wheels

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> wheels.CleanEnvironment:
    """A Python with drakit's own wheel and third-party packages."""
    made = wheels.CleanEnvironment(tmp_path_factory.mktemp("clean"))
    install(made, "drakit")
    return made


def install(clean: wheels.CleanEnvironment, name: str) -> None:
    """Install a wheel with what it requires, where nothing but drakit's wheels can be found."""
    folder = wheels.built().drakit.parent
    clean.run(folder, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--find-links", str(folder), name)


def drakit(clean: wheels.CleanEnvironment, folder: pathlib.Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(clean.python.parent / "drakit"), *arguments]
    return subprocess.run(command, cwd=folder, env=wheels.environment(), capture_output=True, text=True, check=False, timeout=waits.SECONDS)


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("journal", "--help"), ("run", "--help")])
def test_the_framework_needs_no_other_wheel(clean: wheels.CleanEnvironment, tmp_path: pathlib.Path, arguments: tuple[str, ...]) -> None:
    ran = drakit(clean, tmp_path, *arguments)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [("lint", "--help"), ("lint", "-f", "claim.yaml"), ("demo",), ("cluster", "--node", "n1")])
def test_a_tool_that_is_not_installed_says_what_to_install(
    clean: wheels.CleanEnvironment, tmp_path: pathlib.Path, arguments: tuple[str, ...]
) -> None:
    ran = drakit(clean, tmp_path, *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"drakit: drakit {arguments[0]} is not installed; run: pip install 'drakit[tools]'\n"


@pytest.mark.parametrize(
    "arguments", [("doctor", "--no-api"), ("show",), ("slices", "--mock", "dgx-h100"), ("run", "--node", "n1", "--folder", "node")]
)
def test_without_a_family_a_command_says_what_to_install(
    clean: wheels.CleanEnvironment, tmp_path: pathlib.Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "node" / "plugins_registry").mkdir(parents=True)  # A kubelet has run here.
    ran = drakit(clean, tmp_path, *arguments)
    assert ran.returncode == (exits.Exit.NEGATIVE if arguments[0] == "doctor" else exits.Exit.BAD_INPUT)
    assert "no device family is installed; run: pip install 'drakit[gpu,nic]'" in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_familys_wheel_adds_its_devices(tmp_path: pathlib.Path) -> None:
    made = wheels.CleanEnvironment(tmp_path / "environment")
    install(made, "drakit-gpu")
    ran = drakit(made, tmp_path, "slices", "--mock", "dgx-h100", "--folder", str(tmp_path / "state"))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "gpu.drakit.dev" in ran.stdout
    assert "nic.drakit.dev" not in ran.stdout
