"""A claim's sharing can be prepared on a mock machine as on the machine it pretends to be, or is refused with the reason and the fix."""

import json
import pathlib
import signal
import threading
from collections.abc import Iterator

import pytest

from drakit_gpu.sharing.mps import child_daemons, processes
from fakes import command_line, demo


def parameters(kind: str, **sharing: object) -> list[object]:
    given = {"apiVersion": "gpu.drakit.dev/v1", "kind": kind, "sharing": sharing}
    return [{"source": "FromClaim", "requests": ["gpu"], "opaque": {"driver": "gpu.drakit.dev", "parameters": given}}]


def daemons(shell: command_line.CommandLine) -> list[processes.Process]:
    folders = (shell.folder / "node" / "plugins" / "gpu.drakit.dev" / "mps").glob("*")
    return [one for folder in folders for one in processes.with_environment(f"{child_daemons.PIPE_VARIABLE}={folder / 'pipe'}")]


@pytest.fixture
def tmp_path() -> Iterator[pathlib.Path]:
    """A folder whose path leaves room for the sockets of daemons."""
    with demo.short_folder() as made:
        yield made


@pytest.fixture
def shared(shell: command_line.CommandLine) -> Iterator[command_line.CommandLine]:
    """A command line whose MPS daemons are killed at the end."""
    yield shell
    for one in daemons(shell):
        one.send(signal.SIGKILL)


def test_mps_on_a_partition_runs_a_daemon_until_the_claim_is_unprepared(shared: command_line.CommandLine) -> None:
    config = parameters(
        "MigConfig", strategy="MPS", mpsConfig={"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "1Gi"}
    )
    ran = shared.on_node("prepare", shared.claim_file(command_line.mig(), config=config))
    assert ran.status == 0, ran.err
    (daemon,) = daemons(shared)
    (cdi,) = (shared.folder / "node" / "cdi").glob("*.json")
    mounts = {mount["containerPath"] for device in json.loads(cdi.read_text())["devices"] for mount in device["containerEdits"]["mounts"]}
    assert {"/tmp/nvidia-mps", "/dev/shm"} <= mounts
    assert shared.on_node("prepare", shared.claim_file(command_line.mig(), config=config)).status == 0
    assert daemons(shared) == [daemon]
    assert shared.on_node("unprepare", command_line.UID).status == 0
    assert not daemons(shared)


@pytest.mark.parametrize(
    "what, sharing",
    [
        ("MPS: request a partition with a MigConfig", {"strategy": "MPS"}),
        ("time slices: request a partition", {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}),
    ],
)
def test_a_whole_gpu_in_mig_mode_is_refused_with_the_reason_and_the_fix(
    shared: command_line.CommandLine, what: str, sharing: dict[str, object]
) -> None:
    ran = shared.on_node("prepare", shared.claim_file(command_line.mig("gpu-0"), config=parameters("GpuConfig", **sharing)))
    assert ran.status == 1
    assert "is in MIG mode, in which a whole GPU has no " + what in ran.err
    assert ran.err.rstrip().endswith("or let its admin turn MIG mode off")
    assert not daemons(shared)


def test_a_mock_program_of_an_older_version_is_replaced(shared: command_line.CommandLine) -> None:
    program = shared.folder / "node" / "mock" / "driver-root" / "usr" / "bin" / child_daemons.CONTROL
    program.parent.mkdir(parents=True)
    program.write_text("")
    config = parameters("MigConfig", strategy="MPS")
    assert shared.on_node("prepare", shared.claim_file(command_line.mig(), config=config)).status == 0
    assert len(daemons(shared)) == 1
    assert [file.name for file in program.parent.iterdir() if file.name.startswith(".")] == []
    assert shared.on_node("unprepare", command_line.UID).status == 0


def test_a_mock_daemon_whose_folder_is_deleted_ends(shared: command_line.CommandLine) -> None:
    assert shared.on_node("prepare", shared.claim_file(command_line.mig(), config=parameters("MigConfig", strategy="MPS"))).status == 0
    (daemon,) = daemons(shared)
    (control,) = (shared.folder / "node" / "plugins" / "gpu.drakit.dev" / "mps").glob("*/pipe/control")
    control.unlink()
    waiting = threading.Event()
    assert any(is_gone(daemon) or waiting.wait(0.1) for _ in range(600)), "it looks every five seconds"


def is_gone(daemon: processes.Process) -> bool:
    processes.reap(daemon.pid)
    return not daemon.is_alive()
