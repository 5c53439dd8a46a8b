"""What stands around a driver under measurement, each in a process of its own as on a node: the API server, the driver, and the caller (this one)."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import grpc

from bench import bench_driver
from drakit._proto import dra_v1_pb2 as wire
from drakit._proto import dra_v1_pb2_grpc as services
from drakit._proto import pluginregistration_v1_pb2 as registration
from drakit._proto import pluginregistration_v1_pb2_grpc as registrations

PATIENCE = 60.0
STEP = 0.002
NODE = "node-1"
SERVER = pathlib.Path(__file__).with_name("claim_server.py")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Api:
    """A running API server: where it is, and the UIDs of the claims in it, by number."""

    url: str
    ca: pathlib.Path
    token: str
    kubeconfig: pathlib.Path
    uids: Sequence[str]


@contextlib.contextmanager
def api_server(folder: pathlib.Path, *, shares: int, units: int = bench_driver.UNITS, slow: int = bench_driver.SLOW) -> Iterator[Api]:
    """The API server's process, with claims in it; files about it are in ``folder``."""
    kubeconfig, ca = folder / "kubeconfig", folder / "ca.crt"
    arguments = [sys.executable, str(SERVER), str(kubeconfig), str(shares), str(units), str(slow)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        result = json.loads(server.stdout.readline())
        ca.write_text(result["ca"])
        try:
            yield Api(url=result["url"], ca=ca, token=result["token"], kubeconfig=kubeconfig, uids=result["uids"])
        finally:
            server.stdin.close()


class DriverProcess:
    """A driver's process, started with ``run``; ``folder`` holds all it keeps. Its log goes to a file there, as JSON."""

    def __init__(self, command: Sequence[str], driver: str, folder: pathlib.Path, api: Api, *more: str, **environment: str) -> None:
        self._registry = folder / "plugins_registry"
        self._registry.mkdir(parents=True)
        self.socket = folder / "plugins" / driver / "dra.sock"
        self.log = folder / "log"
        arguments = ["run", "--node", NODE, "--folder", str(folder), "--kubeconfig", str(api.kubeconfig), "--log-format", "json"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *arguments, *more, "--stop-with-stdin"],
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait; raises RuntimeError with the driver's log when it ended, or did not get there in a minute."""
        end = time.monotonic() + PATIENCE
        while not holds():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the driver is not there: {self.log.read_text()}")
            time.sleep(STEP)

    def is_listening(self) -> bool:
        """Whether both sockets are there; the registration socket comes last, and each appears when it listens."""
        return self.socket.exists() and any(self._registry.glob("*.sock"))

    def is_started(self) -> bool:
        """Whether all drivers of the process serve."""
        return '"drivers": [' in self.log.read_text()

    def register(self) -> None:
        """Tell the driver, as the kubelet does, that it is registered."""
        for path in self._registry.glob("*.sock"):
            with grpc.insecure_channel(f"unix:{path}") as channel:
                stub = registrations.RegistrationStub(channel)
                stub.GetInfo(registration.InfoRequest(), timeout=PATIENCE)
                stub.NotifyRegistrationStatus(registration.RegistrationStatus(plugin_registered=True), timeout=PATIENCE)

    def cpu_seconds(self) -> float:
        """Processor time that the process has used."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def scheduled_seconds(self) -> float:
        """The same by the scheduler's own figures, exact where ``cpu_seconds`` has ticks of 10 ms; of the threads that are there."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def resident(self) -> float:
        """Resident memory in MiB."""
        return resident(self.process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE)


def resident(pid: int) -> float:
    """Resident memory of a process in MiB."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


class Caller:
    """What the kubelet does, for claims known by number."""

    def __init__(self, channel: grpc.Channel, uids: Sequence[str]) -> None:
        self._stub, self._uids = services.DRAPluginStub(channel), uids

    def _claim(self, number: int) -> wire.Claim:
        return wire.Claim(namespace="default", name=f"claim-{number}", uid=self._uids[number])

    def prepare(self, number: int) -> None:
        """Raises RuntimeError for a claim that is refused."""
        answer = self._stub.NodePrepareResources(wire.NodePrepareResourcesRequest(claims=[self._claim(number)]), timeout=PATIENCE)
        _check(answer.claims[self._uids[number]].error)

    def unprepare(self, number: int) -> None:
        """Raises RuntimeError for a claim that is refused."""
        answer = self._stub.NodeUnprepareResources(wire.NodeUnprepareResourcesRequest(claims=[self._claim(number)]), timeout=PATIENCE)
        _check(answer.claims[self._uids[number]].error)

    def nothing(self) -> None:
        """An empty call."""
        self._stub.NodePrepareResources(wire.NodePrepareResourcesRequest(), timeout=PATIENCE)


def _check(error: str) -> None:
    if error:
        raise RuntimeError(error)
