"""The successor of an unreadable journal: written whole beside it, then put in its place, so that no death in between loses what was saved.

Order: the successor is committed under a name of its own with every row that could be decoded and a note of what happened; the unreadable file
is renamed aside; the successor takes the name. Whoever fails or dies before the first rename leaves the unreadable file where it was, and what
was written of a successor is dropped. Whoever dies after it leaves a committed successor without a database beside it, and the next opening
finishes the renaming.
"""

import contextlib
import dataclasses
import pathlib
import sqlite3
from collections.abc import Collection, Sequence

from drakit.core import errors, names
from drakit.journal import connection, fields, files, notes, rows, schema
from drakit.telemetry import logs

SUFFIXES = (".new", ".new-journal")
"""What a successor on its way is called beside the database, and the log of its one transaction."""
_NOTE = "quarantine"
_log = logs.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quarantine:
    """An unreadable journal was set aside: where it is now, why, how many claims were carried over, and which could not be (if known)."""

    path: pathlib.Path
    reason: str
    kept: int = 0
    lost: tuple[names.ClaimUid, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Damage:
    """Why a file cannot be used, and what of it can be decoded."""

    reason: str
    readable: tuple[rows.Rows, ...] = ()
    lost: tuple[names.ClaimUid, ...] = ()
    beside: notes.Salvage = dataclasses.field(default_factory=notes.Salvage)


def settle(path: pathlib.Path) -> None:
    """Finish what an earlier process began: a committed successor takes its place, an unfinished one goes. Raises JournalError, sqlite3.Error."""
    successor = _successor(path)
    if not successor.exists():
        return
    committed = None if path.exists() else _committed(successor)
    if committed is None:
        _drop(path)
    else:
        # Whatever the folder was called when the note was written: it may be a copy, or mounted somewhere else by now.
        _take_place(path, path.with_name(committed.path.name))


def replace(path: pathlib.Path, use: files.Use, damage: Damage, ladder: Sequence[schema.Migration]) -> None:
    """Put a journal of what could be decoded in the place of an unreadable one, which is renamed aside.

    Raises JournalError, also where another process has the file open, and sqlite3.Error; then the file is where it was.
    """
    with use.alone() as alone:
        if not alone:
            raise errors.JournalError(f"{path} is unreadable ({damage.reason}) and another process has it open; stop that one first")
        moved = files.free_aside(path)
        target = moved or files.last_aside(path) or path
        quarantine = Quarantine(path=target, reason=damage.reason, kept=len(damage.readable), lost=damage.lost)
        _write(path, quarantine, damage, ladder)
        _take_place(path, target)
    event = "journal set aside" if moved else "journal is missing"
    _log.error(event, path=str(target), reason=damage.reason, kept=quarantine.kept, lost=list(damage.lost))


def note(database: sqlite3.Connection) -> Quarantine | None:
    """The note of a quarantine after which not everything was rebuilt yet."""
    text = schema.value(database, _NOTE)
    if text is None:
        return None
    found = fields.Fields.parse(text, f"meta.{_NOTE}")
    return Quarantine(
        path=pathlib.Path(found.text("path")),
        reason=found.text("reason"),
        kept=found.whole("kept") or 0,
        lost=tuple(names.ClaimUid(uid) for uid in found.texts("lost")),
    )


def narrow_note(database: sqlite3.Connection, given_back: Collection[names.ClaimUid]) -> Quarantine | None:
    """Let the note, if there is one, name no claims that were given back; what it says then. Inside the caller's transaction."""
    before = note(database)
    if before is None:
        return None
    now = dataclasses.replace(before, lost=tuple(uid for uid in before.lost if uid not in given_back))
    schema.put(database, _NOTE, _dumped(now))
    return now


def clear_note(database: sqlite3.Connection) -> None:
    """Drop the note of a quarantine, inside the caller's transaction."""
    database.execute("DELETE FROM meta WHERE key = ?", (_NOTE,))


def _write(path: pathlib.Path, quarantine: Quarantine, damage: Damage, ladder: Sequence[schema.Migration]) -> None:
    """Commit the successor; it is no write-ahead log's yet, so that one rename moves all of it."""
    _drop(path)
    successor = _successor(path)
    files.create(successor)
    with contextlib.closing(connection.connect(successor)) as database:
        connection.wait_for_disk(database, wait=True)
        with connection.Transaction(database):
            schema.upgrade(database, ladder)
            for claim, grants in damage.readable:
                rows.insert(database, claim, grants)
            notes.restore(database, damage.beside)
            schema.put(database, _NOTE, _dumped(quarantine))


def _take_place(path: pathlib.Path, target: pathlib.Path) -> None:
    files.set_aside(path, target)
    files.move(_successor(path), path)


def _committed(successor: pathlib.Path) -> Quarantine | None:
    """The note of a successor that was committed, None where it was not."""
    with contextlib.closing(connection.connect(successor)) as database:
        try:
            return note(database) if schema.is_laid_out(database) else None
        except fields.UnreadableError:
            return None
        except sqlite3.Error as error:
            if not connection.is_damage(error):
                raise
            return None


def _drop(path: pathlib.Path) -> None:
    with files.refused(_successor(path)):
        for suffix in SUFFIXES:
            files.with_suffix(path, suffix).unlink(missing_ok=True)


def _successor(path: pathlib.Path) -> pathlib.Path:
    return files.with_suffix(path, SUFFIXES[0])


def _dumped(quarantine: Quarantine) -> str:
    content = {"path": str(quarantine.path), "reason": quarantine.reason, "kept": quarantine.kept, "lost": list(quarantine.lost)}
    return fields.dump(content)
