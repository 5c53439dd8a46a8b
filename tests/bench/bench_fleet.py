"""What the drivers of a fleet of nodes cost the API server: requests and bytes, counted by the server.

Each node is one process of ``drakit run`` with mock GPUs and NICs, on a local API server in a process of its own; the benchmark plays the kubelet.
``PYTHONPATH=tests python -m bench.bench_fleet [NODES]`` (default 100). Counts do not depend on the speed of the machine; times do.
"""

import collections
import contextlib
import json
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import grpc
import httpx
from prometheus_client import parser

from bench import fleet_server, table
from drakit._proto import dra_v1_pb2 as wire
from drakit._proto import dra_v1_pb2_grpc as services
from drakit._proto import pluginregistration_v1_pb2 as registration
from drakit._proto import pluginregistration_v1_pb2_grpc as registrations
from fakes import forked_cli

NODES = 100
MACHINE = "dgx-h100"
PATIENCE = 300.0
IDLE_SECONDS = 60.0
RESTART_SECONDS = 2.0
AFTER_SECONDS = 60.0
POD_STARTS_A_SECOND, POD_SECONDS = 10, 20
SAMPLE_SECONDS = 0.1

Key = tuple[str, str]
"""Verb and resource of a request."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Requests, and bytes of bodies both ways, by verb and resource."""

    requests: Mapping[Key, float]
    received: Mapping[Key, float]
    sent: Mapping[Key, float]

    def since(self, before: "Counts") -> "Counts":
        """Return the difference to earlier counts."""
        return Counts(
            requests=_difference(self.requests, before.requests),
            received=_difference(self.received, before.received),
            sent=_difference(self.sent, before.sent),
        )


