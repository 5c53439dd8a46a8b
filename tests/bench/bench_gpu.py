"""A hundred claims at once on eight GPUs whose hardware steps take 50 ms each, through engine, journal, locks and CDI files on this disk.

The floor is what no driver can do without: the steps of one GPU, one after the other. Beside the time of each claim it prints how many GPUs were at
work at the same time, the NVML calls of a claim, and what drakit itself costs, with steps that take no time.

Then one claim at a time on a MIG partition of its own, beside 0, 100 and 1000 held claims with partitions of theirs, on enough mock GPUs. Printed are
the family's own part of a prepare (plan and prepare without the calls of the hardware port), what the mock hardware takes, and the whole prepare
through engine, journal and CDI file.
"""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from bench import table
from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import records
from drakit_gpu import driver as gpu_driver
from drakit_gpu import port
from fakes import concurrent_gpu_claims, nvml_calls

STEP_MS = 50
_STEPS_TO_MAKE, _STEPS_TO_REMOVE = 2, 2
HELD, ROUNDS = (0, 100, 1000), 200
CALLS_OF = (("dgx-a100-40gb-2gpu", "gpu-0-mig-3g20gb-9-{}"), ("server-h100-pcie", "gpu-2-mig-3g40gb-9-{}"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """One prepare, in milliseconds: the family's own part, the hardware's calls, and all of it."""

    own: float
    hardware: float
    whole: float


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


class Stopwatch:
    """Adds up the seconds in the family's plan and prepare, and those of them in the hardware's calls."""

    def __init__(self) -> None:
        self.family = self.hardware = 0.0

    def driver(self) -> type[gpu_driver.GpuDriver]:
        """The family's driver, timed."""
        watch = self

        class Timed(gpu_driver.GpuDriver):
            def plan(self, grant: drivers.Grant[Any]) -> records.Record:
                with watch.in_family():
                    return super().plan(grant)

            def prepare(self, grant: drivers.Grant[Any]) -> drivers.Prepared:
                with watch.in_family():
                    return super().prepare(grant)

        return Timed

    @contextlib.contextmanager
    def in_family(self) -> Iterator[None]:
        """Time a part of the family's own work."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.family += time.monotonic() - began

    def around(self, hardware: port.GpuPort) -> port.GpuPort:
        """The same hardware, timed."""
        return cast("port.GpuPort", _Timed(hardware, self))

    def sample(self, work: Callable[[], object]) -> Sample:
        """Milliseconds of the family's own part, of the hardware, and of all."""
        self.family = self.hardware = 0.0
        whole = table.timed(work)
        return Sample(own=(self.family - self.hardware) * 1000, hardware=self.hardware * 1000, whole=whole)


class _Timed:
    def __init__(self, hardware: port.GpuPort, watch: Stopwatch) -> None:
        self._hardware, self._watch = hardware, watch

    def __getattr__(self, call: str) -> object:
        method = getattr(self._hardware, call)

        def timed(*args: object, **named: object) -> object:
            began = time.monotonic()
            try:
                return method(*args, **named)
            finally:
                self._watch.hardware += time.monotonic() - began

        return timed


def family(folder: pathlib.Path, held: Sequence[int] = HELD, rounds: int = ROUNDS) -> None:
    """Print what a prepare of one partition takes beside claims that hold others."""
    gpus = -(-(max(held) + 1) // concurrent_gpu_claims.PARTITIONS)
    wanted = [concurrent_gpu_claims.partition_claim(number, gpus) for number in range(max(held) + 1)]
    watch, first, prepared = Stopwatch(), 0.0, 0
    with concurrent_gpu_claims.claimed_node(
        folder, milliseconds=0, around=watch.around, gpus=gpus, wanted=wanted, family=watch.driver()
    ) as node:
        measured = node.claims[-1]
        for number in held:
            for claim in node.claims[prepared:number]:
                node.prepare(claim)
            prepared, samples = number, []
            for _ in range(rounds):
                samples.append(watch.sample(lambda: node.prepare(measured)))
                node.unprepare(measured)
            own, hardware, whole = ([getattr(sample, name) for sample in samples] for name in ("own", "hardware", "whole"))
            first = first or table.at(own, 0.5)
            sys.stdout.write(
                f"gpu: prepare beside {number:4} claims, family's own  {table.spread(own)}  {table.at(own, 0.5) / first:5.2f}x"
            )
            sys.stdout.write(f"  mock hardware p50 {table.at(hardware, 0.5):6.2f} ms  whole call p50 {table.at(whole, 0.5):6.2f} ms\n")
            sys.stdout.flush()


def main(folder: pathlib.Path) -> None:
    """Print the floor, then both runs, then one claim beside held ones."""
    sys.stdout.write(f"gpu: machine {os.cpu_count()} cores, {table.load()}\n")
    floor = concurrent_gpu_claims.PARTITIONS * _STEPS_TO_MAKE * STEP_MS
    sys.stdout.write(f"gpu: {'floor: 14 steps of one GPU':34} {floor:20d} ms {'':27} 1.00\n")
    for machine, partition in CALLS_OF:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            *_, calls = nvml_calls.of_claims(pathlib.Path(scratch), machine, partition.format(0), partition.format(4))
        sys.stdout.write(f"gpu: NVML calls of a MIG claim on {machine}: plan {calls.plan.total()}, prepare {calls.prepare.total()}, ")
        sys.stdout.write(f"unprepare {calls.unprepare.total()}; {calls.reads()} of plan and prepare change nothing\n")
    for milliseconds in (STEP_MS, 0):
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            run(pathlib.Path(scratch), milliseconds)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        family(pathlib.Path(scratch))
    sys.stdout.write(f"gpu: machine {table.load()}\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path())
