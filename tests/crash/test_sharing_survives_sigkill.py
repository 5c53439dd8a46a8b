"""A real SIGKILL around every step of preparing and unpreparing a GPU with settings and an MPS daemon.

In the end no process, folder or setting is left, and a retry in between makes the claim whole.
"""

import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from crash import gpu_victims
from drakit.devices.gpu import mock, port, processes
from fakes import mps_daemon

UID = "11111111-2222-3333-4444-555555555555"
SAMPLE = 3
MPS = {
    "apiVersion": "gpu.drakit.dev/v1",
    "kind": "GpuConfig",
    "sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 5}},
}
FILE = """
name: lab
description: one GPU
gpus:
  evidence: guessed
  driverVersion: 580.95.05
  cudaDriverVersion: "13.0"
  boards: [{model: h100-pcie-80gb, pciBusID: "0000:07:00.0", migMode: false}]
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """One node's world in a folder, and the parent of those who are killed in it."""

    folder: pathlib.Path
    file: pathlib.Path
    root: pathlib.Path
    running: "subprocess.Popen[str]"

    def ask(self, act: str, step: int | None = None) -> dict[str, object]:
        told = {"directory": str(self.folder), "machine": str(self.file), "root": str(self.root), "parameters": json.dumps(MPS)}
        assert self.running.stdin is not None
        assert self.running.stdout is not None
        self.running.stdin.write(json.dumps({**told, "act": act, "claim": UID, "device": "gpu-0", "step": step}) + "\n")
        self.running.stdin.flush()
        answer = json.loads(self.running.stdout.readline())
        assert isinstance(answer, dict)
        return answer

    def must(self, act: str) -> int:
        answer = self.ask(act)
        assert answer["error"] == "", answer
        steps = answer["steps"]
        assert isinstance(steps, int)
        return steps

    def kill(self, act: str, step: int) -> None:
        assert self.ask(act, step) == {"signal": signal.SIGKILL}

    def living(self) -> list[int]:
        """Everything that was started for a claim of this world."""
        marked = os.fsencode(f"CUDA_MPS_PIPE_DIRECTORY={self.folder}/")
        pids = (int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in pids if processes.Running.find(pid) and any(one.startswith(marked) for one in environment(pid))]

    def check_clean(self, point: str) -> None:
        hardware = mock.MockGpus(gpu_victims.choice(self.folder, str(self.file)))
        gpu = hardware.gpus()[0].uuid
        assert self.living() == [], point
        assert not list((self.folder / "mps").glob("*")), point
        assert hardware.compute_mode(gpu) is port.ComputeMode.DEFAULT, point
        assert not list((self.folder / "cdi").iterdir()), point
        with gpu_victims.open_journal(self.folder, str(self.file)) as memory:
            assert not list(memory.entries()), point

    def check_prepared(self, point: str) -> None:
        hardware = mock.MockGpus(gpu_victims.choice(self.folder, str(self.file)))
        assert hardware.compute_mode(hardware.gpus()[0].uuid) is port.ComputeMode.EXCLUSIVE_PROCESS, point
        assert len(self.living()) == 2, f"{point}: a daemon and its server"
        assert "set_default_active_thread_percentage 5" in mps_daemon.told(self.folder / "mps"), point


def environment(pid: int) -> list[bytes]:
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
    """A folder with a short path: MPS has a socket in it."""
    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        yield pathlib.Path(folder)


@pytest.fixture
def world(place: pathlib.Path) -> Iterator[World]:
    (place / "lab.yaml").write_text(FILE)
    root = mps_daemon.install(place / "root").path
    command = [sys.executable, "-m", "crash.gpu_victims"]
    python = {"PYTHONPATH": str(pathlib.Path(__file__).parents[1])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=python) as running:
        made = World(folder=place / "world", file=place / "lab.yaml", root=root, running=running)
        made.must("unprepare")
        yield made
        made.must("unprepare")
        assert running.stdin is not None
        running.stdin.close()


def check(world: World, act: str, step: int) -> None:
    """Kill at a point; start anew and give up, or let the kubelet retry and then unprepare."""
    point = f"{act} {step}"
    for given_up in (True, False) if act == "prepare" else (True,):
        if act == "unprepare":
            world.must("prepare")
        world.kill(act, step)
        if not given_up:
            world.must("prepare")
            world.check_prepared(point)
        world.must("unprepare")
        world.check_clean(point)


def points(world: World) -> list[tuple[str, int]]:
    prepare = world.must("prepare")
    world.check_prepared("never killed")
    unprepare = world.must("unprepare")
    world.check_clean("never killed")
    return [*(("prepare", step) for step in range(prepare)), *(("unprepare", step) for step in range(unprepare))]


def test_a_kill_at_a_sampled_point_leaves_no_daemon_and_no_setting(world: World) -> None:
    found = points(world)
    assert len(found) >= 40, "before and after every hardware call, journal write, file and move of the daemon"
    for act, step in random.Random("mps").sample(found, SAMPLE):
        check(world, act, step)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_kill_at_any_point_leaves_no_daemon_and_no_setting(world: World) -> None:
    for act, step in points(world):
        check(world, act, step)
