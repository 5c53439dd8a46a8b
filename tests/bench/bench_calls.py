"""Prepare and unprepare through real sockets and processes: gRPC from this process, the driver's own, HTTPS to the API server's, files on this disk.

The floor of the same run is what no driver can do without: an empty call of the driver, one GET of a claim with the HTTP library that Kubernetes'
own client uses, one durable append.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence

import grpc
import urllib3

from bench import bench_driver, table, town

FLIGHT = 16
RATE_AIM, SHARE_AIM = 300.0, 0.6
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

    def __init__(self, api: town.Api) -> None:
        self._pool = urllib3.PoolManager(maxsize=FLIGHT, ca_certs=str(api.ca))
        self._url, self._headers = api.url, {"Authorization": f"Bearer {api.token}", "Accept": "application/json"}

    def get(self, number: int) -> None:
        """Read one claim."""
        answer = self._pool.request("GET", self._url + PATH.format(number), headers=self._headers, retries=False)
        assert json.loads(answer.data)["metadata"]["name"] == f"claim-{number}"


def floor(folder: pathlib.Path, caller: town.Caller, server: Server, rounds: int) -> float:
    """Print what an empty call, a GET and a durable append take together; their median in milliseconds."""
    with (folder / "floor").open("wb", buffering=0) as file:

        def append() -> None:
            file.write(bytes(4096))
            os.fsync(file.fileno())

        parts: dict[str, Callable[[], object]] = {"call": caller.nothing, "GET": lambda: server.get(0), "append": append}
        taken = [{name: table.timed(work) for name, work in parts.items()} for _ in range(rounds)]
    whole = [sum(one.values()) for one in taken]
    each = ", ".join(f"{name} {table.at([one[name] for one in taken], 0.5):.2f}" for name in parts)
    table.line("floor: empty call + GET + durable append", table.spread(whole), 1.0, each)
    return table.at(whole, 0.5)


def _beside(caller: town.Caller, live: int, base: float, size: Size, first: float | None) -> float:
    """Time one claim beside ``live`` others; the median of prepare, which is compared with ``first``."""
    one = max(size.live)
    pairs = [(table.timed(lambda: caller.prepare(one)), table.timed(lambda: caller.unprepare(one))) for _ in range(size.rounds)]
    taken, given = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    median = table.at(taken, 0.5)
    if first is None:
        table.line(f"prepare beside {live} claims", table.spread(taken), median / base, "<= 1.5x", met=median <= 1.5 * base)
    else:
        aim = f"<= 1.5x, within 10% of 0 ({median / first - 1:+.0%})"
        table.line(f"prepare beside {live} claims", table.spread(taken), median / base, aim, met=median <= min(1.5 * base, 1.1 * first))
    table.line(f"unprepare beside {live} claims", table.spread(given), table.at(given, 0.5) / base)
    return median


def one_by_one(caller: town.Caller, base: float, size: Size) -> None:
    """Print prepare and unprepare, one call at a time, beside more and more live claims; all are unprepared in the end."""
    first: float | None = None
    there = 0
    for live in size.live:
        for number in range(there, live):
            caller.prepare(number)
        there = live
        median = _beside(caller, live, base, size, first)
        first = median if first is None else first
    _many(caller.unprepare, range(there))


def _many(work: Callable[[int], object], numbers: Sequence[int]) -> tuple[float, list[float]]:
    """Work on all numbers, 16 at a time: how many a second, and the milliseconds of each."""
    with concurrent.futures.ThreadPoolExecutor(FLIGHT) as pool:
        each: list[float] = []
        whole = table.timed(lambda: each.extend(pool.map(lambda number: table.timed(lambda: work(number)), numbers)))
    return 1000 * len(numbers) / max(whole, 1e-9), each


def in_flight(caller: town.Caller, server: Server, base: float, size: Size) -> None:
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
            want = f">= {aim:.0f}/s (300, or 60% of GETs: {SHARE_AIM * gets:.0f})" if verb == "prepare" else ""
            table.line(f"{verb}, 16 in flight on {kind}", table.spread(each), table.at(each, 0.5) / base)
            table.line("  claims a second, beside the rate of GETs", f"{rate:.0f}/s", rate / gets, want, met=rate >= aim if want else None)


def together(caller: town.Caller, size: Size) -> None:
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
def _asked(folder: pathlib.Path, api: town.Api, **environment: str) -> Iterator[tuple[town.Served, town.Caller]]:
    """A driver of its own process that is up and warm, and its caller."""
    with town.Served([sys.executable, bench_driver.__file__], bench_driver.DRIVER, folder, api, **environment) as served:
        served.until(served.is_listening)
        served.register()
        with grpc.insecure_channel(f"unix:{served.socket}") as channel:
            caller = town.Caller(channel, api.uids)
            caller.prepare(0)
            caller.unprepare(0)
            yield served, caller


def volatile(caller: town.Caller, base: float, size: Size) -> None:
    """Print prepare and unprepare of a driver that says its hardware forgets with the kernel."""
    pairs = [(table.timed(lambda: caller.prepare(0)), table.timed(lambda: caller.unprepare(0))) for _ in range(size.rounds)]
    for verb, which in (("prepare", 0), ("unprepare", 1)):
        taken = [pair[which] for pair in pairs]
        table.line(f"volatile: {verb} beside 0 claims", table.spread(taken), table.at(taken, 0.5) / base)
    numbers = range(max(size.live), max(size.live) + size.rounds)
    rates = [(_many(caller.prepare, numbers)[0], _many(caller.unprepare, numbers)[0]) for _ in range(size.repeats)]
    for verb, which in (("prepare", 0), ("unprepare", 1)):
        table.line(f"volatile: {verb}, 16 in flight on one shared device", f"{statistics.median(rate[which] for rate in rates):.0f}/s")


def report(folder: pathlib.Path, size: Size) -> float:
    """Print the lines; the floor in milliseconds."""
    with town.api_server(folder, shares=size.shares) as api:
        with _asked(folder / "n", api) as (served, caller):
            server = Server(api)
            base = floor(folder, caller, server, size.rounds)
            before = served.cpu_seconds()
            one_by_one(caller, base, size)
            in_flight(caller, server, base, size)
            together(caller, size)
            table.line("processor time of the driver for all of this", f"{served.cpu_seconds() - before:.2f} s")
        with _asked(folder / "v", api, **{bench_driver.VOLATILE: "1"}) as (_, caller):
            volatile(caller, base, size)
    return base
