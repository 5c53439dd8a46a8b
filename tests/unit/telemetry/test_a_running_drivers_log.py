"""What ``drakit run`` writes on standard error: one warning a refused claim, and faults of GPUs with their fields."""

import json
import pathlib
import time
from collections.abc import Callable, Iterator

import pytest
import yaml

from drakit import machines
from drakit._proto import dra_v1_pb2 as wire
from drakit._proto import dra_v1_pb2_grpc as services
from drakit.journal import journal
from drakit_gpu.mock import mock_gpus
from fakes import channels, command_line, demo, driver_process, forked_cli, waits

Lines = Callable[[], list[dict[str, object]]]


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    with demo.short_folder() as made:
        (made / "plugins_registry").mkdir(parents=True)
        config = {
            "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
        # A new journal is verified by the API server first, and this one is away.
        journal.Journal.open(made / "plugins" / "gpu.drakit.dev", driver="gpu.drakit.dev", boot_id="an earlier boot").close()
        (made / "kubeconfig").write_text(yaml.safe_dump(config))
        yield made


@pytest.fixture
def lines(folder: pathlib.Path, commands: forked_cli.Commands) -> Iterator[Lines]:
    """The lines of a driver of mock GPUs that serves, and whose API server is away."""
    places = ["--mock", command_line.MACHINE, "--node", "node-1", "--folder", str(folder), "--kubeconfig", str(folder / "kubeconfig")]
    command = driver_process.drakit("run", *places, "--family", "gpu", "--log-format", "json", "--log-level", "info")
    with driver_process.running(command, folder / "log", commands=commands) as driver:
        read = lambda: [json.loads(line) for line in driver.said().splitlines(keepends=True) if line.endswith("\n")]  # noqa: E731
        wait_for(read, "serving")
        yield read


def wait_for(lines: Lines, event: str) -> dict[str, object]:
    end = time.monotonic() + waits.SECONDS
    while time.monotonic() < end:
        for line in lines():
            if line["event"] == event:
                return line
        time.sleep(0.1)
    raise AssertionError(f"no line {event!r} in {lines()}")


def test_a_refused_claim_is_one_warning(folder: pathlib.Path, lines: Lines) -> None:
    asked = wire.NodePrepareResourcesRequest(claims=[wire.Claim(namespace="default", name="claim", uid=command_line.UID)])
    with channels.insecure(f"unix:{folder / 'plugins' / 'gpu.drakit.dev' / 'dra.sock'}") as channel:
        answer = services.DRAPluginStub(channel).NodePrepareResources(asked, timeout=waits.SECONDS)
    error = answer.claims[command_line.UID].error
    assert "no answer from the API server" in error
    (line,) = [one for one in lines() if one.get("claim") == "default/claim" and one["level"] != "info"]
    assert line["level"] == "warning"
    assert (line["event"], line["claim_uid"], line["error"]) == ("claim answered", command_line.UID, error)


def test_a_fault_of_a_gpu_is_a_line_with_fields(folder: pathlib.Path, lines: Lines) -> None:
    hardware = mock_gpus.MockGpus(machines.Choice(name=command_line.MACHINE, directory=folder / "mock", owner="node-1"))
    gpu = hardware.plugged()[0]
    hardware.lose(gpu.uuid)
    fault = wait_for(lines, "GPU fault")
    assert {"level": "warning", "logger": "drakit_gpu.health.monitor", "device": "gpu-0", "fatal": True}.items() <= fault.items()
    assert fault["fault"]
