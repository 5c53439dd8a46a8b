"""Claims on hardware that is slower than the kubelet's deadline of 45 s: finished work is committed, and what is finished is never done twice."""

import math
import threading
from collections.abc import Callable

import pytest

from drakit import testing
from drakit.core import claim as claims
from drakit.core import driver, errors, lifecycle
from drakit.node import engine, timing
from fakes import author, crash_node, waits

DEADLINE = 45.0
STEP = 30.0


class Kubelet:
    """A kubelet in simulated time: each hardware step takes ``seconds``, and each call has a deadline."""

    def __init__(self, seconds: float = STEP) -> None:
        self.now = 0.0
        self.calls = 0
        self.ends = 0.0
        self._seconds = seconds
        self.steps: list[str] = []

    def is_waiting(self) -> bool:
        return self.now < self.ends

    def seconds_left(self) -> float:
        return self.ends - self.now

    def step(self, what: str) -> None:
        if what.startswith("after make"):
            self.now += self._seconds
            self.steps.append(what.removeprefix("after make "))

    def ask_until_answered(self, ask: Callable[["Kubelet"], claims.Outcome], most: int = 20) -> claims.Outcome:
        """Ask until an answer comes within the deadline; an answer after it reaches nobody."""
        while self.calls < most:
            self.calls += 1
            self.ends = self.now + DEADLINE
            answer = ask(self)
            if not answer.error and self.is_waiting():
                return answer
            self.now = max(self.now, self.ends) + 14
        raise AssertionError(f"never answered, though each device was set up so often: {self.steps}")


class Forgetful(author.FakeDriver):
    """Sets its hardware up at every prepare, also where it is set up already."""

    def prepare(self, grant: driver.Grant[author.Tuning]) -> driver.Prepared:
        self.hardware.made.pop(str(grant.intent["identity"]), None)
        return super().prepare(grant)


@pytest.fixture
def node() -> crash_node.CrashNode:
    return crash_node.CrashNode()


@pytest.fixture
def kubelet(node: crash_node.CrashNode) -> Kubelet:
    found = Kubelet()
    node.step = found.step
    return found


def asking(started: engine.Engine, ref: claims.ClaimRef) -> Callable[[Kubelet], claims.Outcome]:
    return lambda caller: started.prepare([ref], caller)[ref.uid]


def state_of(node: crash_node.CrashNode, ref: claims.ClaimRef) -> lifecycle.State:
    entry = node.journal.entry(ref.uid)
    return lifecycle.State.ABSENT if entry is None else entry.state


FOUR = ("chip-0-left", "chip-0-right", "chip-1-left", "chip-1-right")


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("driver_type", [author.FakeDriver, Forgetful])
def test_slow_devices_are_answered_after_a_few_calls_and_each_is_set_up_once(
    node: crash_node.CrashNode, kubelet: Kubelet, count: int, driver_type: type[author.FakeDriver]
) -> None:
    node.driver_type = driver_type
    started = node.boot()
    ref = node.claim(*FOUR[:count])
    answer = kubelet.ask_until_answered(asking(started, ref))
    assert [item.device for item in answer.devices] == list(FOUR[:count])
    assert kubelet.steps == list(FOUR[:count])
    assert kubelet.calls <= math.ceil(count * STEP / DEADLINE) + 1
    assert started.unprepare([ref], crash_node.Waiting()) == {ref.uid: ""}
    assert node.is_clean


def test_slow_devices_converge_on_the_real_journal_too() -> None:
    hardware = author.Hardware()
    kubelet = Kubelet()
    hardware.step = kubelet.step
    with testing.Node(lambda: Forgetful(hardware)) as node:
        ref = node.claim(*FOUR, parameters={"apiVersion": "fake.example.com/v1", "kind": "Tuning", "speed": 7})
        node.caller = kubelet  # type: ignore[assignment]  # Another caller, with a clock.
        kubelet.ask_until_answered(lambda _: node.try_prepare(ref))
        assert kubelet.steps == list(FOUR)
        assert kubelet.calls <= 4
        (entry,) = node.entries
        assert entry.state is lifecycle.State.PREPARED


