"""Who may write: a lease is taken only after it was seen unchanged for its duration, and held no longer than it was renewed."""

import dataclasses
import datetime

import pytest

from drakit.core import errors, leasing

NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
TERMS = leasing.Terms()
HELD = leasing.Lease(holder="a", duration=15, acquired=NOON, renewed=NOON, transitions=3, version="7")


def seen(lease: leasing.Lease | None, since: float = 100.0) -> leasing.Seen:
    return leasing.Seen(lease=lease, since=since)


@pytest.mark.parametrize(
    "found, me, moment, step",
    [
        (None, "a", 100.0, leasing.Step.CREATE),
        (HELD, "a", 1000.0, leasing.Step.RENEW),
        (HELD, "b", 100.0, leasing.Step.WAIT),
        (HELD, "b", 115.0, leasing.Step.WAIT),
        (HELD, "b", 115.1, leasing.Step.TAKE),
        (dataclasses.replace(HELD, holder=""), "b", 100.0, leasing.Step.TAKE),
        (dataclasses.replace(HELD, duration=1.0), "b", 101.5, leasing.Step.TAKE),
    ],
)
def test_a_step_follows_from_holder_and_time_alone(found: leasing.Lease | None, me: str, moment: float, step: leasing.Step) -> None:
    assert leasing.decide(seen(found), me, moment) is step


def test_any_renewal_starts_the_wait_anew_and_no_renewal_does_not() -> None:
    first = seen(HELD)
    assert first.again(HELD, 110.0) is first
    renewed = first.again(dataclasses.replace(HELD, version="8"), 110.0)
    assert renewed.since == 110.0
    assert leasing.decide(renewed, "b", 120.0) is leasing.Step.WAIT


def test_clocks_of_two_machines_are_never_compared() -> None:
    far_ahead = dataclasses.replace(HELD, renewed=NOON + datetime.timedelta(days=400))
    assert leasing.decide(seen(far_ahead), "b", 116.0) is leasing.Step.TAKE
    assert leasing.decide(seen(dataclasses.replace(HELD, renewed=NOON - datetime.timedelta(days=400))), "b", 101.0) is leasing.Step.WAIT


def test_what_is_written_says_since_when_and_how_often_it_changed_hands() -> None:
    later = NOON + datetime.timedelta(seconds=2)
    made = leasing.following(leasing.Step.CREATE, seen(None), "b", TERMS, later)
    assert (made.holder, made.acquired, made.transitions, made.version) == ("b", later, 0, "")
    renewed = leasing.following(leasing.Step.RENEW, seen(HELD), "a", TERMS, later)
    assert (renewed.acquired, renewed.renewed, renewed.transitions, renewed.version) == (NOON, later, 3, "7")
    taken = leasing.following(leasing.Step.TAKE, seen(HELD), "b", TERMS, later)
    assert (taken.holder, taken.acquired, taken.transitions, taken.version) == ("b", later, 4, "7")
    assert leasing.released(taken, later).holder == ""


@pytest.mark.parametrize(
    "change, key",
    [
        ({"duration": 0.5}, "duration"),
        ({"duration": 15.5}, "duration"),
        ({"renew_deadline": 15.0}, "renew_deadline"),
        ({"retry": 9.0}, "retry"),
        ({"retry": 0.0}, "retry"),
    ],
)
def test_terms_that_could_let_two_lead_are_refused(change: dict[str, float], key: str) -> None:
    with pytest.raises(errors.SettingsError) as raised:
        leasing.Terms(**change)
    assert raised.value.key == key
