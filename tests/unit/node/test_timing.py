"""A claim and its phases are timed, and counted by the claim's outcome."""

import pathlib

import pytest

from drakit.core import driver as drivers
from drakit.core import errors
from drakit.journal import locks
from drakit.node import timing
from fakes import author, crash_node


class Tally(timing.ClaimTimer):
    def __init__(self) -> None:
        super().__init__()
        self.phases: list[tuple[str, bool]] = []
        self.answers: list[tuple[str, bool]] = []

    def observe_phase(self, phase: str, *, ok: bool, seconds: float) -> None:
        assert seconds >= 0
        self.phases.append((phase, ok))

    def observe_claim(self, verb: str, *, ok: bool, seconds: float) -> None:
        assert seconds >= 0
        self.answers.append((verb, ok))

    def published(self, writes: int) -> None:
        raise AssertionError(writes)

    def failed_to_publish(self) -> None:
        raise AssertionError

    def watch_restarted(self) -> None:
        raise AssertionError


class Faulty(author.FakeDriver):
    def prepare(self, grant: drivers.Grant[author.Tuning]) -> drivers.Prepared:
        if grant.device.name == "chip-1":
            raise RuntimeError("a bug")
        return super().prepare(grant)


@pytest.fixture
def tally() -> Tally:
    return Tally()


@pytest.fixture
def node(tally: Tally) -> crash_node.CrashNode:
    world = crash_node.CrashNode()
    world.meter, world.driver_type = tally, Faulty
    return world


PREPARED = ["fetch", "journal", "device_prepare", "cdi", "journal"]
UNPREPARED = ["journal", "cdi", "device_unprepare", "journal"]


def test_each_phase_of_a_claim_is_timed_in_order(node: crash_node.CrashNode, tally: Tally) -> None:
    engine, ref = node.boot(), node.claim("chip-0")
    assert engine.prepare([ref], node.caller)[ref.uid].error == ""
    assert tally.phases == [(phase, True) for phase in PREPARED]
    tally.phases.clear()
    assert engine.unprepare([ref], node.caller) == {ref.uid: ""}
    assert tally.phases == [(phase, True) for phase in UNPREPARED]


def test_each_claim_of_a_call_is_counted_by_its_outcome(node: crash_node.CrashNode, tally: Tally) -> None:
    engine, good, bad = node.boot(), node.claim("chip-0"), node.claim("no-such-device")
    answers = engine.prepare([good, bad], node.caller)
    assert [bool(answers[ref.uid].error) for ref in (good, bad)] == [False, True]
    assert engine.unprepare([good, bad], node.caller) == {good.uid: "", bad.uid: ""}
    assert tally.answers == [("prepare", True), ("prepare", False), ("unprepare", True), ("unprepare", True)]


def test_all_phases_of_a_claim_have_the_outcome_of_the_claim(node: crash_node.CrashNode, tally: Tally) -> None:
    engine, ref = node.boot(), node.claim("chip-1")
    assert "a bug" in engine.prepare([ref], node.caller)[ref.uid].error
    undone = ["journal", "cdi", "device_unprepare", "journal"]
    assert tally.phases == [(phase, False) for phase in [*PREPARED[:3], *undone]]
    assert tally.answers == [("prepare", False)]


def test_phases_of_a_recovery_are_counted_at_once_by_their_own_outcome(node: crash_node.CrashNode, tally: Tally) -> None:
    engine, ref = node.boot(), node.claim("chip-0")
    engine.prepare([ref], node.caller)
    tally.phases.clear()
    engine.recover(ref.uid, node.caller)
    assert tally.phases == [("cdi", True)]
    with pytest.raises(errors.ApiError), tally.phase("fetch"):
        raise errors.ApiError("no")
    assert tally.phases[1:] == [("fetch", False)]


def test_a_wait_for_locks_is_timed_also_where_it_fails(tally: Tally, tmp_path: pathlib.Path) -> None:
    held, awaited = locks.FileLocks(tmp_path, meter=tally), locks.FileLocks(tmp_path, meter=tally)
    with held.hold(["a", "b"], lambda: True):
        assert tally.phases == [("lock", True)]
        with pytest.raises(errors.LockedError), awaited.hold(["a"], lambda: False):
            pytest.fail("two hold one lock")
    assert tally.phases == [("lock", True), ("lock", False)]
