"""``drakit journal``: reads the drivers' journals of prepared claims from a copy, and changes nothing.

A journal that cannot be read is reported; the driver sets it aside and rebuilds it when it starts.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from drakit import settings as values
from drakit.cdi import spec
from drakit.cli import composition, options, output, views
from drakit.core import errors, lifecycle, names
from drakit.journal import files, inspection
from drakit.journal import journal as journals
from drakit.node import resolution

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Inspect the journal, in which each driver of this node records its prepared claims.

    Every command reads a copy. The journal itself is not locked, migrated or changed, and the driver may be running.

    [bold]Examples[/bold]

      drakit journal show      list claims and their devices

      drakit journal show 4cf8db2d-06c0-4d70-9a51-e59b25b2c16c

      drakit journal verify    check the journal and the CDI files
    """,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """The copy of one family's journal. ``trouble`` is why the journal itself is missing or cannot be read; empty if it can."""

    family: composition.NodeFamily
    copy: pathlib.Path
    memory: journals.Journal
    trouble: str

    def document(self, entry: lifecycle.Entry) -> dict[str, object]:
        """Return everything that the journal has of one claim."""
        states = [self.memory.state(entry.claim.uid, kept.key) for kept in entry.grants]
        return {"driver": self.family.spec.driver_name, **inspection.entry_document(entry, states)}


@app.command()
@options.quietly
@options.on_a_node
def show(
    settings: values.Settings,
    uid: Annotated[str, typer.Argument(metavar="[UID]", help="UID of a claim. Without it, all claims.", show_default=False)] = "",
    families: options.Families = None,
    style: options.Output = options.Format.TABLE,
) -> None:
    """List the claims in the journal, or show one claim in full.

    The list has each claim's state, its devices, and whether it was prepared since the last boot. The states are preparing, prepared and
    unpreparing. The kubelet's next call, or the next start of the driver, completes a claim that is preparing or unpreparing.

    With a UID, or with -o yaml or json, it prints everything that the journal has of a claim: intents, records, CDI edits, state, parameters, and
    the devices as they were allocated. Check the parameters before you share them in a bug report.

    [bold]Examples[/bold]

      drakit journal show --mock dgx-a100-40gb-2gpu

      drakit journal show 4cf8db2d-06c0-4d70-9a51-e59b25b2c16c --mock dgx-a100-40gb-2gpu

      drakit journal show --family gpu -o json > journal.json
    """
    if uid and not names.is_uid(uid):
        raise errors.ConfigError(f"{uid!r} is not a claim UID; list the UIDs with: journal show", field="UID")
    rows, documents = [], []
    for opened in _journals(composition.families_to_read(settings, only=families or ())):
        output.warn(opened.trouble)
        for entry in opened.memory.entries():
            if not uid or entry.claim.uid == uid:
                rows.append(_row(opened.family, entry))
                documents.append(opened.document(entry))
    if uid and not documents:
        raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, f"claim {uid} is in no journal of this node")
    if uid:
        output.document(documents[0] if len(documents) == 1 else documents, options.Format.YAML if style is options.Format.TABLE else style)
    elif style is options.Format.TABLE and not rows:
        output.say(output.prose(), "No claim is in a journal of this node.")
    elif style is options.Format.TABLE:
        output.put(output.console(), output.table("", ["CLAIM", "UID", "DRIVER", "STATE", "BOOT", "DEVICES"], rows))
    else:
        output.document(documents, style)


@app.command()
@options.quietly
@options.on_a_node
def verify(
    settings: values.Settings,
    families: options.Families = None,
    style: options.Output = options.Format.TABLE,
) -> None:
    """Check that the journals are intact, that every row can be read, and that the CDI files match the journals.

    Exits with status 1 if there is a problem, and prints the fix. While the driver runs, the CDI files of claims in
    progress may be reported too; in this case, run it again.

    [bold]Examples[/bold]

      drakit journal verify --mock dgx-a100-40gb-2gpu
    """
    rows: list[dict[str, object]] = []
    for family in composition.families_to_read(settings, only=families or ()):
        problems = list(_problems(family))
        rows.append({"driver": family.spec.driver_name, "path": str(family.folders.home / inspection.DATABASE), "problems": problems})
    if style is options.Format.TABLE:
        for row in rows:
            for problem in _texts(row["problems"]) or ["ok"]:
                output.say(output.console(), f"{row['driver']}: {problem}", hang=2)
    else:
        output.document(rows, style)
    if any(row["problems"] for row in rows):
        raise errors.JournalError("the check found problems, listed above")


def _journals(families: Sequence[composition.NodeFamily]) -> Iterator[Opened]:
    """Yield the journals that exist or were lost, each open as a copy until the next is requested."""
    for family in families:
        with _journal(family) as opened:
            if opened is not None:
                yield opened


@contextlib.contextmanager
def _journal(family: composition.NodeFamily) -> Iterator[Opened | None]:
    home = family.folders.home
    with contextlib.ExitStack() as stack:
        copy, damage = stack.enter_context(views.journal_copy(family))
        if not damage and not copy.exists():
            yield None
            return
        memory = journals.Journal.open(copy, driver=family.spec.driver_name, boot_id=family.spec.identity.boot_id)
        stack.callback(memory.close)
        trouble = views.trouble(home, damage, readable=len(memory.entries()))
        yield Opened(family=family, copy=copy, memory=memory, trouble=trouble)


def _row(family: composition.NodeFamily, entry: lifecycle.Entry) -> tuple[str, ...]:
    boot = "this" if entry.boot_id == family.spec.identity.boot_id else "earlier"
    devices = ", ".join(f"{kept.device.name}{f' ({kept.share_id})' if kept.share_id else ''}" for kept in entry.grants)
    return str(entry.claim), entry.claim.uid, family.spec.driver_name, entry.state.value, boot, devices


def _problems(family: composition.NodeFamily) -> Iterator[str]:
    """Yield each problem of a family's journal and of its CDI files, with its fix."""
    home = family.folders.home
    aside = files.last_aside_path(home / inspection.DATABASE)
    if aside is not None:
        yield f"a damaged journal was moved to {aside}; see the how-to 'when the journal is lost', and delete the file when it is not needed"
    with _journal(family) as opened:
        if opened is None:
            return
        if opened.trouble:
            yield opened.trouble
            return
        broken = inspection.integrity(opened.copy)
        if broken:
            yield f"the integrity check found: {broken}; restart the driver, which sets the file aside and rebuilds it"
        entries = opened.memory.entries()
    yield from _cdi_problems(family, entries)


def _cdi_problems(family: composition.NodeFamily, entries: Sequence[lifecycle.Entry]) -> Iterator[str]:
    driver, folder = family.spec.driver_name, family.folders.cdi
    expected: set[str] = set()
    for entry in entries:
        current = entry.state is lifecycle.State.PREPARED and entry.boot_id == family.spec.identity.boot_id
        for kept in entry.grants:
            name = resolution.cdi_name(driver, entry.claim, kept)
            expected.add(spec.file_name(name))
            if current and kept.edits and _content(folder / spec.file_name(name)) != spec.encode(name, kept.edits):
                yield f"{folder / spec.file_name(name)} is missing or modified; the driver writes it again when it starts or prepares the claim"
    present = {path.name for path in folder.glob(f"{spec.file_prefix(driver)}*.json")} if folder.is_dir() else set()
    for stray in sorted(present - expected):
        yield f"{folder / stray} belongs to a claim that is not in the journal; when the driver starts, it removes the file or restores the claim"


def _content(path: pathlib.Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _texts(value: object) -> list[str]:
    return [str(element) for element in value] if isinstance(value, list) else []
