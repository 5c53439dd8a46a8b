"""A call that has no time for all its claims answers before its deadline, and the next call finishes the rest."""

from collections.abc import Sequence

import pytest

from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.node import call_budget
from fakes import author, crash_node, manual_clock

CHIPS = ("chip-0", "chip-1", "chip-2", "chip-3")
SECONDS = 45.0


class Slow(author.FakeDriver):
    """Every verb takes ``seconds`` of the clock."""

    clock: manual_clock.ManualClock
    seconds = 20.0
    prepared: list[str]

    def prepare(self, grant: drivers.Grant[author.Tuning]) -> drivers.Prepared:
        self.clock.moment += self.seconds
        self.prepared.append(grant.device.name)
        return super().prepare(grant)

    def unprepare(self, grant: drivers.Grant[author.Tuning]) -> None:
        self.clock.moment += self.seconds
        super().unprepare(grant)


class Kubelet:
    """A caller that waits for ``SECONDS`` of the clock."""

    def __init__(self, clock: manual_clock.ManualClock) -> None:
        self._clock, self._end = clock, clock.moment + SECONDS

    def is_waiting(self) -> bool:
        return self.seconds_left() > 0

    def seconds_left(self) -> float:
        return self._end - self._clock.moment


class SlowNode:
    """A node whose verbs take time, on a clock that a test turns."""

    def __init__(self) -> None:
        self.clock = manual_clock.ManualClock()
        self.world = crash_node.CrashNode()
        self.world.clock = self.clock
        Slow.clock, Slow.prepared = self.clock, []
        self.world.driver_type = Slow
        self.world.hardware.present |= set(CHIPS)
        self.engine = self.world.boot()

    def prepare(self, refs: Sequence[claims.ClaimRef]) -> tuple[list[str], float]:
        """Return the errors of the claims, and the seconds that the kubelet would still have waited."""
        caller = Kubelet(self.clock)
        answers = self.engine.prepare(refs, caller)
        return [answers[ref.uid].error for ref in refs], caller.seconds_left()


@pytest.fixture
def node() -> SlowNode:
    return SlowNode()


def test_a_call_without_time_for_all_answers_in_time_and_the_next_ones_finish_it(node: SlowNode) -> None:
    refs = [node.world.claim(chip) for chip in CHIPS]
    errors, left = node.prepare(refs)
    assert errors[:2] == ["", ""]
    assert {error.partition(";")[0] for error in errors[2:]} == {"not started, because the call's time is over after 2 of its 4 claims"}
    assert left > call_budget.ANSWER_SECONDS
    errors, left = node.prepare(refs)
    assert (errors, left > 0) == ([""] * 4, True)
    assert Slow.prepared == list(CHIPS), "the finished ones are not prepared again"


def test_unprepare_answers_in_time_too(node: SlowNode) -> None:
    refs = [node.world.claim(chip) for chip in CHIPS]
    for ref in refs:
        node.prepare([ref])
    caller = Kubelet(node.clock)
    answers = node.engine.unprepare(refs, caller)
    assert [bool(answers[ref.uid]) for ref in refs] == [False, False, True, True]
    assert caller.is_waiting()
    again = node.engine.unprepare(refs, Kubelet(node.clock))
    assert set(again.values()) == {""}
    assert node.world.is_clean


def test_one_claim_is_started_however_little_time_is_left(node: SlowNode) -> None:
    caller = Kubelet(node.clock)
    node.clock.moment += SECONDS - 0.1
    (answer,) = node.engine.prepare([node.world.claim("chip-0")], caller).values()
    assert answer.error == ""


def test_a_call_without_a_deadline_does_every_claim(node: SlowNode) -> None:
    refs = [node.world.claim(chip) for chip in CHIPS]
    assert {answer.error for answer in node.engine.prepare(refs, node.world.caller).values()} == {""}


def test_the_wait_for_a_lock_ends_while_there_is_time_to_answer(node: SlowNode) -> None:
    caller = Kubelet(node.clock)
    is_waiting = call_budget.is_waiting_for_lock(caller)
    node.clock.moment += SECONDS - call_budget.ANSWER_SECONDS - 0.1
    assert is_waiting()
    node.clock.moment += 0.2
    assert (is_waiting(), caller.is_waiting()) == (False, True)
