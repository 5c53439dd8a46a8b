"""The SQL of the driver's own state: records of prepared grants, and taints of devices.

The records are in the table ``notes``. Each belongs to one grant and is deleted with its claim; the foreign key cascades, so that holds for older
versions too. A taint belongs to one boot. Functions that change rows work inside the caller's transaction. Functions raise sqlite3.Error.
"""

import dataclasses
import datetime
import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from drakit.core import device as devices
from drakit.core import errors, lifecycle, names, records
from drakit.journal import codec, digests, schema

GrantKey = tuple[str, str, str, str]

_POSITION = "SELECT c.seq, g.position, c.state FROM claims AS c JOIN grants AS g ON g.claim = c.seq"
_SELECT_POSITION = f"{_POSITION} WHERE c.uid = ? AND g.request = ? AND g.pool = ? AND g.device = ? AND g.share_id = ?"
_SELECT_RECORDS = "SELECT c.uid, n.position, n.key, n.record, {} FROM notes AS n JOIN claims AS c ON c.seq = n.claim"
_SET_RECORD = "INSERT OR REPLACE INTO notes (claim, position, key, record, digest) VALUES (?, ?, ?, ?, ?)"
_SET_TAINT = """
INSERT INTO taints (device, key, effect, value, time_added, boot_id) VALUES (:device, :key, :effect, :value, :time_added, :boot_id)
ON CONFLICT (device, key, effect) DO UPDATE SET
  time_added = CASE WHEN :keep AND value = excluded.value AND boot_id = excluded.boot_id THEN time_added ELSE excluded.time_added END,
  value = excluded.value, boot_id = excluded.boot_id"""


class RecordRow(NamedTuple):
    """A record with the claim and the position of its grant."""

    uid: str
    position: int
    key: str
    record: str


class TaintRow(NamedTuple):
    """The columns of ``taints``."""

    device: str
    key: str
    effect: str
    value: str
    time_added: str
    boot_id: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Salvage:
    """The decodable records and taints of an unreadable file; ``reason`` is empty when all of them are decodable."""

    records: tuple[RecordRow, ...] = ()
    taints: tuple[TaintRow, ...] = ()
    reason: str = ""


def read(database: sqlite3.Connection, uid: names.ClaimUid, grant: GrantKey) -> Mapping[str, records.Record]:
    """Return the state of one grant by key. Raises UnreadableError."""
    row = database.execute(_SELECT_POSITION, (uid, *grant)).fetchone()
    if row is None:
        return {}
    rows = database.execute("SELECT key, record FROM notes WHERE claim = ? AND position = ? ORDER BY key", row[:2])
    return {key: codec.record(text, f"claim {uid}: notes[{key}]") for key, text in rows}


def write(database: sqlite3.Connection, uid: names.ClaimUid, grant: GrantKey, key: str, text: str | None) -> None:
    """Store a record of a prepared grant, or delete it if ``text`` is None. Raises ClaimError when the grant is not prepared."""
    row = database.execute(_SELECT_POSITION, (uid, *grant)).fetchone()
    if row is None or row[2] != lifecycle.State.PREPARED.value:
        raise errors.ClaimError(
            errors.ClaimFault.NOT_FOUND, f"claim {uid} has no prepared grant of {grant[2]}, so its state cannot be stored"
        )
    seq, position, _ = row
    if text is None:
        database.execute("DELETE FROM notes WHERE claim = ? AND position = ? AND key = ?", (seq, position, key))
    else:
        database.execute(_SET_RECORD, (seq, position, key, text, digests.of_state(position, key, text)))


def taints(database: sqlite3.Connection, boot_id: str) -> Mapping[str, tuple[devices.Taint, ...]]:
    """Return the taints of a boot by device, in order of key. Raises UnreadableError."""
    by_device: dict[str, list[devices.Taint]] = {}
    for row in database.execute("SELECT * FROM taints WHERE boot_id = ? ORDER BY device, key, effect", (boot_id,)):
        by_device.setdefault(row[0], []).append(_taint(TaintRow(*row)))
    return {name: tuple(device_taints) for name, device_taints in by_device.items()}


def set_taint(database: sqlite3.Connection, device: str, taint: devices.Taint, boot_id: str, *, since: datetime.datetime) -> None:
    """Add or replace a taint. A taint that equals the stored one keeps its time; a new one without a time gets ``since``."""
    added = taint.time_added or since
    row = TaintRow(device, taint.key, taint.effect.value, taint.value, added.isoformat(), boot_id)
    database.execute(_SET_TAINT, {**row._asdict(), "keep": taint.time_added is None})


def remove_taints(database: sqlite3.Connection, device: str, key: str) -> None:
    """Remove the taints of a key with any effect."""
    database.execute("DELETE FROM taints WHERE device = ? AND key = ?", (device, key))


def remove_other_boots(database: sqlite3.Connection, boot_id: str) -> None:
    """Remove the taints of earlier boots."""
    database.execute("DELETE FROM taints WHERE boot_id <> ?", (boot_id,))


def salvage(database: sqlite3.Connection) -> Salvage:
    """Return the decodable records and taints of a file of any version."""
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"notes", "taints"} <= tables:
        return Salvage()
    reason, record_rows, taint_rows = "", [], []
    digest = "n.digest" if schema.has_progress(database) else "0"
    for *row, stored in database.execute(_SELECT_RECORDS.format(digest)):
        try:
            digests.check_state(stored, row[1], row[2], row[3], f"claim {row[0]}: notes[{row[2]}]")
            codec.record(row[3], f"claim {row[0]}: notes[{row[2]}]")
            record_rows.append(RecordRow(*row))
        except codec.UnreadableError as error:
            reason = str(error)
    for row in database.execute("SELECT device, key, effect, value, time_added, boot_id FROM taints"):
        try:
            digests.check_text(f"taints[{row[0]}]", *row)
            _taint(TaintRow(*row))
            taint_rows.append(TaintRow(*row))
        except codec.UnreadableError as error:
            reason = str(error)
    return Salvage(records=tuple(record_rows), taints=tuple(taint_rows), reason=reason)


def restore(database: sqlite3.Connection, saved: Salvage) -> None:
    """Insert salvaged records and taints into a new file, without the records of absent claims."""
    for record in saved.records:
        row = database.execute("SELECT seq FROM claims WHERE uid = ?", (record.uid,)).fetchone()
        if row is not None:
            database.execute(_SET_RECORD, (row[0], *record[1:], digests.of_state(*record[1:])))
    database.executemany("INSERT INTO taints (device, key, effect, value, time_added, boot_id) VALUES (?, ?, ?, ?, ?, ?)", saved.taints)


def _taint(row: TaintRow) -> devices.Taint:
    try:
        added = datetime.datetime.fromisoformat(row.time_added)
        return devices.Taint(key=row.key, value=row.value, effect=devices.TaintEffect(row.effect), time_added=added)
    except (ValueError, errors.InventoryError) as error:
        raise codec.UnreadableError(f"taints[{row.device}].{row.key}: {error}") from error
