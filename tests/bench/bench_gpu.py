"""A hundred claims at once on eight GPUs whose hardware steps take 50 ms each, through engine, journal, locks and CDI files on this disk.

The floor is what no driver can do without: the steps of one GPU, one after the other. Beside the time of each claim it prints how many GPUs were at
work at the same time, the NVML calls of a claim, and what drakit itself costs, with steps that take no time.
"""

import concurrent.futures
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import cast

from bench import table
from drakit.core import claim as claims
from drakit.devices.gpu import port
from fakes import concurrent_gpu_claims, nvml_calls

STEP_MS = 50
_STEPS_TO_MAKE, _STEPS_TO_REMOVE = 2, 2


class Busy:
    """Counts the GPUs that have a step in progress."""

    def __init__(self) -> None:
        self.most = 0
        self._guard = threading.Lock()
        self._working: list[str] = []

    def around(self, hardware: port.GpuPort) -> port.GpuPort:
        """The same hardware, counted."""
        return cast("port.GpuPort", _Counted(hardware, self))

    def __call__(self, gpu: str, act: Callable[[], object]) -> object:
        """A step on a GPU."""
        with self._guard:
            self._working.append(gpu)
            self.most = max(self.most, len(set(self._working)))
        try:
            return act()
        finally:
            with self._guard:
                self._working.remove(gpu)


class _Counted:
    def __init__(self, hardware: port.GpuPort, busy: Busy) -> None:
        self._hardware, self._busy = hardware, busy

    def __getattr__(self, call: str) -> object:
        method = getattr(self._hardware, call)
        if call not in concurrent_gpu_claims.STEPS:
            return method
        return lambda gpu, *args, **named: self._busy(gpu, lambda: method(gpu, *args, **named))


def at_once(everyone: tuple[claims.ClaimRef, ...], act: Callable[[claims.ClaimRef], object]) -> tuple[list[float], float]:
    """The time of each claim, and of all of them together, in milliseconds; all start together, as pods do."""
    start = threading.Barrier(len(everyone))

    def one(claim: claims.ClaimRef) -> float:
        start.wait()
        return table.timed(lambda: act(claim))

    with concurrent.futures.ThreadPoolExecutor(len(everyone)) as pool:
        began = time.perf_counter()
        times = list(pool.map(one, everyone))
        return times, (time.perf_counter() - began) * 1000


def say(what: str, times: list[float], together: float, floor: float) -> None:
    """One line."""
    p50, p99 = table.at(times, 0.5), table.at(times, 0.99)
    ratio = f"{together / floor:5.2f}" if floor else "     "
    sys.stdout.write(f"gpu: {what:34} p50 {p50:7.0f} ms  p99 {p99:7.0f} ms  all {together:7.0f} ms  {ratio}\n")


def run(folder: pathlib.Path, milliseconds: int) -> None:
    """Prepare all, then unprepare all."""
    busy = Busy()
    with concurrent_gpu_claims.claimed_node(folder, milliseconds=milliseconds, around=busy.around) as claimed:
        for what, act, steps in (("prepare", claimed.prepare, _STEPS_TO_MAKE), ("unprepare", claimed.unprepare, _STEPS_TO_REMOVE)):
            times, together = at_once(claimed.claims, act)
            say(
                f"{what} {len(times)}, steps of {milliseconds} ms", times, together, concurrent_gpu_claims.PARTITIONS * steps * milliseconds
            )
    sys.stdout.write(f"gpu: {busy.most} of {concurrent_gpu_claims.GPUS} GPUs at work at the same time\n")


def main(folder: pathlib.Path) -> None:
    """Print the floor, then both runs."""
    floor = concurrent_gpu_claims.PARTITIONS * _STEPS_TO_MAKE * STEP_MS
    sys.stdout.write(f"gpu: {'floor: 14 steps of one GPU':34} {floor:20d} ms {'':27} 1.00\n")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        *_, calls = nvml_calls.of_claims(pathlib.Path(scratch), "server-h100-pcie", *(f"gpu-2-mig-2g20gb-14-{start}" for start in (0, 2)))
    sys.stdout.write(f"gpu: NVML calls of a MIG claim: plan {calls.plan.total()}, prepare {calls.prepare.total()}, ")
    sys.stdout.write(f"unprepare {calls.unprepare.total()}; {calls.reads()} of plan and prepare change nothing\n")
    for milliseconds in (STEP_MS, 0):
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            run(pathlib.Path(scratch), milliseconds)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path())
