"""Results that outlive a call: they count for the allocation, the journal entry and the minutes they were made for, and for nothing else."""

import dataclasses
import datetime
import threading
from typing import ClassVar

import pytest

from drakit.core import claim as claims
from drakit.core import driver, errors, lifecycle, ports, records
from drakit.node import device_preparer, engine, timing
from fakes import author, crash_node, fpga

DEADLINE = 45.0
PAUSE = 14.0
TWO = ("chip-0", "chip-1")


class Kubelet:
    """A kubelet and a clock in simulated time: each hardware step takes ``seconds``, and each call has a deadline."""

    def __init__(self, node: crash_node.CrashNode, seconds: float) -> None:
        self.now = self.ends = 0.0
        self.calls = 0
        self.steps: list[str] = []
        self._seconds = seconds
        node.step, node.clock = self.step, SimulatedClock(self)

    def is_waiting(self) -> bool:
        return self.now < self.ends

    def seconds_left(self) -> float:
        return self.ends - self.now

    def step(self, what: str) -> None:
        if what.startswith("after make"):
            self.now += self._seconds
            self.steps.append(what.removeprefix("after make "))

    def call(self, asked: ports.ClaimEngine, *refs: claims.ClaimRef) -> list[str]:
        """One call; the errors of its claims, or "too late" for each where nobody heard the answer."""
        self.calls += 1
        self.ends = self.now + DEADLINE
        answers = asked.prepare(refs, self)
        heard = self.is_waiting()
        self.now = max(self.now, self.ends if not heard else self.now) + PAUSE
        return [answers[ref.uid].error or ("" if heard else "too late") for ref in refs]


class SimulatedClock(timing.SystemClock):
    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    def now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.monotonic(), datetime.UTC)

    def monotonic(self) -> float:
        return self._kubelet.now

    def wait(self, event: threading.Event, seconds: float) -> bool:
        raise AssertionError(f"waits {seconds} s for {event}")


class Forgetful(author.FakeDriver):
    """Sets its hardware up at every prepare, also where it is set up already."""

    def prepare(self, grant: driver.Grant[author.Tuning]) -> driver.Prepared:
        self.hardware.made.pop(str(grant.intent["identity"]), None)
        return super().prepare(grant)


class WarmingUp(Forgetful):
    """Its second chip is not ready for a while."""

    tries = 3

    def prepare(self, grant: driver.Grant[author.Tuning]) -> driver.Prepared:
        if grant.device.name == "chip-1" and self.tries:
            self.tries -= 1
            raise errors.RetryError("warming up", after=5)
        return super().prepare(grant)


@pytest.fixture
def node() -> crash_node.CrashNode:
    found = crash_node.CrashNode()
    found.driver_type = Forgetful
    return found


def state_of(node: crash_node.CrashNode, ref: claims.ClaimRef) -> lifecycle.State:
    entry = node.journal.entry(ref.uid)
    return lifecycle.State.ABSENT if entry is None else entry.state


def reversed_results(node: crash_node.CrashNode, ref: claims.ClaimRef) -> claims.ClaimRef:
    return node.claims.put(claims.Claim(ref=ref, results=tuple(reversed(node.claims.fetch(ref).results))))


def kept_by(started: engine.Engine) -> int:
    return len(started.preparer._results)


def test_a_continued_claim_gets_each_device_when_the_allocation_changes_their_order(node: crash_node.CrashNode) -> None:
    kubelet, started = Kubelet(node, 60), node.boot()
    ref = node.claim(*TWO)
    one_request = tuple(dataclasses.replace(result, request="r0") for result in node.claims.fetch(ref).results)
    node.claims.put(claims.Claim(ref=ref, results=one_request))
    assert "devices finished and kept: 1 of 2" in kubelet.call(started, ref)[0]
    answer = started.prepare([reversed_results(node, ref)], crash_node.Waiting())[ref.uid]
    assert answer.error == ""
    assert node.hardware.made == {"chip-0": 1, "chip-1": 1}
    entry = node.journal.entry(ref.uid)
    assert entry is not None
    assert [(kept.device.name, kept.record["made"]) for kept in entry.grants] == [("chip-0", "chip-0"), ("chip-1", "chip-1")]
    assert [(item.device, item.cdi_ids[0].endswith(item.device)) for item in answer.devices] == [("chip-0", True), ("chip-1", True)]


