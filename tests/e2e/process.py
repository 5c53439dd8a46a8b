"""drakit as a process with a token of its account, on a node that only the API server knows; the checks call it as the node's kubelet would."""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import grpc

from drakit._proto import dra_v1_pb2, dra_v1_pb2_grpc
from drakit._proto import pluginregistration_v1_pb2 as registration
from drakit._proto import pluginregistration_v1_pb2_grpc as registration_grpc
from e2e import accounts

_END_SECONDS = 20
_CALL_SECONDS = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Process:
    """A running command of drakit, and the log lines that it wrote."""

    child: subprocess.Popen[str]
    lines: list[str]
    folder: pathlib.Path

    def entries(self) -> list[dict[str, Any]]:
        """Return the log so far."""
        return [json.loads(line) for line in [*self.lines] if line.startswith("{")]

    def logged(self, *words: str, seconds: float = 30.0) -> dict[str, Any]:
        """Wait for an entry of the log that contains all of these words, and return it."""

        def found() -> dict[str, Any] | None:
            return next((json.loads(line) for line in [*self.lines] if line.startswith("{") and all(word in line for word in words)), None)

        try:
            return dict(accounts.wait(f"a log entry with {words}", found, seconds=seconds))
        except AssertionError as error:
            raise AssertionError(f"{error}; the log:\n" + "".join(self.lines[-30:])) from error

    def prepare(self, driver: str, claim: dict[str, Any]) -> str:
        """Prepare a claim as the kubelet does, and return the error, empty where there was none."""
        return self._call(driver, claim, "NodePrepareResources")

    def unprepare(self, driver: str, claim: dict[str, Any]) -> str:
        """Unprepare a claim as the kubelet does, and return the error."""
        return self._call(driver, claim, "NodeUnprepareResources")

    def _call(self, driver: str, claim: dict[str, Any], method: str) -> str:
        meta = claim["metadata"]
        asked = dra_v1_pb2.Claim(uid=meta["uid"], namespace=meta["namespace"], name=meta["name"])
        kind = dra_v1_pb2.NodePrepareResourcesRequest if method == "NodePrepareResources" else dra_v1_pb2.NodeUnprepareResourcesRequest
        with grpc.insecure_channel(f"unix:{self._endpoint(driver)}") as channel:
            stub = dra_v1_pb2_grpc.DRAPluginStub(channel)
            answer = getattr(stub, method)(kind(claims=[asked]), timeout=_CALL_SECONDS, wait_for_ready=True)
        return str(answer.claims[meta["uid"]].error)

    def _endpoint(self, driver: str) -> str:
        """Return the driver's socket, as its registration names it."""

        def endpoint() -> str:
            for socket in (self.folder / "plugins_registry").glob("*.sock"):
                with grpc.insecure_channel(f"unix:{socket}") as channel, contextlib.suppress(grpc.RpcError):
                    info = registration_grpc.RegistrationStub(channel).GetInfo(registration.InfoRequest(), timeout=5)
                    if info.name == driver:
                        return str(info.endpoint)
            return ""

        return str(accounts.wait(f"the registration socket of {driver}", endpoint))

    def register(self, driver: str) -> None:
        """Tell the driver that the kubelet has registered it."""
        self._endpoint(driver)
        for socket in (self.folder / "plugins_registry").glob("*.sock"):
            with grpc.insecure_channel(f"unix:{socket}") as channel, contextlib.suppress(grpc.RpcError):
                status = registration.RegistrationStatus(plugin_registered=True)
                registration_grpc.RegistrationStub(channel).NotifyRegistrationStatus(status, timeout=5)


@contextlib.contextmanager
def running(kubeconfig: pathlib.Path, folder: pathlib.Path, *words: str, environment: dict[str, str] | None = None) -> Iterator[Process]:
    """Run a command of drakit until the block ends; its state is in ``folder``."""
    for name in ("plugins", "plugins_registry", "cdi"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    command = [sys.executable, "-m", "drakit", *words, "--kubeconfig", str(kubeconfig), "--log-format", "json"]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "KUBECONFIG": "", **(environment or {})}
    )
    assert child.stdout is not None
    output = child.stdout
    reader = threading.Thread(target=lambda: lines.extend(output), daemon=True)
    reader.start()
    try:
        yield Process(child=child, lines=lines, folder=folder)
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        reader.join(_END_SECONDS)


def doctor(
    kubeconfig: pathlib.Path, folder: pathlib.Path, node: str, family: str, machine: str, environment: dict[str, str]
) -> list[dict[str, str]]:
    """Return what ``drakit doctor`` says of the API server."""
    words = (
        "doctor",
        "--family",
        family,
        "--mock",
        machine,
        "--folder",
        str(folder),
        "--node",
        node,
        "--kubeconfig",
        str(kubeconfig),
        "-o",
        "json",
    )
    ran = subprocess.run(
        [sys.executable, "-m", "drakit", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KUBECONFIG": "", **environment},
    )
    assert ran.stdout, ran.stderr
    return [one for one in json.loads(ran.stdout) if one["topic"] == "api server"]
