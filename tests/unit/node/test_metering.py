"""Timing changes nothing of what is timed, and says where the time went."""

import pytest

from drakit.core import errors, ports
from drakit.node import metering
from fakes import world


class Tally(ports.Unmeasured):
    def __init__(self) -> None:
        self.phases: list[str] = []
        self.answers: list[tuple[str, bool]] = []

    def phase(self, phase: str, seconds: float) -> None:
        assert seconds >= 0
        self.phases.append(phase)

    def answered(self, verb: str, *, ok: bool, seconds: float) -> None:
        assert seconds >= 0
        self.answers.append((verb, ok))


def test_what_nobody_measures_is_the_thing_itself() -> None:
    thing = object()
    assert metering.timed(thing, {"x": "y"}, None) is thing


def test_a_timed_object_answers_and_fails_as_before() -> None:
    class Source:
        name = "source"

        def fetch(self, number: int) -> int:
            if number < 0:
                raise errors.ApiError("no")
            return number + 1

    tally = Tally()
    timed = metering.timed(Source(), metering.FETCH, tally)
    assert (timed.fetch(1), timed.name) == (2, "source")
    with pytest.raises(errors.ApiError, match="no"):
        timed.fetch(-1)
    assert tally.phases == ["fetch", "fetch"]


def test_every_claim_of_a_batch_is_counted_by_what_became_of_it() -> None:
    node, tally = world.World(), Tally()
    timed = metering.TimedEngine(node.boot(), tally)
    good, bad = node.claim("chip-0"), node.claim("no-such-device")
    answers = timed.prepare([good, bad], node.caller)
    assert [bool(answers[ref.uid].error) for ref in (good, bad)] == [False, True]
    assert timed.unprepare([good, bad], node.caller) == {good.uid: "", bad.uid: ""}
    assert tally.answers == [("prepare", True), ("prepare", False), ("unprepare", True), ("unprepare", True)]


def test_locks_say_how_long_they_were_waited_for() -> None:
    tally = Tally()
    with metering.TimedLocks(world.ThreadLocks(), tally).hold(["a"]):
        assert tally.phases == ["lock"]
