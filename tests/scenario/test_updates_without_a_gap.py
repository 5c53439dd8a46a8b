"""An update of the driver with ``maxSurge: 1``, as two processes on one node of the local cluster, while pods with claims start all along."""

import contextlib
import dataclasses
import functools
import pathlib
import socket
import tempfile
import threading
import time
from collections.abc import Iterator

import pytest

from drakit import testing
from drakit_cluster import cluster as clusters
from drakit_cluster.objects import json_types, resources
from fakes import driver_process, forked_cli, waits

pytestmark = pytest.mark.timeout(180)
OLD, NEW = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclasses.dataclass(kw_only=True)
class Machine:
    """A node on which both pods of the driver have one address for metrics, as those in the host's network do."""

    cluster: clusters.LocalCluster
    commands: forked_cli.Commands
    port: int
    started: int = 0
    gaps: int = 0
    slow: list[float] = dataclasses.field(default_factory=list)
    over: threading.Event = dataclasses.field(default_factory=threading.Event)

    @property
    def root(self) -> pathlib.Path:
        return self.cluster.node("node-1").folder.root

    @contextlib.contextmanager
    def pod(self, uid: str, *words: str) -> Iterator[driver_process.Process]:
        """A pod of the driver."""
        command = driver_process.drakit("run", "--mock", "dgx-a100-40gb-2gpu", "--node", "node-1", "--folder", str(self.root))
        command += ["--family", "gpu", "--kubeconfig", str(self.cluster.driver_kubeconfig("node-1"))]
        settings = {"node.pod_uid": uid, "serve.socket": self.root / f"{uid[-1]}.sock", "serve.address": f"127.0.0.1:{self.port}"}
        command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        process = driver_process.Process([*command, *words], self.root / f"{uid[-1]}.log", {}, self.commands)
        try:
            yield process
        finally:
            process.kill()

    def is_ready(self, uid: str) -> bool:
        return b" 200 " in self.answer(uid, "/readyz").partition(b"\r\n")[0]

    def answer(self, uid: str, page: str) -> bytes:
        """What a pod's own socket answers."""
        with socket.socket(socket.AF_UNIX) as asking:
            if asking.connect_ex(str(self.root / f"{uid[-1]}.sock")):
                return b""
            asking.sendall(f"GET {page} HTTP/1.0\r\n\r\n".encode())
            return b"".join(iter(lambda: asking.recv(65536), b""))

    @contextlib.contextmanager
    def load(self) -> Iterator[None]:
        """Meanwhile pods with claims start and end, and slices are counted."""
        self._create(testing.device_class("gpu", driver="gpu.drakit.dev"))
        threads = [threading.Thread(target=self._start_pods), threading.Thread(target=self._watch_slices)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join()

    def refused(self) -> list[str]:
        """What pods were told of prepares that failed."""
        events = self.cluster.api.list(resources.EVENT, namespace="default").items
        return [json_types.text(one, "message") for one in events if one.get("reason") == "FailedPrepareDynamicResources"]

    def _start_pods(self) -> None:
        while not self.over.is_set():
            name, began = f"p-{self.started}", time.monotonic()
            self._create(testing.claim(name, device_class="gpu"))
            self._create(testing.pod(name, claims=[name]))
            assert waits.eventually(functools.partial(self._is_running, name))
            self.slow.append(time.monotonic() - began)
            self.cluster.api.delete(resources.POD, name, namespace="default")
            assert waits.eventually(functools.partial(self._is_gone, name))
            self.cluster.api.delete(resources.CLAIM, name, namespace="default")
            self.started += 1

    def _watch_slices(self) -> None:
        while not self.over.wait(0.02):
            self.gaps += not self.cluster.api.list(resources.SLICE).items

    def _is_running(self, name: str) -> bool:
        return json_types.text(self.cluster.api.get(resources.POD, name, namespace="default"), "status", "phase") == "Running"

    def _is_gone(self, name: str) -> bool:
        pods = self.cluster.api.list(resources.POD, namespace="default").items
        return all(json_types.text(pod, "metadata", "name") != name for pod in pods)

    def _create(self, item: json_types.Object) -> None:
        kind = next(one for one in resources.ALL if (one.api_version, one.kind) == (item["apiVersion"], item["kind"]))
        self.cluster.api.create(kind, item, namespace="default" if kind.namespaced else "")


@pytest.fixture
def machine(commands: forked_cli.Commands) -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="dk") as folder, clusters.LocalCluster(pathlib.Path(folder)) as cluster:
        yield Machine(cluster=cluster, commands=commands, port=free_port())


def test_an_update_fails_no_prepare_and_always_leaves_slices(machine: Machine) -> None:
    listening = f'drakit_listening{{address="127.0.0.1:{machine.port}"}} '.encode()
    with contextlib.ExitStack() as pods:
        old = pods.enter_context(machine.pod(OLD))
        assert waits.eventually(lambda: machine.is_ready(OLD))
        with machine.load():
            assert waits.eventually(lambda: machine.started >= 1)
            pods.enter_context(machine.pod(NEW))
            assert waits.eventually(lambda: machine.is_ready(NEW))
            assert listening + b"1.0" in machine.answer(OLD, "/metrics")
            assert listening + b"0.0" in machine.answer(NEW, "/metrics")
            assert old.stop() == 0
            before = machine.started
            assert waits.eventually(lambda: machine.started >= before + 2)
            assert waits.eventually(lambda: listening + b"1.0" in machine.answer(NEW, "/metrics"))
        assert machine.refused() == []
        assert machine.gaps == 0


def test_a_version_that_fails_to_start_changes_nothing(machine: Machine) -> None:
    with machine.pod(OLD) as old:
        assert waits.eventually(lambda: machine.is_ready(OLD))
        with machine.load():
            with machine.pod(NEW, "--mock", "no-such-machine") as new:
                assert new.wait() == 2
            before = machine.started
            assert waits.eventually(lambda: machine.started > before)
            assert machine.is_ready(OLD)
            assert old.status is None
        assert machine.refused() == []
        assert machine.gaps == 0
