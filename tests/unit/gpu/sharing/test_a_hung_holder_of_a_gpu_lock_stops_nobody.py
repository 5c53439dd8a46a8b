"""A process that hangs with a GPU's lock keeps a new instance neither from starting nor from restoring the other GPUs."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import cast

import pytest

from drakit.core import claim
from drakit.core import driver as drivers
from drakit.journal import locks
from drakit.testing import fake_context
from drakit_gpu import config as gpu_config
from drakit_gpu import driver as gpu_driver
from drakit_gpu import port
from drakit_gpu.health import faults
from fakes import gpu_node, waits

LONG = gpu_config.GpuConfig(
    sharing=gpu_config.Sharing(
        strategy=gpu_config.Strategy.TIME_SLICING, time_slicing_config=gpu_config.TimeSlicing(interval=port.TimeSlice.LONG)
    )
)
FAST = faults.HealthPolicy(settle=0.0, hold=0.0, event_wait=0.05, poll=0.1)
HOLDER = """
import pathlib, sys
from drakit.journal import locks
with locks.FileLocks(pathlib.Path(sys.argv[1])).hold(sys.argv[2:], lambda: True):
    print("held", flush=True)
    sys.stdin.read()
"""


class FileLockedContext(fake_context.FakeContext):
    """A context with the locks of a real node."""

    @contextlib.contextmanager
    def hold(self, lock_names: Iterable[str], wanted: Callable[[], bool] | None = None) -> Iterator[None]:
        assert wanted is not None, "the restorer bounds its waits"
        with locks.FileLocks(self.data_dir).hold(lock_names, wanted):
            yield


@contextlib.contextmanager
def hung_holder(folder: pathlib.Path, names: Iterable[str]) -> Iterator[subprocess.Popen[str]]:
    """A stopped process with these locks."""
    command = [sys.executable, "-c", HOLDER, str(folder), *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        os.kill(child.pid, signal.SIGSTOP)
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("health", [FAST, None], ids=["monitored", "unmonitored"])
def test_the_driver_starts_and_restores_a_locked_gpu_once_its_holder_is_gone(
    tmp_path: pathlib.Path, health: faults.HealthPolicy | None
) -> None:
    node = gpu_node.GpuNode(tmp_path / "machine", "server-h100-pcie")
    for minor, uid in ((0, "a"), (1, "b")):
        node.prepare(f"gpu-{minor}", uid=uid, config=LONG, config_source=claim.ConfigSource.CLAIM)
    first, second = (cast("drivers.Grant[object]", node.journal[uid].grant) for uid in ("a", "b"))
    uuids = [gpu.uuid for gpu in node.hardware.gpus()[:2]]
    for uuid in uuids:
        node.hardware.reset(uuid)
    context = FileLockedContext(tmp_path / "data", boot_id=node.hardware.boot_id(), grants=[first, second])
    driver = gpu_driver.GpuDriver(node.hardware, intents=node.intents, health=health)
    with hung_holder(context.data_dir, first.device.lock_names) as holder:
        driver.start(context)
        assert [node.hardware.time_slice(uuid) for uuid in uuids] == [port.TimeSlice.DEFAULT, port.TimeSlice.LONG]
        holder.kill()
        assert waits.eventually(lambda: node.hardware.time_slice(uuids[0]) is port.TimeSlice.LONG)
        driver.stop()
