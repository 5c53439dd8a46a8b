"""Prepare and unprepare through real sockets and processes: gRPC from this process, the driver's own, HTTPS to the API server's, files on this disk.

The floor of the same run is what no driver can do without: an empty call of the driver, one GET of a claim with the HTTP library that Kubernetes'
own client uses, one durable append.

``PYTHONPATH=tests python -m bench.bench_calls KUBECONFIG`` measures the same with the API server of a real cluster.
"""

import concurrent.futures
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import grpc
import urllib3

from bench import bench_driver, processes, table

FLIGHT = 16
LATENCY_AIM = 2.0
RATE_AIM, SHARE_AIM = 450.0, 0.6
MEMORY = pathlib.Path("/dev/shm")
PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/claim-{}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured: calls for a figure, live claims beside which, and repetitions of what is timed as a whole."""

    rounds: int
    live: Sequence[int]
    repeats: int

    @property
    def shares(self) -> int:
        """Claims of the pipe that are needed: live ones, one to time, and those of a flight."""
        return max(self.live) + 1 + self.rounds


class Server:
    """The API server itself, asked for claims with nothing of drakit in between."""

    def __init__(self, api: processes.Api) -> None:
        self._pool = urllib3.PoolManager(maxsize=FLIGHT, ca_certs=str(api.ca))
        self._url, self._headers = api.url, {"Authorization": f"Bearer {api.token}", "Accept": "application/json"}

    def get(self, number: int) -> None:
        """Read one claim."""
        answer = self._pool.request("GET", self._url + PATH.format(number), headers=self._headers, retries=False)
        assert json.loads(answer.data)["metadata"]["name"] == f"claim-{number}"


class Floor:
    """An empty call of the driver, a GET and a durable append, one after the other."""

    def __init__(self, file: io.FileIO, caller: processes.Caller, server: Server) -> None:
        def append() -> None:
            file.write(bytes(4096))
            os.fsync(file.fileno())

        self._parts: Sequence[Callable[[], object]] = (caller.nothing, lambda: server.get(0), append)

    def sample(self) -> tuple[float, ...]:
        """Milliseconds of each part, once."""
        return tuple(table.timed(part) for part in self._parts)

    def report(self, rounds: int) -> float:
        """Print them; the median of all together."""
        taken = [self.sample() for _ in range(rounds)]
        call, get, append = (table.at([one[which] for one in taken], 0.5) for which in range(3))
        whole = [sum(one) for one in taken]
        table.line(
            "floor: empty call + GET + durable append", table.spread(whole), 1.0, f"call {call:.2f}, GET {get:.2f}, append {append:.2f}"
        )
        return table.at(whole, 0.5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs:
    """Milliseconds of one claim prepared and unprepared again and again, each time beside the floor at that moment, for machines with other work."""

    floor: Sequence[float]
    prepare: Sequence[float]
    unprepare: Sequence[float]

    @property
    def base(self) -> float:
        """The floor's median."""
        return table.at(self.floor, 0.5)

    @property
    def ratio(self) -> float:
        """How many floors a prepare takes, of medians."""
        return table.at(self.prepare, 0.5) / self.base

    @classmethod
    def of(cls, caller: processes.Caller, floor: Floor, number: int, rounds: int) -> Self:
        """Measure one claim."""
        taken = [
            (sum(floor.sample()), table.timed(lambda: caller.prepare(number)), table.timed(lambda: caller.unprepare(number)))
            for _ in range(rounds)
        ]
        return cls(floor=[one[0] for one in taken], prepare=[one[1] for one in taken], unprepare=[one[2] for one in taken])

    def report(self, title: str, first: float | None = None) -> None:
        """Print both; prepare also against ``first``, the ratio that is to be kept within a tenth."""
        more = "" if first is None else f", within 10% of 0 ({self.ratio / first - 1:+.0%})"
        met = self.ratio <= LATENCY_AIM and (first is None or self.ratio <= 1.1 * first)
        table.line(f"prepare {title}", table.spread(self.prepare), self.ratio, f"<= {LATENCY_AIM}x{more}", met=met)
        table.line(f"unprepare {title}", table.spread(self.unprepare), table.at(self.unprepare, 0.5) / self.base)


def one_by_one(caller: processes.Caller, floor: Floor, size: Size) -> None:
    """Print prepare and unprepare, one call at a time, beside more and more live claims; all are unprepared in the end."""
    first: float | None = None
    there = 0
    for live in size.live:
        for number in range(there, live):
            caller.prepare(number)
        there = live
        pairs = Pairs.of(caller, floor, max(size.live), size.rounds)
        pairs.report(f"beside {live} claims", first)
        first = pairs.ratio if first is None else first
    _many(caller.unprepare, range(there))


def _many(work: Callable[[int], object], numbers: Sequence[int]) -> tuple[float, list[float]]:
    """Work on all numbers, 16 at a time: how many a second, and the milliseconds of each."""
    with concurrent.futures.ThreadPoolExecutor(FLIGHT) as pool:
        each: list[float] = []
        whole = table.timed(lambda: each.extend(pool.map(lambda number: table.timed(lambda: work(number)), numbers)))
    return 1000 * len(numbers) / max(whole, 1e-9), each


