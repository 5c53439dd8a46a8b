"""Commands about one family say nothing of another that is not there."""

import pathlib

import pytest

from drakit_gpu import host
from fakes import command_line

WARNING = "GPUs are not served"

no_gpus = pytest.mark.skipif(host.Host(pathlib.Path("/")).has_driver(), reason="GPUs are served here")


@pytest.fixture
def node(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ("plugins", "plugins_registry", "cdi"):
        (tmp_path / name).mkdir(mode=0o755)
    return tmp_path


@no_gpus
@pytest.mark.parametrize(
    "command",
    [["doctor", "--no-api"], ["show"], ["slices"], ["run", "--node", "n", "--kubeconfig", "/nowhere"]],
    ids=lambda command: str(command[0]),
)
def test_gpus_that_are_not_there_are_warned_of_only_where_they_are_asked_for(
    shell: command_line.CommandLine, node: pathlib.Path, command: list[str]
) -> None:
    places = [f"node.{name}_dir={folder}" for name, folder in (("plugins", "plugins"), ("registry", "plugins_registry"), ("cdi", "cdi"))]
    given = [part for place in places for part in ("--set", place.replace("=", f"={node}/"))]
    everything, nics = shell.run(*command, *given), shell.run(*command, *given, "--family", "nic")
    assert WARNING in everything.out + everything.err
    assert WARNING not in nics.out + nics.err


@no_gpus
@pytest.mark.parametrize("command", [["doctor", "--no-api"], ["show"], ["slices"], ["run", "--node", "n", "--kubeconfig", "/nowhere"]])
def test_gpus_that_a_person_asks_for_are_not_said_to_be_unserved(
    shell: command_line.CommandLine, node: pathlib.Path, command: list[str]
) -> None:
    """They are served as asked: that there is no library is said instead."""
    places = [f"node.{name}_dir={folder}" for name, folder in (("plugins", "plugins"), ("registry", "plugins_registry"), ("cdi", "cdi"))]
    given = [part for place in places for part in ("--set", place.replace("=", f"={node}/"))]
    ran = shell.run(*command, *given, "--family", "gpu", "--set", f"gpu.library={node}/libnvidia-ml.so.1")
    assert ran.status == 1
    assert WARNING not in ran.out + ran.err
    if command[0] != "run":
        assert "cannot load" in ran.out + ran.err


def test_the_kernel_driver_is_looked_for_below_the_folder_that_is_set(shell: command_line.CommandLine, node: pathlib.Path) -> None:
    kernel = node / "kernel"
    given = ("--folder", str(node), "--set", f"gpu.kernel_root={kernel}", "--set", f"gpu.library={node}/libnvidia-ml.so.1")
    unserved = shell.run("show", *given)
    assert f"GPUs are not served: {kernel}/proc/driver/nvidia/version is missing" in unserved.err
    (kernel / "proc/driver/nvidia").mkdir(parents=True)
    (kernel / "proc/driver/nvidia/version").touch()
    assert "cannot load" in shell.run("show", *given).err


def test_a_family_that_nobody_knows_is_refused(shell: command_line.CommandLine) -> None:
    ran = shell.run("doctor", "--family", "nics")
    assert ran.status != 0
    assert "did you mean nic?" in ran.err
