"""Worlds of one GPU to be hurt at every step, and what they look like where nothing went wrong.

A ``Story`` is a world before a call, the device of the claim, and the looks of a node that was never hurt after prepare and after unprepare. Who
serves the calls is the caller's choice: a process that can be killed (``test_gpus_survive_sigkill``), or this one (``Here``).
"""

import dataclasses
import functools
import pathlib
import shutil
from typing import Protocol

from crash import gpu_victims
from drakit.devices.gpu import machine, mig, mock

UID, OTHER = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"
TABLES = tuple(name for name in machine.model_names() if machine.load_model(name).profiles)
KINDS = ("alone", "beside", "whole")
FILE = """
name: lab
description: one GPU
gpus:
  evidence: guessed
  driverVersion: 580.95.05
  cudaDriverVersion: "13.0"
  boards: [{{model: {model}, pciBusID: "0000:07:00.0", migMode: {mode}}}]
"""


class Server(Protocol):
    """Who lives the lives of a driver."""

    def must(self, node: "Node", act: str, *, device: str, claim: str = UID) -> int:
        """A call that nothing interrupts; how many steps it took."""


class Here:
    """Lives in this process."""

    def live(self, node: "Node", act: str, *, device: str, stepper: gpu_victims.Stepper, claim: str = UID) -> str:
        """A call that is hurt as the stepper says; the error it answered."""
        command = {"directory": str(node.folder), "machine": str(node.file), "act": act, "claim": claim, "device": device}
        return str(gpu_victims.serve(command, stepper)["error"])

    def must(self, node: "Node", act: str, *, device: str, claim: str = UID) -> int:
        stepper = gpu_victims.Stepper()
        error = self.live(node, act, device=device, stepper=stepper, claim=claim)
        assert not error, error
        return stepper.passed

    def names(self, node: "Node", act: str, *, device: str) -> list[str]:
        """The steps of a call that nothing interrupts."""
        stepper = gpu_victims.Stepper()
        assert not self.live(node, act, device=device, stepper=stepper)
        return stepper.names


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
            "made": sorted(file.name for file in (self.folder / "made").glob("*")),
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


def story(server: Server, folder: pathlib.Path, model: str, kind: str) -> Story:
    """``alone`` on an empty GPU, ``beside`` another claim and an admin's MIG device, or ``whole``: the GPU itself."""
    folder.mkdir()
    at_once = machine.load_model(model).compute_capability >= (9, 0)
    mode = (kind == "whole") == at_once or kind == "beside" or (kind == "alone" and not at_once)
    (folder / "lab.yaml").write_text(FILE.format(model=model, mode=str(mode).lower()))
    before = Node(folder=folder / "before", file=folder / "lab.yaml")
    mine, other, admin = partitions(model)
    if kind == "beside":
        server.must(before, "prepare", device=named(other), claim=OTHER)
        admin_makes(before.hardware, admin)
    device = "gpu-0" if kind == "whole" else named(mine)
    server.must(before, "unprepare", device=device)  # nothing to do but to boot the machine and open the journal, once for all copies
    prepared = before.copy(folder / "prepared")
    prepare_steps = server.must(prepared, "prepare", device=device)
    done = prepared.copy(folder / "done")
    unprepare_steps = server.must(done, "unprepare", device=device)
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


def judge(server: Server, told: Story, act: str, node: Node, point: str) -> None:
    """After a call was hurt and the fault is gone: a claim that is given up leaves nothing, a retry ends as if nothing had happened."""
    if act == "prepare":
        given_up = node.copy(node.folder.with_name(f"{node.folder.name}-given-up"))
        server.must(given_up, "unprepare", device=told.device)
        assert given_up.look(mode=False) == {**told.after_unprepare, "mode": None}, point
        shutil.rmtree(given_up.folder)
        server.must(node, "prepare", device=told.device)
        assert node.look() == told.after_prepare, point
    server.must(node, "unprepare", device=told.device)
    assert node.look() == told.after_unprepare, point
    shutil.rmtree(node.folder)
