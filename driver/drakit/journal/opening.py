"""Open the journal's file: create it if it is missing, migrate it if it is old, and replace it if it is unreadable or behind.

One process at a time does this, behind ``files.gate``. ``examination`` decides. An unreadable file, or one that lacks changes, is renamed, never
overwritten, and replaced by a successor with every row that could be decoded. The successor also has a quarantine record, which stays until the
missing claims are restored. A file that cannot be accessed is a JournalError, and nothing changes. A file that is missing although claims were
prepared on this node is lost: its successor has only the quarantine record. Where nothing shows that a file lacks changes, and nothing that it has
them, it stays and gets a quarantine record that names itself: it is unverified until the API server was asked. That is so for a new journal of a
serving node, and for one whose mark is gone.

The order makes every crash safe: commit the successor under its own name, rename the unreadable file, rename the successor to the journal's name. A
crash before the first rename leaves the unreadable file in place, and the next opening removes the successor. A crash after it leaves a committed
successor without a database, and the next opening finishes the replacement.
"""

import contextlib
import dataclasses
import pathlib
import sqlite3
from collections.abc import Collection, Sequence

from drakit.core import errors, names
from drakit.journal import codec, examination, files, schema, sqlite, store
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

SUFFIXES = (".new", ".new-journal")
"""The suffixes of an unfinished successor and of the rollback journal of its one transaction."""
NEW = "it is new"
UNMARKED = "the mark of its last change is missing"
DOUBTS = frozenset({NEW, UNMARKED})
"""The reasons of the quarantine record of an unverified journal. Only the API server may know the claims of a new one."""
_MARKED_KEY = "marked_boot"
"""The boot in which a process wrote the journal's mark."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quarantine:
    """The record of a lost journal: its new path, the reason, the number of claims kept, and the claims lost, if known."""

    path: pathlib.Path
    reason: str
    kept: int = 0
    lost: tuple[names.ClaimUid, ...] = ()

    @property
    def is_doubt(self) -> bool:
        """Whether nothing shows that the journal lacks anything: it was not set aside, and is unverified."""
        return self.reason in DOUBTS


_QUARANTINE = codec.FORMAT.converter(Quarantine)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """The result of opening a journal. ``last_boot_id`` is the boot in which it was last opened, empty for a new journal."""

    path: pathlib.Path
    use_lock: files.UseLock
    quarantine: Quarantine | None
    boot_id: str
    last_boot_id: str


def open_file(
    directory: pathlib.Path,
    *,
    driver: str,
    boot_id: str,
    evidence: examination.Evidence | None = None,
    migrations: Sequence[schema.Migration] = schema.MIGRATIONS,
) -> Opened:
    """Open the journal of a data directory, and create, migrate or replace it if needed. Raise JournalError, and the errors of ``evidence``."""
    files.check_data_directory(directory, SUFFIXES)
    files.ensure_private_directory(directory)
    files.make_gate(directory)
    with files.gate(directory):
        use_lock = files.UseLock(directory)
        try:
            path = directory / files.DATABASE
            with sqlite.as_journal_errors(path):
                for suffix in ("", *files.SIDE_FILES):
                    files.restrict_mode(files.with_suffix(path, suffix))
                finish_replacement(path)
                last_change = None if evidence is None else evidence.mark.read()
                with use_lock.exclusive() as is_alone:
                    doubt = _replace_damaged(path, migrations, evidence, last_change, is_alone=is_alone, boot_id=boot_id)
                    return _open(path, use_lock, driver=driver, boot_id=boot_id, migrations=migrations, evidence=evidence, doubt=doubt)
        except BaseException:
            use_lock.close()
            raise


def _replace_damaged(
    path: pathlib.Path,
    migrations: Sequence[schema.Migration],
    evidence: examination.Evidence | None,
    last_change: int | None,
    *,
    is_alone: bool,
    boot_id: str,
) -> str:
    """Replace a file that is unreadable or behind. Return why the file is unverified, empty where it is not."""
    damage = examination.examine(path, migrations, last_change)
    doubt = ""
    # Another process that has the journal open verified it when it opened it, and its calls change files and journal meanwhile.
    if damage is None and evidence is not None and is_alone:
        doubt = _doubt(path, evidence, last_change, boot_id)
        damage = examination.unknown_files(path, evidence, boot_id)
    if damage is None:
        return doubt
    if not is_alone:
        raise errors.JournalError(f"{path} is unreadable ({printable(damage.reason)}) and another process has it open; stop that one first")
    replace(path, damage, migrations, last_change or 0)
    return ""


def _doubt(path: pathlib.Path, evidence: examination.Evidence, last_change: int | None, boot_id: str) -> str:
    if examination.is_blank(path):
        return NEW if evidence.checks_new else ""
    with contextlib.closing(sqlite.connect(path)) as database:
        is_marked = schema.meta(database, _MARKED_KEY) == boot_id
    return UNMARKED if is_marked and last_change is None else ""


def _open(
    path: pathlib.Path,
    use_lock: files.UseLock,
    *,
    driver: str,
    boot_id: str,
    migrations: Sequence[schema.Migration],
    evidence: examination.Evidence | None = None,
    doubt: str = "",
) -> Opened:
    if not path.exists():
        files.create(path)
    with contextlib.closing(sqlite.connect_writer(path)) as database:
        with sqlite.transaction(database):
            schema.upgrade(database, migrations)
            _check_driver(database, path, driver)
            last_boot_id = schema.meta(database, examination.BOOT) or ""
            if last_boot_id != boot_id:
                schema.set_meta(database, examination.BOOT, boot_id)
            store.remove_other_boots(database, boot_id)
            if schema.has_progress(database):
                store.add_digests(database)
            if doubt and read_quarantine(database) is None:
                kept = len(store.uids(database))
                schema.set_meta(database, examination.QUARANTINE, _encoded(Quarantine(path=path, reason=doubt, kept=kept)))
            if evidence is not None:
                schema.set_meta(database, _MARKED_KEY, boot_id)
            quarantine, changes = read_quarantine(database), schema.changes(database)
        if evidence is not None:
            evidence.mark.write(changes)
        return Opened(path=path, use_lock=use_lock, quarantine=quarantine, boot_id=boot_id, last_boot_id=last_boot_id)


def _check_driver(database: sqlite3.Connection, path: pathlib.Path, driver: str) -> None:
    """Record the driver that owns the journal, or raise JournalError for another driver's journal."""
    owner = schema.meta(database, "driver")
    if owner is None:
        schema.set_meta(database, "driver", driver)
    elif owner != driver:
        raise errors.JournalError(f"{path} belongs to driver {owner}, not {driver}; give each driver a data directory of its own")


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


