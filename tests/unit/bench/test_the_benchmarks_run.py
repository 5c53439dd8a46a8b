"""The benchmark of a node runs, and says all it should. Its figures are of no interest here: a small size says little, and tests share machines."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

from bench import bench_gpu
from fakes import waits

REPOSITORY = pathlib.Path(__file__).parents[3]
LINES = (
    "floor: empty call + GET + durable append",
    "prepare beside 0 claims",
    "unprepare beside 2 claims",
    "GET of the API server, 16 in flight",
    "prepare, 16 in flight on 16 devices",
    "prepare, 16 in flight on one shared device",
    "16 devices with 50 ms hardware steps, at once",
    "prepare beside 0 claims, volatile driver",
    "prepare beside 0 claims, reporting driver",
    "slices of 8 GPUs, flat",
    "slices of 16 GPUs, mixins",
    "start to sockets listening",
    "start to first slice accepted",
    "resident memory, published and registered",
    "processor time when idle",
    "import of grpc",
)


@pytest.mark.full
@pytest.mark.timeout(400)
def test_the_table_of_a_node_has_every_line_beside_its_floor() -> None:
    command = [sys.executable, "-m", "bench.bench_node", "--quick"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "tests")}
    # Not tmp_path: sockets lie below, whose paths may have 107 bytes.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=waits.SECONDS)
        assert done.returncode == 0, done.stderr
        assert list(pathlib.Path(folder).iterdir()) == []
    for line in LINES:
        found = re.search(rf"^node: +{re.escape(line)}.*\d", done.stdout, re.MULTILINE)
        assert found, f"{line!r} is missing in\n{done.stdout}"


@pytest.mark.timeout(120)
def test_the_table_of_workloads_has_pods_that_are_listed_and_pods_that_are_not() -> None:
    command = [sys.executable, "-m", "bench.bench_workload", "3"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "tests")}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=waits.SECONDS)
    assert done.returncode == 0, done.stderr
    listed, shared = (
        re.search(rf"^node: 3 pods {kind} share a claim .* written (\d+) times$", done.stdout, re.MULTILINE)
        for kind in ("listed in the claim", "of a workload")
    )
    assert listed is not None
    assert shared is not None
    assert (listed[1], shared[1]) == ("4", "2"), "its finalizer, then each pod; or its finalizer, then its allocation"


def test_the_table_of_gpus_has_a_prepare_beside_held_claims(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench_gpu.family(tmp_path, held=(0, 2), rounds=2)
    rows = re.findall(r"^gpu: prepare beside +(\d+) claims, family's own +p50 +[\d.]+ ms", capsys.readouterr().out, re.MULTILINE)
    assert rows == ["0", "2"]
