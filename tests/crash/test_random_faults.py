"""Random schedules of faults at the wire: API server, kubelet, driver processes, hardware, disk, journal, CDI directory, clock and node, all at once.

Each schedule ends in calm, and then nothing may be lost (pods that should run do, on the hardware they had), nothing leaked (journal, CDI files,
hardware, statuses, threads), slices say what is there, and nobody had to help the driver. A run draws a few of the schedules, ``make crash`` plays
all. ``STORM_SEED`` plays one seed again, by hand.
"""

import dataclasses
import os
from collections import Counter
from collections.abc import Callable

import pytest

from drakit_cluster.objects.features import FeatureGates
from fakes import examples, forked_cli
from fakes.fault_schedule import fault_run, faulty_cluster

ALL = 1000
SAMPLE = 8
EACH = 40
GATES: tuple[FeatureGates, ...] = (
    *(
        FeatureGates.of(changes)
        for changes in (
            {},
            {"DRAPartitionableDevices": False},
            {"DRAConsumableCapacity": False},
            {"DRADeviceTaints": False},
            {"DRAResourceSliceMixins": True},
            {"DRAResourceClaimDeviceStatus": False},
            {"DRADeviceBindingConditions": False},
            {"DRAResourceClaimGranularStatusAuthorization": False},
            {"ResourceHealthStatus": False},
        )
    ),
    FeatureGates.of(dict.fromkeys(("DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints"), True), "1.34"),
)
"""Each gate whose fields a driver writes, or whose rights it needs, other than by default, and 1.34, where counters are beside devices.

One for each group of schedules, in turn.
"""

COUNTED = {
    "steps": "steps",
    "starts": "restarts",
    "hits": "requests hit",
    "damaged": "journals damaged",
    "reboots": "reboots",
    "rivals": "second processes",
}
Record = Callable[[str, object], None]


def gates_of(seed: int) -> FeatureGates:
    """The gates under which a seed is played."""
    return GATES[seed // EACH % len(GATES)]


def run_schedule(commands: forked_cli.Commands, first: int, count: int, record: Record) -> None:
    """Play so many schedules on one node, and have them counted."""
    result: Counter[str] = Counter()
    with faulty_cluster.FaultyCluster(gates_of(first), commands) as where:
        blowing = fault_run.FaultRun(where)
        for seed in range(first, first + count):
            result.update(
                {"schedules": 1, **{COUNTED[name]: amount for name, amount in dataclasses.asdict(blowing.run_schedule(seed)).items()}}
            )
    record("storm", dict(result))
    assert result["schedules"] == count


@pytest.mark.timeout(600)
def test_a_sample_of_schedules_loses_and_leaks_nothing(commands: forked_cli.Commands, record_property: Record) -> None:
    again = os.environ.get("STORM_SEED")
    if again is None:
        run_schedule(commands, examples.draw("schedules").randrange(0, ALL, SAMPLE), SAMPLE, record_property)
    else:
        run_schedule(commands, int(again), 1, record_property)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("group", range(ALL // EACH))
def test_every_schedule_loses_and_leaks_nothing(commands: forked_cli.Commands, group: int, record_property: Record) -> None:
    run_schedule(commands, group * EACH, EACH, record_property)
