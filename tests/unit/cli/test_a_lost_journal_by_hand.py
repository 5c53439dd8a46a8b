"""With a lost journal and no driver, ``drakit prepare`` and ``unprepare`` restore or release claims, and say which are missing."""

import pathlib
import shutil
import sqlite3

import pytest

from fakes import command_line

OTHER = "00000000-0000-4000-8000-000000000001"
RESTORED = "drakit: all claims of the lost journal of gpu.drakit.dev are restored\n"


def home(shell: command_line.CommandLine) -> pathlib.Path:
    return shell.folder / "node" / "plugins" / "gpu.drakit.dev"


@pytest.fixture
def lost(shell: command_line.CommandLine) -> command_line.CommandLine:
    """A node whose journal was lost with one claim prepared."""
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0
    shutil.rmtree(home(shell))
    return shell


def other(shell: command_line.CommandLine, device: str = "gpu-1-mig-3g20gb-9-0") -> str:
    return shell.claim_file(command_line.mig(device), name="other", uid=OTHER)


def test_another_claim_is_not_prepared_and_the_message_names_the_missing_claims(lost: command_line.CommandLine) -> None:
    for _ in range(2):
        result = lost.on_node("prepare", other(lost))
        assert (result.status, result.out) == (1, "")
        assert "the journal of gpu.drakit.dev was lost (it is missing, but had" in result.err
        assert f"these claims are not restored: {command_line.UID}. " in result.err
        assert f"drakit unprepare {command_line.UID}\n" in result.err


def test_claims_whose_files_are_given_are_restored_and_others_prepared(lost: command_line.CommandLine) -> None:
    file = lost.claim_file(command_line.mig())
    result = lost.on_node("prepare", file, other(lost))
    assert result.status == 0, result.err
    assert result.err.endswith(RESTORED)
    assert {"default/other" in result.out, "default/claim" in result.out or command_line.UID in result.out} == {True}


@pytest.mark.parametrize("command", ["prepare", "unprepare"])
def test_once_every_claim_is_restored_or_released_the_journal_is_no_longer_lost(lost: command_line.CommandLine, command: str) -> None:
    file = lost.claim_file(command_line.mig())
    assert lost.on_node("prepare", other(lost)).status == 1
    result = lost.on_node(command, file)
    assert result.status == 0
    assert result.err.endswith(RESTORED)
    again = lost.on_node(command, file)
    assert (again.status, again.err) == (0, "")
    assert lost.on_node("prepare", other(lost)).status == 0


def test_claims_that_the_lost_journal_named_are_released_one_by_one(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0
    assert shell.on_node("prepare", other(shell)).status == 0
    with sqlite3.connect(home(shell) / "journal.db") as damaged:
        damaged.execute("UPDATE grants SET snapshot = '{'")
    damaged.close()
    first = shell.on_node("unprepare", command_line.UID)
    assert (first.status, first.out) == (0, f"unprepared {command_line.UID}\n")
    assert f"for the others: drakit unprepare {OTHER}\n" in first.err
    assert shell.on_node("unprepare", OTHER).err.endswith(RESTORED)
    assert shell.on_node("unprepare", OTHER).err == ""


def test_a_file_of_a_claim_that_the_journal_lacks_is_kept_until_it_is_released(lost: command_line.CommandLine) -> None:
    assert lost.on_node("unprepare", command_line.UID).err.endswith(RESTORED)
    stray = lost.folder / "node" / "cdi" / f"gpu.drakit.dev-claim_{OTHER}-gpu-0.json"
    stray.write_text("{}")
    refused = lost.on_node("prepare", lost.claim_file(command_line.mig()))
    assert refused.status == 1
    assert f"drakit unprepare {OTHER}" in refused.err
    assert stray.exists()
    assert lost.on_node("unprepare", OTHER).err.endswith(RESTORED)
    assert not stray.exists()


def test_a_node_with_a_whole_journal_prints_no_note(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).err == ""
    assert shell.on_node("unprepare", command_line.UID).err == ""


def test_a_given_claim_that_fails_is_named_with_its_reason_and_not_released(lost: command_line.CommandLine) -> None:
    stray = lost.folder / "node" / "cdi" / f"gpu.drakit.dev-claim_{OTHER}-gpu-0.json"
    stray.write_text("{}")
    wrong = {"source": "FromClaim", "opaque": {"driver": "gpu.drakit.dev", "parameters": {"strateg": 1}}}
    file = lost.claim_file(command_line.mig(), config=[wrong])
    refused = lost.on_node("prepare", file)
    assert refused.status == 1
    assert f"{command_line.UID}: parameters.apiVersion: is required" in refused.err
    assert refused.err.endswith(f"for the others: drakit unprepare {OTHER}\n")
    stray.unlink()
    refused = lost.on_node("prepare", file)
    assert f"{command_line.UID}: parameters.apiVersion: is required" in refused.err
    assert "unprepare" not in refused.err
