"""The power of a node ends at any moment of prepare and unprepare: no claim is lost and nothing is leaked, whatever the disk still had.

One run of a driver is recorded, write by write, and its disk is made again as it was at many moments (``disk_log``). On each of these disks the
next boot's driver starts (``cut_node``). ``cuts`` makes more cuts of such records outside of the machine.
"""

import random
from collections.abc import Callable

import pytest

from fakes import author
from vm import cuts, disk_log

CUTS = 50


@pytest.mark.parametrize("kind", cuts.KINDS.values(), ids=list(cuts.KINDS))
@pytest.mark.parametrize("system", disk_log.MOUNTED)
def test_a_power_cut_loses_no_claim_and_leaks_nothing(
    system: str, kind: type[author.FakeDriver], record_testsuite_property: Callable[[str, object], None]
) -> None:
    with disk_log.scratch() as memory:
        record, chance = cuts.recorded(memory, system, kind, seed=1), random.Random(1)
        record_testsuite_property(f"{system} {kind.__name__}", f"{len(record.entries)} entries, {record.flushes} flushes")
        for position in sorted(chance.sample(range(len(record.entries) + 1), CUTS)):
            cuts.check(record, kind, position, chance, memory)
