"""Open the journal's file: create it if it is missing, migrate it if it is old, and replace it if it is unreadable or behind.

One process at a time does this, behind ``files.gate``. ``examination`` decides. An unreadable file, or one that lacks changes, is renamed, never
overwritten, and replaced by a successor with every row that could be decoded. The successor also has a quarantine record, which stays until the
missing claims are restored. A file that cannot be accessed is a JournalError, and nothing changes. A file that is missing although claims were
prepared on this node is lost: its successor has only the quarantine record. Where nothing shows that a file lacks changes, and nothing that it has
them, it stays and gets a quarantine record that names itself: it is unverified until the API server was asked. That is so for a new journal of a
serving node, for one that commands made by hand, and for one whose mark is gone. A command by hand does not ask, so it takes its new journal as it
is, and the driver asks when it opens that journal.

The order makes every crash safe: commit the successor under its own name, rename the unreadable file, rename the successor to the journal's name. A
crash before the first rename leaves the unreadable file in place, and the next opening removes the successor. A crash after it leaves a committed
successor without a database, and the next opening finishes the replacement.
"""

import contextlib
import dataclasses
import pathlib
import sqlite3
from collections.abc import Sequence

from drakit.core import errors
from drakit.journal import codec, digests, driver_state, examination, files, schema, sqlite, store
from drakit.journal import quarantine as quarantines
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

SUFFIXES = (".new", ".new-journal")
"""The suffixes of an unfinished successor and of the rollback journal of its one transaction."""
_MARKED_KEY = "marked_boot"
"""The boot in which a process wrote the journal's mark."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """The result of opening a journal, with the connection to write to it.

    ``last_boot_id`` is the boot in which it was last opened, empty for a new journal.
    """

    path: pathlib.Path
    database: sqlite3.Connection
    use_lock: files.UseLock
    quarantine: quarantines.Quarantine | None
    boot_id: str
    last_boot_id: str

    def close(self) -> None:
        """Close the connection, and release the lock."""
        self.database.close()
        self.use_lock.close()


def open_file(
    directory: pathlib.Path,
    *,
    driver: str,
    boot_id: str,
    evidence: examination.Evidence | None = None,
    migrations: Sequence[schema.Migration] = schema.MIGRATIONS,
) -> Opened:
    """Open the journal of a data directory, and create, migrate or replace it if needed. Raises JournalError, and the errors of ``evidence``."""
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
                    database, doubt = _connect(path, migrations, evidence, last_change, is_alone=is_alone, boot_id=boot_id)
                    with contextlib.ExitStack() as on_error:
                        on_error.enter_context(contextlib.closing(database))
                        opened = _open(database, path, use_lock, driver, boot_id, migrations, evidence, doubt)
                        on_error.pop_all()
                        return opened
        except BaseException:
            use_lock.close()
            raise


def _connect(
    path: pathlib.Path,
    migrations: Sequence[schema.Migration],
    evidence: examination.Evidence | None,
    last_change: int | None,
    *,
    is_alone: bool,
    boot_id: str,
) -> tuple[sqlite3.Connection, str]:
    """Replace a file that is unreadable or behind, and create a missing one. Return a connection, and why the file is unverified, else empty.

    A file that stays is examined and opened by the same connection, because each connection reads and parses the whole schema.
    """
    doubt = ""
    with contextlib.ExitStack() as unless_used:
        database, damage = examination.connect(path, last_change)
        if database is not None:
            unless_used.enter_context(contextlib.closing(database))
            damage = examination.examine_content(database, path, migrations, last_change)
        # Another process that has the journal open verified it when it opened it, and its calls change files and journal meanwhile.
        if damage is None and evidence is not None and is_alone:
            doubt = _doubt(database, evidence, last_change, boot_id)
            damage = examination.unknown_files(database, evidence, boot_id)
        if damage is None and database is not None:
            unless_used.pop_all()
            return database, doubt
    if damage is None:
        files.create(path)
        return sqlite.connect(path), doubt
    if not is_alone:
        raise errors.JournalError(f"{path} is unreadable ({printable(damage.reason)}) and another process has it open; stop that one first")
    replace(path, damage, migrations, last_change or 0)
    return sqlite.connect(path), ""


def _doubt(database: sqlite3.Connection | None, evidence: examination.Evidence, last_change: int | None, boot_id: str) -> str:
    if database is None or not schema.has_tables(database):
        return quarantines.NEW if evidence.checks_new else ""
    is_marked = schema.meta(database, _MARKED_KEY) == boot_id
    return quarantines.UNMARKED if is_marked and last_change is None else ""


def _open(
    database: sqlite3.Connection,
    path: pathlib.Path,
    use_lock: files.UseLock,
    driver: str,
    boot_id: str,
    migrations: Sequence[schema.Migration],
    evidence: examination.Evidence | None,
    doubt: str,
) -> Opened:
    sqlite.become_writer(database, path)
    with sqlite.transaction(database):
        schema.upgrade(database, migrations)
        _check_driver(database, path, driver)
        last_boot_id = schema.meta(database, examination.BOOT) or ""
        if last_boot_id != boot_id:
            schema.set_meta(database, examination.BOOT, boot_id)
        driver_state.remove_other_boots(database, boot_id)
        if schema.has_progress(database):
            store.add_digests(database)
        served = quarantines.served(database)
        if evidence is not None and evidence.checks_new and served is False:
            doubt = quarantines.NEW
        if doubt and quarantines.read(database) is None:
            kept = len(store.uids(database))
            quarantines.write(database, quarantines.Quarantine(path=path, reason=doubt, kept=kept))
        if evidence is not None:
            schema.set_meta(database, _MARKED_KEY, boot_id)
            if evidence.checks_new or (served is None and not last_boot_id):
                quarantines.set_served(database, is_served=evidence.checks_new)
        quarantine, changes = quarantines.read(database), schema.changes(database)
    if evidence is not None:
        evidence.mark.write(changes)
    return Opened(path=path, database=database, use_lock=use_lock, quarantine=quarantine, boot_id=boot_id, last_boot_id=last_boot_id)


def _check_driver(database: sqlite3.Connection, path: pathlib.Path, driver: str) -> None:
    """Record the driver that owns the journal, or raise JournalError for another driver's journal."""
    owner = schema.meta(database, examination.DRIVER)
    if owner is None or (owner == driver and schema.meta(database, examination.DRIVER_DIGEST) is None):
        schema.set_meta(database, examination.DRIVER, driver)
        schema.set_meta(database, examination.DRIVER_DIGEST, digests.of_name(driver))
    elif owner != driver:
        raise errors.JournalError(f"{path} belongs to driver {owner}, not {driver}; give each driver a data directory of its own")


