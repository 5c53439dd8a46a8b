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


class Desk:
    """Reports on fakes; ``send`` sends what waits."""

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
def desk() -> Desk:
    return Desk()


def test_a_failure_is_told_and_taken_back_when_the_claim_is_prepared_after_all(desk: Desk) -> None:
    desk.reports.failed(REF, GONE)
    assert desk.send() == {"Ready": (False, "DeviceGone")}
    desk.reports.prepared(REF)
    assert desk.send() == {"Ready": (True, "Prepared")}
    desk.reports.unprepared(REF)
    assert desk.send() == {}


def test_a_claim_that_just_works_costs_no_request(desk: Desk) -> None:
    desk.reports.prepared(REF)
    desk.reports.unprepared(REF)
    desk.send()
    assert desk.statuses.writes == 0


@pytest.mark.parametrize("error", [errors.CallerGoneError("late"), errors.ApiError("away", status=503)])
def test_what_is_no_fact_about_the_claim_is_not_told(desk: Desk, error: Exception) -> None:
    desk.reports.failed(REF, error)
    assert desk.send() == {}


def test_always_says_it_of_every_claim_and_never_of_none() -> None:
    always, never = Desk(device_status.Conditions.ALWAYS), Desk(device_status.Conditions.NEVER)
    for desk in (always, never):
        desk.reports.prepared(REF)
    assert (always.send(), never.send()) == ({"Ready": (True, "Prepared")}, {})
    never.reports.failed(REF, GONE)
    assert never.send() == {}


def test_the_last_word_wins_when_the_server_was_away(desk: Desk) -> None:
    desk.statuses.failures = [errors.ApiError("away", status=503)]
    desk.reports.failed(REF, GONE)
    desk.send()
    desk.reports.prepared(REF)
    desk.send()
    assert desk.statuses.conditions(REF.uid, "chip-0") in ({"Ready": (True, "Prepared")}, {})
    assert desk.statuses.conditions(REF.uid, "chip-0") != {"Ready": (False, "DeviceGone")}


def test_an_authors_own_ready_wins_for_its_device(desk: Desk) -> None:
    mine = claim_status.Condition(type="Ready", status=False, reason="LinkDown")
    desk.reports.failed(REF, GONE)
    desk.reports.status(REF, claim_status.DeviceStatus(device="chip-0", conditions=(mine,)))
    assert desk.send() == {"Ready": (False, "LinkDown")}


@pytest.mark.parametrize(
    "error, reason",
    [
        (GONE, "DeviceGone"),
        (errors.ConfigError("bad"), "Config"),
        (errors.ClaimError(errors.ClaimFault.UNKNOWN_DEVICE, "no"), "ClaimUnknownDevice"),
        (KeyError("bug"), "InternalError"),
    ],
)
def test_reasons_are_words_for_machines(error: Exception, reason: str) -> None:
    assert device_status.reason_of(error) == reason


def test_equal_notices_within_ten_minutes_are_told_once_and_counted(desk: Desk) -> None:
    for _ in range(3):
        desk.reports.notice(REF, LOOK)
    desk.reports.notice(REF, context.Event(reason="Throttled", message="another"))
    desk.send()
    assert [(notice.message, times) for _, notice, times in desk.events.told] == [(LOOK.message, 1), ("another", 1)]
    desk.clock.moment += device_status.TOLD_ONCE_SECONDS
    desk.reports.notice(REF, LOOK)
    desk.send()
    assert desk.events.told[-1] == (REF, LOOK, 3)


def test_a_status_that_only_the_user_can_fix_is_an_event_and_is_not_retried(desk: Desk) -> None:
    for _ in range(3):
        desk.statuses.failures.append(errors.ConfigError("stored with white space", field="status.devices"))
        desk.reports.failed(REF, GONE)
        assert desk.send() == {}
    assert desk.statuses.failures == []
    (told,) = desk.events.told
    assert told[1] == context.Event(reason="DeviceStatusNotWritten", message="status.devices: stored with white space")
