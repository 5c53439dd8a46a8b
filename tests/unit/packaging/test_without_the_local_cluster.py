"""drakit without drakit-cluster: everything else works, and what needs it says in one sentence what to install."""

import pathlib
import subprocess
import sys

import pytest

from drakit import extras
from fakes import waits

ROOT = pathlib.Path(__file__).parents[3]
WITHOUT = f"import sys; sys.path[:] = [part for part in sys.path if part != {str(ROOT / 'cluster')!r}]; "
"""What a Python program does to find no local cluster, as if pip had not installed it."""
ABSENT = f"the local cluster is not installed (missing: drakit_cluster); run: {extras.command('cluster')}"


def python(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", WITHOUT + program], capture_output=True, text=True, timeout=waits.SECONDS, check=False)


def drakit(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return python(f"sys.argv = ['drakit', *{arguments!r}]; import drakit_command; drakit_command.main()")


@pytest.mark.parametrize("arguments", [("cluster",), ("demo",), ("allocate", "x.yaml"), ("lint", "x.yaml")])
def test_a_command_that_needs_it_says_what_to_install(arguments: tuple[str, ...]) -> None:
    ran = drakit(*arguments)
    assert (ran.returncode, ran.stderr, ran.stdout) == (2, f"drakit: {ABSENT}\n", "")


def test_the_test_kit_says_what_to_install() -> None:
    ran = python("from drakit import testing; testing.Cluster(object).__enter__()")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == f"drakit.core.errors.SettingsError: {ABSENT}"


@pytest.mark.parametrize("arguments", [("slices", "--mock", "dgx-a100-40gb"), ("show", "--mock", "dgx-a100-40gb"), ("demo", "--help")])
def test_other_commands_do_without_it(arguments: tuple[str, ...]) -> None:
    ran = drakit(*arguments)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_no_module_imports_it_before_it_is_used() -> None:
    ran = python("from drakit import testing; from drakit.cli import app; print('drakit_cluster' in sys.modules)")
    assert (ran.stdout, ran.stderr) == ("False\n", "")