def finish_replacement(path: pathlib.Path) -> None:
    """Finish a replacement that an earlier process began, or remove its unfinished successor. Raises JournalError, sqlite3.Error."""
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

    Raises JournalError, sqlite3.Error. After an error the file has its old name.
    """
    moved = files.new_aside_path(path)
    target = moved or files.last_aside_path(path) or path
    lost = tuple(uid for uid in damage.lost if uid not in {claim.uid for claim, _ in damage.readable})
    quarantine = quarantines.Quarantine(path=target, reason=printable(damage.reason), kept=len(damage.readable), lost=lost)
    _write_successor(path, quarantine, damage, migrations, last_change)
    _install_successor(path, target)
    _log.error(
        "journal set aside" if moved else "journal is missing",
        path=str(target),
        reason=quarantine.reason,
        kept=quarantine.kept,
        lost=list(lost),
    )


def printable(reason: str) -> str:
    """Return a reason without the bytes of a damaged file that are not UTF-8."""
    return reason.encode(errors="backslashreplace").decode()


def _write_successor(
    path: pathlib.Path,
    quarantine: quarantines.Quarantine,
    damage: examination.Damage,
    migrations: Sequence[schema.Migration],
    last_change: int,
) -> None:
    """Commit the successor, without a write-ahead log, so that one rename moves all of it. Its changes are numbered after ``last_change``."""
    _remove_successor(path)
    successor = _successor(path)
    files.create(successor)
    with contextlib.closing(sqlite.connect(successor)) as database:
        sqlite.wait_for_disk(database, wait=True)
        with sqlite.transaction(database):
            schema.upgrade(database, migrations)
            digest = sum(store.insert(database, claim, grants) for claim, grants in damage.readable)
            driver_state.restore(database, damage.salvage)
            if damage.is_served:
                quarantines.set_served(database, is_served=True)
            quarantines.write(database, quarantine)
            if schema.has_progress(database):
                sqlite.count_change(database, digest=digest, at_least=last_change)


def _install_successor(path: pathlib.Path, target: pathlib.Path) -> None:
    files.set_aside(path, target)
    files.move(_successor(path), path)


def _committed(successor: pathlib.Path) -> quarantines.Quarantine | None:
    """Return the quarantine record of a committed successor, None if it was not committed."""
    with contextlib.closing(sqlite.connect(successor)) as database:
        try:
            return quarantines.read(database) if schema.has_tables(database) else None
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
