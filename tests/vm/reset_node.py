"""One life of a node whose machine is reset while its drivers prepare and unprepare claims: ``python -m vm.reset_node FOLDER LIFE [last]``.

FOLDER is on the host. Each driver's calls, answers and changes of hardware are marks in ``FOLDER/LIFE-NAME``: the host has a mark when its write
returns, so a reset loses none. The drivers' own files are on two disks of the machine, one of each file system, which the first life makes.

A life first checks what the reset of the life before left (``cut_node.NextBoot``). Then it creates ``FOLDER/serving-LIFE``, and serves until the
machine is reset. The last life only checks.
"""

import contextlib
import functools
import os
import pathlib
import sys
import threading
import traceback

from vm import cut_node, cuts, disk_log

BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")
NODES = [f"{system}-{kind}" for system in disk_log.MOUNTED for kind in cuts.KINDS]
ENDLESS = 10**9


class Marks:
    """Marks in a file on the host."""

    def __init__(self, file: pathlib.Path) -> None:
        self._file = file.open("ab", buffering=0)
        self._lock = threading.Lock()

    def add(self, text: str) -> None:
        """Return when the host has the mark."""
        with self._lock:
            self._file.write(f"{text}\n".encode())


def past(folder: pathlib.Path, life: int, name: str) -> cut_node.Past:
    """What a life had done with a node when its machine was reset."""
    return cut_node.Past.of((folder / f"{life}-{name}").read_text().splitlines())


def world(name: str) -> cut_node.World:
    """A node on the disk of its file system."""
    system, kind = name.split("-")
    folder = pathlib.Path("/mnt", system, kind)
    folder.mkdir(exist_ok=True)
    return cut_node.World(folder=folder, kind=cuts.KINDS[kind])


def mount(system: str, *, make: bool) -> None:
    """Mount the disk of a file system."""
    disk, folder = f"/dev/disk/by-id/virtio-{system}", pathlib.Path("/mnt", system)
    if make:
        disk_log.command(f"mkfs.{system}", "-q", disk)
    folder.mkdir(exist_ok=True)
    disk_log.command("mount", disk, folder)


def sync(folder: pathlib.Path) -> None:
    """Write all of a file system to its disk."""
    disk_log.command("sync", "--file-system", folder)


def serve(name: str, marks: Marks, seed: int, boot: str, ready: threading.Barrier) -> None:
    """Prepare and unprepare claims until the machine is reset."""
    node = world(name)
    node.hardware.step = cut_node.marking(marks.add)
    kubelet = cut_node.Kubelet(node, marks.add, functools.partial(sync, node.folder), seed)
    with node.driver(boot) as local:
        local.recover()
        ready.wait()
        kubelet.serve(local, ENDLESS)


def main(folder: pathlib.Path, life: int, *, last: bool) -> None:
    """Check what the life before left, and serve."""
    boot = BOOT_ID.read_text().strip()
    for system in disk_log.MOUNTED:
        mount(system, make=life == 0)
    for name in NODES if life else ():
        cut_node.NextBoot(world(name), past(folder, life - 1, name)).check(boot)
    if last:
        return
    os.sync()
    ready = threading.Barrier(len(NODES) + 1)
    for number, name in enumerate(NODES):
        marks = Marks(folder / f"{life}-{name}")
        threading.Thread(target=or_exit, args=(name, marks, life * len(NODES) + number, boot, ready), daemon=True).start()
    ready.wait()
    (folder / f"serving-{life}").touch()
    threading.Event().wait()


def or_exit(name: str, marks: Marks, seed: int, boot: str, ready: threading.Barrier) -> None:
    """Serve, and end the program at an error."""
    try:
        with contextlib.suppress(threading.BrokenBarrierError):
            serve(name, marks, seed, boot, ready)
    except BaseException:  # noqa: BLE001 - the program ends
        sys.stderr.write(f"{name}: {traceback.format_exc()}")
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]), last=sys.argv[3:] == ["last"])