def test_a_device_slower_than_a_call_is_committed_and_the_next_call_returns_at_once(node: crash_node.CrashNode) -> None:
    kubelet = Kubelet(seconds=120)
    node.step = kubelet.step
    node.driver_type = Forgetful
    started = node.boot()
    ref = node.claim("chip-0")
    kubelet.ask_until_answered(asking(started, ref))
    assert (kubelet.calls, kubelet.steps) == (2, ["chip-0"])


def test_verifying_devices_that_are_slow_to_verify_converges(node: crash_node.CrashNode, kubelet: Kubelet) -> None:
    node.driver_type = Forgetful
    ref = node.claim(*FOUR)
    kubelet.ask_until_answered(asking(node.boot(), ref))
    restarted = node.boot()
    kubelet.calls = 0
    kubelet.ask_until_answered(asking(restarted, ref), most=4)
    assert kubelet.steps == [*FOUR, *FOUR]


def test_a_call_that_ends_between_two_devices_reports_the_finished_ones(node: crash_node.CrashNode, kubelet: Kubelet) -> None:
    started = node.boot()
    ref = node.claim(*FOUR)
    assert "before this call began its work" in started.prepare([ref], kubelet)[ref.uid].error
    assert node.is_clean
    kubelet.now, kubelet.ends = 0.0, DEADLINE
    error = started.prepare([ref], kubelet)[ref.uid].error
    assert "devices finished and kept: 2 of 4" in error
    assert "nothing was changed" not in error
    assert set(node.hardware.made) == set(FOUR[:2])
    assert state_of(node, ref) is lifecycle.State.PREPARING


def test_an_unprepare_between_two_calls_undoes_what_was_kept(node: crash_node.CrashNode, kubelet: Kubelet) -> None:
    started = node.boot()
    ref = node.claim(*FOUR)
    with pytest.raises(AssertionError, match="never answered"):
        kubelet.ask_until_answered(asking(started, ref), most=1)
    assert node.hardware.made
    assert started.unprepare([ref], crash_node.Waiting()) == {ref.uid: ""}
    assert node.is_clean
    assert asking(started, ref)(crash_node.Waiting()).error == ""  # type: ignore[arg-type]
    assert set(node.hardware.made) == set(FOUR)


def test_cached_results_are_dropped_once_another_process_undid_them(node: crash_node.CrashNode, kubelet: Kubelet) -> None:
    old = node.boot()
    ref = node.claim(*FOUR)
    with pytest.raises(AssertionError, match="never answered"):
        kubelet.ask_until_answered(asking(old, ref), most=1)
    node.boot()
    assert node.is_clean, "the new process undoes half states"
    assert old.prepare([ref], crash_node.Waiting())[ref.uid].error == ""
    assert set(node.hardware.made) == set(FOUR)


def test_a_reallocated_claim_releases_its_finished_devices(node: crash_node.CrashNode, kubelet: Kubelet) -> None:
    started = node.boot()
    ref = node.claim(*FOUR)
    with pytest.raises(AssertionError, match="never answered"):
        kubelet.ask_until_answered(asking(started, ref), most=1)
    result = claims.AllocationResult(request="r0", driver=author.FakeDriver.name, pool=crash_node.POOL, device="chip-1")
    node.claims.put(claims.Claim(ref=ref, results=(result,)))
    assert started.prepare([ref], crash_node.Waiting())[ref.uid].error == ""
    assert set(node.hardware.made) == {"chip-1"}


def test_a_device_that_fails_after_others_were_kept_leaves_nothing(node: crash_node.CrashNode, kubelet: Kubelet) -> None:
    started = node.boot()
    ref = node.claim(*FOUR)
    with pytest.raises(AssertionError, match="never answered"):
        kubelet.ask_until_answered(asking(started, ref), most=1)
    node.driver.failure = errors.HardwareError("make", "no")
    assert "make: no" in started.prepare([ref], crash_node.Waiting())[ref.uid].error
    assert node.is_clean


