"""A driver upgrade changes what containers need: the CDI files of prepared claims follow, and no hardware is touched."""

import dataclasses
import threading

import pytest

from drakit.core import claim as claims
from drakit.core import driver, edits, errors
from drakit.node import edits_refresh
from fakes import author, crash_node, manual_clock


class Upgradable(author.FakeDriver):
    """Adds the version of the host's library to each container."""

    version = "1"

    def prepare(self, grant: driver.Grant[author.Tuning]) -> driver.Prepared:
        if grant.record and str(grant.intent["identity"]) not in self.hardware.made:
            return driver.Prepared()
        prepared = super().prepare(grant)
        return dataclasses.replace(prepared, edits=edits.Edits(env={**prepared.edits.env, "FAKE_LIBRARY": Upgradable.version}))

    def edits_revision(self) -> str:
        return Upgradable.version


class Node(crash_node.CrashNode):
    """A node with one prepared claim, and the refresher of its present process."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = self.manual = manual_clock.ManualClock()
        self.driver_type = Upgradable
        self.boot()
        self.ref = self.prepared("chip-0-left", "chip-1")

    def prepared(self, *names: str) -> claims.ClaimRef:
        ref = self.claim(*names)
        assert self.engine.prepare([ref], self.caller)[ref.uid].error == ""
        return ref

    def refresher(self) -> edits_refresh.EditsRefresher:
        return edits_refresh.EditsRefresher(self.engine, self.journal, self.driver, self.manual)

    @property
    def versions(self) -> set[bytes]:
        """The versions that CDI files name."""
        return {bytes([content[content.index(b"FAKE_LIBRARY=") + 13]]) for content in self.cdi.files.values()}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(Upgradable, "version", "1")
    return Node()


RUNS = threading.Event()


def test_a_start_refreshes_the_files_of_prepared_claims(node: Node) -> None:
    Upgradable.version = "2"
    node.boot()
    assert node.versions == {b"1"}
    made: list[str] = []
    node.step = lambda step: made.append(step) if "make" in step else None
    node.refresher().check(RUNS)
    assert node.versions == {b"2"}
    entry = node.journal.entry(node.ref.uid)
    assert entry is not None
    assert all(grant.edits is not None and grant.edits.env["FAKE_LIBRARY"] == "2" for grant in entry.grants)
    assert not made, "hardware of a running pod was touched"


def test_a_change_at_runtime_refreshes_once(node: Node) -> None:
    refresher = node.refresher()
    refresher.check(RUNS)
    steps: list[str] = []
    node.step = steps.append
    refresher.check(RUNS)
    assert not steps, "an unchanged revision costs nothing"
    Upgradable.version = "3"
    refresher.check(RUNS)
    assert node.versions == {b"3"}


def test_a_failed_claim_blocks_no_other_and_is_retried_later(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    refresher = node.refresher()
    refresher.check(RUNS)
    node.driver.failure = errors.RetryError("libraries are being installed", after=1.0)
    Upgradable.version = "2"
    for _ in range(3):
        refresher.check(RUNS)
    assert node.versions == {b"1"}
    node.driver.failure = None
    refresher.check(RUNS)
    assert node.versions == {b"1"}, "the retry is not due"
    node.manual.moment += edits_refresh.FIRST_PAUSE
    refresher.check(RUNS)
    assert node.versions == {b"2"}
    assert capfd.readouterr().err.count("libraries are being installed") == 1


def test_a_device_whose_hardware_state_is_gone_is_left_to_the_next_prepare(node: Node) -> None:
    node.hardware.made.clear()
    Upgradable.version = "2"
    before = node.journal.entry(node.ref.uid)
    node.refresher().check(RUNS)
    assert node.journal.entry(node.ref.uid) == before
    assert not node.hardware.made


def test_unprepared_and_half_prepared_claims_are_left_alone(node: Node) -> None:
    node.engine.unprepare([node.ref], node.caller)
    assert node.engine.refresh_edits(node.ref.uid, node.caller) is False
    assert not node.cdi.files


def test_a_stop_ends_a_refresh_between_two_claims(node: Node) -> None:
    stop = threading.Event()
    stop.set()
    Upgradable.version = "2"
    node.refresher().check(stop)
    assert node.versions == {b"1"}
