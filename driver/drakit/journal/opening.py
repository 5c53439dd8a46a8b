"""Opening the journal's file: created when missing, migrated when old, and replaced when unreadable.

All of it runs behind ``files.gate``, one process at a time. A file is unreadable when SQLite reports damage, when it belongs to another
program or to an incompatible newer drakit, or when a row cannot be decoded. Then it is renamed, never overwritten, and a successor with
every row that could be decoded takes its place, with a note (the quarantine) that stays until the missing claims are restored. A file that
cannot be reached (disk full, read-only, no permission) is not unreadable: that is a JournalError, and nothing changes. A file that is
missing although claims were prepared here was lost: its successor holds nothing but the note.

The order makes every crash safe: the successor is committed under a name of its own, the unreadable file is renamed, the successor takes
its name. A crash before the first rename leaves the unreadable file in place and the next opening drops the successor; a crash after it
leaves a committed successor without a database, and the next opening finishes the rename.
"""

import contextlib
import dataclasses
import pathlib
import sqlite3
from collections.abc import Callable, Collection, Sequence

from drakit.core import errors, names
from drakit.journal import codec, files, sqlite, store
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

SUFFIXES = (".new", ".new-journal")
"""What a successor on its way is called beside the database, and the log of its one transaction."""
_NOTE = "quarantine"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quarantine:
    """An unreadable journal was set aside: where it is now, why, how many claims were carried over, and which could not be (if known)."""

    path: pathlib.Path
    reason: str
    kept: int = 0
    lost: tuple[names.ClaimUid, ...] = ()


_QUARANTINE = codec.FORMAT.converter(Quarantine)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Damage:
    """Why a file cannot be used, and what of it can be decoded."""

    reason: str
    readable: tuple[store.Rows, ...] = ()
    lost: tuple[names.ClaimUid, ...] = ()
    beside: store.Salvage = dataclasses.field(default_factory=store.Salvage)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """What opening found. ``last_boot_id`` is the boot in which the journal was last opened, empty for a new one."""

    path: pathlib.Path
    use: files.Use
    quarantine: Quarantine | None
    boot_id: str
    last_boot_id: str


Traces = Callable[[], bool]


def no_traces() -> bool:
    """A node on which nothing was prepared."""
    return False