def replace(path: pathlib.Path, damage: examination.Damage, migrations: Sequence[schema.Migration], last_change: int) -> None:
    """Rename an unreadable journal, and replace it by a new one with the decodable rows. The caller has the exclusive use lock.

    Raise JournalError, sqlite3.Error. After an error the file has its old name.
    """
    moved = files.new_aside_path(path)
    target = moved or files.last_aside_path(path) or path
    quarantine = Quarantine(path=target, reason=printable(damage.reason), kept=len(damage.readable), lost=damage.lost)
    _write_successor(path, quarantine, damage, migrations, last_change)
    _install_successor(path, target)
    _log.error(
        "journal set aside" if moved else "journal is missing",
        path=str(target),
        reason=quarantine.reason,
        kept=quarantine.kept,
        lost=list(damage.lost),
    )


def printable(reason: str) -> str:
    """Return a reason without the bytes of a damaged file that are not UTF-8."""
    return reason.encode(errors="backslashreplace").decode()


def read_quarantine(database: sqlite3.Connection) -> Quarantine | None:
    """Return the quarantine record, None where no claim is missing."""
    text = schema.meta(database, examination.QUARANTINE)
    if text is None:
        return None
    quarantine: Quarantine = codec.read(_QUARANTINE, text, f"meta.{examination.QUARANTINE}")
    return quarantine


def release_from_quarantine(database: sqlite3.Connection, released: Collection[names.ClaimUid]) -> Quarantine | None:
    """Remove released claims from the quarantine record, if there is one, and return it. Inside the caller's transaction."""
    before = read_quarantine(database)
    if before is None:
        return None
    after = dataclasses.replace(before, lost=tuple(uid for uid in before.lost if uid not in released))
    schema.set_meta(database, examination.QUARANTINE, _encoded(after))
    return after


def clear_quarantine(database: sqlite3.Connection) -> None:
    """Delete the quarantine record. Inside the caller's transaction."""
    database.execute("DELETE FROM meta WHERE key = ?", (examination.QUARANTINE,))


def _write_successor(
    path: pathlib.Path, quarantine: Quarantine, damage: examination.Damage, migrations: Sequence[schema.Migration], last_change: int
) -> None:
    """Commit the successor, without a write-ahead log, so that one rename moves all of it. Its changes are numbered after ``last_change``."""
    _remove_successor(path)
    successor = _successor(path)
    files.create(successor)
    with contextlib.closing(sqlite.connect(successor)) as database:
        sqlite.wait_for_disk(database, wait=True)
        with sqlite.transaction(database):
            schema.upgrade(database, migrations)
            for claim, grants in damage.readable:
                store.insert(database, claim, grants)
            store.restore(database, damage.salvage)
            schema.set_meta(database, examination.QUARANTINE, _encoded(quarantine))
            if schema.has_progress(database):
                schema.count_change(database, at_least=last_change)


def _install_successor(path: pathlib.Path, target: pathlib.Path) -> None:
    files.set_aside(path, target)
    files.move(_successor(path), path)


def _committed(successor: pathlib.Path) -> Quarantine | None:
    """Return the quarantine record of a committed successor, None where it was not committed."""
    with contextlib.closing(sqlite.connect(successor)) as database:
        try:
            return read_quarantine(database) if schema.has_tables(database) else None
        except codec.UnreadableError:
            return None
        except sqlite.FAILURES as error:
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
