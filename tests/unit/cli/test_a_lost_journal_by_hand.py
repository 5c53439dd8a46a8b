"""Over a lost journal, where no driver makes it good, ``drakit prepare`` and ``unprepare`` say what to do, and when it is over."""

import pathlib
import shutil
import sqlite3

import pytest

from fakes import desk as desks

OTHER = "00000000-0000-4000-8000-000000000001"
KNOWN_AGAIN = "drakit: all that the lost journal of gpu.drakit.dev knew is known again\n"


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


def test_who_prepares_another_claim_is_told_which_are_not_known_and_what_ends_that(lost: desks.Desk) -> None:
    for _ in range(2):
        told = lost.on_node("prepare", other(lost))
        assert (told.status, "default/other" in told.out) == (0, True)
        assert "drakit: the journal of gpu.drakit.dev was lost (it is missing, and CDI files say that claims are prepared)" in told.err
        assert f"these claims are not known again: {desks.UID}. " in told.err
        assert f"for the others unprepare {desks.UID}\n" in told.err


def test_what_a_claim_has_that_is_not_known_again_goes_to_no_other(lost: desks.Desk) -> None:
    told = lost.on_node("prepare", other(lost, "gpu-0-mig-3g20gb-9-0"))
    assert told.status == 1
    assert f"UID {desks.UID}" in told.err


@pytest.mark.parametrize("command", ["prepare", "unprepare"])
def test_once_every_claim_is_known_again_or_given_back_the_loss_is_over(lost: desks.Desk, command: str) -> None:
    file = lost.claim_file(desks.mig())
    assert lost.on_node("prepare", other(lost)).status == 0
    told = lost.on_node(command, file)
    assert told.status == 0
    assert told.err.endswith(KNOWN_AGAIN)
    again = lost.on_node(command, file)
    assert (again.status, again.err) == (0, "")


def test_claims_that_the_lost_journal_named_may_be_given_back_one_after_the_other(desk: desks.Desk) -> None:
    assert desk.on_node("prepare", desk.claim_file(desks.mig())).status == 0
    assert desk.on_node("prepare", other(desk)).status == 0
    with sqlite3.connect(home(desk) / "journal.db") as damaged:
        damaged.execute("UPDATE grants SET snapshot = '{'")
    damaged.close()
    first = desk.on_node("unprepare", desks.UID)
    assert (first.status, first.out) == (0, f"unprepared {desks.UID}\n")
    assert f"for the others unprepare {OTHER}\n" in first.err
    assert desk.on_node("unprepare", OTHER).err.endswith(KNOWN_AGAIN)
    assert desk.on_node("unprepare", OTHER).err == ""


def test_a_file_that_names_no_claim_of_ours_is_swept_again_once_the_loss_is_over(lost: desks.Desk) -> None:
    assert lost.on_node("unprepare", desks.UID).err.endswith(KNOWN_AGAIN)
    stray = lost.folder / "node" / "cdi" / f"gpu.drakit.dev-claim_{OTHER}-gpu-0.json"
    stray.write_text("{}")
    assert lost.on_node("prepare", lost.claim_file(desks.mig())).err == ""
    assert not stray.exists()


def test_a_node_that_lost_nothing_is_told_nothing(desk: desks.Desk) -> None:
    assert desk.on_node("prepare", desk.claim_file(desks.mig())).err == ""
    assert desk.on_node("unprepare", desks.UID).err == ""
