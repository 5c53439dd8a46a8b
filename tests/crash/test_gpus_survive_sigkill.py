"""A real SIGKILL before and after every hardware call, journal write and CDI file of prepare and unprepare, on every GPU table.

After a restart and the kubelet's retry the world is that of a node that never crashed: the same instances, journal and CDI files, other claims and
what an admin made untouched. The normal run takes a seeded sample of the points, the full one every point of every table.
"""

import contextlib
import json
import pathlib
import random
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from crash import gpu_stories
from drakit.devices.gpu import port

SAMPLE = 4


class Parent:
    """The process that forks the victims."""

    def __init__(self, running: "subprocess.Popen[str]") -> None:
        self._running = running

    def ask(
        self, node: gpu_stories.Node, act: str, *, device: str, claim: str = gpu_stories.UID, step: int | None = None
    ) -> dict[str, object]:
        assert self._running.stdin is not None
        assert self._running.stdout is not None
        command = {"directory": str(node.folder), "machine": str(node.file), "act": act, "claim": claim, "device": device, "step": step}
        self._running.stdin.write(f"{json.dumps(command)}\n")
        self._running.stdin.flush()
        told = json.loads(self._running.stdout.readline())
        assert isinstance(told, dict)
        return told

    def must(self, node: gpu_stories.Node, act: str, *, device: str, claim: str = gpu_stories.UID) -> int:
        """A call that nothing interrupts; how many steps it took."""
        told = self.ask(node, act, device=device, claim=claim)
        assert told["error"] == "", told
        steps = told["steps"]
        assert isinstance(steps, int)
        return steps

    def kill(self, node: gpu_stories.Node, act: str, *, device: str, step: int) -> None:
        """A call that is killed at a step."""
        assert self.ask(node, act, device=device, step=step) == {"signal": signal.SIGKILL}


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    environment = {"PYTHONPATH": str(pathlib.Path(__file__).parents[1])}
    command = [sys.executable, "-m", "crash.gpu_victims"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as running:
        yield Parent(running)
        assert running.stdin is not None
        running.stdin.close()


def check(parent: Parent, told: gpu_stories.Story, act: str, step: int, folder: pathlib.Path) -> None:
    """Kill at a point, start anew, let the kubelet retry, and compare with the node that never crashed."""
    node = (told.before if act == "prepare" else told.prepared).copy(folder)
    parent.kill(node, act, device=told.device, step=step)
    gpu_stories.judge(parent, told, act, node, f"{told.name} {act} {step}")


def stories(parent: Parent, folder: pathlib.Path, model: str) -> list[gpu_stories.Story]:
    return [gpu_stories.story(parent, folder / kind, model, kind) for kind in gpu_stories.KINDS]


@pytest.mark.parametrize("model", gpu_stories.TABLES)
def test_a_kill_at_a_sampled_point_changes_nothing_in_the_end(parent: Parent, tmp_path: pathlib.Path, model: str) -> None:
    chance = random.Random(model)
    kind = gpu_stories.KINDS[gpu_stories.TABLES.index(model) % 3]
    told = gpu_stories.story(parent, tmp_path / kind, model, kind)
    assert len(told.points) >= 24, "before and after every journal write, every file and every hardware call"
    for act, step in chance.sample(told.points, SAMPLE):
        check(parent, told, act, step, tmp_path / f"{act}-{step}")


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", gpu_stories.TABLES)
def test_a_kill_at_any_point_changes_nothing_in_the_end(
    parent: Parent, tmp_path: pathlib.Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    points = 0
    for told in stories(parent, tmp_path, model):
        for act, step in told.points:
            check(parent, told, act, step, tmp_path / f"{act}-{step}")
            points += 1
    with contextlib.suppress(AttributeError), capsys.disabled():
        print(f"\n{model}: {points} points")  # noqa: T201 - the matrix says how large it was
    assert points > 100


def test_a_parent_tells_of_a_life_that_was_not_ended(parent: Parent, tmp_path: pathlib.Path) -> None:
    """A step beyond the last kills nobody: the points are all there are."""
    told = gpu_stories.story(parent, tmp_path / "s", gpu_stories.TABLES[0], "alone")
    node = told.before.copy(tmp_path / "beyond")
    answer = parent.ask(node, "prepare", device=told.device, step=told.prepare_steps)
    assert answer == {"error": "", "steps": told.prepare_steps}
    assert port.MigMode(current=True, pending=True) == node.look()["mode"]
