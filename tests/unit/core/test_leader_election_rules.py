"""Who may write: a lease is taken only after it was seen unchanged for its duration, and held no longer than it was renewed."""

import dataclasses
import datetime

import pytest

from drakit.core import errors
from drakit.core.slices import leader_election

NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
TERMS = leader_election.Terms()
HELD = leader_election.Lease(holder="a", duration=15, acquired=NOON, renewed=NOON, transitions=3, version="7")


def seen(lease: leader_election.Lease | None, since: float = 100.0) -> leader_election.ObservedLease:
    return leader_election.ObservedLease(lease=lease, since=since)


@pytest.mark.parametrize(
    "found, me, moment, step",
    [
        (None, "a", 100.0, leader_election.Step.CREATE),
        (HELD, "a", 1000.0, leader_election.Step.RENEW),
        (HELD, "b", 100.0, leader_election.Step.WAIT),
        (HELD, "b", 115.0, leader_election.Step.WAIT),
        (HELD, "b", 115.1, leader_election.Step.TAKE),
        (dataclasses.replace(HELD, holder=""), "b", 100.0, leader_election.Step.TAKE),
        (dataclasses.replace(HELD, duration=1.0), "b", 101.5, leader_election.Step.TAKE),
    ],
)
def test_a_step_follows_from_holder_and_time_alone(
    found: leader_election.Lease | None, me: str, moment: float, step: leader_election.Step
) -> None:
    assert leader_election.decide(seen(found), me, moment) is step


def test_every_renewal_restarts_the_wait() -> None:
    first = seen(HELD)
    assert first.again(HELD, 110.0) is first
    renewed = first.again(dataclasses.replace(HELD, version="8"), 110.0)
    assert renewed.since == 110.0
    assert leader_election.decide(renewed, "b", 120.0) is leader_election.Step.WAIT


def test_clocks_of_two_machines_are_never_compared() -> None:
    far_ahead = dataclasses.replace(HELD, renewed=NOON + datetime.timedelta(days=400))
    assert leader_election.decide(seen(far_ahead), "b", 116.0) is leader_election.Step.TAKE
    assert (
        leader_election.decide(seen(dataclasses.replace(HELD, renewed=NOON - datetime.timedelta(days=400))), "b", 101.0)
        is leader_election.Step.WAIT
    )


def test_a_written_lease_has_acquire_time_and_transitions() -> None:
    later = NOON + datetime.timedelta(seconds=2)
    made = leader_election.following(leader_election.Step.CREATE, seen(None), "b", TERMS, later)
    assert (made.holder, made.acquired, made.transitions, made.version) == ("b", later, 0, "")
    renewed = leader_election.following(leader_election.Step.RENEW, seen(HELD), "a", TERMS, later)
    assert (renewed.acquired, renewed.renewed, renewed.transitions, renewed.version) == (NOON, later, 3, "7")
    taken = leader_election.following(leader_election.Step.TAKE, seen(HELD), "b", TERMS, later)
    assert (taken.holder, taken.acquired, taken.transitions, taken.version) == ("b", later, 4, "7")
    assert leader_election.released(taken, later).holder == ""


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
        leader_election.Terms(**change)
    assert raised.value.key == key
