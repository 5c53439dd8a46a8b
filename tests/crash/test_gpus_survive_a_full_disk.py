"""A disk that is full at each write of prepare and unprepare: journal, CDI files and locks lie on a small file system of their own.

It is filled once the driver serves, but for so many pages; from none on, one page more at a time, until the call needs no more. So every write that
takes a page fails once. With room again and the kubelet's retry the world is that of a node whose disk was never full.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from crash import gpu_daemons, gpu_full_disks, gpu_scenarios

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")]
MOUNTED = 'mount -t tmpfs -o size=8m,mode=700 drakit-test "$1" && exec "$0" -m crash.gpu_full_disks "$@"'


def too_small(folder: pathlib.Path, model: str, kinds: str, rooms: str) -> int:
    """How often a call met a full disk and all went well in the end; the file system goes with the process that alone sees it."""
    disk, work = folder / "disk", folder / "work"
    disk.mkdir()
    work.mkdir()
    command = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        MOUNTED,
        sys.executable,
        str(disk),
        str(work),
        model,
        kinds,
        rooms,
    ]
    python = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1])}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=python)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def test_a_full_disk_at_sampled_writes_changes_nothing_in_the_end(tmp_path: pathlib.Path) -> None:
    assert too_small(tmp_path, gpu_scenarios.TABLES[0], "beside", "0,1,2,4,7") >= 2, "nothing can be written down on a full disk"


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", gpu_scenarios.TABLES)
def test_a_full_disk_at_any_write_changes_nothing_in_the_end(
    tmp_path: pathlib.Path, model: str, record_property: gpu_scenarios.Record
) -> None:
    total = too_small(tmp_path, model, ",".join(gpu_scenarios.KINDS), "every")
    record_property("matrix", f"{model}: {total} full disks")


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_full_disk_at_any_write_leaves_no_daemon(record_property: gpu_scenarios.Record) -> None:
    """In a folder with a short path, because MPS has a socket in it."""
    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        total = too_small(pathlib.Path(folder), gpu_daemons.MODEL, gpu_full_disks.DAEMONS, "every")
    record_property("matrix", f"MPS: {total} full disks")
