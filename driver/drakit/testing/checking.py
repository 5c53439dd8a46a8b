"""``check_driver``: everything a driver owes drakit (``drakit.testing.obligations``), checked on yours.

A check that does not apply to a driver says so in the report; it is not silently passed. The suite takes seconds, most of them for the crash at
every line.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from drakit.core import device as devices
from drakit.testing import crashing, differences, obligations
from drakit.testing import node as nodes

DEVICES_MOST = 6


class CheckError(AssertionError):
    """A driver that breaks its contract; the text lists how."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """What became of one check: ``passed`` None when it does not apply, and then ``message`` says why."""

    name: str
    passed: bool | None
    message: str = ""

    def __str__(self) -> str:
        word = {True: "pass", False: "FAIL", None: "n/a "}[self.passed]
        return f"{word}  {self.name}{f': {self.message}' if self.message else ''}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """All checks of a driver, in order; ``crash_points`` is how many lines it died at."""

    driver: str
    checks: tuple[Check, ...]
    crash_points: int

    def __str__(self) -> str:
        return "\n".join([f"{self.driver}, {self.crash_points} crash points", *map(str, self.checks)])


def check_driver(
    make: nodes.DriverFactory,
    *,
    hardware: Callable[[], object] | None = None,
    device_names: Sequence[str] = (),
    parameters: Sequence[Mapping[str, object]] = (),
    refused_parameters: Sequence[Mapping[str, object]] = (),
    consumed: Mapping[str, str] | None = None,
    death: crashing.Death = crashing.Death.RAISE,
    every: int = 1,
) -> Report:
    """Check the driver that ``make`` makes; every call of it must give a new object on the same hardware.

    ``hardware`` gives anything comparable that says how the hardware is: it must be as before once all claims are unprepared. ``device_names`` are
    the devices to try, by default one of each kind; ``parameters`` opaque configurations to accept, ``refused_parameters`` some to refuse;
    ``consumed`` the capacity that claims of shared devices take. ``death`` and ``every`` are those of ``crash_points``. Raises CheckError.
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
    report = Report(
        driver=driver, checks=tuple(_run(name, check, bench) for name, check in obligations.ALL.items()), crash_points=bench.crash_points
    )
    failed = [check for check in report.checks if check.passed is False]
    if failed:
        raise CheckError("\n".join([f"{driver} breaks {len(failed)} of {len(report.checks)} obligations", *map(str, report.checks)]))
    return report


def _run(name: str, check: Callable[[obligations.Bench], None], bench: obligations.Bench) -> Check:
    before = bench.hardware()
    try:
        check(bench)
        if (after := bench.hardware()) != before:
            return Check(name=name, passed=False, message=f"the hardware is not as it was before: {differences.told(before, after)}")
    except obligations.NotApplicableError as reason:
        return Check(name=name, passed=None, message=str(reason))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the author has to see
        return Check(
            name=name, passed=False, message=f"{type(error).__name__}: {error}" if not isinstance(error, AssertionError) else str(error)
        )
    return Check(name=name, passed=True)


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
