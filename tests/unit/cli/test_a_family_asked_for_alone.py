"""Commands about one family say nothing of another that is not there."""

import pathlib

import pytest

from drakit import exits
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
def test_missing_gpus_are_a_warning_only_where_the_gpu_family_is_selected(
    shell: command_line.CommandLine, node: pathlib.Path, command: list[str]
) -> None:
    places = [f"node.{name}_dir={folder}" for name, folder in (("plugins", "plugins"), ("registry", "plugins_registry"), ("cdi", "cdi"))]
    given = [part for place in places for part in ("--set", place.replace("=", f"={node}/"))]
    everything, nics = shell.run(*command, *given), shell.run(*command, *given, "--family", "nic")
    assert WARNING in everything.out + everything.err
    assert WARNING not in nics.out + nics.err


@no_gpus
@pytest.mark.parametrize("command", [["doctor", "--no-api"], ["show"], ["slices"], ["run", "--node", "n", "--kubeconfig", "/nowhere"]])
def test_a_selected_gpu_family_is_not_reported_as_unserved(shell: command_line.CommandLine, node: pathlib.Path, command: list[str]) -> None:
    """They are served as asked: that there is no library is said instead."""
    places = [f"node.{name}_dir={folder}" for name, folder in (("plugins", "plugins"), ("registry", "plugins_registry"), ("cdi", "cdi"))]
    given = [part for place in places for part in ("--set", place.replace("=", f"={node}/"))]
    ran = shell.run(*command, *given, "--family", "gpu", "--set", f"gpu.library={node}/libnvidia-ml.so.1")
    assert ran.status == (exits.Exit.BAD_INPUT if command[0] == "run" else exits.Exit.NEGATIVE)
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


def test_an_unknown_family_is_refused(shell: command_line.CommandLine) -> None:
    ran = shell.run("doctor", "--family", "nics")
    assert ran.status != 0
    assert "did you mean nic?" in ran.err
