"""Timing changes nothing of what is timed, and says where the time went."""

import functools
import types
from collections.abc import Callable, Mapping, Sequence

import pytest

import drakit
from drakit.core import advanced, errors, names, ports
from drakit.core import claim as claims
from drakit.node import timing
from fakes import crash_node


class Tally(ports.Unmeasured):
    def __init__(self) -> None:
        self.phases: list[tuple[str, bool]] = []
        self.answers: list[tuple[str, bool]] = []

    def phase(self, phase: str, *, ok: bool, seconds: float) -> None:
        assert seconds >= 0
        self.phases.append((phase, ok))

    def answered(self, verb: str, *, ok: bool, seconds: float) -> None:
        assert seconds >= 0
        self.answers.append((verb, ok))


class Source:
    name = "source"

    def fetch(self, number: int) -> int:
        if number < 0:
            raise errors.ApiError("no")
        return number + 1


def test_what_nobody_measures_is_the_thing_itself() -> None:
    thing = object()
    assert timing.timed(thing, {"x": "y"}, None) is thing


def test_a_timed_object_answers_and_fails_as_before() -> None:
    tally = Tally()
    timed = timing.timed(Source(), timing.FETCH, tally)
    assert (timed.fetch(1), timed.name) == (2, "source")
    with pytest.raises(errors.ApiError, match="no"):
        timed.fetch(-1)
    assert tally.phases == [("fetch", True), ("fetch", False)]


class Arrays(drakit.ClaimDriver[drakit.NoConfig]):
    name = "array.example.com"

    def discover(self) -> drakit.Inventory:
        return drakit.Inventory()

    def prepare_claim(self, grants: Sequence[drakit.Grant[drakit.NoConfig]]) -> Sequence[drakit.Prepared]:
        return [drakit.Prepared() for _ in grants]


def test_a_whole_claim_is_one_phase_of_the_driver() -> None:
    tally = Tally()
    timed = timing.timed(Arrays(), timing.DEVICE, tally)
    assert advanced.prepares_claims(timed)
    assert advanced.prepare_claim(timed, ()) == []
    assert tally.phases == [("device_prepare", True)]


class Particular(Source):
    """Has an attribute that instances have and the class refuses to show."""

    @types.DynamicClassAttribute
    def unit(self) -> str:
        return "one"

    @staticmethod
    def doubled(number: int) -> int:
        return 2 * number


def test_an_attribute_that_a_class_does_not_show_is_there_as_before() -> None:
    timed = timing.timed(Particular(), timing.FETCH, Tally())
    assert (timed.unit, timed.doubled(2), timed.fetch(1)) == ("one", 4, 2)


def test_every_claim_of_a_batch_is_counted_by_what_became_of_it() -> None:
    node, tally = crash_node.CrashNode(), Tally()
    timed = timing.TimedEngine(node.boot(), tally)
    good, bad = node.claim("chip-0"), node.claim("no-such-device")
    answers = timed.prepare([good, bad], node.caller)
    assert [bool(answers[ref.uid].error) for ref in (good, bad)] == [False, True]
    assert timed.unprepare([good, bad], node.caller) == {good.uid: "", bad.uid: ""}
    assert tally.answers == [("prepare", True), ("prepare", False), ("unprepare", True), ("unprepare", True)]


def test_locks_say_how_long_they_were_waited_for() -> None:
    tally = Tally()
    with timing.TimedLocks(crash_node.ThreadLocks(), tally).hold(["a"], lambda: True):
        assert tally.phases == [("lock", True)]


def test_a_lock_that_nobody_waits_for_any_more_is_counted_too() -> None:
    tally, locks = Tally(), crash_node.ThreadLocks()
    timed = timing.TimedLocks(locks, tally)
    with locks.hold(["a"], lambda: True), pytest.raises(errors.CallerGoneError), timed.hold(["a"], lambda: False):
        pytest.fail("two hold one lock")
    assert tally.phases == [("lock", False)]


class Working:
    """An engine whose way has one phase, which fails for one claim and hits a bug for another."""

    def __init__(self, meter: ports.Meter) -> None:
        self._source = timing.timed(Source(), timing.FETCH, meter)

    def prepare(
        self, refs: Sequence[claims.ClaimRef], caller: ports.Caller, around: Callable[[Callable[[], claims.Outcome]], claims.Outcome]
    ) -> Mapping[names.ClaimUid, claims.Outcome]:
        return {ref.uid: around(functools.partial(self._one, ref)) for ref in refs}

    def unprepare(
        self, refs: Sequence[claims.ClaimRef], caller: ports.Caller, around: Callable[[Callable[[], str]], str]
    ) -> Mapping[names.ClaimUid, str]:
        return {ref.uid: around(functools.partial(self._error, ref)) for ref in refs}

    def _error(self, ref: claims.ClaimRef) -> str:
        return self._one(ref).error

    def _one(self, ref: claims.ClaimRef) -> claims.Outcome:
        self._source.fetch(1)
        if ref.name == "bug":
            raise RuntimeError("a bug")
        try:
            self._source.fetch(-1 if ref.name == "bad" else 1)
        except errors.ApiError as error:
            return claims.Outcome(error=str(error))
        return claims.Outcome()


def ref(name: str) -> claims.ClaimRef:
    return claims.ClaimRef(uid=names.ClaimUid(name), namespace="default", name=name)


def test_the_phases_of_a_call_are_observed_at_its_end_with_what_became_of_it() -> None:
    node, tally = crash_node.CrashNode(), Tally()
    timed = timing.TimedEngine(Working(tally), tally)
    timed.prepare([ref("good"), ref("bad")], node.caller)
    assert tally.phases == [("fetch", True), ("fetch", True), ("fetch", False), ("fetch", False)]
    assert tally.answers == [("prepare", True), ("prepare", False)]


def test_a_bug_counts_as_an_error_and_what_comes_after_it_is_in_no_call() -> None:
    node, tally = crash_node.CrashNode(), Tally()
    timed = timing.TimedEngine(Working(tally), tally)
    with pytest.raises(RuntimeError):
        timed.unprepare([ref("bug")], node.caller)
    assert (tally.phases, tally.answers) == ([("fetch", False)], [("unprepare", False)])
    timing.timed(Source(), timing.FETCH, tally).fetch(1)
    assert tally.phases == [("fetch", False), ("fetch", True)]
