"""The power of a node ends at any moment of prepare and unprepare: no claim is lost and nothing is leaked, whatever the disk still had.

One run of a driver is recorded, write by write, and its disk is made again as it was at many moments (``disk_log``). On each of these disks the
next boot's driver starts (``cut_node``).
"""

import pathlib
import random
from collections.abc import Callable

import pytest

from fakes import author
from vm import cut_node, disk_log

CUTS, LIVES, CALLS = 50, 2, 30


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


@pytest.mark.parametrize("kind", [cut_node.DurableDriver, cut_node.VolatileDriver], ids=["durable", "volatile"])
@pytest.mark.parametrize("system", disk_log.MOUNTED)
def test_a_power_cut_loses_no_claim_and_leaks_nothing(
    system: str, kind: type[author.FakeDriver], record_testsuite_property: Callable[[str, object], None]
) -> None:
    with disk_log.scratch() as memory:
        record, chance = recorded(memory, system, kind, seed=1), random.Random(1)
        record_testsuite_property(f"{system} {kind.__name__}", f"{len(record.entries)} entries, {record.flushes} flushes")
        for position in sorted(chance.sample(range(len(record.entries) + 1), CUTS)):
            with record.cut(position, chance, memory) as (folder, marks):
                try:
                    cut_node.NextBoot(cut_node.World(folder=folder, kind=kind), cut_node.Past.of(marks)).check("boot-2")
                except Exception as error:
                    error.add_note(f"power cut after entry {position} of {len(record.entries)}")
                    raise
