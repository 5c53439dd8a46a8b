"""The suite: registration, both calls, restarts and slices, against one driver on one node."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from drakit.testing import report as reports
from drakit_cluster.objects.json_types import Object
from drakit_tools.conformance import calls, registration, restarts, slices, sockets
from drakit_tools.conformance.claims import Claim

START_SECONDS = 60.0

Checks = Iterator[tuple[str, Callable[[], None]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """The driver to check, and the inputs of the checks.

    ``path`` is the registration socket, or a folder of sockets in which ``driver`` selects one. ``claims`` gives ResourceClaims that are
    allocated to the driver on this node, ``published`` its ResourceSlices, None if there is no API server to ask; each is called with the
    driver's name, once it has answered. ``cdi`` is the folder of CDI files. ``restarter`` restarts the driver.
    """

    path: pathlib.Path
    driver: str = ""
    claims: Callable[[str], Sequence[Object]] = lambda _: ()
    published: Callable[[str], Sequence[Object] | None] = lambda _: None
    cdi: pathlib.Path | None = None
    restarter: restarts.Restarter = dataclasses.field(default_factory=restarts.Restarter)


def check_plugin(
    subject: Subject, *, junit: pathlib.Path | None = None, progress: Callable[[reports.Check], object] = bool
) -> reports.Report:
    """Check a driver by its sockets, and return the report. A failure of the driver is in the report, not an exception.

    ``junit`` is a file for a report that CI systems read; ``progress`` is called with each ``Check`` as it ends. Raises UnreachableError where no
    driver answers, ValueError for a claim that is not the driver's, RestartError, and what ``claims`` and ``published`` raise.
    """
    place = sockets.Place(path=subject.path, driver=subject.driver)
    checks: list[reports.Check] = []
    with subject.restarter.started():
        info = place.find(START_SECONDS if subject.restarter.is_able else 0.0)
        given = tuple(Claim.of(claim, info.name) for claim in subject.claims(info.name))
        for name, check in _all(subject, place, info, given):
            checks.append(reports.judged(name, check))
            progress(checks[-1])
    report = reports.Report(driver=info.name, checks=tuple(checks))
    if junit is not None:
        report.write_junit(junit)
    return report


def _all(subject: Subject, place: sockets.Place, info: sockets.Info, claims: tuple[Claim, ...]) -> Checks:
    for name, check in registration.ALL.items():
        yield name, functools.partial(check, info)
    if info.has_service:
        with _bench(subject, info, claims) as bench:
            yield from ((f"v1: {name}", functools.partial(check, bench)) for name, check in calls.ALL.items())
            yield from _restarts(subject, place, bench).items()
    yield from slices.checks(subject.published(info.name), claims).items()


def _restarts(subject: Subject, place: sockets.Place, bench: calls.Bench) -> Mapping[str, Callable[[], None]]:
    @contextlib.contextmanager
    def again() -> Iterator[calls.Bench]:
        subject.restarter.restart()
        info = place.find(START_SECONDS)
        sockets.notify(info.socket)
        with _bench(subject, info, bench.claims) as restarted:
            yield restarted

    checks = restarts.check(bench, again)
    return checks if subject.restarter.is_able else dict.fromkeys(checks, restarts.unable)


@contextlib.contextmanager
def _bench(subject: Subject, info: sockets.Info, claims: tuple[Claim, ...]) -> Iterator[calls.Bench]:
    with sockets.service(info.service) as service:
        yield calls.Bench(service=service, claims=claims, cdi=subject.cdi)
