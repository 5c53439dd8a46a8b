"""A program for ``test_gpus_survive_a_full_disk``: hurts a node whose files lie on a small file system that only this process sees.

``python -m crash.gpu_full_disks DISK WORK MODEL KINDS ROOMS``: KINDS are stories, joined by commas; ROOMS are either ``every`` or numbers of pages,
joined by commas. Prints how many times the disk was too small; ends with a traceback where the world was not what it should be.
"""

import itertools
import os
import pathlib
import shutil
import sys
from collections.abc import Iterable

from crash import gpu_stories, gpu_victims

HERE = gpu_stories.Here()
PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST = 100


class Filling(gpu_victims.Stepper):
    """Fills the disk but for some pages when the driver begins to serve."""

    def __init__(self, disk: pathlib.Path, room: int) -> None:
        super().__init__()
        self._ballast = disk / "ballast"
        self._room = room

    def begin(self) -> None:
        super().begin()
        told = os.statvfs(self._ballast.parent)
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, (told.f_bavail * told.f_frsize // PAGE - self._room) * PAGE)

    def empty(self) -> None:
        """Make room again."""
        self._ballast.unlink()


def on_disk(disk: pathlib.Path, before: gpu_stories.Node, machine: pathlib.Path) -> gpu_stories.Node:
    """A copy of a world whose files are on the disk and whose machine, being hardware, is not."""
    shutil.copytree(before.folder, disk / "world", ignore=shutil.ignore_patterns("machine"))
    shutil.copytree(before.folder / "machine", machine)
    (disk / "world" / "machine").symlink_to(machine)
    return gpu_stories.Node(folder=disk / "world", file=before.file)


def was_too_small(disk: pathlib.Path, told: gpu_stories.Story, act: str, room: int, machine: pathlib.Path) -> bool:
    """Call with so much room, make room, and judge what comes after; whether the call met a full disk."""
    node = on_disk(disk, told.before if act == "prepare" else told.prepared, machine)
    filling = Filling(disk, room)
    error = HERE.live(node, act, device=told.device, stepper=filling)
    filling.empty()
    gpu_stories.judge(HERE, told, act, node, f"{told.name} {act} with room for {room} pages: {error}")
    shutil.rmtree(machine)
    return bool(error)


def main(disk: pathlib.Path, work: pathlib.Path, model: str, kinds: Iterable[str], rooms: str) -> int:
    """How often the disk was too small."""
    total = 0
    for kind in kinds:
        told = gpu_stories.story(HERE, work / kind, model, kind)
        for act in ("prepare", "unprepare"):
            found = (was_too_small(disk, told, act, room, work / "hardware") for room in range(_MOST))
            if rooms != "every":
                found = (was_too_small(disk, told, act, int(room), work / "hardware") for room in rooms.split(","))
                total += sum(found)
                continue
            small = sum(1 for _ in itertools.takewhile(bool, found))
            if not 0 < small < _MOST:
                raise AssertionError(f"{told.name} {act} failed with {small} of {_MOST} sizes")
            total += small
    return total


if __name__ == "__main__":
    _, folder, scratch, name, stories, sizes = sys.argv
    sys.stdout.write(f"{main(pathlib.Path(folder), pathlib.Path(scratch), name, stories.split(','), sizes)}\n")
