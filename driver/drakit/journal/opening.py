"""Opening the journal's file: made when missing, mended when loose, migrated when old, set aside when unreadable.

The whole of it runs behind ``files.gate``, one process at a time. A file is unreadable when SQLite says that it is damaged, when it is another
program's or an incompatible newer drakit's, or when a row in it cannot be decoded (edited by hand). Then it is renamed, never overwritten, and
another takes its place that holds what could be decoded and a note of what happened (drakit.journal.succession); the note stays until recovery
has rebuilt the rest and says so, also if the process dies in between. A file that cannot be reached (disk full, read-only, no permission) is not
unreadable: JournalError, and nothing changes. Where there is no file although claims are known to be prepared, it was lost: its successor holds
nothing but the note.
"""

import contextlib
import dataclasses
import pathlib
import sqlite3
from collections.abc import Callable, Sequence

from drakit.core import errors, names
from drakit.journal import codec, connection, fields, files, notes, rows, schema, succession


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """What opening found. ``last_boot_id`` is the boot in which the journal was last opened, empty for a new one."""

    path: pathlib.Path
    use: files.Use
    quarantine: succession.Quarantine | None
    boot_id: str
    last_boot_id: str


Traces = Callable[[], bool]


def no_traces() -> bool:
    """A node on which nothing was prepared."""
    return False


def open_file(
    directory: pathlib.Path, *, driver: str, boot_id: str, traces: Traces = no_traces, ladder: Sequence[schema.Migration] = schema.LADDER
) -> Opened:
    """Make the journal of a data directory usable; raises JournalError.

    ``traces`` says whether claims were prepared here, as something else than the journal knows it; asked only where the journal knows nothing.
    """
    files.own_directory(directory)
    files.make_gate(directory)
    with files.gate(directory):
        use = files.Use(directory)
        try:
            path = directory / files.DATABASE
            with connection.refused(path):
                _replace_damaged(path, use, traces, ladder)
                return _open(path, use, driver=driver, boot_id=boot_id, ladder=ladder)
        except BaseException:
            use.close()
            raise


def _replace_damaged(path: pathlib.Path, use: files.Use, traces: Traces, ladder: Sequence[schema.Migration]) -> None:
    for suffix in ("", *files.SIDE_FILES):
        files.narrow(files.with_suffix(path, suffix))
    succession.settle(path)
    damage = examine(path, ladder)
    if damage is None and _is_blank(path) and traces():
        damage = succession.Damage(reason="it is missing, and CDI files say that claims are prepared")
    if damage is not None:
        succession.replace(path, use, damage, ladder)


def _is_blank(path: pathlib.Path) -> bool:
    """Whether the journal was never committed to."""
    if not path.exists():
        return True
    with contextlib.closing(connection.connect(path)) as database:
        return not schema.is_laid_out(database)


def _open(path: pathlib.Path, use: files.Use, *, driver: str, boot_id: str, ladder: Sequence[schema.Migration]) -> Opened:
    if not path.exists():
        files.create(path)
    with contextlib.closing(connection.connect_writer(path)) as database, connection.Transaction(database):
        schema.upgrade(database, ladder)
        _check_driver(database, path, driver)
        last_boot_id = schema.value(database, "boot_id") or ""
        if last_boot_id != boot_id:
            schema.put(database, "boot_id", boot_id)
        notes.forget_other_boots(database, boot_id)
        return Opened(path=path, use=use, quarantine=succession.note(database), boot_id=boot_id, last_boot_id=last_boot_id)


def _check_driver(database: sqlite3.Connection, path: pathlib.Path, driver: str) -> None:
    """Write whose journal this is, or check it."""
    owner = schema.value(database, "driver")
    if owner is None:
        schema.put(database, "driver", driver)
    elif owner != driver:
        raise errors.JournalError(f"{path} belongs to driver {owner}, not {driver}; give each driver a data directory of its own")


def examine(path: pathlib.Path, ladder: Sequence[schema.Migration]) -> succession.Damage | None:
    """Return what is wrong with a file, None where nothing is. Raises sqlite3.Error where it cannot be reached."""
    if not path.exists():
        return _examine_missing(path)
    with contextlib.closing(connection.connect(path)) as database:
        try:
            reason = schema.foreign(database, ladder) or _broken(database)
            return succession.Damage(reason=reason) if reason else _decode(database)
        except sqlite3.Error as error:
            if not connection.is_damage(error):
                raise
            return succession.Damage(reason=str(error))


def _examine_missing(path: pathlib.Path) -> succession.Damage | None:
    """A database that is not there is new, unless what lies beside it says that there was one."""
    if any(files.with_suffix(path, suffix).exists() for suffix in files.SIDE_FILES):
        return succession.Damage(reason="the database is missing beside its write-ahead log")
    if files.last_aside(path) is not None:
        return succession.Damage(reason="the database is missing beside one that was set aside")
    return None


def _broken(database: sqlite3.Connection) -> str:
    found = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    return "" if found == "ok" else found


def _decode(database: sqlite3.Connection) -> succession.Damage | None:
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
    return succession.Damage(reason=reason, readable=tuple(readable), lost=tuple(lost), beside=beside) if reason else None
