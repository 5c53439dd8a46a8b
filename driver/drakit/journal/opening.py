"""Open the journal's file: create it if it is missing, migrate it if it is old, and replace it if it is unreadable.

One process at a time does this, behind ``files.gate``. A file is unreadable when SQLite reports damage, when it belongs to another program or to an
incompatible newer drakit, or when a row cannot be decoded. It is then renamed, never overwritten, and replaced by a successor with every row that
could be decoded. The successor also has a quarantine record, which stays until the missing claims are restored. A file that cannot be accessed (disk
full, read-only, no permission) is not unreadable: that is a JournalError, and nothing changes. A file that is missing although claims were prepared
on this node is lost: its successor has only the quarantine record.

The order makes every crash safe: commit the successor under its own name, rename the unreadable file, rename the successor to the journal's name. A
crash before the first rename leaves the unreadable file in place, and the next opening removes the successor. A crash after it leaves a committed
successor without a database, and the next opening finishes the replacement.
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
"""The suffixes of an unfinished successor and of the rollback journal of its one transaction."""
_QUARANTINE_KEY = "quarantine"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quarantine:
    """The record of an unreadable journal: its new path, the reason, the number of claims kept, and the claims lost, if known."""

    path: pathlib.Path
    reason: str
    kept: int = 0
    lost: tuple[names.ClaimUid, ...] = ()


_QUARANTINE = codec.FORMAT.converter(Quarantine)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Damage:
    """The reason why a file is unreadable, and its decodable rows."""

    reason: str
    readable: tuple[store.Rows, ...] = ()
    lost: tuple[names.ClaimUid, ...] = ()
    salvage: store.Salvage = dataclasses.field(default_factory=store.Salvage)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """The result of opening a journal. ``last_boot_id`` is the boot in which it was last opened, empty for a new journal."""

    path: pathlib.Path
    use_lock: files.UseLock
    quarantine: Quarantine | None
    boot_id: str
    last_boot_id: str


HasCdiFiles = Callable[[], bool]


def open_file(
    directory: pathlib.Path,
    *,
    driver: str,
    boot_id: str,
    has_cdi_files: HasCdiFiles = lambda: False,
    migrations: Sequence[sqlite.Migration] = sqlite.MIGRATIONS,
) -> Opened:
    """Open the journal of a data directory, and create, migrate or replace it if needed. Raise JournalError.

    ``has_cdi_files`` returns whether CDI files of prepared claims exist; it is called only if the journal is missing or empty.
    """
    files.ensure_private_directory(directory)
    files.make_gate(directory)
    with files.gate(directory):
        use_lock = files.UseLock(directory)
        try:
            path = directory / files.DATABASE
            with sqlite.as_journal_errors(path):
                _replace_damaged(path, use_lock, has_cdi_files, migrations)
                return _open(path, use_lock, driver=driver, boot_id=boot_id, migrations=migrations)
        except BaseException:
            use_lock.close()
            raise


def _replace_damaged(
    path: pathlib.Path, use_lock: files.UseLock, has_cdi_files: HasCdiFiles, migrations: Sequence[sqlite.Migration]
) -> None:
    for suffix in ("", *files.SIDE_FILES):
        files.restrict_mode(files.with_suffix(path, suffix))
    finish_replacement(path)
    damage = examine(path, migrations)
    if damage is None and _is_blank(path) and has_cdi_files():
        damage = Damage(reason="it is missing, but CDI files of prepared claims exist")
    if damage is not None:
        replace(path, use_lock, damage, migrations)


def _is_blank(path: pathlib.Path) -> bool:
    """Return whether the journal was never committed to."""
    if not path.exists():
        return True
    with contextlib.closing(sqlite.connect(path)) as database:
        return not sqlite.has_tables(database)


def _open(path: pathlib.Path, use_lock: files.UseLock, *, driver: str, boot_id: str, migrations: Sequence[sqlite.Migration]) -> Opened:
    if not path.exists():
        files.create(path)
    with contextlib.closing(sqlite.connect_writer(path)) as database, sqlite.transaction(database):
        sqlite.upgrade(database, migrations)
        _check_driver(database, path, driver)
        last_boot_id = sqlite.meta(database, "boot_id") or ""
        if last_boot_id != boot_id:
            sqlite.set_meta(database, "boot_id", boot_id)
        store.remove_other_boots(database, boot_id)
        return Opened(path=path, use_lock=use_lock, quarantine=read_quarantine(database), boot_id=boot_id, last_boot_id=last_boot_id)


def _check_driver(database: sqlite3.Connection, path: pathlib.Path, driver: str) -> None:
    """Record the driver that owns the journal, or raise JournalError for another driver's journal."""
    owner = sqlite.meta(database, "driver")
    if owner is None:
        sqlite.set_meta(database, "driver", driver)
    elif owner != driver:
        raise errors.JournalError(f"{path} belongs to driver {owner}, not {driver}; give each driver a data directory of its own")


def examine(path: pathlib.Path, migrations: Sequence[sqlite.Migration]) -> Damage | None:
    """Return the damage of a file, None for a usable one. Raise sqlite3.Error if it cannot be accessed."""
    if not path.exists():
        return _examine_missing(path)
    with contextlib.closing(sqlite.connect(path)) as database:
        try:
            reason = sqlite.incompatibility(database, migrations) or _failed_check(database)
            return Damage(reason=reason) if reason else _decode(database)
        except sqlite3.Error as error:
            if not sqlite.is_damage(error):
                raise
            return Damage(reason=str(error))