def open_file(
    directory: pathlib.Path, *, driver: str, boot_id: str, traces: Traces = no_traces, ladder: Sequence[sqlite.Migration] = sqlite.LADDER
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
            with sqlite.refused(path):
                _replace_damaged(path, use, traces, ladder)
                return _open(path, use, driver=driver, boot_id=boot_id, ladder=ladder)
        except BaseException:
            use.close()
            raise


def _replace_damaged(path: pathlib.Path, use: files.Use, traces: Traces, ladder: Sequence[sqlite.Migration]) -> None:
    for suffix in ("", *files.SIDE_FILES):
        files.narrow(files.with_suffix(path, suffix))
    settle(path)
    damage = examine(path, ladder)
    if damage is None and _is_blank(path) and traces():
        damage = Damage(reason="it is missing, and CDI files say that claims are prepared")
    if damage is not None:
        replace(path, use, damage, ladder)


def _is_blank(path: pathlib.Path) -> bool:
    """Whether the journal was never committed to."""
    if not path.exists():
        return True
    with contextlib.closing(sqlite.connect(path)) as database:
        return not sqlite.is_laid_out(database)


def _open(path: pathlib.Path, use: files.Use, *, driver: str, boot_id: str, ladder: Sequence[sqlite.Migration]) -> Opened:
    if not path.exists():
        files.create(path)
    with contextlib.closing(sqlite.connect_writer(path)) as database, sqlite.transaction(database):
        sqlite.upgrade(database, ladder)
        _check_driver(database, path, driver)
        last_boot_id = sqlite.value(database, "boot_id") or ""
        if last_boot_id != boot_id:
            sqlite.put(database, "boot_id", boot_id)
        store.remove_other_boots(database, boot_id)
        return Opened(path=path, use=use, quarantine=note(database), boot_id=boot_id, last_boot_id=last_boot_id)


def _check_driver(database: sqlite3.Connection, path: pathlib.Path, driver: str) -> None:
    """Write whose journal this is, or check it."""
    owner = sqlite.value(database, "driver")
    if owner is None:
        sqlite.put(database, "driver", driver)
    elif owner != driver:
        raise errors.JournalError(f"{path} belongs to driver {owner}, not {driver}; give each driver a data directory of its own")


def examine(path: pathlib.Path, ladder: Sequence[sqlite.Migration]) -> Damage | None:
    """Return what is wrong with a file, None where nothing is. Raises sqlite3.Error where it cannot be reached."""
    if not path.exists():
        return _examine_missing(path)
    with contextlib.closing(sqlite.connect(path)) as database:
        try:
            reason = sqlite.foreign(database, ladder) or _broken(database)
            return Damage(reason=reason) if reason else _decode(database)
        except sqlite3.Error as error:
            if not sqlite.is_damage(error):
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
    if not sqlite.is_laid_out(database):
        return None
    readable: list[store.Rows] = []
    lost: list[names.ClaimUid] = []
    stray = database.execute("PRAGMA foreign_key_check").fetchone()
    reason = f"a row of {stray[0]} has no claim" if stray else ""
    for claim, grants in store.all_rows(database):
        try:
            codec.entry(claim, grants)
            readable.append((claim, grants))
        except codec.UnreadableError as error:
            reason = str(error)
            lost.append(names.ClaimUid(claim.uid))
    beside = store.salvage(database)
    reason = reason or beside.reason
    return Damage(reason=reason, readable=tuple(readable), lost=tuple(lost), beside=beside) if reason else None


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


def replace(path: pathlib.Path, use: files.Use, damage: Damage, ladder: Sequence[sqlite.Migration]) -> None:
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
    _log.error(
        "journal set aside" if moved else "journal is missing",
        path=str(target),
        reason=damage.reason,
        kept=quarantine.kept,
        lost=list(damage.lost),
    )


def note(database: sqlite3.Connection) -> Quarantine | None:
    """The note of a quarantine after which not everything was rebuilt yet."""
    text = sqlite.value(database, _NOTE)
    if text is None:
        return None
    quarantine: Quarantine = codec.read(_QUARANTINE, text, f"meta.{_NOTE}")
    return quarantine


def narrow_note(database: sqlite3.Connection, released: Collection[names.ClaimUid]) -> Quarantine | None:
    """Let the note, if there is one, name no claim that was released; return what it says then. Inside the caller's transaction."""
    before = note(database)
    if before is None:
        return None
    now = dataclasses.replace(before, lost=tuple(uid for uid in before.lost if uid not in released))
    sqlite.put(database, _NOTE, _dumped(now))
    return now


def clear_note(database: sqlite3.Connection) -> None:
    """Drop the note of a quarantine, inside the caller's transaction."""
    database.execute("DELETE FROM meta WHERE key = ?", (_NOTE,))


def _write(path: pathlib.Path, quarantine: Quarantine, damage: Damage, ladder: Sequence[sqlite.Migration]) -> None:
    """Commit the successor; it is no write-ahead log's yet, so that one rename moves all of it."""
    _drop(path)
    successor = _successor(path)
    files.create(successor)
    with contextlib.closing(sqlite.connect(successor)) as database:
        sqlite.wait_for_disk(database, wait=True)
        with sqlite.transaction(database):
            sqlite.upgrade(database, ladder)
            for claim, grants in damage.readable:
                store.insert(database, claim, grants)
            store.restore(database, damage.beside)
            sqlite.put(database, _NOTE, _dumped(quarantine))


def _take_place(path: pathlib.Path, target: pathlib.Path) -> None:
    files.set_aside(path, target)
    files.move(_successor(path), path)


def _committed(successor: pathlib.Path) -> Quarantine | None:
    """The note of a successor that was committed, None where it was not."""
    with contextlib.closing(sqlite.connect(successor)) as database:
        try:
            return note(database) if sqlite.is_laid_out(database) else None
        except codec.UnreadableError:
            return None
        except sqlite3.Error as error:
            if not sqlite.is_damage(error):
                raise
            return None


def _drop(path: pathlib.Path) -> None:
    with files.refused(_successor(path)):
        for suffix in SUFFIXES:
            files.with_suffix(path, suffix).unlink(missing_ok=True)


def _successor(path: pathlib.Path) -> pathlib.Path:
    return files.with_suffix(path, SUFFIXES[0])


def _dumped(quarantine: Quarantine) -> str:
    return codec.dump(_QUARANTINE.encode(quarantine))
