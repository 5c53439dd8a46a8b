"""Worlds with MPS daemons, which are processes of pods and so cannot be copied: each point is a cycle that ends where it began.

A daemon is a claim's and not the driver's: the next driver finds it, creates a pod for it where that is over, and it is gone with its claim. Nothing
that was started for a claim, no pod, no folder and no setting is left; what runs for another claim is not touched.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import signal
import tempfile
from collections.abc import Iterator

from crash import gpu_scenarios, killable_gpu_driver
from drakit_gpu.sharing.mps import control_daemon, processes
from fakes import mps_daemon, mps_pods, waits

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


def look(node: gpu_scenarios.Node, kubelet: mps_pods.FakePods) -> Looks:
    """All of the node, what each daemon was told, how many processes each is, and how many pods there are."""
    reported = {file.parents[1].name: _settings(file.read_text().splitlines()) for file in node.folder.glob("mps/*/pipe/told")}
    running = {name: len(found) for name, found in mps_pods.living(node.folder / "mps").items()}
    folders = sorted(place.name for place in node.folder.glob("mps/*"))
    return {**node.look(), "told": reported, "running": running, "folders": folders, "pods": len(kubelet.names())}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """A point of a call or of a start at which a test kills: the step, or the line, with its number and its name."""

    act: str
    number: int
    name: str
    by_line: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """One node, the claim that is hurt in it, and the looks of it without that claim and with it, never hurt."""

    node: gpu_scenarios.Node
    parent: gpu_scenarios.Parent
    kubelet: mps_pods.FakePods
    wants: killable_gpu_driver.Wants
    clean: Looks = dataclasses.field(default_factory=dict)
    prepared: Looks = dataclasses.field(default_factory=dict)

    def must(self, act: str) -> None:
        """A life that nothing interrupts; a pod that waits to be started again makes the kubelet retry the call."""
        answers: list[dict[str, object]] = []

        def is_over() -> bool:
            answers.append(killable_gpu_driver.live(self.node.life(act, self.wants), killable_gpu_driver.Stepper()))
            return control_daemon.CONTROL not in str(answers[-1].get("error"))

        waits.eventually(is_over)
        assert answers[-1]["error"] == "", answers[-1]

    def points(self, *acts: str, by_line: bool) -> list[Point]:
        """Return every step, or every line, of some lives that nothing interrupts."""
        lives = [(act, dataclasses.replace(self.node.life(act, self.wants), by_line=by_line)) for act in acts]
        return [
            Point(act=act, number=number, name=name, by_line=by_line)
            for act, life in lives
            for number, name in enumerate(self.parent.finish(life))
        ]

    def hurt(self, point: Point, falls: str = "itself") -> None:
        """Kill the driver, or all daemons, at a point. Where daemons are waited for, a line may not be reached this time."""
        life = dataclasses.replace(self.node.life(point.act, self.wants), by_line=point.by_line, falls=falls)
        reported = self.parent.ask(life, point.number)
        if falls == "itself":
            assert reported == {"signal": signal.SIGKILL} or (point.by_line and reported["error"] == ""), (point, reported)

    def living(self) -> dict[str, list[processes.Process]]:
        return mps_pods.living(self.node.folder / "mps")

    def end_pods(self) -> None:
        """End all pods, which the kubelet does not start again."""
        for name in list(self.kubelet.pods):
            self.kubelet.evict(name)

    def is_clean(self, point: object) -> None:
        assert waits.eventually(lambda: look(self.node, self.kubelet) == self.clean), (point, look(self.node, self.kubelet))

    def is_prepared(self, point: object) -> None:
        """A driver that starts does not wait for the daemon that it starts."""
        assert waits.eventually(lambda: look(self.node, self.kubelet) == self.prepared), (point, look(self.node, self.kubelet))


@contextlib.contextmanager
def a_world(parent: gpu_scenarios.Parent, story: str) -> Iterator[World]:
    """A world in a folder with a short path, because MPS has a socket in it; all pods end with it."""
    reported = cast_of(story)
    with tempfile.TemporaryDirectory(prefix="dk", dir="/tmp") as folder:
        place = pathlib.Path(folder)
        (place / "lab.yaml").write_text(gpu_scenarios.FILE.format(model=MODEL, mode="false"))
        root, address = mps_daemon.install(place / "root").path, place / "kubelet"
        node = gpu_scenarios.Node(folder=place / "world", file=place / "lab.yaml", root=root, kubelet=str(address))
        kubelet = mps_pods.FakePods(place / "pods.log", grace=0.5, backoff=0.1)
        world = World(node=node, parent=parent, kubelet=kubelet, wants=reported.mine)
        with contextlib.closing(kubelet), mps_pods.served(kubelet, address):
            if reported.other is not None:
                dataclasses.replace(world, wants=reported.other).must("prepare")
            # Once through, so that a GPU has the mode that the first claim of all would leave it in.
            world.must("prepare")
            prepared = look(node, kubelet)
            world.must("unprepare")
            yield dataclasses.replace(world, clean=look(node, kubelet), prepared=prepared)


def check_call(world: World, point: Point, *, falls: str = "itself") -> None:
    """Hurt a call at a point; then start anew and give up, or let the kubelet retry and then unprepare."""
    for given_up in (True, False) if point.act == "prepare" else (True,):
        if point.act == "unprepare":
            world.must("prepare")
        before = world.living()
        world.hurt(point, falls)
        if not given_up:
            world.must("prepare")
            world.is_prepared((point, falls))
        world.must("unprepare")
        world.is_clean((point, falls))
        if falls == "itself":
            kept = {name: running for name, running in before.items() if name in world.living()}
            assert kept == world.living(), f"{point}: others' daemons"


def check_start(world: World, point: Point) -> None:
    """Of a prepared claim the daemons' pods are over; the driver that starts is killed at a point, and the next finds or makes what is missing."""
    world.end_pods()
    world.hurt(point)
    world.must("start")
    world.is_prepared(point)
