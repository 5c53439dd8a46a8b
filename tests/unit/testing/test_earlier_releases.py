"""``check_driver`` finds a release that cannot read what an earlier one journaled, from claims that the author kept."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest

import drakit
from drakit import testing
from drakit.journal import inspection
from fakes import obligations, versioned_driver

CHECK = "claims of earlier releases keep their hardware and can be undone"


class Old(versioned_driver.Release1):
    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        made = super().prepare(grant)
        return dataclasses.replace(made, edits=drakit.Edits(env={"SLOTS": str(grant.intent["slot"])}))


class Good(versioned_driver.Release2):
    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        made = super().prepare(grant)
        return dataclasses.replace(made, edits=drakit.Edits(env={"SLOTS": ",".join(map(str, versioned_driver.slots(grant.intent)))}))


@pytest.fixture
def board(tmp_path: pathlib.Path) -> versioned_driver.Board:
    (tmp_path / "board").mkdir()
    return versioned_driver.Board(tmp_path / "board")


@pytest.fixture
def earlier(tmp_path: pathlib.Path) -> pathlib.Path:
    """A claim of release 1 that has slot 1, as ``journal show`` prints it."""
    (tmp_path / "old").mkdir()
    old = versioned_driver.Board(tmp_path / "old")
    with testing.Node(lambda: Old(old)) as node:
        first, second = node.claim("board"), node.claim("board")
        node.prepare(first)
        node.prepare(second)
        entry = next(entry for entry in node.entries if entry.claim == second)
    file = tmp_path / "release-1.json"
    file.write_text(json.dumps(inspection.entry_document(entry, [{}])))
    return file


def check(kind: type[Any], board: versioned_driver.Board, *earlier: pathlib.Path) -> testing.Check:
    return obligations.judged(CHECK, lambda: kind(board), board.used, ("board",), exclusive=("SLOTS",), earlier=earlier)


def test_a_release_that_reads_the_older_form_passes(board: versioned_driver.Board, earlier: pathlib.Path) -> None:
    assert check(Good, board, earlier).verdict is testing.Verdict.PASS


def test_a_release_without_a_kept_claim_of_an_earlier_one_is_warned(board: versioned_driver.Board) -> None:
    found = check(Good, board)
    assert found.verdict is testing.Verdict.WARN
    assert "records_version is 2, and no claim of version 1 is tried" in found.message
    assert check(versioned_driver.Release1, board).verdict is testing.Verdict.SKIPPED


class ReturnsTheOlderForm(Good):
    def upgrade_intent(self, intent: drakit.Record, version: int) -> drakit.Record:
        return intent


class LooksForAnotherKey(Good):
    def upgrade_intent(self, intent: drakit.Record, version: int) -> drakit.Record:
        return {"slots": [intent["number"]]}


class GivesAnotherSlot(Good):
    def upgrade_intent(self, intent: drakit.Record, version: int) -> drakit.Record:
        return {"slots": [0]}


class ForgetsTheRecord(Good):
    def upgrade_record(self, record: drakit.Record, version: int) -> drakit.Record:
        raise KeyError("at")


class UpgradesOnce(Good):
    upgraded = 0

    def upgrade_intent(self, intent: drakit.Record, version: int) -> drakit.Record:
        self.upgraded += 1
        return super().upgrade_intent(intent, version) if self.upgraded == 1 else {"slots": []}


class KeepsWhatItUpgraded(Good):
    def unprepare(self, grant: drakit.Grant[drakit.NoConfig]) -> None:
        if versioned_driver.slots(grant.intent) != (1,):
            super().unprepare(grant)


class PlansTheSlotOfAnOldClaim(Good):
    def plan(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Record:
        return {"slots": [1 if self.planned(grant.device) else 0]}


class HasTheNewFormWithoutANumber(Good):
    records_version = 1


class StartsWithoutTheOldClaim(Good):
    def start(self, context: drakit.DriverContext) -> None:
        for grant in context.grants():
            if versioned_driver.slots(grant.intent) == (1,):
                raise drakit.HardwareError("board", "slot 1 is unknown")


FAULTS = {
    ReturnsTheOlderForm: "the claim's container had 1, and prepare returns none",
    LooksForAnotherKey: "upgrade_intent() failed for version 1: KeyError: 'number'",
    GivesAnotherSlot: "the claim's container had 1, and prepare returns 0",
    ForgetsTheRecord: "upgrade_record() failed for version 1: KeyError: 'at'",
    UpgradesOnce: "a second prepare returned different edits; an upgrade is called at every read",
    KeepsWhatItUpgraded: "unprepare left changed hardware",
    PlansTheSlotOfAnOldClaim: "SLOTS=1 of a new claim for board is the part of the claim, SLOTS=1",
    HasTheNewFormWithoutANumber: "had 1, and prepare returns none",
    StartsWithoutTheOldClaim: "slot 1 is unknown",
}


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.__name__)
def test_a_release_that_cannot_read_the_older_form_is_found(kind: type[Any], board: versioned_driver.Board, earlier: pathlib.Path) -> None:
    found = check(kind, board, earlier)
    assert found.verdict is testing.Verdict.FAIL, found
    assert FAULTS[kind] in found.message


def test_a_file_that_is_no_recorded_claim_is_named(board: versioned_driver.Board, earlier: pathlib.Path, tmp_path: pathlib.Path) -> None:
    document = json.loads(earlier.read_text())
    for changed, reason in (
        ({"state": "preparing"}, "the claim is preparing; record one that is prepared"),
        ({"grants": []}, "record one that is prepared"),
        ({"grants": [{**document["grants"][0], "device": "other"}]}, "device: 'other' is not the snapshot's 'board'"),
        ({"uid": None}, "uid: is required"),
        ({"grants": document["grants"] * 2}, "grants[1] repeats board of the request request-0; remove it"),
    ):
        file = tmp_path / "changed.json"
        file.write_text(json.dumps({**document, **changed}))
        found = check(Good, board, file)
        assert found.verdict is testing.Verdict.FAIL
        assert f"{file}: " in found.message
        assert reason in found.message
