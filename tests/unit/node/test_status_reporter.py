"""What the users of a claim are told: Ready where it failed, what the author says, and Events that do not repeat themselves."""

import threading

import pytest

from drakit.core import claim as claims
from drakit.core import claim_status, context, errors, names
from drakit.node import device_status
from fakes import claim_statuses, crash_node, manual_clock

REF = claims.ClaimRef(uid=names.ClaimUid("00000000-0000-4000-8000-000000000001"), namespace="default", name="c")
KEY = (crash_node.POOL, "chip-0", "")
GONE = errors.DeviceGoneError("chip-0 is gone")
LOOK = context.Event(reason="Throttled", message="the device is hot")


class ReporterSetup:
    """A status reporter on fakes; ``send`` sends what waits."""

    def __init__(self, conditions: device_status.Conditions = device_status.Conditions.FAILURES) -> None:
        self.statuses, self.events, self.clock = (
            claim_statuses.FakeStatuses(crash_node.POOL),
            claim_statuses.FakeEvents(),
            manual_clock.ManualClock(),
        )
        self.statuses.allocated[REF.uid] = {KEY}
        self.reports = device_status.StatusReporter(self.statuses, self.events, self.clock, pool=crash_node.POOL, conditions=conditions)

    def send(self) -> claim_statuses.Conditions:
        stop = threading.Event()
        stop.set()
        for _, loop in self.reports.loops():
            loop(stop)
        return self.statuses.conditions(REF.uid, "chip-0")


@pytest.fixture
def setup() -> ReporterSetup:
    return ReporterSetup()


def test_a_failure_condition_is_removed_once_the_claim_is_prepared(setup: ReporterSetup) -> None:
    setup.reports.failed(REF, GONE)
    assert setup.send() == {"Ready": (False, "DeviceGone")}
    setup.reports.prepared(REF)
    assert setup.send() == {"Ready": (True, "Prepared")}
    setup.reports.unprepared(REF)
    assert setup.send() == {}


def test_a_claim_that_succeeds_costs_no_request(setup: ReporterSetup) -> None:
    setup.reports.prepared(REF)
    setup.reports.unprepared(REF)
    setup.send()
    assert setup.statuses.writes == 0


@pytest.mark.parametrize("error", [errors.CallerGoneError("late"), errors.ApiError("away", status=503)])
def test_errors_that_are_not_about_the_claim_are_not_written(setup: ReporterSetup, error: Exception) -> None:
    setup.reports.failed(REF, error)
    assert setup.send() == {}


def test_always_writes_a_status_for_every_claim_and_never_for_none() -> None:
    always, never = ReporterSetup(device_status.Conditions.ALWAYS), ReporterSetup(device_status.Conditions.NEVER)
    for setup in (always, never):
        setup.reports.prepared(REF)
    assert (always.send(), never.send()) == ({"Ready": (True, "Prepared")}, {})
    never.reports.failed(REF, GONE)
    assert never.send() == {}


def test_after_an_outage_only_the_last_status_is_written(setup: ReporterSetup) -> None:
    setup.statuses.failures = [errors.ApiError("away", status=503)]
    setup.reports.failed(REF, GONE)
    setup.send()
    setup.reports.prepared(REF)
    setup.send()
    assert setup.statuses.conditions(REF.uid, "chip-0") in ({"Ready": (True, "Prepared")}, {})
    assert setup.statuses.conditions(REF.uid, "chip-0") != {"Ready": (False, "DeviceGone")}


def test_an_authors_own_ready_wins_for_its_device(setup: ReporterSetup) -> None:
    mine = claim_status.Condition(type="Ready", status=False, reason="LinkDown")
    setup.reports.failed(REF, GONE)
    setup.reports.status(REF, claim_status.DeviceStatus(device="chip-0", conditions=(mine,)))
    assert setup.send() == {"Ready": (False, "LinkDown")}


@pytest.mark.parametrize(
    "error, reason",
    [
        (GONE, "DeviceGone"),
        (errors.ConfigError("bad"), "Config"),
        (errors.ClaimError(errors.ClaimFault.UNKNOWN_DEVICE, "no"), "ClaimUnknownDevice"),
        (KeyError("bug"), "InternalError"),
    ],
)
def test_every_error_has_a_camel_case_reason(error: Exception, reason: str) -> None:
    assert device_status.reason_of(error) == reason


def test_equal_events_within_ten_minutes_are_recorded_once_and_counted(setup: ReporterSetup) -> None:
    for _ in range(3):
        setup.reports.event(REF, LOOK)
    setup.reports.event(REF, context.Event(reason="Throttled", message="another"))
    setup.send()
    assert [(event.message, times) for _, event, times in setup.events.written] == [(LOOK.message, 1), ("another", 1)]
    setup.clock.moment += device_status.EVENT_INTERVAL_SECONDS
    setup.reports.event(REF, LOOK)
    setup.send()
    assert setup.events.written[-1] == (REF, LOOK, 3)


def test_a_status_that_only_the_user_can_fix_is_an_event_and_is_not_retried(setup: ReporterSetup) -> None:
    for _ in range(3):
        setup.statuses.failures.append(errors.ConfigError("stored with white space", field="status.devices"))
        setup.reports.failed(REF, GONE)
        assert setup.send() == {}
    assert setup.statuses.failures == []
    (entry,) = setup.events.written
    assert entry[1] == context.Event(reason="DeviceStatusNotWritten", message="status.devices: stored with white space")
