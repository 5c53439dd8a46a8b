"""A share's counters only grow, also when the kernel forgets what it counted."""

import dataclasses
from typing import cast

from drakit_nic import port, reporting

STILL = port.Counters(rate=1, ceil=1)


@dataclasses.dataclass
class Machine:
    """A port of which only the counters are asked."""

    drops: int = 0
    has_share: bool = True

    def shares(self) -> tuple[port.Share, ...]:
        return ()

    def traffic(self) -> tuple[port.Traffic, ...]:
        egress = dataclasses.replace(STILL, drops=self.drops)
        return (port.Traffic(share_id="s", egress=egress, ingress=STILL),) if self.has_share else ()


def drops(counters: reporting.ShareCounters, machine: Machine) -> float:
    metrics = counters.readings(cast("port.Port", machine))
    (reading,) = (metric for metric in metrics if metric.name == "nic_share_drops" and metric.labels["direction"] == "egress")
    assert reading.total
    return reading.value


def test_drops_of_a_sandbox_that_is_gone_stay_counted() -> None:
    counters, machine = reporting.ShareCounters(), Machine(drops=7)
    assert drops(counters, machine) == 7
    machine.drops = 3
    assert drops(counters, machine) == 7
    machine.drops = 5
    assert drops(counters, machine) == 9
    machine.drops = 0
    assert drops(counters, machine) == 9


def test_a_share_that_is_made_anew_begins_anew() -> None:
    counters, machine = reporting.ShareCounters(), Machine(drops=7)
    drops(counters, machine)
    machine.has_share = False
    assert counters.readings(cast("port.Port", machine)) == ()
    machine.has_share, machine.drops = True, 1
    assert drops(counters, machine) == 1
