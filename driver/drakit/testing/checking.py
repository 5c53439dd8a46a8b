"""``check_driver``: check all obligations of a driver's author (``drakit.testing.obligations``).

The report names each check that does not apply to the driver. The suite takes seconds, most of them for the crash at every line.
"""

import functools
import itertools
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from drakit.core import advanced, arguments, errors, quantity
from drakit.core import device as devices
from drakit.testing import bench as benches
from drakit.testing import call_limit, crashing, differences, obligations
from drakit.testing import node as nodes
from drakit.testing import report as reports

DEVICES_MOST = 6
MOST_PAIRED = 32


class CheckError(AssertionError):
    """A driver that breaks its contract. The text lists the checks, and ``report`` is the report."""

    def __init__(self, report: reports.Report) -> None:
        failed = report.count(advanced.Verdict.FAILED)
        lines = [f"{report.driver} breaks {failed} of {len(report.checks)} obligations", *map(str, report.checks)]
        super().__init__("\n".join(lines))
        self.report = report


@arguments.checked_call
def check_driver(  # noqa: PLR0913 - most are rarely given
    make: nodes.DriverFactory,
    *,
    hardware: Callable[[], object] | None = None,
    device_names: Sequence[str | Sequence[str]] = (),
    parameters: Sequence[Mapping[str, object]] = (),
    refused_parameters: Sequence[Mapping[str, object]] = (),
    consumed: Mapping[str, quantity.Amount] | None = None,
    exclusive: Sequence[str] = (),
    earlier: Sequence[pathlib.Path] = (),
    death: crashing.Death = crashing.Death.RAISE,
    every: int = 1,
    timeout: float = 60.0,
    junit: pathlib.Path | None = None,
    progress: Callable[[reports.Check], object] = bool,
) -> reports.Report:
    """Check the driver that ``make`` returns. Each call of ``make`` must return a new object on the same hardware. Raises CheckError.

    A driver that does not start, and a device or capacity that it does not have, raise their own errors.

    - ``hardware``: returns a comparable value of the hardware's state, which must be as before after all claims are unprepared. Without it no check
      sees damage to the device of another claim.
    - ``device_names``: the devices to try. An entry with several names is one claim for all of them. By default one device of each kind, and two
      together for a ``ClaimDriver``.
    - ``parameters``, ``refused_parameters``: opaque configurations that the driver must accept, and must refuse.
    - ``consumed``: the capacity that claims of shared devices take.
    - ``exclusive``: names, with ``*``, of variables and device nodes that identify a part of the hardware which only one claim may have at a time.
    - ``earlier``: claims that earlier releases journaled, one for each form of intents or records: files of ``journal show UID -o json``. Their
      devices must exist on this hardware.
    - ``death``, ``every``: as in ``crash_points``.
    - ``timeout``: the seconds in which each call of the driver must return (the kubelet waits 45); 0 means no limit. A call that does not return
      ends the checks. It also limits the whole life of a process that is killed, and the restores after a lost journal together.
    - ``junit``: a file for a JUnit report.
    - ``progress``: called with each ``Check`` as it ends.
    """
    __tracebackhide__ = True  # pytest shows the author's own line, not ours
    crashing.check_every(every)
    checks: list[reports.Check] = []
    with call_limit.limited(timeout) as renew:
        driver, groups = _tried(make, device_names, consumed or {})
        bench = benches.Bench(
            make=make,
            hardware=hardware or (lambda: None),
            has_hardware=hardware is not None,
            tried=groups,
            parameters=tuple(parameters),
            refused=tuple(refused_parameters),
            consumed=consumed or {},
            exclusive=tuple(exclusive),
            earlier=tuple(earlier),
            death=death,
            every=every,
            renew=renew,
        )
        for name in obligations.ALL:
            checks.append(judged(name, bench))
            progress(checks[-1])
    report = reports.Report(driver=driver, checks=tuple(checks), crash_points=bench.crash_points)
    if junit is not None:
        report.write_junit(junit)
    if report.count(advanced.Verdict.FAILED):
        raise CheckError(report)
    return report


def judged(name: str, bench: benches.Bench) -> reports.Check:
    """Check one obligation, and return its result."""
    began = time.monotonic()
    try:
        bench.renew()
        return reports.judged(name, functools.partial(_restoring, name, bench))
    except call_limit.StuckError as error:
        bench.is_stuck = True
        return reports.Check(name=name, verdict=advanced.Verdict.FAILED, message=str(error), seconds=time.monotonic() - began)


def _restoring(name: str, bench: benches.Bench) -> None:
    if bench.is_stuck:
        raise reports.NotApplicableError(f"not checked, because a call did not return in {bench.latest!r}")
    before = bench.hardware()
    if before != bench.at_first:
        raise reports.NotApplicableError(f"not checked, because {bench.latest!r} left the hardware changed")
    bench.latest = name
    obligations.ALL[name](bench)
    if (after := bench.hardware()) != before:
        raise AssertionError(f"the hardware differs from its state before: {differences.describe(before, after)}")


def _tried(
    make: nodes.DriverFactory, device_names: Sequence[str | Sequence[str]], consumed: Mapping[str, quantity.Amount]
) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """Return the driver's name and the devices to try, as one group for each claim.

    Raises DrakitError for a driver that does not start, and ValueError for a device or capacity that it does not offer.
    """
    try:
        with nodes.Node(make) as node:
            groups = tuple(map(_group, device_names)) or _groups(node)
            for name in itertools.chain.from_iterable(groups):
                if name not in node.all_devices:
                    raise ValueError(
                        f"device_names: the driver offers no device {name!r}; known are {', '.join(node.all_devices) or 'none'}"
                    )
            if groups:
                node.claim(*groups[0], consumed=consumed)
            return node.driver.name, groups
    except call_limit.StuckError as error:
        raise errors.DrakitError(f"the driver does not start: {error}") from error


def _group(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _groups(node: nodes.Node) -> tuple[tuple[str, ...], ...]:
    """Return the devices to try, as one group for each claim."""
    offered = tuple(node.all_devices.values())
    together = _apart(offered) if isinstance(node.driver, advanced.ClaimDriver) else ()
    return (*((name,) for name in _one_of_each(offered)), *((together,) if together else ()))


def _apart(offered: Sequence[devices.Device]) -> tuple[str, ...]:
    """Return two devices without common hardware, of one kind if possible; none if there are no two."""
    pairs = [
        (one, two) for one, two in itertools.combinations(offered[:MOST_PAIRED], 2) if not {*one.lock_names}.intersection(two.lock_names)
    ]
    alike = [(one, two) for one, two in pairs if one.attributes.keys() == two.attributes.keys()]
    return next(((one.name, two.name) for one, two in (*alike, *pairs)), ())


def _one_of_each(offered: Iterable[devices.Device]) -> tuple[str, ...]:
    """Return a device of each kind. Kinds differ in the names of attributes, capacities, counters, and in sharing."""
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
