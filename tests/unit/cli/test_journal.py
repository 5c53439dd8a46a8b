"""``drakit journal``: looking at what drivers remember, and changing nothing by it."""

import json
import pathlib

import pytest
import yaml

from drakit.core import names
from drakit.journal import journal
from fakes import command_line

COMMANDS = [("show",), ("show", command_line.UID), ("show", "-o", "json"), ("verify",)]


@pytest.fixture
def prepared(shell: command_line.CommandLine) -> command_line.CommandLine:
    """A node on which one claim has a partition."""
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0
    return shell


def home(shell: command_line.CommandLine) -> pathlib.Path:
    return shell.folder / "node" / "plugins" / "gpu.drakit.dev"


def state(shell: command_line.CommandLine) -> dict[str, tuple[int, bytes]]:
    """Every file below the node's folder, with its mode and content."""
    root = shell.folder / "node"
    return {str(path.relative_to(root)): (path.stat().st_mode, path.read_bytes()) for path in root.rglob("*") if path.is_file()}


def asked(shell: command_line.CommandLine, *arguments: str) -> command_line.Result:
    command, *rest = arguments
    return shell.on_node("journal", command, *rest)


def test_a_list_names_claims_states_and_devices(prepared: command_line.CommandLine) -> None:
    table = asked(prepared, "show").out.splitlines()
    assert table[0].split() == ["CLAIM", "UID", "DRIVER", "STATE", "BOOT", "DEVICES"]
    assert table[1].split() == ["default/claim", command_line.UID, "gpu.drakit.dev", "prepared", "this", "gpu-0-mig-3g20gb-9-0"]


def test_a_list_without_a_claim_is_a_sentence(shell: command_line.CommandLine) -> None:
    assert asked(shell, "show").out == "No claim is in a journal of this node.\n"
    assert json.loads(asked(shell, "show", "-o", "json").out) == []


def test_a_claim_is_shown_with_every_stored_field(prepared: command_line.CommandLine) -> None:
    boot = yaml.load(asked(prepared, "show", command_line.UID).out, Loader=yaml.CSafeLoader)["bootID"]
    with journal.Journal.open(home(prepared), driver="gpu.drakit.dev", boot_id=boot) as memory:
        entry = memory.entry(names.ClaimUid(command_line.UID))
        assert entry is not None
        memory.set_state(entry.claim.uid, entry.grants[0].key, "seen", {"by": ["me"]})
    shown = yaml.load(asked(prepared, "show", command_line.UID).out, Loader=yaml.CSafeLoader)
    (grant,) = shown["grants"]
    assert (shown["name"], shown["state"], grant["device"]) == ("claim", "prepared", "gpu-0-mig-3g20gb-9-0")
    assert grant["notes"] == {"seen": {"by": ["me"]}}
    assert grant["intent"]["profile"] == 9
    assert grant["edits"]["env"]
    assert json.loads(asked(prepared, "show", command_line.UID, "-o", "json").out) == shown
    assert json.loads(asked(prepared, "show", "-o", "json").out) == [shown]


def test_a_whole_node_verifies(prepared: command_line.CommandLine) -> None:
    ran = asked(prepared, "verify")
    assert (ran.status, ran.out.splitlines()) == (0, ["gpu.drakit.dev: ok", "nic.drakit.dev: ok"])


def cdi_file(shell: command_line.CommandLine) -> pathlib.Path:
    (found,) = (shell.folder / "node" / "cdi").glob("gpu.drakit.dev-claim_*.json")
    return found


def test_a_cdi_file_that_is_missing_altered_or_strange_is_reported(prepared: command_line.CommandLine) -> None:
    file = cdi_file(prepared)
    content = file.read_bytes()
    stray = file.with_name(file.name.replace(command_line.UID, "00000000-0000-4000-8000-000000000000"))
    file.write_bytes(content.replace(b"void", b"many"))
    stray.write_bytes(content)
    ran = asked(prepared, "verify")
    assert ran.status == 1
    assert f"{file} is missing or modified" in ran.out
    assert f"{stray} belongs to a claim that is not in the journal" in ran.out
    file.unlink()
    assert f"{file} is missing or modified" in asked(prepared, "verify").out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_unreadable_journal_is_reported_and_left_as_it_is(prepared: command_line.CommandLine, command: tuple[str, ...]) -> None:
    (home(prepared) / "journal.db").write_bytes(b"not a database" * 300)
    before = state(prepared)
    ran = asked(prepared, *command)
    assert "cannot be read (file is not a database)" in ran.out + ran.err
    assert state(prepared) == before


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_reading_the_journal_changes_nothing(prepared: command_line.CommandLine, command: tuple[str, ...]) -> None:
    before = state(prepared)
    assert asked(prepared, *command).status == 0
    assert state(prepared) == before


@pytest.mark.parametrize("command", [("show",), ("show", "-o", "json"), ("verify",)], ids=" ".join)
def test_a_missing_journal_is_not_created(shell: command_line.CommandLine, command: tuple[str, ...]) -> None:
    assert asked(shell, *command).status == 0
    assert not list((shell.folder / "node").rglob("journal.db"))


def test_an_unknown_claim_and_a_malformed_uid_are_errors_that_the_user_can_fix(prepared: command_line.CommandLine) -> None:
    unknown = asked(prepared, "show", "00000000-0000-4000-8000-000000000000")
    assert (unknown.status, unknown.err) == (1, "drakit: claim 00000000-0000-4000-8000-000000000000 is in no journal of this node\n")
    assert "is not a claim UID; list the UIDs with: journal show" in asked(prepared, "show", "claim").err


def test_an_earlier_journal_that_was_set_aside_is_reported(prepared: command_line.CommandLine) -> None:
    (home(prepared) / "journal.db").write_bytes(b"not a database" * 300)
    assert prepared.on_node("unprepare", command_line.UID).status == 0
    ran = asked(prepared, "verify")
    assert ran.status == 1
    assert "a damaged journal was moved to" in ran.out
