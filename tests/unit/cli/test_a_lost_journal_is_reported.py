"""A journal that is gone, or whose claims are not restored yet, is reported by every command that reads it."""

import json
import pathlib
import shutil
from collections.abc import Iterator

import pytest

from drakit.journal import journal
from fakes import command_line

OTHER = "00000000-0000-4000-8000-000000000001"
FIX = "restart the driver: it restores the claims"


def home(shell: command_line.CommandLine) -> pathlib.Path:
    return shell.folder / "node" / "plugins" / "gpu.drakit.dev"


def cdi(shell: command_line.CommandLine) -> pathlib.Path:
    return shell.folder / "node" / "cdi"


def findings(shell: command_line.CommandLine) -> dict[str, dict[str, str]]:
    """The findings of ``doctor`` on the GPU driver, by topic."""
    rows = json.loads(shell.on_node("doctor", "--no-api", "--family", "gpu", "-o", "json").out)
    return {row["topic"]: row for row in rows if row["subject"] == "gpu.drakit.dev"}


@pytest.fixture(params=["CDI files and mark", "mark", "CDI files", "open"])
def gone(request: pytest.FixtureRequest, shell: command_line.CommandLine) -> Iterator[command_line.CommandLine]:
    """A node whose journal was deleted; what is named is left, or a process has it open."""
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0
    if request.param == "open":
        with journal.Journal.open(home(shell), driver="gpu.drakit.dev", boot_id="another"):
            (home(shell) / "journal.db").unlink()
            yield shell
        return
    shutil.rmtree(home(shell))
    if "mark" not in request.param:
        (cdi(shell) / ".gpu.drakit.dev-journal.mark").unlink()
    if "CDI" not in request.param:
        for file in cdi(shell).glob("gpu.drakit.dev-claim_*"):
            file.unlink()
    yield shell


def test_a_missing_journal_fails_verify_with_the_fix(gone: command_line.CommandLine) -> None:
    ran = gone.on_node("journal", "verify")
    assert ran.status == 1
    assert f"{home(gone)}/journal.db is lost (" in ran.out
    assert "missing" in ran.out
    assert FIX in ran.out
    assert "nic.drakit.dev: ok" in ran.out


@pytest.mark.parametrize("command", [("journal", "show"), ("journal", "show", command_line.UID), ("show", "--family", "gpu")])
def test_a_missing_journal_is_named_by_commands_that_list_claims(gone: command_line.CommandLine, command: tuple[str, ...]) -> None:
    assert FIX in gone.on_node(*command).err


def test_doctor_fails_with_a_missing_journal_and_advises_no_release(gone: command_line.CommandLine) -> None:
    found = findings(gone)
    assert found["journal"]["verdict"] == "failed"
    assert FIX in found["journal"]["message"]
    assert found["journal"]["fix"].startswith("restart the driver")
    assert "unclaimed" not in found


def test_nothing_is_called_unclaimed_after_a_loss(gone: command_line.CommandLine) -> None:
    ran = gone.on_node("unprepare", "--unclaimed", "--yes")
    assert ran.status == 1
    assert "start the driver, which restores them" in ran.err


def test_reading_a_missing_journal_creates_nothing(gone: command_line.CommandLine) -> None:
    before = sorted(path for path in (gone.folder / "node").rglob("*journal*"))
    for command in (("journal", "show"), ("journal", "verify"), ("doctor", "--no-api")):
        gone.on_node(*command)
    assert sorted(path for path in (gone.folder / "node").rglob("*journal*")) == before


def test_doctor_names_a_journal_whose_claims_are_not_restored_yet(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0
    assert findings(shell)["journal"]["verdict"] == "ok"
    shutil.rmtree(home(shell))
    other = shell.claim_file(command_line.mig("gpu-1-mig-3g20gb-9-0"), name="other", uid=OTHER)
    assert shell.on_node("prepare", other).status == 1
    found = findings(shell)["journal"]
    assert found["verdict"] == "failed"
    assert found["message"].startswith("journal lost (it is missing, but had ")
    assert found["message"].endswith("1 claim to restore")
    assert "/readyz" in found["fix"]
    assert "docs/howto/when-the-journal-is-lost.md" in found["fix"]
