"""A program for ``test_gpus_survive_a_full_disk``: hurts a node whose files lie on a small file system that only this process sees.

``python -m crash.gpu_full_disks DISK WORK MODEL KINDS ROOMS``: KINDS are stories, joined by commas; ``daemons`` is that of a GPU with an MPS daemon,
whose folder is on the disk too. ROOMS are either ``every`` or numbers of pages, joined by commas. Prints how many times the disk was too small; ends
with a traceback where the world was not what it should be.
"""

import contextlib
import itertools
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterable

from crash import gpu_daemons, gpu_scenarios, killable_gpu_driver
from fakes import mps_daemon, mps_pods, waits

HERE = gpu_scenarios.InThisProcess()
PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST = 100
DAEMONS = "daemons"


class Filling(killable_gpu_driver.Stepper):
    """Fills the disk but for some pages when the driver begins to serve."""

    def __init__(self, disk: pathlib.Path, room: int) -> None:
        super().__init__()
        self._ballast = disk / "ballast"
        self._room = room

    def begin(self) -> None:
        super().begin()
        result = os.statvfs(self._ballast.parent)
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, (result.f_bavail * result.f_frsize // PAGE - self._room) * PAGE)

    def empty(self) -> None:
        """Make room again."""
        self._ballast.unlink()


def on_disk(disk: pathlib.Path, before: gpu_scenarios.Node, machine: pathlib.Path) -> gpu_scenarios.Node:
    """A copy of a world whose files are on the disk and whose machine, being hardware, is not."""
    shutil.copytree(before.folder, disk / "world", ignore=shutil.ignore_patterns("machine"))
    shutil.copytree(before.folder / "machine", machine)
    (disk / "world" / "machine").symlink_to(machine)
    return gpu_scenarios.Node(folder=disk / "world", file=before.file)


def was_too_small(disk: pathlib.Path, result: gpu_scenarios.Scenario, act: str, room: int, machine: pathlib.Path) -> bool:
    """Call with so much room, make room, and judge what comes after; whether the call met a full disk."""
    node = on_disk(disk, result.before if act == "prepare" else result.prepared, machine)
    filling = Filling(disk, room)
    error = HERE.live(node, act, result.wants, filling)
    filling.empty()
    gpu_scenarios.judge(HERE, result, act, node, f"{result.name} {act} with room for {room} pages: {error}")
    shutil.rmtree(machine)
    return bool(error)


class Daemons:
    """A node with MPS daemons, which cannot be copied: each call on a full disk is a cycle that ends where it began."""

    def __init__(self, disk: pathlib.Path, work: pathlib.Path, model: str) -> None:
        work.mkdir()
        (work / "lab.yaml").write_text(gpu_scenarios.FILE.format(model=model, mode="false"))
        (work / "machine").mkdir()
        (disk / "mps").mkdir()
        (disk / "mps/machine").symlink_to(work / "machine")
        self.name = f"{model}-{DAEMONS}"
        self._disk = disk
        self._wants = gpu_daemons.cast_of(gpu_daemons.GPU).mine
        self._kubelet = mps_pods.FakePods(work / "pods.log", grace=0.5)
        self._stack = contextlib.ExitStack()
        self._stack.callback(self._kubelet.close)
        self._stack.enter_context(mps_pods.served(self._kubelet, work / "kubelet"))
        root, kubelet = mps_daemon.install(work / "root").path, str(work / "kubelet")
        self._node = gpu_scenarios.Node(folder=disk / "mps", file=work / "lab.yaml", root=root, kubelet=kubelet)
        self._must("prepare")
        self._prepared = self._look()
        self._must("unprepare")
        self._clean = self._look()

    def _look(self) -> gpu_daemons.Looks:
        return gpu_daemons.look(self._node, self._kubelet)

    def close(self) -> None:
        """End all pods."""
        self._stack.close()

    def was_too_small(self, act: str, room: int) -> bool:
        """Call with so much room, then with enough, given up and tried again; whether the first met a full disk."""
        point = f"{self.name} {act} with room for {room} pages"
        if act == "unprepare":
            self._must("prepare")
            error = self._call(act, room)
        else:
            self._call(act, room)
            self._must("unprepare")
            assert self._look() == self._clean, f"{point}, given up"
            error = self._call(act, room)
            self._must("prepare")
            assert self._look() == self._prepared, f"{point}: {error}"
        self._must("unprepare")
        assert self._look() == self._clean, f"{point}: {error}"
        return bool(error)

    def _must(self, act: str) -> None:
        told: list[str] = []

        def succeeds() -> bool:
            told.append(HERE.live(self._node, act, self._wants, killable_gpu_driver.Stepper()))
            return not told[-1]

        assert waits.eventually(succeeds), told[-1]

    def _call(self, act: str, room: int) -> str:
        filling = Filling(self._disk, room)
        error = HERE.live(self._node, act, self._wants, filling)
        filling.empty()
        return error


def tries(
    disk: pathlib.Path, work: pathlib.Path, model: str, kind: str, stack: contextlib.ExitStack
) -> tuple[str, Callable[[str, int], bool]]:
    """A story's name, and its calls with so much room."""
    if kind == DAEMONS:
        node = Daemons(disk, work / kind, model)
        stack.callback(node.close)
        return node.name, node.was_too_small
    result = gpu_scenarios.story(HERE, work / kind, model, kind)
    return result.name, lambda act, room: was_too_small(disk, result, act, room, work / "hardware")


def main(disk: pathlib.Path, work: pathlib.Path, model: str, kinds: Iterable[str], rooms: str) -> int:
    """How often the disk was too small."""
    with contextlib.ExitStack() as stack:
        return sum(count(*tries(disk, work, model, kind, stack), rooms) for kind in kinds)


def count(name: str, is_too_small: Callable[[str, int], bool], rooms: str) -> int:
    """How often the disk was too small for one story."""
    total = 0
    for act in ("prepare", "unprepare"):
        if rooms != "every":
            total += sum(is_too_small(act, int(room)) for room in rooms.split(","))
            continue
        small = sum(1 for _ in itertools.takewhile(lambda room: is_too_small(act, room), range(_MOST)))  # noqa: B023 - used up at once
        if not 0 < small < _MOST:
            raise AssertionError(f"{name} {act} failed with {small} of {_MOST} sizes")
        total += small
    return total


if __name__ == "__main__":
    _, folder, scratch, name, stories, sizes = sys.argv
    sys.stdout.write(f"{main(pathlib.Path(folder), pathlib.Path(scratch), name, stories.split(','), sizes)}\n")
