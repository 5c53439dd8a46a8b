"""A verb that hangs is named wherever an operator looks, and calls that it blocks say so before their deadline."""

import io
import json
import threading
from collections.abc import Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.node import running_verbs, timing
from drakit.telemetry import logs
from fakes import author, crash_node, manual_clock, waits

NOTHING = ("", 0.0)


class Hanging(author.FakeDriver):
    """Its ``prepare`` of chip-0 ends when ``release`` is set."""

    entered: threading.Event
    release: threading.Event

    def prepare(self, grant: drivers.Grant[author.Tuning]) -> drivers.Prepared:
        if grant.device.name == "chip-0":
            self.entered.set()
            assert self.release.wait(waits.SECONDS)
        return super().prepare(grant)


class Impatient:
    """A caller with a fraction of a second."""

    def __init__(self, seconds: float = 0.5) -> None:
        self._end = timing.SYSTEM.monotonic() + seconds

    def is_waiting(self) -> bool:
        return self.seconds_left() > 0

    def seconds_left(self) -> float:
        return self._end - timing.SYSTEM.monotonic()


class HungNode:
    """A node on which the prepare of one claim hangs."""

    def __init__(self) -> None:
        self.clock = manual_clock.ManualClock()
        self.world = crash_node.CrashNode()
        self.world.clock = self.clock
        Hanging.entered, Hanging.release = threading.Event(), threading.Event()
        self.world.driver_type = Hanging
        self.engine = self.world.boot()
        self.ref = self.world.claim("chip-0", name="stuck")
        self.call = threading.Thread(target=self.engine.prepare, args=([self.ref], self.world.caller))
        self.call.start()
        assert Hanging.entered.wait(waits.SECONDS)

    @property
    def verbs(self) -> running_verbs.RunningVerbs:
        return self.engine.verbs

    def error(self, *refs: claims.ClaimRef) -> dict[str, str]:
        """Return the errors of another call for these claims by name."""
        caller = Impatient()
        answers = self.engine.prepare(refs, caller)
        assert caller.is_waiting(), "the answer would come too late"
        return {ref.name: answers[ref.uid].error for ref in refs}

    def end(self) -> None:
        Hanging.release.set()
        self.call.join(waits.SECONDS)


@pytest.fixture
def node() -> Iterator[HungNode]:
    made = HungNode()
    yield made
    made.end()


def test_a_retry_says_in_time_which_verb_holds_its_claim(node: HungNode) -> None:
    node.clock.moment += 134
    assert node.error(node.ref)["stuck"].endswith(": prepare of claim default/stuck (chip-0) has run for 134 s, since 2026-11-22T12:00:00Z")


def test_a_claim_that_needs_the_device_of_a_hung_verb_names_that_verb(node: HungNode) -> None:
    node.clock.moment += 134
    other = node.world.claim("chip-0", name="other")
    assert "prepare of claim default/stuck (chip-0) has run for 134 s" in node.error(other)["other"]


def test_the_claim_of_a_hung_verb_delays_no_other_claim_of_its_call(node: HungNode) -> None:
    free = node.world.claim("chip-1", name="free")
    answers = node.error(node.ref, free)
    assert (answers["free"], bool(answers["stuck"])) == ("", True)


def test_a_slow_verb_is_logged_with_growing_pauses_and_at_its_end(node: HungNode) -> None:
    written = io.StringIO()
    logs.setup(stream=written)
    for _ in range(60):
        node.verbs.warn()
        node.clock.moment += 10
    node.end()
    logs.setup(level=logs.Level.WARNING)
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    running = [line for line in lines if line["event"] == "verb still runs"]
    assert [line["duration_ms"] // 1000 for line in running] == [30, 60, 120, 240, 480]
    assert {(line["verb"], line["claim"], *line["devices"]) for line in running} == {("prepare", "default/stuck", "chip-0")}
    assert [line["duration_ms"] for line in lines if line["event"] == "slow verb ended"] == [600000]


def test_readiness_and_the_metric_show_a_slow_verb_until_it_ends(node: HungNode) -> None:
    assert (node.verbs.slow(), node.verbs.oldest_seconds()) == NOTHING
    node.clock.moment += 90
    assert node.verbs.slow() == "prepare of claim default/stuck (chip-0) has run for 90 s, since 2026-11-22T12:00:00Z"
    assert node.verbs.oldest_seconds() == 90
    node.end()
    assert (node.verbs.slow(), node.verbs.oldest_seconds()) == NOTHING
