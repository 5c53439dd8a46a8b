"""Worlds of one GPU to be hurt at every step, and what they look like where nothing went wrong.

A ``Story`` is a world before a call, what the claim wants, and the looks of a node that was never hurt after prepare and after unprepare. Who
serves the calls is the caller's choice: a process that can be killed (``Parent``), or this one (``Here``).
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import shutil
import signal
from collections.abc import Callable, Iterator
from typing import Protocol

from crash import killable_gpu_driver
from drakit.node import inventory_cache
from drakit_gpu.mig import partitioning
from drakit_gpu.mock import machine, mock_gpus
from fakes import forked_cli

OTHER = "99999999-2222-3333-4444-555555555555"
SHARE, OTHER_SHARE = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
TABLES = tuple(name for name in machine.model_names() if machine.load_model(name).profiles)
ALONE, BESIDE, WHOLE = "alone", "beside", "whole"
SLICE, FIRST_SHARE, SECOND_SHARE, FIRST_SLICE, SECOND_SLICE = "slice", "first-share", "second-share", "first-slice", "second-slice"
KINDS = (ALONE, BESIDE, WHOLE, SLICE, FIRST_SHARE, SECOND_SHARE, FIRST_SLICE, SECOND_SLICE)
TIME_SLICE = json.dumps(
    {
        "apiVersion": "gpu.drakit.dev/v1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
    }
)
Record = Callable[[str, object], None]
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

    def must(self, node: "Node", act: str, wants: killable_gpu_driver.Wants) -> int:
        """A call that nothing interrupts; how many steps it took."""


class InThisProcess:
    """Lives in this process."""

    def live(
        self,
        node: "Node",
        act: str,
        wants: killable_gpu_driver.Wants,
        stepper: killable_gpu_driver.Stepper,
        known: inventory_cache.InventoryCache | None = None,
    ) -> str:
        """A call that is hurt as the stepper says; the error it answered. See ``serve`` for what is ``known``."""
        return str(killable_gpu_driver.serve(node.life(act, wants), stepper, known)["error"])

    def must(self, node: "Node", act: str, wants: killable_gpu_driver.Wants) -> int:
        stepper = killable_gpu_driver.Stepper()
        error = self.live(node, act, wants, stepper)
        assert not error, error
        return stepper.passed

    def names(self, node: "Node", act: str, wants: killable_gpu_driver.Wants) -> list[str]:
        """The steps of a call that nothing interrupts."""
        stepper = killable_gpu_driver.Stepper()
        assert not self.live(node, act, wants, stepper)
        return stepper.names


class Parent:
    """The process that forks those who can be killed."""

    def __init__(self, running: forked_cli.Talk) -> None:
        self._running = running

    def ask(self, life: killable_gpu_driver.Life, at: int | None = None) -> dict[str, object]:
        """How a life ended; one that ``at`` is given is to be hurt at that step."""
        result = json.loads(self._running.ask(json.dumps({**dataclasses.asdict(life), "at": at})))
        assert isinstance(result, dict)
        return result

    def finish(self, life: killable_gpu_driver.Life, at: int | None = None) -> list[str]:
        """Return the names of the steps of a life that nothing interrupts; ``at`` may be a step beyond its last."""
        result = self.ask(life, at)
        assert result["error"] == "", result
        steps = result["steps"]
        assert isinstance(steps, list)
        return steps

    def must(self, node: "Node", act: str, wants: killable_gpu_driver.Wants) -> int:
        return len(self.finish(node.life(act, wants)))

    def kill(self, node: "Node", act: str, wants: killable_gpu_driver.Wants, step: int) -> None:
        """A call that is killed at a step."""
        assert self.ask(node.life(act, wants), step) == {"signal": signal.SIGKILL}


@contextlib.contextmanager
def a_parent(commands: forked_cli.Commands) -> Iterator[Parent]:
    """A parent that lives as long as it is needed."""
    with commands.talk("-m", "crash.killable_gpu_driver") as running:
        yield Parent(running)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """One node's world in a folder; its machine's file, where the GPU driver's programs are, and the socket of what runs MPS pods."""

    folder: pathlib.Path
    file: pathlib.Path
    root: pathlib.Path = pathlib.Path("/")
    kubelet: str = ""

    def life(self, act: str, wants: killable_gpu_driver.Wants) -> killable_gpu_driver.Life:
        folder, file = str(self.folder), str(self.file)
        return killable_gpu_driver.Life(directory=folder, machine=file, act=act, wants=wants, root=str(self.root), kubelet=self.kubelet)

    def copy(self, folder: pathlib.Path) -> "Node":
        shutil.copytree(self.folder, folder)
        return Node(folder=folder, file=self.file)

    @property
    def hardware(self) -> mock_gpus.MockGpus:
        return mock_gpus.MockGpus(killable_gpu_driver.choice(self.folder, str(self.file)))

    def look(self, *, mode: bool = True) -> dict[str, object]:
        """All there is: the GPU's modes and instances, the journal's claims and what they remember, and the CDI files."""
        hardware = self.hardware
        (gpu,) = hardware.gpus()
        with killable_gpu_driver.open_journal(self.folder, str(self.file)) as memory:
            entries = {
                entry.claim.uid: (entry.state.value, [(one.device.name, dict(one.intent), dict(one.record)) for one in entry.grants])
                for entry in memory.entries()
            }
        return {
            "mode": hardware.mig_mode(gpu.uuid) if mode else None,
            "settings": (hardware.compute_mode(gpu.uuid), hardware.time_slice(gpu.uuid)),
            "instances": [(item, hardware.compute_instances(gpu.uuid, item.id)) for item in hardware.gpu_instances(gpu.uuid)],
            "claims": entries,
            "made": sorted(file.name for file in (self.folder / "made").glob("*")),
            "files": {file.name: file.read_text("utf-8") for file in sorted((self.folder / "cdi").iterdir())},
        }

    def whole(self) -> str:
        """All that a driver started now would find: what ``look`` shows, and the hardware's own memory and the marks to the last character."""
        files = [*(self.folder / "machine").glob("gpus.json"), *sorted((self.folder / "made").glob("*"))]
        return repr((self.look(), [(file.name, file.read_text("utf-8")) for file in files]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scenario:
    """A world before the call, what is wanted, and what a node that never crashed looks like after prepare and after unprepare."""

    name: str
    wants: killable_gpu_driver.Wants
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
def partitions(model: str) -> tuple[partitioning.Partition, partitioning.Partition, partitioning.Partition]:
    """Three partitions of one GPU that can lie side by side: the claim's, another claim's, an admin's."""
    found = partitioning.partitions(machine.load_model(model).profiles.values())
    mine = next(item for item in found if item.profile.slices == 2)
    rest = [item for item in found if not item.placement.overlaps(mine.placement)]
    other = rest[0]
    admin = next(item for item in rest if not item.placement.overlaps(other.placement) and item.profile.id not in {mine.profile.id, 20, 21})
    return mine, other, admin


def named(partition: partitioning.Partition) -> str:
    return f"gpu-0-mig-{partitioning.profile_slug(partition.profile)}-{partition.placement.start}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScenarioClaims:
    """Who is in a story: the claim, and another that is prepared before and stays."""

    mine: killable_gpu_driver.Wants
    other: killable_gpu_driver.Wants | None = None


def claims_of_kind(model: str, kind: str) -> ScenarioClaims:
    """The claims of a kind of story."""
    first, second, _ = map(named, partitions(model))
    shared = functools.partial(killable_gpu_driver.Wants, share=SHARE, memory="1Gi")
    partition, whole = f"{first}-shared", "gpu-0-shared"
    sliced = shared(device=whole, parameters=TIME_SLICE)
    return {
        ALONE: ScenarioClaims(mine=killable_gpu_driver.Wants(device=first)),
        BESIDE: ScenarioClaims(mine=killable_gpu_driver.Wants(device=first), other=killable_gpu_driver.Wants(device=second, uid=OTHER)),
        WHOLE: ScenarioClaims(mine=killable_gpu_driver.Wants(device="gpu-0")),
        SLICE: ScenarioClaims(mine=killable_gpu_driver.Wants(device="gpu-0", parameters=TIME_SLICE)),
        FIRST_SHARE: ScenarioClaims(mine=shared(device=partition)),
        SECOND_SHARE: ScenarioClaims(mine=shared(device=partition), other=shared(device=partition, uid=OTHER, share=OTHER_SHARE)),
        FIRST_SLICE: ScenarioClaims(mine=sliced),
        SECOND_SLICE: ScenarioClaims(mine=sliced, other=dataclasses.replace(sliced, uid=OTHER, share=OTHER_SHARE)),
    }[kind]


def story(server: Server, folder: pathlib.Path, model: str, kind: str) -> Scenario:
    """A partition ``alone`` on an empty GPU, or ``beside`` another claim's and an admin's, or the ``whole`` GPU, or that with a time ``slice``.

    Of what is shared, the ``first-share`` makes a partition, and ends it as the last; the ``second-share`` comes and goes beside another. The same
    with whole GPUs that have a time slice.
    """
    folder.mkdir()
    at_once = machine.load_model(model).compute_capability >= (9, 0)
    is_whole = kind in {WHOLE, SLICE, FIRST_SLICE, SECOND_SLICE}
    # Where the hardware lets the driver, it finds the mode that it has to change.
    mode = is_whole == at_once or kind == BESIDE
    (folder / "lab.yaml").write_text(FILE.format(model=model, mode=str(mode).lower()))
    before = Node(folder=folder / "before", file=folder / "lab.yaml")
    result = claims_of_kind(model, kind)
    if result.other is not None:
        server.must(before, "prepare", result.other)
    if kind == BESIDE:
        admin_makes(before.hardware, partitions(model)[2])
    server.must(before, "unprepare", result.mine)  # nothing to do but to boot the machine and open the journal, once for all copies
    prepared = before.copy(folder / "prepared")
    prepare_steps = server.must(prepared, "prepare", result.mine)
    done = prepared.copy(folder / "done")
    unprepare_steps = server.must(done, "unprepare", result.mine)
    return Scenario(
        name=f"{model}-{kind}",
        wants=result.mine,
        before=before,
        prepared=prepared,
        after_prepare=prepared.look(),
        after_unprepare=done.look(),
        prepare_steps=prepare_steps,
        unprepare_steps=unprepare_steps,
    )


def admin_makes(hardware: mock_gpus.MockGpus, partition: partitioning.Partition) -> None:
    (gpu,) = hardware.gpus()
    made = hardware.create_gpu_instance(gpu.uuid, partition.profile.id, partition.placement)
    whole = max(hardware.compute_instance_profiles(gpu.uuid, made), key=lambda item: item.slices)
    hardware.create_compute_instance(gpu.uuid, made.id, whole.id)


def judge(server: Server, result: Scenario, act: str, node: Node, point: str) -> None:
    """After a call was hurt and the fault is gone: a claim that is given up leaves nothing, a retry ends as if nothing had happened."""
    if act == "prepare":
        given_up = node.copy(node.folder.with_name(f"{node.folder.name}-given-up"))
        server.must(given_up, "unprepare", result.wants)
        assert given_up.look(mode=False) == {**result.after_unprepare, "mode": None}, point
        shutil.rmtree(given_up.folder)
        server.must(node, "prepare", result.wants)
        assert node.look() == result.after_prepare, point
    server.must(node, "unprepare", result.wants)
    assert node.look() == result.after_unprepare, point
    shutil.rmtree(node.folder)
