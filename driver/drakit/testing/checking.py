"""``check_driver``: everything a driver owes drakit (``drakit.testing.obligations``), checked on yours.

A check that does not apply to a driver says so in the report; it is not silently passed. The suite takes seconds, most of them for the crash at
every line.
"""

import functools
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from drakit.core import device as devices
from drakit.core import quantity
from drakit.testing import crashing, differences, obligations
from drakit.testing import node as nodes
from drakit.testing import report as reports

DEVICES_MOST = 6


class CheckError(AssertionError):
    """A driver that breaks its contract; the text lists how, and ``report`` has it all."""

    def __init__(self, report: reports.Report) -> None:
        failed = report.count(reports.Verdict.FAIL)
        lines = [f"{report.driver} breaks {failed} of {len(report.checks)} obligations", *map(str, report.checks)]
        super().__init__("\n".join(lines))
        self.report = report


def check_driver(  # noqa: PLR0913 - most are rarely given
    make: nodes.DriverFactory,
    *,
    hardware: Callable[[], object] | None = None,
    device_names: Sequence[str] = (),
    parameters: Sequence[Mapping[str, object]] = (),
    refused_parameters: Sequence[Mapping[str, object]] = (),
    consumed: Mapping[str, quantity.Amount] | None = None,
    death: crashing.Death = crashing.Death.RAISE,
    every: int = 1,
    junit: pathlib.Path | None = None,
    progress: Callable[[reports.Check], object] = bool,
) -> reports.Report:
    """Check the driver that ``make`` makes; every call of it must give a new object on the same hardware.

    ``hardware`` gives anything comparable that says how the hardware is: it must be as before once all claims are unprepared. ``device_names`` are
    the devices to try, by default one of each kind; ``parameters`` opaque configurations to accept, ``refused_parameters`` some to refuse;
    ``consumed`` the capacity that claims of shared devices take. ``death`` and ``every`` are those of ``crash_points``.
    ``junit`` is a file for a report that CI systems read; ``progress`` is called with each ``Check`` as it ends. Raises CheckError.
    """
    __tracebackhide__ = True  # pytest shows the author's own line, not ours
    with nodes.Node(make) as node:
        names, driver = tuple(device_names) or _one_of_each(node.offered.devices), node.driver.name
    bench = obligations.Bench(
        make=make,
        hardware=hardware or (lambda: None),
        names=names,
        parameters=tuple(parameters),
        refused=tuple(refused_parameters),
        consumed=consumed or {},
        death=death,
        every=every,
    )
    checks: list[reports.Check] = []
    for name, check in obligations.ALL.items():
        checks.append(reports.judged(name, functools.partial(_restoring, check, bench)))
        progress(checks[-1])
    report = reports.Report(driver=driver, checks=tuple(checks), crash_points=bench.crash_points)
    if junit is not None:
        report.write_junit(junit)
    if report.count(reports.Verdict.FAIL):
        raise CheckError(report)
    return report


def _restoring(check: Callable[[obligations.Bench], None], bench: obligations.Bench) -> None:
    before = bench.hardware()
    check(bench)
    if (after := bench.hardware()) != before:
        raise AssertionError(f"the hardware is not as it was before: {differences.describe(before, after)}")


def _one_of_each(offered: Iterable[devices.Device]) -> tuple[str, ...]:
    """A device of each kind: those that differ in their attributes' names, capacities, counters, sharing."""
    kinds: dict[object, str] = {}
    for device in offered:
        shape = (
            tuple(sorted(device.attributes)),
            tuple(sorted(device.capacity)),
            tuple(len(part.counters) for part in device.consumes),
            device.allow_multiple_allocations,
            device.binding_conditions,
        )
        kinds.setdefault(shape, device.name)
    return tuple(kinds.values())[:DEVICES_MOST]