@pytest.mark.parametrize("is_answered", [False, True], ids=["half finished", "answer nobody heard"])
def test_cached_results_do_not_apply_to_an_entry_begun_by_another_process(node: crash_node.CrashNode, *, is_answered: bool) -> None:
    kubelet, old = Kubelet(node, 60), node.boot()
    ref = node.claim(*TWO)
    kubelet.call(old, ref)
    if is_answered:
        assert kubelet.call(old, ref) == ["too late"]
    node.step = lambda _: None
    new = node.boot()
    assert new.unprepare([ref], crash_node.Waiting()) == {ref.uid: ""}

    def die(what: str) -> None:
        if what == "after begin":
            raise crash_node.Crash(what)

    node.step = die
    with pytest.raises(crash_node.Crash):
        new.prepare([ref], crash_node.Waiting())
    node.step = lambda _: None
    assert old.prepare([ref], crash_node.Waiting())[ref.uid].error == ""
    assert node.hardware.made == {"chip-0": 1, "chip-1": 1}


@pytest.mark.parametrize("count", range(1, 8))
def test_many_slow_claims_finish_after_one_call_each_and_each_is_set_up_once(node: crash_node.CrashNode, count: int) -> None:
    kubelet, started = Kubelet(node, 30), node.boot()
    refs = [node.claim("pipe", shared=True) for _ in range(count)]
    while any(kubelet.call(started, *refs)):
        assert kubelet.calls <= count, f"never answered; set up {len(kubelet.steps)} times"
    assert len(kubelet.steps) == len(set(kubelet.steps)) == count
    assert kept_by(started) == 0, "the kubelet heard the answer"


def test_an_answer_that_the_kubelet_received_is_verified_by_the_next_call(node: crash_node.CrashNode) -> None:
    kubelet, started = Kubelet(node, 30), node.boot()
    ref = node.claim("chip-0")
    assert kubelet.call(started, ref) == [""]
    node.hardware.present.discard("chip-0")
    assert "chip-0 is gone" in kubelet.call(started, ref)[0]


def test_a_retry_error_keeps_the_finished_devices_of_the_claim(node: crash_node.CrashNode) -> None:
    node.driver_type = WarmingUp
    kubelet, started = Kubelet(node, 30), node.boot()
    ref = node.claim(*TWO)
    for _ in range(WarmingUp.tries):
        assert kubelet.call(started, ref) == ["warming up"]
        assert state_of(node, ref) is lifecycle.State.PREPARING
    assert kubelet.call(started, ref) == [""]
    assert kubelet.steps == ["chip-0", "chip-1"]
    assert started.unprepare([ref], crash_node.Waiting()) == {ref.uid: ""}
    assert node.is_clean


def test_a_retry_error_keeps_finished_devices_with_binding_conditions_too(node: crash_node.CrashNode) -> None:
    class Slow(fpga.FpgaDriver):
        def bind(self, grant: driver.Grant[author.Tuning]) -> None:
            if grant.device.name == "chip-1" and not self.hardware.made.get("chip-1") and len(refusals) < 3:
                refusals.append(grant.device.name)
                raise errors.RetryError("half done", after=1)
            bound.append(grant.device.name)
            super().bind(grant)

    refusals, bound = list[str](), list[str]()
    node.driver_type = Slow
    kubelet, started = Kubelet(node, 30), node.boot()
    ref = node.claim(*TWO)
    assert [kubelet.call(started, ref) for _ in range(4)] == [["half done"], ["half done"], ["half done"], [""]]
    assert bound == ["chip-0", "chip-1"]


@dataclasses.dataclass(frozen=True)
class Renamed(author.Tuning):
    kind: ClassVar[str] = "Renamed"


class Upgraded(WarmingUp):
    config_types = (Renamed,)


