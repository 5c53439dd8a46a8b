"""drakit without drakit-cluster: everything else works, and what needs it says in one sentence what to install."""

import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from drakit import extras
from fakes import demo, forked_cli

ROOT = pathlib.Path(__file__).parents[3]
WITHOUT = f"import sys; sys.path[:] = [part for part in sys.path if part != {str(ROOT / 'cluster')!r}]; "
"""What a Python program does to find no local cluster, as if pip had not installed it."""
ABSENT = f"the local cluster is not installed (missing: drakit_cluster); run: {extras.command('cluster')}"


@pytest.fixture(scope="module")
def without() -> Iterator[forked_cli.Commands]:
    with demo.short_folder() as folder:
        made = forked_cli.ForkServer(folder, modules=[*forked_cli.NODE, "drakit_gpu.assembly", "drakit_nic.kernel_port"], before=WITHOUT)
        yield made
        made.close()


@pytest.mark.parametrize("arguments", [("cluster",), ("demo",), ("allocate", "x.yaml"), ("lint", "x.yaml")])
def test_a_command_that_needs_it_says_what_to_install(without: forked_cli.Commands, arguments: tuple[str, ...]) -> None:
    ran = without.run(*arguments)
    assert (ran.returncode, ran.stderr, ran.stdout) == (2, f"drakit: {ABSENT}\n", "")


def run(without: forked_cli.Commands, folder: pathlib.Path, program: str) -> "subprocess.CompletedProcess[str]":
    (folder / "program.py").write_text(program)
    return without.run(str(folder / "program.py"), program="python")


def test_the_test_kit_says_what_to_install(without: forked_cli.Commands, tmp_path: pathlib.Path) -> None:
    ran = run(without, tmp_path, "from drakit import testing; testing.Cluster(object).__enter__()")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == f"drakit.core.errors.SettingsError: {ABSENT}"


@pytest.mark.parametrize("arguments", [("slices", "--mock", "dgx-a100-40gb"), ("show", "--mock", "dgx-a100-40gb"), ("demo", "--help")])
def test_other_commands_do_without_it(without: forked_cli.Commands, arguments: tuple[str, ...]) -> None:
    ran = without.run(*arguments)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_no_module_imports_it_before_it_is_used(without: forked_cli.Commands, tmp_path: pathlib.Path) -> None:
    ran = run(
        without, tmp_path, "import sys; from drakit import testing; from drakit.cli import app; print('drakit_cluster' in sys.modules)"
    )
    assert (ran.stdout, ran.stderr) == ("False\n", "")