def _examine_missing(path: pathlib.Path) -> Damage | None:
    """Return the damage of a missing database, None for a new one: a lost database left a write-ahead log or was set aside."""
    if any(files.with_suffix(path, suffix).exists() for suffix in files.SIDE_FILES):
        return Damage(reason="the database is missing beside its write-ahead log")
    if files.last_aside_path(path) is not None:
        return Damage(reason="the database is missing beside one that was set aside")
    return None


def _failed_check(database: sqlite3.Connection) -> str:
    result = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    return "" if result == "ok" else result


def _decode(database: sqlite3.Connection) -> Damage | None:
    """Return None when every row can be decoded, else the damage with the decodable rows."""
    if not sqlite.has_tables(database):
        return None
    readable: list[store.Rows] = []
    lost: list[names.ClaimUid] = []
    violation = database.execute("PRAGMA foreign_key_check").fetchone()
    reason = f"a row of {violation[0]} has no claim" if violation else ""
    for claim, grants in store.all_rows(database):
        try:
            codec.entry(claim, grants)
            readable.append((claim, grants))
        except codec.UnreadableError as error:
            reason = str(error)
            lost.append(names.ClaimUid(claim.uid))
    salvage = store.salvage(database)
    reason = reason or salvage.reason
    return Damage(reason=reason, readable=tuple(readable), lost=tuple(lost), salvage=salvage) if reason else None


def finish_replacement(path: pathlib.Path) -> None:
    """Finish a replacement that an earlier process began, or remove its unfinished successor. Raise JournalError, sqlite3.Error."""
    successor = _successor(path)
    if not successor.exists():
        return
    committed = None if path.exists() else _committed(successor)
    if committed is None:
        _remove_successor(path)
    else:
        # The folder may have another path than in the quarantine record: it may be a copy, or mounted somewhere else.
        _install_successor(path, path.with_name(committed.path.name))


def replace(path: pathlib.Path, use_lock: files.UseLock, damage: Damage, migrations: Sequence[sqlite.Migration]) -> None:
    """Rename an unreadable journal, and replace it by a new one with the decodable rows.

    Raise JournalError, also if another process has the file open, and sqlite3.Error. After an error the file has its old name.
    """
    with use_lock.exclusive() as is_exclusive:
        if not is_exclusive:
            raise errors.JournalError(f"{path} is unreadable ({damage.reason}) and another process has it open; stop that one first")
        moved = files.new_aside_path(path)
        target = moved or files.last_aside_path(path) or path
        quarantine = Quarantine(path=target, reason=damage.reason, kept=len(damage.readable), lost=damage.lost)
        _write_successor(path, quarantine, damage, migrations)
        _install_successor(path, target)
    _log.error(
        "journal set aside" if moved else "journal is missing",
        path=str(target),
        reason=damage.reason,
        kept=quarantine.kept,
        lost=list(damage.lost),
    )


def read_quarantine(database: sqlite3.Connection) -> Quarantine | None:
    """Return the quarantine record, None where no claim is missing."""
    text = sqlite.meta(database, _QUARANTINE_KEY)
    if text is None:
        return None
    quarantine: Quarantine = codec.read(_QUARANTINE, text, f"meta.{_QUARANTINE_KEY}")
    return quarantine


def release_from_quarantine(database: sqlite3.Connection, released: Collection[names.ClaimUid]) -> Quarantine | None:
    """Remove released claims from the quarantine record, if there is one, and return it. Inside the caller's transaction."""
    before = read_quarantine(database)
    if before is None:
        return None
    after = dataclasses.replace(before, lost=tuple(uid for uid in before.lost if uid not in released))
    sqlite.set_meta(database, _QUARANTINE_KEY, _encoded(after))
    return after


def clear_quarantine(database: sqlite3.Connection) -> None:
    """Delete the quarantine record. Inside the caller's transaction."""
    database.execute("DELETE FROM meta WHERE key = ?", (_QUARANTINE_KEY,))


def _write_successor(path: pathlib.Path, quarantine: Quarantine, damage: Damage, migrations: Sequence[sqlite.Migration]) -> None:
    """Commit the successor, without a write-ahead log, so that one rename moves all of it."""
    _remove_successor(path)
    successor = _successor(path)
    files.create(successor)
    with contextlib.closing(sqlite.connect(successor)) as database:
        sqlite.wait_for_disk(database, wait=True)
        with sqlite.transaction(database):
            sqlite.upgrade(database, migrations)
            for claim, grants in damage.readable:
                store.insert(database, claim, grants)
            store.restore(database, damage.salvage)
            sqlite.set_meta(database, _QUARANTINE_KEY, _encoded(quarantine))


def _install_successor(path: pathlib.Path, target: pathlib.Path) -> None:
    files.set_aside(path, target)
    files.move(_successor(path), path)


def _committed(successor: pathlib.Path) -> Quarantine | None:
    """Return the quarantine record of a committed successor, None where it was not committed."""
    with contextlib.closing(sqlite.connect(successor)) as database:
        try:
            return read_quarantine(database) if sqlite.has_tables(database) else None
        except codec.UnreadableError:
            return None
        except sqlite3.Error as error:
            if not sqlite.is_damage(error):
                raise
            return None


def _remove_successor(path: pathlib.Path) -> None:
    with files.as_journal_errors(_successor(path)):
        for suffix in SUFFIXES:
            files.with_suffix(path, suffix).unlink(missing_ok=True)


def _successor(path: pathlib.Path) -> pathlib.Path:
    return files.with_suffix(path, SUFFIXES[0])


def _encoded(quarantine: Quarantine) -> str:
    return codec.dump(_QUARANTINE.encode(quarantine))