def test_a_begun_claim_whose_parameters_an_upgrade_rejects_gets_no_default(node: crash_node.CrashNode) -> None:
    node.driver_type = WarmingUp
    kubelet, started = Kubelet(node, 30), node.boot()
    parameters = records.freeze_record({"apiVersion": author.Tuning.api_version, "kind": author.Tuning.kind, "speed": 2})
    config = claims.OpaqueConfig(source=claims.ConfigSource.CLAIM, driver=author.FakeDriver.name, parameters=parameters)
    ref = node.claim(*TWO, configs=(config,))
    assert kubelet.call(started, ref) == ["warming up"]
    node.driver_type = Upgraded
    [error] = kubelet.call(node.boot(recover=False), ref)
    assert "Renamed" in error
    assert node.hardware.made == {"chip-0": 2}


def test_another_error_after_a_retry_error_undoes_all(node: crash_node.CrashNode) -> None:
    node.driver_type = WarmingUp
    kubelet, started = Kubelet(node, 30), node.boot()
    ref = node.claim(*TWO)
    assert kubelet.call(started, ref) == ["warming up"]
    node.driver.failure = errors.HardwareError("make", "no")
    assert isinstance(node.driver, WarmingUp)
    node.driver.tries = 0
    assert kubelet.call(started, ref) == ["make: no"]
    assert node.is_clean


def test_a_half_finished_claim_with_stale_results_is_checked_again_and_kept(node: crash_node.CrashNode) -> None:
    kubelet, started = Kubelet(node, 60), node.boot()
    ref = node.claim(*TWO)
    kubelet.call(started, ref)
    kubelet.now += device_preparer.CACHED_SECONDS
    steps: list[str] = []
    node.step = steps.append
    assert started.prepare([ref], crash_node.Waiting())[ref.uid].error == ""
    assert [what for what in steps if what.startswith("before")] == [
        *("before make chip-0", "before make chip-1", "before write", "before write", "before complete")
    ]


def test_an_undelivered_answer_is_verified_again_after_some_minutes(node: crash_node.CrashNode) -> None:
    kubelet, started = Kubelet(node, 60), node.boot()
    ref = node.claim("chip-0")
    assert kubelet.call(started, ref) == ["too late"]
    node.hardware.present.discard("chip-0")
    kubelet.now += device_preparer.CACHED_SECONDS
    assert "chip-0 is gone" in kubelet.call(started, ref)[0]


def test_reading_a_cached_answer_does_not_extend_its_age(node: crash_node.CrashNode) -> None:
    kubelet, started = Kubelet(node, 60), node.boot()
    first, second = node.claim("chip-0"), node.claim("pipe", shared=True)
    kubelet.call(started, first)
    kubelet.now += device_preparer.CACHED_SECONDS / 2
    assert kubelet.call(started, first, second)[1] == "too late", "the first is answered from memory"
    kubelet.now += device_preparer.CACHED_SECONDS / 2
    node.hardware.present.discard("chip-0")
    assert "chip-0 is gone" in kubelet.call(started, first)[0]


def test_cached_answers_of_claims_unprepared_elsewhere_are_dropped(node: crash_node.CrashNode) -> None:
    kubelet, old = Kubelet(node, 60), node.boot()
    most = 0
    for _ in range(50):
        ref = node.claim("chip-0")
        kubelet.call(old, ref)
        assert node.boot().unprepare([ref], crash_node.Waiting()) == {ref.uid: ""}
        most = max(most, kept_by(old))
    assert most <= device_preparer.CACHED_SECONDS / 60


@pytest.mark.parametrize("failure", [errors.JournalError("disk full"), errors.CdiError("read-only"), errors.ApiError("no answer")])
def test_an_error_unrelated_to_pods_gives_no_advice_to_delete_them(node: crash_node.CrashNode, failure: Exception) -> None:
    started, ref = node.boot(), node.claim("chip-0")
    assert started.prepare([ref], crash_node.Waiting())[ref.uid].error == ""
    node.driver.failure, text = failure, str(failure)
    assert started.prepare([ref], crash_node.Waiting())[ref.uid].error == text
    assert state_of(node, ref) is lifecycle.State.PREPARED