def test_nothing_commits_after_an_unprepare_has_begun(node: crash_node.CrashNode) -> None:
    """The caller leaves while hardware is at work, and an Unprepare comes at once: the commit is first, then all of it is undone."""
    started = node.boot()
    ref = node.claim("chip-0", "chip-1")
    steps: list[str] = []
    at_work, go_on, caller = threading.Event(), threading.Event(), crash_node.Waiting()

    def step(what: str) -> None:
        steps.append(what)
        if what == "before make chip-1":
            at_work.set()
            assert go_on.wait(waits.SECONDS)

    node.step = step
    answers: list[str] = []
    preparing = threading.Thread(target=lambda: answers.append(started.prepare([ref], caller)[ref.uid].error))
    preparing.start()
    assert at_work.wait(waits.SECONDS)
    caller.waits = False
    undoing = threading.Thread(target=lambda: answers.append(started.unprepare([ref], crash_node.Waiting())[ref.uid]))
    undoing.start()
    undoing.join(0.2)
    assert undoing.is_alive(), "it waits for the claim's lock"
    go_on.set()
    preparing.join(waits.SECONDS)
    undoing.join(waits.SECONDS)
    assert answers == ["", ""]
    assert steps.index("after complete") < steps.index("before begin_unprepare")
    assert not [
        what for what in steps[steps.index("before begin_unprepare") :] if what.split()[1] in {"make", "begin", "complete", "write"}
    ]
    assert node.is_clean
    assert "stopped waiting" in started.prepare([ref], caller)[ref.uid].error, "the same call, had it come after the Unprepare"
    assert node.is_clean


def steps_of_a_continued_claim() -> int:
    node, kubelet, ref = continued()
    steps: list[str] = []

    def step(what: str) -> None:
        steps.append(what)
        kubelet.step(what)

    node.step = step
    kubelet.ask_until_answered(asking(node.boot(), ref))
    return len(steps)


def continued() -> tuple[crash_node.CrashNode, Kubelet, claims.ClaimRef]:
    node = crash_node.CrashNode()
    return node, Kubelet(), node.claim(*FOUR)


@pytest.mark.parametrize("number", range(steps_of_a_continued_claim()))
def test_a_crash_at_any_step_of_a_continued_claim_leaves_nothing_behind(number: int) -> None:
    node, kubelet, ref = continued()
    left = [number]

    def step(what: str) -> None:
        kubelet.step(what)
        left[0] -= 1
        if left[0] < 0:
            raise crash_node.Crash(what)

    node.step = step
    with pytest.raises(crash_node.Crash):
        kubelet.ask_until_answered(asking(node.boot(), ref))
    node.step = kubelet.step
    restarted = node.boot()
    assert state_of(node, ref) in {lifecycle.State.ABSENT, lifecycle.State.PREPARED}
    kubelet.calls = 0
    kubelet.ask_until_answered(asking(restarted, ref), most=4)
    assert set(node.hardware.made) == set(FOUR)
    assert restarted.unprepare([ref], crash_node.Waiting()) == {ref.uid: ""}
    assert node.is_clean


class Reporting(author.FakeDriver):
    """Says by an empty record that hardware is gone which a record names; chip-1 is not ready at first."""

    is_ready = False

    def prepare(self, grant: driver.Grant[author.Tuning]) -> driver.Prepared:
        if grant.record and str(grant.intent["identity"]) not in self.hardware.made:
            return driver.Prepared()
        if grant.device.name == "chip-1" and not type(self).is_ready:
            raise errors.RetryError("chip-1 is not ready", after=1.0)
        return super().prepare(grant)


class Clock(timing.SystemClock):
    """A clock that is set forward by a test."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def test_a_finished_device_that_is_lost_before_the_claim_is_prepared_is_made_again(
    node: crash_node.CrashNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reporting, "is_ready", False)
    clock = node.clock = Clock()
    node.driver_type = Reporting
    engine_of_node = node.boot()
    ref = node.claim("chip-0", "chip-1")
    assert "not ready" in engine_of_node.prepare([ref], crash_node.Waiting())[ref.uid].error
    clock.ahead = 3600.0
    node.hardware.made.clear()
    monkeypatch.setattr(Reporting, "is_ready", True)
    assert not engine_of_node.prepare([ref], crash_node.Waiting())[ref.uid].error
    assert set(node.hardware.made) == {"chip-0", "chip-1"}
    entry = node.journal.entry(ref.uid)
    assert entry is not None
    assert [dict(grant.record) for grant in entry.grants] == [{"made": "chip-0"}, {"made": "chip-1"}]