class Server:
    """The API server's process."""

    def __init__(self, folder: pathlib.Path, nodes: int) -> None:
        program = pathlib.Path(fleet_server.__file__)
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(folder), str(nodes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        about = json.loads(self._answer())
        context = ssl.create_default_context(cadata=about["ca"])
        headers = {"Authorization": f"Bearer {about['token']}"}
        self._http = httpx.Client(base_url=about["url"], verify=context, headers=headers, trust_env=False, timeout=PATIENCE)

    def counts(self) -> Counts:
        """Return what the server has counted so far."""
        counted = {
            name: collections.Counter[Key]()
            for name in ("apiserver_request", "drakit_cluster_request_bytes", "drakit_cluster_response_bytes")
        }
        for family in parser.text_string_to_metric_families(self._http.get("/metrics").text):
            for sample in family.samples if family.name in counted else ():
                if sample.name.endswith("_total"):
                    counted[family.name][sample.labels["verb"].upper(), sample.labels["resource"]] += round(sample.value)
        requests, received, sent = counted.values()
        return Counts(requests=requests, received=received, sent=sent)

    def restart(self, seconds: float) -> None:
        """Stop the server for some seconds; returns when it serves again."""
        self._order(f"restart {seconds}")

    def add_claims(self, node: str, device: str) -> Sequence[str]:
        """Create allocated claims for a device of a node; return their UIDs."""
        return list(json.loads(self._order(f"claims {node} {device}")))

    def close(self) -> None:
        """End the process."""
        self._http.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)

    def _order(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


class Driver:
    """One process of ``drakit run`` on a node; ``life`` tells two processes of the same node apart."""

    def __init__(self, commands: forked_cli.Commands, folder: pathlib.Path, number: int, life: int) -> None:
        self.node = fleet_server.node_name(number)
        self.folder = folder / str(number)
        self._registry = self.folder / "plugins_registry"
        self._registry.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / f"log-{life}"
        uid = f"00000000-0000-4000-8000-{number:06d}{life:06d}"
        kubeconfig = folder / f"{self.node}.kubeconfig"
        words = ["run", "--mock", MACHINE, "--node", self.node, "--folder", str(self.folder), "--kubeconfig", str(kubeconfig)]
        words += ["--set", f"node.pod_uid={uid}", "--set", "serve.address=", "--log-format", "json", "--stop-with-stdin"]
        read, self._stdin = os.pipe()
        with self.log.open("wb") as log:
            files = [read, os.dup(log.fileno()), os.dup(log.fileno())]
        self._known: set[pathlib.Path] = set(self._registry.glob("*.sock"))
        self._thread = threading.Thread(target=_run, args=(commands.server, words, files), daemon=True)
        self._thread.start()

    def register(self) -> None:
        """Register the process's drivers as the kubelet does."""
        _until(lambda: len(self._new_sockets()) == len(("gpu", "nic")), self)
        for path in self._new_sockets():
            with grpc.insecure_channel(f"unix:{path}") as channel:
                stub = registrations.RegistrationStub(channel)
                stub.GetInfo(registration.InfoRequest(), timeout=PATIENCE)
                stub.NotifyRegistrationStatus(registration.RegistrationStatus(plugin_registered=True), timeout=PATIENCE)

    def has_logged(self, event: str, times: int = 1) -> bool:
        """Whether the driver logged an event so often."""
        return self.log.read_text().count(event) >= times

    def stop(self) -> None:
        """Stop the process and wait for its end."""
        os.close(self._stdin)
        self._thread.join(PATIENCE)

    def _new_sockets(self) -> set[pathlib.Path]:
        return set(self._registry.glob("*.sock")) - self._known


def _run(server: str, words: list[str], files: list[int]) -> None:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        order = forked_cli.Order(words=words, folder=str(pathlib.Path.cwd()), environment=environment, namespace="", session=False)
        forked_cli.request(server, order, files).wait()
    finally:
        for descriptor in files:
            os.close(descriptor)


def _until(holds: Callable[[], bool], driver: Driver) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError(f"{driver.node} is not there: {driver.log.read_text()[-2000:]}")
        time.sleep(0.02)


def _difference(later: Mapping[Key, float], earlier: Mapping[Key, float]) -> Mapping[Key, float]:
    return {key: value - earlier.get(key, 0) for key, value in later.items() if value != earlier.get(key, 0)}


class Rates:
    """Samples the server's request count, to find the busiest second."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            with contextlib.suppress(httpx.HTTPError):
                self._samples.append((time.monotonic(), sum(self._server.counts().requests.values())))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def busiest(self) -> float:
        """The most requests in one second."""
        best = 0.0
        for start, before in self._samples:
            within = [count for moment, count in self._samples if start < moment <= start + 1.0]
            best = max(best, (within[-1] - before) if within else 0.0)
        return best

    def seconds_to(self, share: float) -> float:
        """Seconds from the first to that share of all the requests that came."""
        if not self._samples:
            return 0.0
        (begun, first), (_, last) = self._samples[0], self._samples[-1]
        return next((moment - begun for moment, count in self._samples if count - first >= share * (last - first)), 0.0)


def _show(title: str, counts: Counts, divisor: float, unit: str) -> None:
    """Print the requests and bytes of a phase, divided by nodes or claims."""
    for key in sorted(counts.requests.keys() | counts.sent.keys()):
        requests, received, sent = (by_key.get(key, 0) / divisor for by_key in (counts.requests, counts.received, counts.sent))
        if requests or received or sent:
            table.line(f"{title}: {key[0]} {key[1]}", f"{requests:8.2f} {unit}", aim=f"{received:9.0f} bytes in, {sent:9.0f} out")
    total = sum(counts.requests.values())
    table.line(f"{title}: all", f"{total / divisor:8.2f} {unit}", aim=f"{total:.0f} requests in all")


@contextlib.contextmanager
def _fleet(folder: pathlib.Path, nodes: int) -> Iterator[tuple[Server, forked_cli.Commands]]:
    with contextlib.ExitStack() as stack:
        commands = forked_cli.ForkServer(folder)
        stack.callback(commands.close)
        server = Server(folder, nodes)
        stack.callback(server.close)
        yield server, commands


def report(folder: pathlib.Path, nodes: int) -> None:
    """Print the table."""
    table.line("machine", f"{os.cpu_count()} cores, {table.load()}; {nodes} nodes of {MACHINE}")
    with _fleet(folder, nodes) as (server, commands):
        before = server.counts()
        drivers = [_started(commands, folder, number, 0) for number in range(nodes)]
        after = server.counts()
        _show("start", after.since(before), nodes, "a node")
        time.sleep(5)
        before = server.counts()
        time.sleep(IDLE_SECONDS)
        _show("idle", server.counts().since(before), nodes * IDLE_SECONDS / 60, "a node and minute")
        _report_update(server, commands, folder, drivers)
        _report_restart(server, drivers)
        _report_pods(server, drivers[0])
        for driver in drivers:
            driver.stop()
    table.line("machine", table.load())


def _started(commands: forked_cli.Commands, folder: pathlib.Path, number: int, life: int) -> Driver:
    driver = Driver(commands, folder, number, life)
    driver.register()
    if life == 0:
        _until(lambda: driver.has_logged('"slices published"', 2), driver)
    else:
        _until(lambda: driver.has_logged('"drivers": ['), driver)
    return driver


def _report_update(server: Server, commands: forked_cli.Commands, folder: pathlib.Path, drivers: list[Driver]) -> None:
    """A rolling update with maxSurge: the new process starts before the old one stops."""
    before, began = server.counts(), time.monotonic()
    for number, old in enumerate(drivers):
        drivers[number] = _started(commands, folder, number, 1)
        old.stop()
    time.sleep(5)
    _show("update", server.counts().since(before), len(drivers), "a node")
    table.line("update: duration", f"{time.monotonic() - began:8.1f} s, one node after the other")


def _report_restart(server: Server, drivers: Sequence[Driver]) -> None:
    before = server.counts()
    server.restart(RESTART_SECONDS)
    with Rates(server) as rates:
        time.sleep(AFTER_SECONDS)
    _show(f"after {RESTART_SECONDS:.0f} s without server", server.counts().since(before), len(drivers), "a node")
    table.line(
        "after restart: busiest second", f"{rates.busiest() / len(drivers):8.2f} a node", aim=f"half after {rates.seconds_to(0.5):.1f} s"
    )


def _report_pods(server: Server, driver: Driver) -> None:
    """Pods start and end on one node, at a fixed rate."""
    path = next((driver.folder / "plugins" / "nic.drakit.dev").glob("dra*.sock"))
    device = next(line for line in _devices(server, driver.node))
    uids = server.add_claims(driver.node, device)
    before, began = server.counts(), time.monotonic()
    with grpc.insecure_channel(f"unix:{path}") as channel:
        stub = services.DRAPluginStub(channel)
        count = min(POD_STARTS_A_SECOND * POD_SECONDS, len(uids))
        for number in range(count):
            time.sleep(max(0.0, began + number / POD_STARTS_A_SECOND - time.monotonic()))
            claim = wire.Claim(namespace="default", name=f"claim-{number}", uid=uids[number])
            answer = stub.NodePrepareResources(wire.NodePrepareResourcesRequest(claims=[claim]), timeout=PATIENCE)
            if answer.claims[uids[number]].error:
                raise RuntimeError(answer.claims[uids[number]].error)
            ended = stub.NodeUnprepareResources(wire.NodeUnprepareResourcesRequest(claims=[claim]), timeout=PATIENCE)
            if ended.claims[uids[number]].error:
                raise RuntimeError(ended.claims[uids[number]].error)
    time.sleep(5)
    _show("pods", server.counts().since(before), count, "a claim in and out")


def _devices(server: Server, node: str) -> Iterator[str]:
    answer = server._http.get("/apis/resource.k8s.io/v1/resourceslices").json()
    for entry in answer["items"]:
        if entry["spec"].get("nodeName") == node and entry["spec"]["driver"] == fleet_server.NIC_DRIVER:
            yield from (device["name"] for device in entry["spec"].get("devices", ()))


def main(folder: pathlib.Path) -> None:
    """Measure in an empty folder with a short path."""
    report(folder, NODES)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="dk-") as scratch:
        report(pathlib.Path(scratch), int(sys.argv[1]) if len(sys.argv) > 1 else NODES)
