"""Examine a journal's file before it is opened, to find out whether it is usable and has every change.

A file is unreadable when SQLite reports damage, when it belongs to another program or to an incompatible newer drakit, when its tables are not those
of its version, or when a row cannot be decoded or does not have its digest. A file that cannot be accessed (disk full, read-only, no permission) is
not unreadable: that is an error.

A file can be intact and behind. SQLite ignores a write-ahead log that is missing, and the part of one after a damaged frame; and an older copy is as
intact as the file that it replaces. Three things show it: the mark of the last change (``marks``), which is outside the file; CDI files of this boot
of claims that the file does not have, because a claim is journaled before its first CDI file is written and leaves its files before the journal; and
the sum of digests, where a part of the file is older than another.
"""

import contextlib
import dataclasses
import pathlib
import sqlite3
from collections.abc import Callable, Collection, Sequence

from drakit.core import names
from drakit.journal import codec, digests, driver_state, files, marks, quarantine, schema, sqlite, store

BOOT = "boot_id"
DRIVER = "driver"
DRIVER_DIGEST = "driver_digest"
"""The keys in ``meta`` of the last boot, and of the driver with a digest of its name: a changed bit is not another driver."""


_WITH_FILES = "it is missing, but CDI files of prepared claims exist"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the node knows of a journal besides its file: the claims with CDI files, and the mark of the last change.

    ``checks_new``: a new journal counts as unverified, because the API server may have claims of this node.
    """

    claims: Callable[[], frozenset[names.ClaimUid]]
    mark: marks.Mark
    checks_new: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Damage:
    """The reason why a file cannot be used as it is, and its decodable rows."""

    reason: str
    readable: tuple[store.Rows, ...] = ()
    lost: tuple[names.ClaimUid, ...] = ()
    salvage: driver_state.Salvage = dataclasses.field(default_factory=driver_state.Salvage)
    is_served: bool = False


def examine(
    path: pathlib.Path, migrations: Sequence[schema.Migration] = schema.MIGRATIONS, last_change: int | None = None
) -> Damage | None:
    """Return the damage of a file, None for a usable one. ``last_change`` is the number of the mark, None if it is unknown.

    Raises sqlite3.Error if the file cannot be accessed.
    """
    database, damage = connect(path, last_change)
    if database is None:
        return damage
    with contextlib.closing(database):
        return examine_content(database, path, migrations, last_change)


def connect(path: pathlib.Path, last_change: int | None) -> tuple[sqlite3.Connection | None, Damage | None]:
    """Return a connection to examine a file; None where it is missing or was emptied, and then the damage if it was lost. Raises sqlite3.Error."""
    if (reason := _missing(path, last_change)) or not path.exists():
        return None, Damage(reason=reason) if reason else None
    return sqlite.connect_examiner(path), None


def examine_content(
    database: sqlite3.Connection, path: pathlib.Path, migrations: Sequence[schema.Migration], last_change: int | None
) -> Damage | None:
    """Return the damage of a connected file, as ``examine`` does."""
    try:
        if reason := schema.incompatibility(database, migrations) or schema.difference(database, migrations):
            return Damage(reason=reason)
        reason = _unwritable(path, database)
        # Another process may write meanwhile.
        with sqlite.snapshot(database):
            failed = _failed_check(database)
            return _decode(database, failed or reason or _behind(database, last_change), is_suspect=bool(failed))
    except sqlite.FAILURES as error:
        if not sqlite.is_damage(error):
            raise
        return Damage(reason=str(error))


def unknown_files(database: sqlite3.Connection | None, evidence: Evidence, boot_id: str) -> Damage | None:
    """Return the damage of a usable file without claims that have CDI files in this boot. No other process has the file open."""
    # A claim is journaled before its first file is written, so the files are listed first.
    with_files = evidence.claims()
    if not with_files:
        return None
    if database is None or not schema.has_tables(database):
        return Damage(reason=_WITH_FILES)
    if schema.meta(database, BOOT) != boot_id or schema.meta(database, quarantine.KEY) is not None:
        return None
    unknown = sorted(with_files.difference(store.uids(database)))
    return _decode(database, f"it lacks claims that have CDI files: {', '.join(unknown)}") if unknown else None


def missing(path: pathlib.Path, last_change: int | None, with_files: Collection[names.ClaimUid]) -> str:
    """Return why a file that does not exist was lost; empty for one that never existed. ``with_files`` are the claims with CDI files."""
    if path.exists():
        return ""
    return _missing(path, last_change) or (_WITH_FILES if with_files else "")


def _missing(path: pathlib.Path, last_change: int | None) -> str:
    """Return why a missing or empty file is damage; empty for a new one, and for a file with content.

    A lost file left a write-ahead log or a mark, or was set aside. SQLite deletes the write-ahead log of an empty file.
    """
    wal = files.with_suffix(path, files.SIDE_FILES[0])
    if path.exists() and path.stat().st_size:
        return ""
    if path.exists():
        state = "empty"
        has_log = wal.exists() and wal.stat().st_size > 0
    else:
        state = "missing"
        has_log = any(files.with_suffix(path, suffix).exists() for suffix in files.SIDE_FILES)
    if has_log:
        return f"the database is {state} beside its write-ahead log"
    if state == "missing" and files.last_aside_path(path) is not None:
        return "the database is missing beside one that was set aside"
    return f"it is {state}, but had {last_change} changes in this boot" if last_change else ""


def _unwritable(path: pathlib.Path, database: sqlite3.Connection) -> str:
    """Return why SQLite cannot write to a file that could be written to; empty if it can. Raises sqlite3.Error if the file cannot be accessed."""
    try:
        sqlite.check_writable(database)
    except sqlite3.Error as error:
        if not sqlite.is_format_read_only(path, error):
            raise
        return "its header names a format that SQLite can only read"
    return ""


def _behind(database: sqlite3.Connection, last_change: int | None) -> str:
    """Return why a file does not have every change; empty if it has."""
    changes = schema.changes(database)
    if last_change is not None and last_change > changes:
        return f"it lacks the last {last_change - changes} changes: its write-ahead log is missing or damaged, or it is an older copy"
    return ""


def _failed_check(database: sqlite3.Connection) -> str:
    result = str(database.execute("PRAGMA integrity_check(1)").fetchone()[0])
    return "" if result == "ok" else result


def _decode(database: sqlite3.Connection, reason: str, *, is_suspect: bool = False) -> Damage | None:
    """Return None when there is no reason and every row can be decoded, else the damage with the decodable rows."""
    if not schema.has_tables(database):
        return None
    reading = _Reading(reason, is_suspect=is_suspect)
    salvage = driver_state.Salvage()
    try:
        reading.read(database)
        salvage = driver_state.salvage(database)
    except sqlite.FAILURES as error:
        if not sqlite.is_damage(error):
            raise
        reading.reason = reading.reason or str(error)
    reason = reading.reason or salvage.reason
    if not reason:
        return None
    readable = tuple(reading.readable.values())
    return Damage(reason=reason, readable=readable, lost=tuple(reading.lost), salvage=salvage, is_served=reading.is_served)


class _Reading:
    """The claims of a file, as far as they can be read. Those of a ``is_suspect`` file count only with digests that they have."""

    def __init__(self, reason: str, *, is_suspect: bool) -> None:
        self.reason = reason
        self.readable: dict[str, store.Rows] = {}
        self.lost: list[names.ClaimUid] = []
        self._is_suspect = is_suspect
        self.is_served = False

    def read(self, database: sqlite3.Connection) -> None:
        """Read all claims. Raises sqlite3.Error, and then keep those that were read before."""
        self._read_meta(database)
        violation = database.execute("PRAGMA foreign_key_check").fetchone()
        self._blame(f"a row of {violation[0]} has no claim" if violation else "")
        stored = store.digests_of(database) if schema.has_progress(database) else {}
        if stored and sum(map(sum, stored.values())) != store.digest_sum(database):
            self._blame("its parts are of different age")
        for claim, grants in store.all_rows(database):
            known = stored.get(claim.uid, (digests.UNKNOWN, digests.UNKNOWN))
            try:
                digests.check_claim(known, claim, grants)
                codec.entry(claim, grants)
            except codec.UnreadableError as error:
                self._blame(str(error))
                self.lost += [names.ClaimUid(claim.uid)] if names.is_uid(str(claim.uid)) else []
                continue
            if not self._is_suspect or all(known):
                self.readable.setdefault(claim.uid, (claim, grants))

    def _read_meta(self, database: sqlite3.Connection) -> None:
        try:
            for key, text in database.execute("SELECT key, value FROM meta"):
                digests.check_text("meta", key, text)
            self.is_served = quarantine.served(database) is True
            former = quarantine.read(database)
            self.lost += former.lost if former is not None else ()
        except codec.UnreadableError as error:
            self._blame(str(error))
        owner, digest = schema.meta(database, DRIVER), schema.meta(database, DRIVER_DIGEST)
        if owner is not None and digest is not None and digest != digests.of_name(owner):
            self._blame("its driver's name was changed")

    def _blame(self, reason: str) -> None:
        self.reason = self.reason or reason
