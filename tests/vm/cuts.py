"""Record disks in the machine, and cut their power many times on another computer, whose processors are not emulated.

In the machine: ``python -m vm.cuts record FOLDER SEED``. Anywhere with root, loop devices and these file systems:
``PYTHONPATH=tests python -m vm.cuts replay FOLDER CUTS SEED [SECONDS]``. It prints the number of cuts of each record, ends with an error at the first
claim that is lost or leaked, and stops after so many seconds.
"""

import pathlib
import random
import sys
import time
from collections.abc import Iterator, Mapping

from fakes import author
from vm import cut_node, disk_log

KINDS: Mapping[str, type[author.FakeDriver]] = {"durable": cut_node.DurableDriver, "volatile": cut_node.VolatileDriver}
LIVES, CALLS = 2, 30


def recorded(memory: pathlib.Path, system: str, kind: type[author.FakeDriver], seed: int) -> disk_log.Record:
    """The record of some lives of a driver."""
    with disk_log.recording(memory, system) as (recorder, records):
        world = cut_node.World(folder=recorder.folder, kind=kind)
        world.hardware.step = cut_node.marking(recorder.mark)
        kubelet = cut_node.Kubelet(world, recorder.mark, recorder.flush, seed)
        for _ in range(LIVES):
            with world.driver("boot-1") as local:
                local.recover()
                kubelet.serve(local, CALLS)
    (record,) = records
    return record


def check(record: disk_log.Record, kind: type[author.FakeDriver], position: int, chance: random.Random, memory: pathlib.Path) -> None:
    """Cut the power after so many entries, and start the next boot's driver. Raises AssertionError for a claim that is lost or leaked."""
    with record.cut(position, chance, memory) as (folder, marks):
        try:
            cut_node.NextBoot(cut_node.World(folder=folder, kind=kind), cut_node.Past.of(marks)).check("boot-2")
        except Exception as error:
            error.add_note(f"power cut after entry {position} of {len(record.entries)}")
            raise


def record_all(folder: pathlib.Path, seed: int) -> None:
    """Record each kind of driver on each file system."""
    for system in disk_log.MOUNTED:
        for name, kind in KINDS.items():
            with disk_log.scratch() as memory:
                record = recorded(memory, system, kind, seed)
                saved = folder / f"{system}-{name}-{seed}"
                saved.mkdir(parents=True)
                disk_log.command("tar", "--create", "--sparse", "--file", saved / "base.tar", "--directory", memory, "base")
                disk_log.save(record.entries, saved / "log")
                say(f"{saved.name}: recorded {len(record.entries)} entries, {record.flushes} flushes")


def replay_all(folder: pathlib.Path, cuts: int, seed: int, seconds: float) -> None:
    """Cut each record so many times, one after the other, so that all have about the same number when the time ends."""
    end, chance, done = time.monotonic() + seconds, random.Random(seed), dict[str, int]()
    with disk_log.scratch() as memory:
        records = dict(loaded(folder, memory))
        for _ in range(cuts):
            for name, record in records.items():
                if time.monotonic() < end:
                    check(record, KINDS[name.split("-")[1]], chance.randint(0, len(record.entries)), chance, memory)
                    done[name] = done.get(name, 0) + 1
    for name, count in done.items():
        say(f"{name}: {count} cuts, nothing lost or leaked")


def loaded(folder: pathlib.Path, memory: pathlib.Path) -> Iterator[tuple[str, disk_log.Record]]:
    """Each record in a folder, by its name."""
    for saved in sorted(folder.iterdir()):
        place = memory / f"base-{saved.name}"
        place.mkdir()
        disk_log.command("tar", "--extract", "--sparse", "--file", saved / "base.tar", "--directory", place)
        yield saved.name, disk_log.Record(place / "base", disk_log.entries_of(saved / "log"))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(word: str, folder: str, *numbers: str) -> None:
    """Record or replay."""
    if word == "record":
        record_all(pathlib.Path(folder), int(numbers[0]))
    else:
        replay_all(pathlib.Path(folder), int(numbers[0]), int(numbers[1]), float(numbers[2]) if numbers[2:] else 10**9)


if __name__ == "__main__":
    main(*sys.argv[1:])