def in_flight(caller: processes.Caller, server: Server, base: float, size: Size) -> None:
    """Print claims a second with 16 calls in flight, on different devices and on one that is shared."""
    kinds = {
        "16 devices": range(size.shares, size.shares + min(size.rounds, bench_driver.UNITS)),
        "one shared device": range(max(size.live), max(size.live) + size.rounds),
    }
    gets = statistics.median(_many(server.get, kinds["16 devices"])[0] for _ in range(size.repeats))
    table.line("GET of the API server, 16 in flight", f"{gets:.0f}/s")
    aim = min(RATE_AIM, SHARE_AIM * gets)
    for kind, numbers in kinds.items():
        runs = [(_many(caller.prepare, numbers), _many(caller.unprepare, numbers)) for _ in range(size.repeats)]
        for verb, which in (("prepare", 0), ("unprepare", 1)):
            rate = statistics.median(run[which][0] for run in runs)
            each = [took for run in runs for took in run[which][1]]
            want = f">= {aim:.0f}/s ({RATE_AIM:.0f}, or 60% of GETs: {SHARE_AIM * gets:.0f})" if verb == "prepare" else ""
            table.line(f"{verb}, 16 in flight on {kind}", table.spread(each), table.at(each, 0.5) / base)
            table.line("  claims a second, beside the rate of GETs", f"{rate:.0f}/s", rate / gets, want, met=rate >= aim if want else None)


def together(caller: processes.Caller, size: Size) -> None:
    """Print how long 16 devices take whose hardware takes 50 ms each, asked for at once."""
    first = size.shares + bench_driver.UNITS
    numbers = range(first, first + bench_driver.SLOW)
    taken = []
    for _ in range(size.repeats):
        taken.append(table.timed(lambda: _many(caller.prepare, numbers)))
        _many(caller.unprepare, numbers)
    step = 1000 * bench_driver.HARDWARE_SECONDS
    median = statistics.median(taken)
    aim = f"floor {step:.0f} ms; one after the other {step * bench_driver.SLOW:.0f} ms"
    table.line("16 devices with 50 ms hardware steps, at once", f"p50 {median:7.2f} ms", median / step, aim, met=median < 4 * step)


@contextlib.contextmanager
def _asked(folder: pathlib.Path, api: processes.Api, **environment: str) -> Iterator[tuple[processes.DriverProcess, processes.Caller]]:
    """A driver of its own process that is up and warm, and its caller. CDI files lie in memory, as /var/run does on a node; all else on the disk."""
    with (
        tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else folder.parent) as cdi,
        processes.DriverProcess(
            [sys.executable, bench_driver.__file__], bench_driver.DRIVER, folder, api, "--set", f"node.cdi_dir={cdi}", **environment
        ) as served,
    ):
        served.until(served.is_listening)
        served.register()
        with grpc.insecure_channel(f"unix:{served.socket}") as channel:
            caller = processes.Caller(channel, api.uids)
            # A new journal is restored from the API server, so the driver holds every claim there.
            for number in range(len(api.uids)):
                caller.unprepare(number)
            caller.prepare(0)
            caller.unprepare(0)
            yield served, caller


def of_kind(kind: str, caller: processes.Caller, floor: Floor, size: Size) -> None:
    """Print prepare and unprepare of another kind of driver: volatile, which says its hardware forgets with the kernel, or reporting."""
    Pairs.of(caller, floor, 0, size.rounds).report(f"beside 0 claims, {kind} driver")
    numbers = range(max(size.live), max(size.live) + size.rounds)
    rates = [(_many(caller.prepare, numbers)[0], _many(caller.unprepare, numbers)[0]) for _ in range(size.repeats)]
    for verb, which in (("prepare", 0), ("unprepare", 1)):
        table.line(f"{verb}, 16 in flight on one device, {kind} driver", f"{statistics.median(rate[which] for rate in rates):.0f}/s")


def report(folder: pathlib.Path, size: Size) -> float:
    """Print the lines; the floor in milliseconds."""
    with processes.api_server(folder, shares=size.shares) as api:
        return report_with(folder, size, api)


def report_with(folder: pathlib.Path, size: Size, api: processes.Api) -> float:
    """Print the lines for this API server; the floor in milliseconds."""
    with (folder / "floor").open("wb", buffering=0) as file:
        server = Server(api)
        with _asked(folder / "n", api) as (served, caller):
            floor = Floor(file, caller, server)
            base = floor.report(size.rounds)
            before = served.cpu_seconds()
            one_by_one(caller, floor, size)
            in_flight(caller, server, base, size)
            together(caller, size)
            table.line("processor time of the driver for all of this", f"{served.cpu_seconds() - before:.2f} s")
        for kind in (bench_driver.VOLATILE, bench_driver.REPORTING):
            with _asked(folder / kind[0], api, **{bench_driver.KIND: kind}) as (_, caller):
                of_kind(kind, caller, Floor(file, caller, server), size)
    return base


if __name__ == "__main__":
    from bench import real_cluster

    with tempfile.TemporaryDirectory(dir=pathlib.Path.cwd(), prefix=".bench-") as scratch:
        full = Size(rounds=200, live=(0,), repeats=5)
        where, given = pathlib.Path(scratch), pathlib.Path(sys.argv[1])
        with real_cluster.api_server(given, where, shares=full.shares, units=bench_driver.UNITS, slow=bench_driver.SLOW) as real:
            report_with(where, full, real)
