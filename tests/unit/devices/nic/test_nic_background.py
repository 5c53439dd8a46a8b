"""Waiting until a burst of changes is over."""

import dataclasses

from drakit.devices.nic import background, port


@dataclasses.dataclass
class ScriptedWatch:
    """A watch on which something happens at given times, and an event that is waited for instead of sleeping; ``stopped`` is when it is set."""

    events: list[float]
    stopped: float = float("inf")
    now: float = 0.0
    waited: float = 0.0

    def wait(self, timeout: float) -> bool:
        """Both a watch's wait, which is asked with 0 only, and an event's."""
        if timeout:
            self.now += timeout
            return self.now >= self.stopped
        return any(self.waited < event <= self.now for event in self.events)

    def drain(self) -> None:
        self.waited = self.now

    def wake(self) -> None:
        """Nothing waits here."""

    def narrow(self, interest: port.Interest) -> bool:
        return False

    def close(self) -> None:
        """Nothing is held."""

    def monotonic(self) -> float:
        return self.now


def settled(watch: ScriptedWatch) -> float:
    background.wait_until_quiet(watch, watch, quiet=1.0, most=5.0, monotonic=watch.monotonic)
    return watch.now


def test_one_change_is_looked_at_a_moment_later() -> None:
    assert settled(ScriptedWatch([])) == 1.0


def test_changes_are_waited_for_until_there_are_none() -> None:
    assert settled(ScriptedWatch([0.5, 1.5, 2.5])) == 4.0


def test_changes_without_end_are_looked_at_all_the_same() -> None:
    assert settled(ScriptedWatch([number / 10 for number in range(1000)])) == 5.0


def test_whoever_stops_is_not_kept_waiting() -> None:
    assert settled(ScriptedWatch([number / 10 for number in range(1000)], stopped=2.0)) == 2.0


def test_a_burst_of_a_hundred_changes_costs_a_few_looks() -> None:
    watch, looks = ScriptedWatch([number / 10 for number in range(1, 101)]), 0
    while watch.now < 20.0:
        looks += 1
        settled(watch)
        watch.now = max([watch.now, *[min(event for event in watch.events if event > watch.now)]]) if watch.now < watch.events[-1] else 20.0
    assert looks <= 4
