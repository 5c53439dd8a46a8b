"""The checks of tests/e2e, as far as a local cluster can do them: with drakit beside it, and containers that run on this machine."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from fakes import driver_process, forked_cli, waits

ROOT = pathlib.Path(__file__).parents[2]
NODE, MACHINE = "node-1", "dgx-a100-40gb-2gpu"


@pytest.fixture
def folder(commands: forked_cli.Commands) -> Iterator[pathlib.Path]:
    """The folder of a cluster that runs, with a driver on its node."""
    with tempfile.TemporaryDirectory(prefix="dk") as made:
        place = pathlib.Path(made) / "c"
        node, kubeconfig = place / NODE, place / NODE / "driver.kubeconfig"
        cluster = driver_process.drakit("cluster", "--folder", str(place), "--node", NODE, "--run-pods")
        with driver_process.running(cluster, pathlib.Path(made) / "cluster.log", commands=commands):
            assert waits.eventually(kubeconfig.exists)
            driver = driver_process.drakit("run", "--mock", MACHINE, "--node", NODE, "--folder", str(node), "--kubeconfig", str(kubeconfig))
            with driver_process.running(driver, pathlib.Path(made) / "driver.log", commands=commands):
                yield place


@pytest.mark.long
def test_the_local_cluster_passes_every_check_that_it_can_do(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    table = tmp_path / "table.md"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", str(ROOT / "tests" / "e2e"), "--local", str(folder / NODE)]
    command += ["--kubeconfig", str(folder / "kubeconfig"), "--table", str(table)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "E2E_"))}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=waits.SECONDS, check=False)
    assert ran.returncode == 0, ran.stdout[-8000:]
    # Nothing but passed: what this cluster cannot do is left out, not skipped.
    counts = re.search(r"^(\d+) passed, \d+ deselected in", ran.stdout.splitlines()[-1])
    assert counts is not None
    assert int(counts[1]) > 50
    rows = re.findall(r"^\| [A-Z][a-z]+ \| .* \| passed \| [0-9.]+ \|$", table.read_text(), re.MULTILINE)
    assert len(rows) == int(counts[1])


def test_the_default_collection_leaves_the_checks_out(request: pytest.FixtureRequest) -> None:
    assert not [item for item in request.session.items if item.path.is_relative_to(ROOT / "tests" / "e2e")]
