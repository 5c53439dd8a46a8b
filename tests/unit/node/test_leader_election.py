"""Of several candidates at most one leads at any moment, and soon one does again when the leader is gone."""

import datetime
import random
import threading

import pytest

from drakit.core import errors
from drakit.core.slices import leader_election as leader_elections
from drakit.node.publishing import cluster_publisher
from fakes import lease_store

TERMS = leader_elections.Terms(duration=15, renew_deadline=10, retry=2)
AWAY = errors.ApiError("no answer from the API server: refused")


class Time:
    """A clock that a test moves; ``offset`` is how far a machine's own clocks are from it."""

    def __init__(self, offset: float = 0.0) -> None:
        self.seconds = 0.0
        self.offset = offset

    def now(self) -> datetime.datetime:
        return datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=self.seconds + self.offset)

    def monotonic(self) -> float:
        return self.seconds + self.offset

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.seconds += seconds
        return event.is_set()


def candidate(store: lease_store.FakeLeaseStore, me: str, clock: Time) -> cluster_publisher.Election:
    return cluster_publisher.Election(store, me=me, terms=TERMS, clock=clock)


def test_the_first_leads_and_the_second_waits_and_knows_for_whom() -> None:
    store, clock = lease_store.FakeLeaseStore(), Time()
    first, second = candidate(store, "a", clock), candidate(store, "b", clock)
    for one in (first, second):
        one.step()
    assert (first.leads(), second.leads(), second.holder) == (True, False, "a")


def test_a_leader_that_cannot_renew_stops_before_anybody_else_may_start() -> None:
    store, clock = lease_store.FakeLeaseStore(), Time()
    first, second = candidate(store, "a", clock), candidate(store, "b", clock)
    first.step()
    second.step()
    ended = 0.0
    while not second.leads():
        clock.seconds += 0.25
        ended = ended or (0.0 if first.leads() else clock.seconds)
        second.step()
    assert (ended, clock.seconds) == (10.0, 15.25)


def test_a_leader_that_was_suspended_checks_its_lease_before_writing() -> None:
    store, clock = lease_store.FakeLeaseStore(), Time()
    first = candidate(store, "a", clock)
    first.step()
    clock.seconds += 3600
    assert not first.leads()


def test_a_released_lease_is_taken_at_once() -> None:
    store, clock = lease_store.FakeLeaseStore(), Time()
    first, second = candidate(store, "a", clock), candidate(store, "b", clock)
    first.step()
    second.step()
    first.release()
    assert not first.leads()
    second.step()
    assert second.leads()
    assert store.lease is not None
    assert store.lease.transitions == 1


def test_a_short_outage_of_the_api_server_keeps_the_leader() -> None:
    store, clock = lease_store.FakeLeaseStore(), Time()
    first = candidate(store, "a", clock)
    first.step()
    for _ in range(4):
        store.failures = [AWAY]
        clock.seconds += 2
        with pytest.raises(errors.ApiError):
            first.step()
        assert first.leads()
    clock.seconds += 1
    first.step()
    clock.seconds += 9
    assert first.leads()


def test_a_lease_that_somebody_took_by_hand_ends_the_lead_at_the_next_look() -> None:
    store, clock = lease_store.FakeLeaseStore(), Time()
    first = candidate(store, "a", clock)
    first.step()
    assert store.lease is not None
    store.write(
        leader_elections.Lease(holder="by-hand", duration=15, acquired=clock.now(), renewed=clock.now(), version=store.lease.version)
    )
    first.step()
    assert (first.leads(), first.holder) == (False, "by-hand")


def test_the_election_loop_reports_every_change_and_survives_api_errors() -> None:
    store, clock, stop = lease_store.FakeLeaseStore(), Time(), threading.Event()
    first = candidate(store, "a", clock)
    changes: list[bool] = []

    def changed() -> None:
        changes.append(first.leads())
        if len(changes) == 1:
            store.failures = [AWAY] * 8
        if len(changes) == 3:
            stop.set()

    first.run(stop, changed)
    assert changes == [True, False, True]


@pytest.mark.parametrize("seed", range(20))
def test_no_two_lead_at_any_moment_of_a_random_history(seed: int) -> None:
    chance = random.Random(seed)
    store, shared = lease_store.FakeLeaseStore(), 0.0
    clocks = [Time(offset=chance.uniform(-1e6, 1e6)) for _ in range(3)]
    crowd = [candidate(store, f"c{number}", clock) for number, clock in enumerate(clocks)]
    led = set()
    for _ in range(2000):
        shared += chance.expovariate(1.0)
        for clock in clocks:
            clock.seconds = shared
        one = chance.choice(crowd)
        if chance.random() < 0.3:
            store.failures = [AWAY]
        if chance.random() < 0.02:
            one.release()
        elif chance.random() < 0.8:
            try:
                one.step()
            except errors.ApiError:
                store.failures = []
        leading = [number for number, other in enumerate(crowd) if other.leads()]
        assert len(leading) <= 1
        led.update(leading)
    assert led == {0, 1, 2}
