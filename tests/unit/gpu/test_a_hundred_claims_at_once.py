"""A hundred claims at once: all are prepared, and no GPU waits for another. That is shown by a meeting, not by a clock; speed is in tests/bench."""

import concurrent.futures
import pathlib
import threading
from typing import cast

from drakit_gpu import port
from fakes import concurrent_gpu_claims, waits


class Meeting:
    """Lets the first instance of each GPU be made only when all GPUs are about to make one."""

    def __init__(self, hardware: port.GpuPort) -> None:
        self._hardware = hardware
        self._all_are_here = threading.Barrier(concurrent_gpu_claims.GPUS)
        self._came: set[str] = set()
        self._guard = threading.Lock()

    def __getattr__(self, call: str) -> object:
        return getattr(self._hardware, call)

    def create_gpu_instance(self, gpu: port.GpuUuid, profile_id: int, placement: port.Placement) -> port.GpuInstance:
        with self._guard:
            is_first = gpu not in self._came
            self._came.add(gpu)
        if is_first:
            self._all_are_here.wait(waits.SECONDS)
        return self._hardware.create_gpu_instance(gpu, profile_id, placement)


def test_all_are_prepared_and_eight_gpus_work_at_the_same_time(tmp_path: pathlib.Path) -> None:
    around = lambda hardware: cast("port.GpuPort", Meeting(hardware))  # noqa: E731 - one expression
    with (
        concurrent_gpu_claims.claimed_node(tmp_path, milliseconds=0, around=around) as claimed,
        concurrent.futures.ThreadPoolExecutor(concurrent_gpu_claims.CLAIMS) as pool,
    ):
        prepared = list(pool.map(claimed.prepare, claimed.claims))
        assert len(prepared) == concurrent_gpu_claims.CLAIMS
        assert claimed.instances() == dict.fromkeys(range(concurrent_gpu_claims.GPUS), concurrent_gpu_claims.PARTITIONS), "shares draw once"
        list(pool.map(claimed.unprepare, claimed.claims))
        assert claimed.instances() == dict.fromkeys(range(concurrent_gpu_claims.GPUS), 0)


def test_a_step_takes_as_long_as_the_machines_file_says(tmp_path: pathlib.Path) -> None:
    """No upper bound: a busy machine may be slower."""
    with concurrent_gpu_claims.claimed_node(tmp_path, milliseconds=50) as claimed:
        began = threading.Event()
        timer = threading.Timer(0.04, began.set)
        timer.start()
        claimed.prepare(claimed.claims[0])
        assert began.is_set()
        timer.join()
