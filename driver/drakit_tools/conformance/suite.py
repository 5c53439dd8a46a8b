"""The suite: registration, both calls, restarts and slices, against one driver on one node."""

import contextlib
import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from drakit.core import advanced
from drakit.testing import report as reports
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_tools.conformance import api_objects, calls, containers, registration, restarts, slices, sockets
from drakit_tools.conformance.claims import Claim

START_SECONDS = 60.0
DEATH_SECONDS = 0.5
_UNCHANGED_SECONDS, _CHANGING_SECONDS = 3.0, 30.0

Checks = Iterator[tuple[str, Callable[[], None]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """The driver to check, and the inputs of the checks.

    ``path`` is the registration socket, or a folder of sockets in which ``driver`` selects one. ``claims`` gives ResourceClaims that are allocated
    to the driver on this node, ``published`` its ResourceSlices, None if there is no API server to ask; each is called with the driver's name, once
    it has answered. ``server`` gives the version of the API server and its gates. ``cdi`` is the folder of CDI files. ``restarter`` restarts the
    driver. ``exclusive`` names variables and device nodes of parts that only one claim may have at a time. A call fails after ``call_seconds``, as
    the kubelet's does, and is a warning after ``slow_seconds``.
    """

    path: pathlib.Path
    driver: str = ""
    exclusive: tuple[str, ...] = ()
    call_seconds: float = 45.0
    slow_seconds: float = 5.0
    claims: Callable[[str], Sequence[Object]] = lambda _: ()
    published: Callable[[str], Sequence[Object] | None] = lambda _: None
    server: Callable[[], FeatureGates] = FeatureGates
    cdi: pathlib.Path | None = None
    restarter: restarts.Restarter = dataclasses.field(default_factory=restarts.Restarter)


def check_plugin(
    subject: Subject, *, junit: pathlib.Path | None = None, progress: Callable[[reports.Check], object] = bool
) -> reports.Report:
    """Check a driver by its sockets, and return the report. A failure of the driver is in the report, not an exception.

    ``junit`` is a file for a report that CI systems read; ``progress`` is called with each ``Check`` as it ends. Raises UnreachableError where no
    driver answers, ValueError for a claim that is not the driver's, RestartError, and what ``claims`` and ``published`` raise.
    """
    place = sockets.Place(path=subject.path, driver=subject.driver, ended=subject.restarter.ended)
    checks: list[reports.Check] = []
    with subject.restarter.started():
        info = place.find(START_SECONDS if subject.restarter.is_able else 0.0)
        _wait_for_slices(subject, info.name)
        try:
            given = tuple(Claim.of(claim, info.name) for claim in subject.claims(info.name))
            to_check = _all(subject, place, info, given)
        except api_objects.ClaimError as error:
            to_check = _without_claims(subject, info, error)
        for name, check in to_check:
            result = reports.judged(name, check)
            # A process that dies closes its sockets a moment before its parent can see its status.
            if result.verdict in {advanced.Verdict.FAILED, advanced.Verdict.WARNING} and (ended := subject.restarter.ended(DEATH_SECONDS)):
                result = dataclasses.replace(
                    result, verdict=advanced.Verdict.FAILED, message=f"{ended}; {result.message}".removesuffix("; ")
                )
            checks.append(result)
            progress(result)
    report = reports.Report(driver=info.name, checks=tuple(checks))
    if junit is not None:
        report.write_junit(junit)
    return report


def _wait_for_slices(subject: Subject, driver: str) -> None:
    """Wait until a driver that was just started has replaced the slices of an earlier process, which may have offered other devices."""
    known = subject.published(driver) if subject.restarter.has_started else None
    started = changed = time.monotonic()
    while known and (now := time.monotonic()) - changed < _UNCHANGED_SECONDS and now - started < _CHANGING_SECONDS:
        time.sleep(0.25)
        if (published := subject.published(driver)) != known:
            known, changed = published, time.monotonic()


def _without_claims(subject: Subject, info: sockets.Info, error: api_objects.ClaimError) -> Checks:
    """Return the checks of a driver whose slices are the reason why no claim can be allocated. Raises the error if they are valid."""
    of_slices = slices.checks(subject.published(info.name), (), subject.server)
    if not any(reports.judged(name, check).verdict is advanced.Verdict.FAILED for name, check in of_slices.items()):
        raise error

    def allocates() -> None:
        raise AssertionError(f"{error}; the checks of the calls did not run")

    yield "claims: a claim of each class can be allocated", allocates
    for name, check in registration.ALL.items():
        yield name, functools.partial(check, info)
    yield from of_slices.items()


def _all(subject: Subject, place: sockets.Place, info: sockets.Info, claims: tuple[Claim, ...]) -> Checks:
    for name, check in registration.ALL.items():
        yield name, functools.partial(check, info)
    is_answering: list[bool] = []

    def answers() -> None:
        registration.answers(info, subject.call_seconds)
        is_answering.append(True)

    yield "registration: the service answers", answers
    # A service that hangs would make every other check wait for its calls.
    if is_answering:
        with _bench(subject, info, claims, _defined(subject)) as bench:
            yield from ((f"v1: {name}", functools.partial(check, bench)) for name, check in calls.ALL.items())
            if subject.exclusive:
                yield (
                    "v1: no two claims get the same exclusive part",
                    functools.partial(calls.gives_each_part_once, subject.exclusive, bench),
                )
            yield from _restarts(subject, place, bench).items()
    yield from slices.checks(subject.published(info.name), claims, subject.server).items()


def _restarts(subject: Subject, place: sockets.Place, bench: calls.Bench) -> Mapping[str, Callable[[], None]]:
    @contextlib.contextmanager
    def again() -> Iterator[calls.Bench]:
        subject.restarter.restart()
        info = place.find(START_SECONDS)
        sockets.notify(info.socket)
        with _bench(subject, info, bench.claims, bench.defined) as restarted:
            yield restarted

    checks = restarts.check(bench, again)
    return checks if subject.restarter.is_able else dict.fromkeys(checks, restarts.unable)


@contextlib.contextmanager
def _bench(subject: Subject, info: sockets.Info, claims: tuple[Claim, ...], defined: frozenset[str]) -> Iterator[calls.Bench]:
    with sockets.service(info.service, subject.call_seconds) as service:
        timings = calls.Timings(slow=subject.slow_seconds)
        yield calls.Bench(service=service, claims=claims, cdi=subject.cdi, timings=timings, defined=defined)


def _defined(subject: Subject) -> frozenset[str]:
    return containers.defined(subject.cdi) if subject.cdi else frozenset()
