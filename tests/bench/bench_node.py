"""Prepare and unprepare through real sockets: gRPC in, HTTPS to an API server in another process, SQLite and CDI files on this disk.

The floor of the same run is what no driver can do without: an empty gRPC call, one GET of a claim, one durable append. The device is a pretend one
that takes no time, so what is measured is drakit.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc

from bench import claim_server
from drakit._proto import dra_v1_pb2 as wire
from drakit._proto import dra_v1_pb2_grpc as services
from drakit.core import device, inventory, policy
from drakit.kube import claims, client
from drakit.node import clock, engine, node, station
from fakes import author, slice_store

CLAIMS, ROUNDS, FLIGHT = 1400, 200, 16
LIVE = (0, 100, 1000)


class Wide(author.FakeDriver):
    """The fake driver with a pipe that a thousand claims can share."""

    def discover(self) -> inventory.Inventory:
        pipe = device.Device(name="pipe", capacity={"bandwidth": policy.Capacity.of("100G")}, allow_multiple_allocations=True)
        return inventory.Inventory.of([pipe])


@contextlib.contextmanager
def served() -> Iterator[dict[str, Any]]:
    """The API server's process and what it says of itself."""
    with subprocess.Popen(
        [sys.executable, claim_server.__file__, str(CLAIMS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        yield json.loads(server.stdout.readline())
        server.stdin.close()


@contextlib.contextmanager
def running(folder: pathlib.Path, api: client.Client) -> Iterator[pathlib.Path]:
    """A node on real sockets; gives the path of its service socket."""
    place = engine.Place(pool=claim_server.POOL, boot_id="boot")
    post = station.Post(driver_name=claim_server.DRIVER, build=lambda _: Wide(author.Hardware()), place=place)
    (folder / "r").mkdir()
    outside = node.Outside(
        claim_source=claims.ApiClaims(api), slice_store=slice_store.FakeSliceStore(), registry=folder / "r", clock=clock.SystemClock()
    )
    made = node.Node(post, station.Folders(home=folder / "d", cdi=folder / "c"), outside, node_name=claim_server.POOL)
    made.start()
    try:
        yield folder / "d" / "dra.sock"
    finally:
        made.stop()


class Caller:
    """What the kubelet does."""

    def __init__(self, stub: services.DRAPluginStub, uids: Sequence[str]) -> None:
        self._stub, self._uids = stub, uids

    def _claim(self, index: int) -> wire.Claim:
        return wire.Claim(namespace="default", name=f"claim-{index}", uid=self._uids[index])

    def prepare(self, index: int) -> None:
        answer = self._stub.NodePrepareResources(wire.NodePrepareResourcesRequest(claims=[self._claim(index)]), timeout=45)
        error = answer.claims[self._uids[index]].error
        if error:
            raise RuntimeError(error)

    def unprepare(self, index: int) -> None:
        answer = self._stub.NodeUnprepareResources(wire.NodeUnprepareResourcesRequest(claims=[self._claim(index)]), timeout=45)
        error = answer.claims[self._uids[index]].error
        if error:
            raise RuntimeError(error)

    def nothing(self) -> None:
        self._stub.NodePrepareResources(wire.NodePrepareResourcesRequest(), timeout=45)


def timed(work: Callable[[], None]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def at(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def say(what: str, values: Sequence[float], floor: float) -> None:
    sys.stdout.write(f"node: {what:34} p50 {at(values, 0.5):7.2f} ms  p99 {at(values, 0.99):7.2f} ms  {at(values, 0.5) / floor:5.2f}\n")


def floor_of(folder: pathlib.Path, caller: Caller, api: client.Client) -> list[float]:
    """An empty gRPC call, one GET, one durable append; milliseconds each round."""
    with (folder / "floor").open("wb", buffering=0) as file:

        def once() -> None:
            caller.nothing()
            api.request("GET", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/claim-0")
            file.write(bytes(4096))
            os.fsync(file.fileno())

        return [timed(once) for _ in range(ROUNDS)]


def flight(caller: Caller, base: int) -> float:
    """Claims prepared a second with 16 calls in flight."""
    with concurrent.futures.ThreadPoolExecutor(FLIGHT) as pool:
        start = time.perf_counter()
        list(pool.map(caller.prepare, range(base, base + ROUNDS)))
        rate = ROUNDS / (time.perf_counter() - start)
        list(pool.map(caller.unprepare, range(base, base + ROUNDS)))
    return rate


def gets(api: client.Client) -> float:
    """GETs a second of the API server itself, 16 in flight."""

    def get(index: int) -> None:
        api.request("GET", f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/claim-{index}")

    with concurrent.futures.ThreadPoolExecutor(FLIGHT) as pool:
        start = time.perf_counter()
        list(pool.map(get, range(ROUNDS)))
        return ROUNDS / (time.perf_counter() - start)


def main(folder: pathlib.Path) -> None:
    """Print the floor, then prepare and unprepare beside 0, 100 and 1000 live claims, one and 16 in flight."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch, served() as server:
        short = pathlib.Path(os.path.relpath(scratch))
        ca = pathlib.Path(scratch) / "ca.crt"
        ca.write_text(server["ca"])
        api = client.connect_to(server["url"], token=server["token"], ca_file=ca)
        with running(short, api) as socket, grpc.insecure_channel(f"unix:{socket}") as channel:
            caller = Caller(services.DRAPluginStub(channel), server["uids"])
            floor = at(floor_of(short, caller, api), 0.5)
            sys.stdout.write(f"node: {'floor: gRPC, GET, durable append':34} p50 {floor:7.2f} ms                     1.00\n")
            live = 0
            for wanted in LIVE:
                for index in range(live, wanted):
                    caller.prepare(index)
                live = wanted
                pairs = [(timed(lambda: caller.prepare(1200)), timed(lambda: caller.unprepare(1200))) for _ in range(ROUNDS)]
                say(f"prepare beside {wanted} claims", [one for one, _ in pairs], floor)
                say(f"unprepare beside {wanted} claims", [two for _, two in pairs], floor)
            rate, floor_rate = flight(caller, 1200), gets(api)
            sys.stdout.write(
                f"node: 16 in flight, {rate:.0f} claims/s; the API server alone gives {floor_rate:.0f} GET/s  {rate / floor_rate:.2f}\n"
            )


if __name__ == "__main__":
    main(pathlib.Path())
