"""``drakit show`` and ``drakit slices`` only look: also at a journal that cannot be read, and at one that a driver has open."""

import json
import pathlib

from drakit.core import names
from drakit.journal import inspection, journal
from fakes import command_line


def home(shell: command_line.CommandLine) -> pathlib.Path:
    return shell.folder / "node" / "plugins" / "gpu.drakit.dev"


def contents(folder: pathlib.Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and its mode."""
    return {str(one.relative_to(folder)): (one.read_bytes(), one.stat().st_mode) for one in folder.rglob("*") if one.is_file()}


def prepared(shell: command_line.CommandLine) -> dict[str, tuple[bytes, int]]:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0
    return contents(shell.folder / "node" / "plugins")


def test_reading_a_journal_leaves_its_files_unchanged(shell: command_line.CommandLine) -> None:
    before = prepared(shell)
    for command in ("show", "slices"):
        assert shell.on_node(command).status == 0
    assert contents(shell.folder / "node" / "plugins") == before


def test_an_unreadable_journal_is_reported_and_neither_moved_nor_repaired(shell: command_line.CommandLine) -> None:
    prepared(shell)
    (home(shell) / "journal.db").write_bytes(b"junk")
    before = contents(shell.folder / "node" / "plugins")
    result = shell.on_node("show", "--family", "gpu")
    assert result.status == 0
    assert result.err.startswith(
        f"drakit: {home(shell)}/journal.db cannot be read (file is not a database); no claim can be read from it; the driver sets it aside"
    )
    assert result.err.count("\n") == 1
    assert contents(shell.folder / "node" / "plugins") == before


def test_reading_a_journal_does_not_narrow_a_loose_file_mode(shell: command_line.CommandLine) -> None:
    prepared(shell)
    (home(shell) / "journal.db").chmod(0o644)
    assert shell.on_node("show").status == 0
    assert (home(shell) / "journal.db").stat().st_mode & 0o777 == 0o644


def test_an_open_journal_is_read_with_its_latest_change(shell: command_line.CommandLine) -> None:
    prepared(shell)
    with journal.Journal.open(home(shell), driver="gpu.drakit.dev", boot_id="another") as opened:
        assert opened.entry(names.ClaimUid(command_line.UID)) is not None
        (shown,) = json.loads(shell.on_node("show", "--family", "gpu", "-o", "json").out)
    assert [claim["uid"] for claim in shown["claims"]] == [command_line.UID]


def test_changes_in_the_write_ahead_log_are_read_too(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "source"
    with journal.Journal.open(source, driver="gpu.example.com", boot_id="b"):
        inspection.copy(source, tmp_path / "copied")
    assert inspection.damage(tmp_path / "copied") == ""
    with journal.Journal.open(tmp_path / "copied", driver="gpu.example.com", boot_id="b") as copied:
        assert copied.quarantine is None
        assert copied.entries() == ()
