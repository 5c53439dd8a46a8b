"""The background checks run at their intervals and after events, and a burst of events costs a few checks."""

import dataclasses
from collections.abc import Callable

import pytest

from drakit.core import errors
from drakit_nic import background, port


@dataclasses.dataclass
class Clock:
    """Time that passes in waits only, and the events of a watch at given times; as a stop signal it is set at ``stopped``."""

    events: list[float]
    stopped: float = float("inf")
    now: float = 0.0
    drained: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return self.now >= self.stopped

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now += timeout
        return self.is_set()


@dataclasses.dataclass
class Events:
    """The watch on that clock."""

    clock: Clock

    def wait(self, seconds: float) -> bool:
        clock = self.clock
        coming = min((event for event in clock.events if event > clock.drained), default=float("inf"))
        has_event = coming <= clock.now + seconds
        clock.now = max(clock.now, coming) if has_event else clock.now + seconds
        return has_event

    def drain(self) -> None:
        self.clock.drained = self.clock.now

    def wake(self) -> None:
        """Nothing waits here."""

    def narrow(self, interest: port.Interest) -> bool:
        return False

    def close(self) -> None:
        """Nothing is held."""


def quiet_at(clock: Clock) -> float:
    background.wait_until_quiet(Events(clock), clock, quiet=1.0, most=5.0, monotonic=clock.monotonic)
    return clock.now


def test_one_change_is_checked_a_moment_later() -> None:
    assert quiet_at(Clock([])) == 1.0


def test_changes_are_waited_for_until_there_are_none() -> None:
    assert quiet_at(Clock([0.5, 1.5, 2.5])) == 4.0


def test_changes_without_end_are_checked_all_the_same() -> None:
    assert quiet_at(Clock([number / 10 for number in range(1000)])) == 5.0


def test_a_stop_ends_the_wait() -> None:
    assert quiet_at(Clock([number / 10 for number in range(1000)], stopped=2.0)) == 2.0


def test_a_burst_of_a_hundred_changes_costs_a_few_checks() -> None:
    clock, checks = Clock([number / 10 for number in range(1, 101)]), 0
    while clock.now < 20.0:
        checks += 1
        quiet_at(clock)
        clock.now = max([clock.now, *[min(event for event in clock.events if event > clock.now)]]) if clock.now < clock.events[-1] else 20.0
    assert checks <= 4


@dataclasses.dataclass
class Watched:
    """The checks of a driver: one after events and every 10 s, one every 30 s only; each notes when it ran and does what ``act`` says."""

    clock: Clock
    act: Callable[[], None] = lambda: None
    often: list[float] = dataclasses.field(default_factory=list)
    seldom: list[float] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self._checks = background.Checks(
            Events(self.clock),
            [
                background.Check(self._check_often, lambda: 10.0),
                background.Check(lambda: self.seldom.append(self.clock.now), lambda: 30.0, on_events=False),
            ],
            monotonic=self.clock.monotonic,
        )

    def run(self, *, until: float) -> None:
        while self.clock.now < until:
            self._checks.watch(self.clock)

    def _check_often(self) -> None:
        self.often.append(self.clock.now)
        self.act()


def test_each_check_runs_at_its_interval_from_the_start() -> None:
    watched = Watched(Clock([]))
    watched.run(until=60.0)
    assert watched.often == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    assert watched.seldom == [0.0, 30.0]


def test_an_event_brings_the_check_forward_once_it_is_quiet() -> None:
    watched = Watched(Clock([4.0, 4.25]))
    watched.run(until=20.0)
    assert watched.often == [0.0, 5.0, 15.0]
    assert watched.seldom == [0.0]


def test_the_other_checks_run_when_one_raises_and_it_runs_again_at_once() -> None:
    def fail() -> None:
        raise errors.HardwareError("links", "no buffers")

    watched = Watched(Clock([]), fail)
    for _ in range(2):
        with pytest.raises(errors.HardwareError, match="no buffers"):
            watched.run(until=1.0)
    assert (watched.often, watched.seldom) == ([0.0, 0.0], [0.0])
    assert watched.clock.now == 0.0, "the framework waits before the next call"


def test_a_watch_that_waits_ends_soon_after_the_stop() -> None:
    clock = Clock([], stopped=1.2)
    watched = Watched(clock)
    watched.run(until=1.2)
    assert clock.now <= clock.stopped + background.STOP_SECONDS
    assert watched.often == [0.0]
