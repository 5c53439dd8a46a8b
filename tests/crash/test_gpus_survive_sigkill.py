"""A real SIGKILL before and after every hardware call, journal write and CDI file of prepare and unprepare, on every GPU table.

After a restart and the kubelet's retry the world is that of a node that never crashed: the same instances, journal and CDI files, other claims and
what an admin made untouched. The normal run takes a seeded sample of the points, the full one every point of every table.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from crash import gpu_victims
from drakit.devices.gpu import machine, mig, mock, port

UID, OTHER = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"
TABLES = tuple(name for name in machine.model_names() if machine.load_model(name).profiles)
SAMPLE = 4
FILE = """
name: lab
description: one GPU
gpus:
  evidence: guessed
  driverVersion: 580.95.05
  cudaDriverVersion: "13.0"
  boards: [{{model: {model}, pciBusID: "0000:07:00.0", migMode: {mode}}}]
"""


class Parent:
    """The process that forks the victims."""

    def __init__(self, running: "subprocess.Popen[str]") -> None:
        self._running = running

    def ask(self, node: "Node", act: str, *, device: str, claim: str = UID, step: int | None = None) -> dict[str, object]:
        assert self._running.stdin is not None
        assert self._running.stdout is not None
        command = {"directory": str(node.folder), "machine": str(node.file), "act": act, "claim": claim, "device": device, "step": step}
        self._running.stdin.write(f"{json.dumps(command)}\n")
        self._running.stdin.flush()
        told = json.loads(self._running.stdout.readline())
        assert isinstance(told, dict)
        return told

    def must(self, node: "Node", act: str, *, device: str, claim: str = UID) -> int:
        """A call that nothing interrupts; how many steps it took."""
        told = self.ask(node, act, device=device, claim=claim)
        assert told["error"] == "", told
        steps = told["steps"]
        assert isinstance(steps, int)
        return steps

    def kill(self, node: "Node", act: str, *, device: str, step: int) -> None:
        """A call that is killed at a step."""
        assert self.ask(node, act, device=device, step=step) == {"signal": signal.SIGKILL}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """One node's world in a folder."""

    folder: pathlib.Path
    file: pathlib.Path

    def copy(self, folder: pathlib.Path) -> "Node":
        shutil.copytree(self.folder, folder)
        return Node(folder=folder, file=self.file)

    @property
    def hardware(self) -> mock.MockGpus:
        return mock.MockGpus(gpu_victims.choice(self.folder, str(self.file)))

    def look(self, *, mode: bool = True) -> dict[str, object]:
        """All there is: the GPU's mode and instances, the journal's claims and what they remember, and the CDI files."""
        hardware = self.hardware
        (gpu,) = hardware.gpus()
        with gpu_victims.open_journal(self.folder, str(self.file)) as memory:
            entries = {
                entry.claim.uid: (entry.state.value, [(one.device.name, dict(one.intent), dict(one.record)) for one in entry.grants])
                for entry in memory.entries()
            }
        return {
            "mode": hardware.mig_mode(gpu.uuid) if mode else None,
            "instances": [(item, hardware.compute_instances(gpu.uuid, item.id)) for item in hardware.gpu_instances(gpu.uuid)],
            "claims": entries,
            "files": {file.name: file.read_text("utf-8") for file in sorted((self.folder / "cdi").iterdir())},
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Story:
    """A world before the call, its device, and what a node that never crashed looks like after prepare and after unprepare."""

    name: str
    device: str
    before: Node
    prepared: Node
    after_prepare: dict[str, object]
    after_unprepare: dict[str, object]
    prepare_steps: int
    unprepare_steps: int

    @property
    def points(self) -> list[tuple[str, int]]:
        prepare = [("prepare", step) for step in range(self.prepare_steps)]
        return [*prepare, *(("unprepare", step) for step in range(self.unprepare_steps))]


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    environment = {"PYTHONPATH": str(pathlib.Path(__file__).parents[1])}
    command = [sys.executable, "-m", "crash.gpu_victims"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as running:
        yield Parent(running)
        assert running.stdin is not None
        running.stdin.close()


@functools.cache
def partitions(model: str) -> tuple[mig.Partition, mig.Partition, mig.Partition]:
    """Three partitions of one GPU that can lie side by side: the claim's, another claim's, an admin's."""
    found = mig.partitions(machine.load_model(model).profiles.values())
    mine = next(item for item in found if item.profile.slices == 2)
    rest = [item for item in found if not item.placement.overlaps(mine.placement)]
    other = rest[0]
    admin = next(item for item in rest if not item.placement.overlaps(other.placement) and item.profile.id not in {mine.profile.id, 20, 21})
    return mine, other, admin


def named(partition: mig.Partition) -> str:
    return f"gpu-0-mig-{mig.slug(partition.profile)}-{partition.placement.start}"


def story(parent: Parent, folder: pathlib.Path, model: str, kind: str) -> Story:
    """``alone`` on an empty GPU, ``beside`` another claim and an admin's MIG device, or ``whole``: the GPU itself."""
    folder.mkdir()
    at_once = machine.load_model(model).compute_capability >= (9, 0)
    mode = (kind == "whole") == at_once or kind == "beside" or (kind == "alone" and not at_once)
    (folder / "lab.yaml").write_text(FILE.format(model=model, mode=str(mode).lower()))
    before = Node(folder=folder / "before", file=folder / "lab.yaml")
    mine, other, admin = partitions(model)
    if kind == "beside":
        parent.must(before, "prepare", device=named(other), claim=OTHER)
        admin_makes(before.hardware, admin)
    device = "gpu-0" if kind == "whole" else named(mine)
    parent.must(before, "unprepare", device=device)  # nothing to do but to boot the machine and open the journal, once for all copies
    prepared = before.copy(folder / "prepared")
    prepare_steps = parent.must(prepared, "prepare", device=device)
    done = prepared.copy(folder / "done")
    unprepare_steps = parent.must(done, "unprepare", device=device)
    return Story(
        name=f"{model}-{kind}",
        device=device,
        before=before,
        prepared=prepared,
        after_prepare=prepared.look(),
        after_unprepare=done.look(),
        prepare_steps=prepare_steps,
        unprepare_steps=unprepare_steps,
    )


def admin_makes(hardware: mock.MockGpus, partition: mig.Partition) -> None:
    (gpu,) = hardware.gpus()
    made = hardware.create_gpu_instance(gpu.uuid, partition.profile.id, partition.placement)
    whole = max(hardware.compute_instance_profiles(gpu.uuid, made.id), key=lambda item: item.slices)
    hardware.create_compute_instance(gpu.uuid, made.id, whole.id)


def check(parent: Parent, told: Story, act: str, step: int, folder: pathlib.Path) -> None:
    """Kill at a point, start anew, let the kubelet retry, and compare with the node that never crashed."""
    point = f"{told.name} {act} {step}"
    node = (told.before if act == "prepare" else told.prepared).copy(folder)
    parent.kill(node, act, device=told.device, step=step)
    if act == "prepare":
        given_up = node.copy(folder.with_name(f"{folder.name}-given-up"))
        parent.must(given_up, "unprepare", device=told.device)
        assert given_up.look(mode=False) == {**told.after_unprepare, "mode": None}, point
        parent.must(node, "prepare", device=told.device)
        assert node.look() == told.after_prepare, point
        shutil.rmtree(given_up.folder)
    parent.must(node, "unprepare", device=told.device)
    assert node.look() == told.after_unprepare, point
    shutil.rmtree(node.folder)


def stories(parent: Parent, folder: pathlib.Path, model: str) -> list[Story]:
    return [story(parent, folder / kind, model, kind) for kind in ("alone", "beside", "whole")]


@pytest.mark.parametrize("model", TABLES)
def test_a_kill_at_a_sampled_point_changes_nothing_in_the_end(parent: Parent, tmp_path: pathlib.Path, model: str) -> None:
    chance = random.Random(model)
    kind = ("alone", "beside", "whole")[TABLES.index(model) % 3]
    told = story(parent, tmp_path / kind, model, kind)
    assert len(told.points) >= 24, "before and after every journal write, every file and every hardware call"
    for act, step in chance.sample(told.points, SAMPLE):
        check(parent, told, act, step, tmp_path / f"{act}-{step}")


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", TABLES)
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
    told = story(parent, tmp_path / "s", TABLES[0], "alone")
    node = told.before.copy(tmp_path / "beyond")
    answer = parent.ask(node, "prepare", device=told.device, step=told.prepare_steps)
    assert answer == {"error": "", "steps": told.prepare_steps}
    assert port.MigMode(current=True, pending=True) == node.look()["mode"]
