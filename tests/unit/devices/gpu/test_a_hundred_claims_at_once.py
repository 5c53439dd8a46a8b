"""A hundred claims at once: all are prepared, and no GPU waits for another. That is shown by a meeting, not by a clock; speed is in tests/bench."""

import concurrent.futures
import pathlib
import threading
from typing import cast

from drakit.devices.gpu import port
from fakes import gpu_crowd

PATIENCE = 90.0


class Meeting:
    """Lets the first instance of each GPU be made only when all GPUs are about to make one."""

    def __init__(self, hardware: port.GpuPort) -> None:
        self._hardware = hardware
        self._all_are_here = threading.Barrier(gpu_crowd.GPUS)
        self._came: set[str] = set()
        self._guard = threading.Lock()

    def __getattr__(self, call: str) -> object:
        return getattr(self._hardware, call)

    def create_gpu_instance(self, gpu: port.GpuUuid, profile_id: int, placement: port.Placement) -> port.GpuInstance:
        with self._guard:
            is_first = gpu not in self._came
            self._came.add(gpu)
        if is_first:
            self._all_are_here.wait(PATIENCE)
        return self._hardware.create_gpu_instance(gpu, profile_id, placement)


def test_all_are_prepared_and_eight_gpus_work_at_the_same_time(tmp_path: pathlib.Path) -> None:
    around = lambda hardware: cast("port.GpuPort", Meeting(hardware))  # noqa: E731 - one expression
    with (
        gpu_crowd.crowd(tmp_path, milliseconds=0, around=around) as crowd,
        concurrent.futures.ThreadPoolExecutor(gpu_crowd.CLAIMS) as pool,
    ):
        prepared = list(pool.map(crowd.prepare, crowd.claims))
        assert len(prepared) == gpu_crowd.CLAIMS
        assert crowd.instances() == dict.fromkeys(range(gpu_crowd.GPUS), gpu_crowd.PARTITIONS), "shares draw once"
        list(pool.map(crowd.unprepare, crowd.claims))
        assert crowd.instances() == dict.fromkeys(range(gpu_crowd.GPUS), 0)


def test_a_step_takes_as_long_as_the_machines_file_says(tmp_path: pathlib.Path) -> None:
    """No upper bound: a busy machine may be slower."""
    with gpu_crowd.crowd(tmp_path, milliseconds=50) as crowd:
        began = threading.Event()
        timer = threading.Timer(0.04, began.set)
        timer.start()
        crowd.prepare(crowd.claims[0])
        assert began.is_set()
        timer.join()
