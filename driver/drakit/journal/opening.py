"""Opening the journal's file: made when missing, mended when loose, migrated when old, set aside when unreadable.

The whole of it runs behind ``files.gate``, one process at a time. A file is unreadable when SQLite says that it is damaged, when it is another
program's or an incompatible newer drakit's, or when a row in it cannot be decoded (edited by hand). Then it is renamed, never overwritten, and
a new one is made that holds what could be decoded and a note of what happened; the note stays until recovery has rebuilt the rest and says so,
also if the process dies in between. A file that cannot be reached (disk full, read-only, no permission) is not unreadable: JournalError, and
nothing changes.
"""

import contextlib
import dataclasses
import pathlib
import sqlite3
from collections.abc import Sequence

from drakit.core import errors, names
from drakit.journal import codec, connection, fields, files, notes, rows, schema
from drakit.telemetry import logs

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
class Opened:
    """What opening found. ``last_boot_id`` is the boot in which the journal was last opened, empty for a new one."""

    path: pathlib.Path
    use: files.Use
    quarantine: Quarantine | None
    boot_id: str
    last_boot_id: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Damage:
    """Why a file cannot be used, and what of it can be decoded."""

    reason: str
    readable: tuple[rows.Rows, ...] = ()
    lost: tuple[names.ClaimUid, ...] = ()
    beside: notes.Salvage = dataclasses.field(default_factory=notes.Salvage)


def open_file(directory: pathlib.Path, *, driver: str, boot_id: str, ladder: Sequence[schema.Migration] = schema.LADDER) -> Opened:
    """Make the journal of a data directory usable; raises JournalError."""
    files.own_directory(directory)
    with files.gate(directory):
        use = files.Use(directory)
        try:
            path = directory / files.DATABASE
            with connection.refused(path):
                return _open(path, use, driver=driver, boot_id=boot_id, ladder=ladder)
        except BaseException:
            use.close()
            raise


def clear_note(database: sqlite3.Connection) -> None:
    """Drop the note of a quarantine, inside the caller's transaction."""
    database.execute("DELETE FROM meta WHERE key = ?", (_NOTE,))


def _open(path: pathlib.Path, use: files.Use, *, driver: str, boot_id: str, ladder: Sequence[schema.Migration]) -> Opened:
    for suffix in ("", *files.SIDE_FILES):
        files.narrow(files.with_suffix(path, suffix))
    damage = examine(path, ladder)
    quarantine = None if damage is None else _set_aside(path, use, damage)
    if not path.exists():
        files.create(path)
    with contextlib.closing(connection.connect_writer(path)) as database, connection.transaction(database):
        schema.upgrade(database, ladder)
        _check_driver(database, path, driver)
        last_boot_id = schema.value(database, "boot_id") or ""
        if last_boot_id != boot_id:
            schema.put(database, "boot_id", boot_id)
        if damage is not None and quarantine is not None:
            _carry_over(database, damage)
            schema.put(database, _NOTE, _note(quarantine))
        notes.forget_other_boots(database, boot_id)
        return Opened(path=path, use=use, quarantine=_noted(database), boot_id=boot_id, last_boot_id=last_boot_id)


def _carry_over(database: sqlite3.Connection, damage: Damage) -> None:
    for claim, grants in damage.readable:
        rows.insert(database, claim, grants)
    notes.restore(database, damage.beside)


def _check_driver(database: sqlite3.Connection, path: pathlib.Path, driver: str) -> None:
    """Write whose journal this is, or check it."""
    owner = schema.value(database, "driver")
    if owner is None:
        schema.put(database, "driver", driver)
    elif owner != driver:
        raise errors.JournalError(f"{path} belongs to driver {owner}, not {driver}; give each driver a data directory of its own")


def examine(path: pathlib.Path, ladder: Sequence[schema.Migration]) -> Damage | None:
    """Return what is wrong with a file, None where nothing is. Raises sqlite3.Error where it cannot be reached."""
    if not path.exists():
        return _examine_missing(path)
    with contextlib.closing(connection.connect(path)) as database:
        try:
            reason = schema.foreign(database, ladder) or _broken(database)
            return Damage(reason=reason) if reason else _decode(database)
        except sqlite3.Error as error:
            if not connection.is_damage(error):
                raise
            return Damage(reason=str(error))


def _examine_missing(path: pathlib.Path) -> Damage | None:
    """A database that is not there is new, unless what lies beside it says that there was one."""
    if any(files.with_suffix(path, suffix).exists() for suffix in files.SIDE_FILES):
        return Damage(reason="the database is missing beside its write-ahead log")
    if files.last_aside(path) is not None:
        return Damage(reason="the database is missing beside one that was set aside")
    return None


def _broken(database: sqlite3.Connection) -> str:
    found = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    return "" if found == "ok" else found


def _decode(database: sqlite3.Connection) -> Damage | None:
    """None when every row can be decoded, else those that can."""
    if not schema.is_laid_out(database):
        return None
    readable: list[rows.Rows] = []
    lost: list[names.ClaimUid] = []
    stray = database.execute("PRAGMA foreign_key_check").fetchone()
    reason = f"a row of {stray[0]} has no claim" if stray else ""
    for claim, grants in rows.all_rows(database):
        try:
            codec.entry(claim, grants)
            readable.append((claim, grants))
        except fields.UnreadableError as error:
            reason = str(error)
            lost.append(names.ClaimUid(claim.uid))
    beside = notes.salvage(database)
    reason = reason or beside.reason
    return Damage(reason=reason, readable=tuple(readable), lost=tuple(lost), beside=beside) if reason else None


def _set_aside(path: pathlib.Path, use: files.Use, damage: Damage) -> Quarantine:
    with use.alone() as alone:
        if not alone:
            raise errors.JournalError(f"{path} is unreadable ({damage.reason}) and another process has it open; stop that one first")
        target = files.set_aside(path) or files.last_aside(path) or path
    quarantine = Quarantine(path=target, reason=damage.reason, kept=len(damage.readable), lost=damage.lost)
    _log.error(
        "journal set aside",
        path=str(target),
        reason=damage.reason,
        kept=quarantine.kept,
        lost=list(damage.lost),
    )
    return quarantine


def _note(quarantine: Quarantine) -> str:
    content = {"path": str(quarantine.path), "reason": quarantine.reason, "kept": quarantine.kept, "lost": list(quarantine.lost)}
    return fields.dump(content)


def _noted(database: sqlite3.Connection) -> Quarantine | None:
    text = schema.value(database, _NOTE)
    if text is None:
        return None
    note = fields.Fields.parse(text, f"meta.{_NOTE}")
    return Quarantine(
        path=pathlib.Path(note.text("path")),
        reason=note.text("reason"),
        kept=note.whole("kept") or 0,
        lost=tuple(names.ClaimUid(uid) for uid in note.texts("lost")),
    )
