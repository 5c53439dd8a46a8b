"""The SQL of notes and taints, what drivers remember beside their claims; each statement is O(1) in the number of claims.

A note belongs to one grant and goes with its claim, also when a version that does not know notes forgets the claim (the foreign key cascades). A
taint belongs to one boot. Functions that change rows work inside the caller's transaction; they raise ClaimError, and sqlite3.Error.
"""

import dataclasses
import datetime
import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from drakit.core import device as devices
from drakit.core import errors, lifecycle, names, records
from drakit.journal import fields

GrantKey = tuple[str, str, str, str]

_POSITION = "SELECT c.seq, g.position, c.state FROM claims AS c JOIN grants AS g ON g.claim = c.seq"
_OF_GRANT = f"{_POSITION} WHERE c.uid = ? AND g.request = ? AND g.pool = ? AND g.device = ? AND g.share_id = ?"
_SET_TAINT = """
INSERT INTO taints (device, key, effect, value, time_added, boot_id) VALUES (:device, :key, :effect, :value, :time_added, :boot_id)
ON CONFLICT (device, key, effect) DO UPDATE SET
  time_added = CASE WHEN :keep AND value = excluded.value AND boot_id = excluded.boot_id THEN time_added ELSE excluded.time_added END,
  value = excluded.value, boot_id = excluded.boot_id"""


class NoteRow(NamedTuple):
    """One note with the claim and the position of its grant."""

    uid: str
    position: int
    key: str
    record: str


class TaintRow(NamedTuple):
    """Columns of ``taints``."""

    device: str
    key: str
    effect: str
    value: str
    time_added: str
    boot_id: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Salvage:
    """What can be read of an unusable file's notes and taints; ``reason`` is empty when that is all of them."""

    notes: tuple[NoteRow, ...] = ()
    taints: tuple[TaintRow, ...] = ()
    reason: str = ""


def of_grant(database: sqlite3.Connection, uid: names.ClaimUid, grant: GrantKey) -> Mapping[str, records.Record]:
    """The notes of one grant by key; raises UnreadableError."""
    found = database.execute(_OF_GRANT, (uid, *grant)).fetchone()
    if found is None:
        return {}
    rows = database.execute("SELECT key, record FROM notes WHERE claim = ? AND position = ? ORDER BY key", found[:2])
    return {key: fields.record(text, f"claim {uid}: notes[{key}]") for key, text in rows}


def put(database: sqlite3.Connection, uid: names.ClaimUid, grant: GrantKey, key: str, text: str | None) -> None:
    """Set a note of a prepared grant, None to remove it; raises ClaimError when the grant is not prepared."""
    found = database.execute(_OF_GRANT, (uid, *grant)).fetchone()
    if found is None or found[2] != lifecycle.State.PREPARED.value:
        raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, f"claim {uid} has no prepared grant of {grant[2]}; nothing can be noted of it")
    seq, position, _ = found
    if text is None:
        database.execute("DELETE FROM notes WHERE claim = ? AND position = ? AND key = ?", (seq, position, key))
    else:
        database.execute("INSERT OR REPLACE INTO notes (claim, position, key, record) VALUES (?, ?, ?, ?)", (seq, position, key, text))


def taints(database: sqlite3.Connection, boot_id: str) -> Mapping[str, tuple[devices.Taint, ...]]:
    """The taints of a boot by device, in order of key; raises UnreadableError."""
    found: dict[str, list[devices.Taint]] = {}
    for row in database.execute("SELECT * FROM taints WHERE boot_id = ? ORDER BY device, key, effect", (boot_id,)):
        found.setdefault(row[0], []).append(_taint(TaintRow(*row)))
    return {name: tuple(kept) for name, kept in found.items()}


def set_taint(database: sqlite3.Connection, device: str, taint: devices.Taint, boot_id: str, *, since: datetime.datetime) -> None:
    """Add or replace a taint. One that says the same as before keeps its time; ``since`` is that of a new one that names none."""
    added = taint.time_added or since
    row = TaintRow(device, taint.key, taint.effect.value, taint.value, added.isoformat(), boot_id)
    database.execute(_SET_TAINT, {**row._asdict(), "keep": taint.time_added is None})


def remove_taints(database: sqlite3.Connection, device: str, key: str) -> None:
    """Remove the taints of a key, whatever their effect."""
    database.execute("DELETE FROM taints WHERE device = ? AND key = ?", (device, key))


def forget_other_boots(database: sqlite3.Connection, boot_id: str) -> None:
    """Remove the taints of earlier boots."""
    database.execute("DELETE FROM taints WHERE boot_id <> ?", (boot_id,))


def salvage(database: sqlite3.Connection) -> Salvage:
    """What can be decoded of the notes and taints of a file of any version."""
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"notes", "taints"} <= tables:
        return Salvage()
    reason, kept, put_on = "", [], []
    for row in database.execute("SELECT c.uid, n.position, n.key, n.record FROM notes AS n JOIN claims AS c ON c.seq = n.claim"):
        try:
            fields.record(row[3], f"claim {row[0]}: notes[{row[2]}]")
            kept.append(NoteRow(*row))
        except fields.UnreadableError as error:
            reason = str(error)
    for row in database.execute("SELECT * FROM taints"):
        try:
            _taint(TaintRow(*row))
            put_on.append(TaintRow(*row))
        except fields.UnreadableError as error:
            reason = str(error)
    return Salvage(notes=tuple(kept), taints=tuple(put_on), reason=reason)


def restore(database: sqlite3.Connection, saved: Salvage) -> None:
    """Write into a new file what was salvaged; notes of claims that are not there are left out."""
    for note in saved.notes:
        row = database.execute("SELECT seq FROM claims WHERE uid = ?", (note.uid,)).fetchone()
        if row is not None:
            database.execute("INSERT INTO notes (claim, position, key, record) VALUES (?, ?, ?, ?)", (row[0], *note[1:]))
    database.executemany("INSERT INTO taints (device, key, effect, value, time_added, boot_id) VALUES (?, ?, ?, ?, ?, ?)", saved.taints)


def _taint(row: TaintRow) -> devices.Taint:
    try:
        added = datetime.datetime.fromisoformat(row.time_added)
        return devices.Taint(key=row.key, value=row.value, effect=devices.TaintEffect(row.effect), time_added=added)
    except (ValueError, errors.InventoryError) as error:
        raise fields.UnreadableError(f"taints[{row.device}].{row.key}: {error}") from error
