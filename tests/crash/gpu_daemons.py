"""Worlds with MPS daemons, which are processes and so cannot be copied: each point is a cycle that ends where it began.

A daemon is a claim's and not the driver's: it is found again by pid file and start time, started again where it died, and gone with its claim.
Nothing that was started for a claim, no folder and no setting is left; what runs for another claim is not touched.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import signal
import tempfile
import threading
from collections.abc import Iterator

from crash import gpu_scenarios, killable_gpu_driver
from drakit.devices.gpu.sharing.mps import processes
from fakes import mps_daemon

MODEL = "h100-pcie-80gb"
GPU, SHARE, PARTITION = STORIES = "gpu", "share", "partition"
Looks = dict[str, object]


def parameters(kind: str) -> str:
    mps = {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 5}}
    return json.dumps({"apiVersion": "gpu.drakit.dev/v1", "kind": kind, "sharing": mps})


def cast_of(story: str) -> gpu_scenarios.ScenarioClaims:
    """A whole GPU for itself, a share of one beside another claim's, or a partition."""
    if story == GPU:
        return gpu_scenarios.ScenarioClaims(mine=killable_gpu_driver.Wants(device="gpu-0", parameters=parameters("GpuConfig")))
    if story == PARTITION:
        device = gpu_scenarios.named(gpu_scenarios.partitions(MODEL)[0])
        return gpu_scenarios.ScenarioClaims(mine=killable_gpu_driver.Wants(device=device, parameters=parameters("MigConfig")))
    share = functools.partial(killable_gpu_driver.Wants, device="gpu-0-shared", memory="1Gi", parameters=parameters("GpuConfig"))
    other = share(share=gpu_scenarios.OTHER_SHARE, uid=gpu_scenarios.OTHER)
    return gpu_scenarios.ScenarioClaims(mine=share(share=gpu_scenarios.SHARE), other=other)


def _settings(reported: list[str]) -> list[str]:
    return [
        line for at, line in enumerate(reported) if not line.startswith("get_") and not (line.startswith("set_") and line in reported[:at])
    ]


def look(node: gpu_scenarios.Node) -> Looks:
    """All of the node, what each daemon was told, and how many processes each is.

    A limit that is set again to the same value counts once: a driver that died before it noted the limits makes the next one set them again.
    """
    reported = {file.parents[1].name: _settings(file.read_text().splitlines()) for file in node.folder.glob("mps/*/pipe/told")}
    running = {name: len(found) for name, found in killable_gpu_driver.living(node.folder).items()}
    folders = sorted(place.name for place in node.folder.glob("mps/*"))
    return {**node.look(), "told": reported, "running": running, "folders": folders}


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """One node, the claim that is hurt in it, and the looks of it without that claim and with it, never hurt."""

    node: gpu_scenarios.Node
    parent: gpu_scenarios.Parent
    wants: killable_gpu_driver.Wants
    clean: Looks = dataclasses.field(default_factory=dict)
    prepared: Looks = dataclasses.field(default_factory=dict)

    def life(self, act: str, *, by_line: bool = False, falls: str = "itself") -> killable_gpu_driver.Life:
        return dataclasses.replace(self.node.life(act, self.wants), by_line=by_line, falls=falls)

    def must(self, act: str) -> int:
        return self.parent.finish(self.life(act))

    def steps(self, act: str, *, by_line: bool) -> int:
        """How many there are in a life that nothing hurts."""
        return self.parent.finish(self.life(act, by_line=by_line))

    def hurt(self, life: killable_gpu_driver.Life, at: int) -> None:
        """Kill the driver, or all daemons, at a step. Where daemons are waited for, a line may not be reached this time."""
        reported = self.parent.ask(life, at)
        if life.falls == "itself":
            assert reported == {"signal": signal.SIGKILL} or (life.by_line and reported["error"] == ""), reported

    def living(self) -> dict[str, list[processes.Process]]:
        return killable_gpu_driver.living(self.node.folder)

    def kill_daemons(self) -> None:
        """Kill them all, and see them dead: one that is about to die is taken for one that runs."""
        killed = [one for running in self.living().values() for one in running]
        for one in killed:
            one.send(signal.SIGKILL)
        waiting = threading.Event()
        assert any(not any(one.is_alive() for one in killed) or waiting.wait(0.01) for _ in range(3000))

    def is_clean(self, point: str) -> None:
        assert look(self.node) == self.clean, point

    def is_prepared(self, point: str) -> None:
        assert look(self.node) == self.prepared, point


@contextlib.contextmanager
def a_world(parent: gpu_scenarios.Parent, story: str) -> Iterator[World]:
    """A world in a folder with a short path, because MPS has a socket in it; whatever still runs in the end is killed."""
    reported = cast_of(story)
    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        place = pathlib.Path(folder)
        (place / "lab.yaml").write_text(gpu_scenarios.FILE.format(model=MODEL, mode="false"))
        node = gpu_scenarios.Node(folder=place / "world", file=place / "lab.yaml", root=mps_daemon.install(place / "root").path)
        world = World(node=node, parent=parent, wants=reported.mine)
        try:
            if reported.other is not None:
                dataclasses.replace(world, wants=reported.other).must("prepare")
            # Once through, so that a GPU has the mode that the first claim of all would leave it in.
            world.must("prepare")
            prepared = look(node)
            world.must("unprepare")
            yield dataclasses.replace(world, clean=look(node), prepared=prepared)
        finally:
            world.kill_daemons()


def points(world: World, acts: tuple[str, ...], *, by_line: bool) -> list[tuple[str, int]]:
    """Every step of some calls, or every line; the world is left clean."""
    found = []
    for act in acts:
        found += [(act, step) for step in range(world.steps(act, by_line=by_line))]
    return found


def check_call(world: World, act: str, step: int, *, by_line: bool, falls: str = "itself") -> None:
    """Hurt a call at a point; then start anew and give up, or let the kubelet retry and then unprepare."""
    point = f"{act} {'line' if by_line else 'step'} {step} {falls}"
    for given_up in (True, False) if act == "prepare" else (True,):
        if act == "unprepare":
            world.must("prepare")
        before = world.living()
        world.hurt(world.life(act, by_line=by_line, falls=falls), step)
        if not given_up:
            world.must("prepare")
            world.is_prepared(point)
        world.must("unprepare")
        world.is_clean(point)
        if falls == "itself":
            assert {name: running for name, running in before.items() if name in world.living()} == world.living(), (
                f"{point}: others' daemons"
            )


def check_start(world: World, step: int, *, by_line: bool) -> None:
    """Of a prepared claim the daemons died; the driver that starts is killed at a point, and the next finds or makes what is missing."""
    world.kill_daemons()
    world.hurt(world.life("start", by_line=by_line), step)
    world.must("start")
    world.is_prepared(f"start {'line' if by_line else 'step'} {step}")
