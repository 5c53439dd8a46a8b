"""With a lost journal and no driver, ``drakit prepare`` and ``unprepare`` restore or release claims, and say which are missing."""

import pathlib
import shutil
import sqlite3

import pytest

from fakes import desk as desks

OTHER = "00000000-0000-4000-8000-000000000001"
RESTORED = "drakit: all claims of the lost journal of gpu.drakit.dev are restored\n"


def home(desk: desks.Desk) -> pathlib.Path:
    return desk.folder / "node" / "plugins" / "gpu.drakit.dev"


@pytest.fixture
def lost(desk: desks.Desk) -> desks.Desk:
    """A node whose journal was lost with one claim prepared."""
    assert desk.on_node("prepare", desk.claim_file(desks.mig())).status == 0
    shutil.rmtree(home(desk))
    return desk


def other(desk: desks.Desk, device: str = "gpu-1-mig-3g20gb-9-0") -> str:
    return desk.claim_file(desks.mig(device), name="other", uid=OTHER)


def test_another_claim_is_not_prepared_and_the_message_names_the_missing_claims(lost: desks.Desk) -> None:
    for _ in range(2):
        told = lost.on_node("prepare", other(lost))
        assert (told.status, told.out) == (1, "")
        assert "the journal of gpu.drakit.dev was lost (it is missing, and CDI files say that claims are prepared)" in told.err
        assert f"these claims are not restored: {desks.UID}. " in told.err
        assert f"drakit unprepare {desks.UID}\n" in told.err


def test_claims_whose_files_are_given_are_restored_and_others_prepared(lost: desks.Desk) -> None:
    file = lost.claim_file(desks.mig())
    told = lost.on_node("prepare", file, other(lost))
    assert told.status == 0, told.err
    assert told.err.endswith(RESTORED)
    assert {"default/other" in told.out, "default/claim" in told.out or desks.UID in told.out} == {True}


@pytest.mark.parametrize("command", ["prepare", "unprepare"])
def test_once_every_claim_is_restored_or_released_the_journal_is_no_longer_lost(lost: desks.Desk, command: str) -> None:
    file = lost.claim_file(desks.mig())
    assert lost.on_node("prepare", other(lost)).status == 1
    told = lost.on_node(command, file)
    assert told.status == 0
    assert told.err.endswith(RESTORED)
    again = lost.on_node(command, file)
    assert (again.status, again.err) == (0, "")
    assert lost.on_node("prepare", other(lost)).status == 0


def test_claims_that_the_lost_journal_named_are_released_one_by_one(desk: desks.Desk) -> None:
    assert desk.on_node("prepare", desk.claim_file(desks.mig())).status == 0
    assert desk.on_node("prepare", other(desk)).status == 0
    with sqlite3.connect(home(desk) / "journal.db") as damaged:
        damaged.execute("UPDATE grants SET snapshot = '{'")
    damaged.close()
    first = desk.on_node("unprepare", desks.UID)
    assert (first.status, first.out) == (0, f"unprepared {desks.UID}\n")
    assert f"for the others: drakit unprepare {OTHER}\n" in first.err
    assert desk.on_node("unprepare", OTHER).err.endswith(RESTORED)
    assert desk.on_node("unprepare", OTHER).err == ""


def test_a_stray_file_is_removed_once_the_journal_is_no_longer_lost(lost: desks.Desk) -> None:
    assert lost.on_node("unprepare", desks.UID).err.endswith(RESTORED)
    stray = lost.folder / "node" / "cdi" / f"gpu.drakit.dev-claim_{OTHER}-gpu-0.json"
    stray.write_text("{}")
    assert lost.on_node("prepare", lost.claim_file(desks.mig())).err == ""
    assert not stray.exists()


def test_a_node_with_a_whole_journal_prints_no_note(desk: desks.Desk) -> None:
    assert desk.on_node("prepare", desk.claim_file(desks.mig())).err == ""
    assert desk.on_node("unprepare", desks.UID).err == ""
