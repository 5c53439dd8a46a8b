"""``drakit show`` has the health of devices, as the driver that runs reports it."""

import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence

import pytest

from drakit.core import claim as claims
from drakit.core import context, names, ports
from drakit.kubelet import dra, health, server
from drakit.node import timing
from fakes import command_line


class NoClaims:
    """A ``ports.ClaimEngine`` that nobody asks."""

    def prepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, claims.Outcome]:
        raise AssertionError(refs)

    def unprepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, str]:
        raise AssertionError(refs)


@pytest.fixture
def board() -> health.HealthBoard:
    return health.HealthBoard("node-1", timing.SystemClock())


@pytest.fixture
def running(shell: command_line.CommandLine, board: health.HealthBoard) -> Iterator[None]:
    """The service socket of the GPU driver of the mock node; tests have short names, because a socket's path may have 107 bytes."""
    home = shell.folder / "node" / "plugins" / "gpu.drakit.dev"
    home.mkdir(parents=True)
    short = pathlib.Path(tempfile.mkdtemp(prefix="dra"))
    started = server.SocketServer(short / "dra.sock", dra.register(NoClaims(), board), threads=12)
    started.start()
    (home / "dra.sock").symlink_to(short / "dra.sock")
    yield
    board.close()
    started.stop(grace=0)
    shutil.rmtree(short)


@pytest.mark.usefixtures("running")
def test_show_prints_the_health_of_devices(shell: command_line.CommandLine, board: health.HealthBoard) -> None:
    board.discovered(dict.fromkeys(["gpu-0", "gpu-1"], "node-1"))
    board.report("gpu-0", context.Health.UNHEALTHY, "XID 79")
    shown = shell.on_node("show", "--family", "gpu").out
    [header] = [line for line in shown.splitlines() if line.startswith("DEVICE")]
    assert header.split()[-1] == "HEALTH"
    rows = {line.split()[0]: line for line in shown.splitlines() if line.startswith("gpu-")}
    assert rows["gpu-0"].endswith("Unhealthy: XID 79")
    assert rows["gpu-1"].endswith("Healthy")
    (document,) = json.loads(shell.on_node("show", "--family", "gpu", "-o", "json").out)
    states = {device["name"]: device["health"] for device in document["devices"]}
    assert states["gpu-0"] == {"state": "Unhealthy", "message": "XID 79"}
    assert states["gpu-1"] == {"state": "Healthy", "message": ""}


def test_no_health_is_shown_while_no_driver_runs(shell: command_line.CommandLine) -> None:
    assert "HEALTH" not in shell.on_node("show", "--family", "gpu").out
    (document,) = json.loads(shell.on_node("show", "--family", "gpu", "-o", "json").out)
    assert all(device["health"] is None for device in document["devices"])
