"""The SQL of claims and grants: typed rows.

Each statement is O(1) in the number of claims, except those that read all of them. Functions that change rows work inside the caller's transaction.
Those that change digests return the difference of their sum, which the caller counts with the change (``sqlite.count_change``). Those that move a
claim check the move against ``lifecycle.TABLE`` there, so two processes cannot make conflicting moves. Functions raise IllegalMoveError,
ClaimError and sqlite3.Error.
"""

import itertools
import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from drakit.core import lifecycle, names
from drakit.journal import codec, digests, schema

Rows = tuple[codec.ClaimRow, tuple[codec.GrantRow, ...]]

_COLUMNS = """
SELECT c.uid, c.namespace, c.name, c.state, c.boot_id,
       g.position, g.request, g.pool, g.device, g.share_id, g.admin_access,
       g.snapshot, g.consumed, g.parameters, g.config_source, g.intent, g.record, g.edits"""
_SELECT = f"{_COLUMNS} FROM claims AS c LEFT JOIN grants AS g ON g.claim = c.seq"
_SELECT_ONE = f"{_SELECT} WHERE c.uid = ? ORDER BY g.position"
_SELECT_HELD_DEVICES = """
SELECT c.uid, c.namespace, c.name, g.position, g.pool, g.device, g.snapshot FROM claims AS c JOIN grants AS g ON g.claim = c.seq
WHERE c.boot_id = ? AND NOT g.admin_access ORDER BY c.seq, g.position"""
_SELECT_ALL = f"{_SELECT} ORDER BY c.seq, g.position"
# Edits are most of a row: a claim for a GPU has dozens of mounts.
_SELECT_ALL_WITHOUT_EDITS = _SELECT_ALL.replace("g.edits", "NULL")
# Three index seeks for each device, however many shares it has: exclusive grants, grants of these shares, and any one share without admin access,
# because admin access never blocks. SQLite keeps the order of tables around CROSS JOIN; claims first would scan every claim. A row may be returned
# twice, which is cheaper than UNION.
_SELECT_HOLDERS = f"""{_COLUMNS}
FROM (
  SELECT g.rowid AS id FROM json_each(:devices) AS d
    CROSS JOIN grants AS g ON g.pool = :pool AND g.device = d.value AND g.share_id = ''
  UNION ALL SELECT g.rowid FROM json_each(:devices) AS d CROSS JOIN json_each(:shares) AS s
    CROSS JOIN grants AS g ON g.pool = :pool AND g.device = d.value AND g.share_id = s.value
  UNION ALL SELECT (
    SELECT rowid FROM grants WHERE pool = :pool AND device = d.value AND share_id > '' AND NOT admin_access ORDER BY share_id LIMIT 1
  ) FROM json_each(:devices) AS d
) AS h CROSS JOIN grants AS g ON g.rowid = h.id CROSS JOIN claims AS c ON c.seq = g.claim
ORDER BY c.seq, g.position"""  # noqa: S608 - put together from constants
# CROSS JOIN makes SQLite read grants first, by their index: a device may have few grants among many claims.
_SELECT_INTENTS_OF = """
SELECT c.uid, g.position, g.intent FROM json_each(:devices) AS d
CROSS JOIN grants AS g ON g.pool = :pool AND g.device = d.value CROSS JOIN claims AS c ON c.seq = g.claim
ORDER BY c.seq, g.position"""
# The index has the names in order. Each step seeks the next one, so that the shares of a device are not read.
_NEXT_DEVICE = "SELECT device FROM grants WHERE pool = ? AND device > ? ORDER BY device LIMIT 1"
_INSERT_CLAIM = "INSERT INTO claims (uid, namespace, name, state, boot_id, begun_digest, prepared_digest) VALUES (?, ?, ?, ?, ?, ?, ?)"
_INSERT_GRANT = """
INSERT INTO grants (claim, position, request, pool, device, share_id, admin_access,
                    snapshot, consumed, parameters, config_source, intent, record, edits)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_COMPLETE = "UPDATE claims SET state = ?, boot_id = ?, prepared_digest = ? WHERE seq = ?"
_CLAIM_COLUMNS = len(codec.ClaimRow._fields)


def claim_rows(connection: sqlite3.Connection, uid: names.ClaimUid) -> Rows | None:
    """Return the rows of one claim, None if it is absent."""
    return next(_grouped(connection.execute(_SELECT_ONE, (uid,))), None)


def all_rows(connection: sqlite3.Connection, *, edits: bool = True) -> Iterator[Rows]:
    """Yield the rows of every claim, oldest first; without ``edits`` those are None."""
    return _grouped(connection.execute(_SELECT_ALL if edits else _SELECT_ALL_WITHOUT_EDITS))


def held_devices(connection: sqlite3.Connection, boot_id: str) -> Iterator[tuple[str, str, str, int, str, str, str]]:
    """Yield claim (UID, namespace, name), position, pool, device and snapshot of each grant of a boot without admin access, oldest claim first."""
    return connection.execute(_SELECT_HELD_DEVICES, (boot_id,))


def digests_of(connection: sqlite3.Connection) -> Mapping[str, tuple[int, int]]:
    """Return the stored digests of every claim by UID; 0 where one is unknown."""
    rows = connection.execute("SELECT uid, begun_digest, prepared_digest FROM claims")
    return {uid: (schema.integer(begun), schema.integer(prepared)) for uid, begun, prepared in rows}


def digest_sum(connection: sqlite3.Connection) -> int:
    """Return the stored sum of all digests."""
    return schema.integer(*connection.execute("SELECT digest FROM progress").fetchone() or (None,))


def uids(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the UIDs of all claims."""
    return frozenset(str(uid) for (uid,) in connection.execute("SELECT uid FROM claims"))


def add_digests(connection: sqlite3.Connection) -> None:
    """Compute unknown digests: those of rows that a previous version wrote, and their sum. Inside the caller's transaction."""
    unknown = connection.execute("SELECT uid FROM claims WHERE begun_digest = 0 OR prepared_digest = 0").fetchall()
    for (uid,) in unknown:
        if (rows := claim_rows(connection, uid)) is not None:
            connection.execute("UPDATE claims SET begun_digest = ?, prepared_digest = ? WHERE uid = ?", (*digests.of_claim(*rows), uid))
    if unknown:
        connection.execute("UPDATE progress SET digest = (SELECT sum(begun_digest + prepared_digest) FROM claims)")


def intents(connection: sqlite3.Connection, claim: names.ClaimUid | None = None) -> Iterator[tuple[str, int, str]]:
    """Yield claim, position and intent of every grant, or of one claim's grants, oldest claim first."""
    if claim is not None:
        return connection.execute(
            "SELECT uid, position, intent FROM claims JOIN grants ON claim = seq WHERE uid = ? ORDER BY position", (claim,)
        )
    return connection.execute("SELECT uid, position, intent FROM claims JOIN grants ON claim = seq ORDER BY seq, position")


def device_names(connection: sqlite3.Connection, pool: str) -> Sequence[str]:
    """Return the names of all devices with a grant, sorted."""
    listed: list[str] = []
    while row := connection.execute(_NEXT_DEVICE, (pool, listed[-1] if listed else "")).fetchone():
        listed.append(row[0])
    return listed


def intents_of(connection: sqlite3.Connection, pool: str, devices: Collection[str]) -> Iterator[tuple[str, int, str]]:
    """Yield claim, position and intent of every grant of these devices, oldest claim first."""
    return connection.execute(_SELECT_INTENTS_OF, {"pool": pool, "devices": json.dumps(sorted(devices))})


def counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of claims in each state."""
    return dict(connection.execute("SELECT state, COUNT(*) FROM claims GROUP BY state"))


def holders(
    connection: sqlite3.Connection, pool: str, devices: Collection[str], shares: Collection[str]
) -> Iterator[tuple[codec.ClaimRow, codec.GrantRow]]:
    """Yield grants of these devices with their claims, oldest claim first: exclusive ones, those of these shares, and one share of each device."""
    parameters = {"pool": pool, "devices": json.dumps(sorted(devices)), "shares": json.dumps(sorted(shares))}
    for row in dict.fromkeys(connection.execute(_SELECT_HOLDERS, parameters)):
        yield codec.ClaimRow(*row[:_CLAIM_COLUMNS]), codec.GrantRow(*row[_CLAIM_COLUMNS:])


def insert(connection: sqlite3.Connection, claim: codec.ClaimRow, grants: Sequence[codec.GrantRow]) -> int:
    """Insert a claim and its grants."""
    begun, prepared = digests.of_claim(claim, grants)
    seq = connection.execute(_INSERT_CLAIM, (*claim, begun, prepared)).lastrowid
    connection.executemany(_INSERT_GRANT, [(seq, *grant) for grant in grants])
    return begun + prepared


def begin(connection: sqlite3.Connection, claim: codec.ClaimRow, grants: Sequence[codec.GrantRow]) -> int:
    """Insert an absent claim as preparing."""
    moving = _check_move(connection, names.ClaimUid(claim.uid), lifecycle.Move.BEGIN)
    return insert(connection, claim._replace(state=moving.after.value), grants)


def complete(connection: sqlite3.Connection, uid: names.ClaimUid, grants: Sequence[codec.PreparedRow], boot_id: str) -> int:
    """Move a preparing claim to prepared, and update each grant's record and edits."""
    moving = _check_move(connection, uid, lifecycle.Move.COMPLETE)
    digest = digests.of_prepared(boot_id, _update_grants(connection, uid, moving.seq, grants))
    connection.execute(_COMPLETE, (moving.after.value, boot_id, digest, moving.seq))
    return digest - moving.prepared_digest


def refresh(connection: sqlite3.Connection, uid: names.ClaimUid, grants: Sequence[codec.PreparedRow]) -> int:
    """Update each grant's record and edits of a preparing or prepared claim, without a change of state."""
    moving = _check_move(connection, uid, lifecycle.Move.REFRESH)
    digest = digests.of_prepared(moving.boot_id, _update_grants(connection, uid, moving.seq, grants))
    connection.execute("UPDATE claims SET prepared_digest = ? WHERE seq = ?", (digest, moving.seq))
    return digest - moving.prepared_digest


def _update_grants(
    connection: sqlite3.Connection, uid: names.ClaimUid, seq: int, grants: Sequence[codec.PreparedRow]
) -> Sequence[digests.Prepared]:
    """Update record and edits of the grants that the claim was begun with, and return them. Raises IllegalMoveError for any other grants."""
    begun = connection.execute("SELECT position, request, pool, device, share_id FROM grants WHERE claim = ?", (seq,))
    positions = {tuple(key): position for position, *key in begun}
    by_key = {(row.request, row.pool, row.device, row.share_id): row for row in grants}
    if len(by_key) != len(grants) or by_key.keys() != positions.keys():
        raise lifecycle.IllegalMoveError(f"claim {uid} cannot complete with other grants than it began with")
    prepared = [(positions[key], row.record, row.edits) for key, row in by_key.items()]
    connection.executemany(
        "UPDATE grants SET record = ?, edits = ?, writes = writes + 1 WHERE claim = ? AND position = ?",
        [(record, edits, seq, position) for position, record, edits in prepared],
    )
    return prepared


def begin_unprepare(connection: sqlite3.Connection, uid: names.ClaimUid) -> None:
    """Move a preparing, prepared or unpreparing claim to unpreparing."""
    moving = _check_move(connection, uid, lifecycle.Move.BEGIN_UNPREPARE)
    connection.execute("UPDATE claims SET state = ? WHERE seq = ?", (moving.after.value, moving.seq))


def finish_unprepare(connection: sqlite3.Connection, uid: names.ClaimUid) -> None:
    """Delete an unpreparing claim. A trigger keeps the sum of digests."""
    seq = _check_move(connection, uid, lifecycle.Move.FINISH_UNPREPARE).seq
    connection.execute("DELETE FROM grants WHERE claim = ?", (seq,))
    connection.execute("DELETE FROM claims WHERE seq = ?", (seq,))


def forget(connection: sqlite3.Connection, uid: names.ClaimUid, state: lifecycle.State | None = None) -> None:
    """Delete a claim if it is there, and in this state where one is given. A trigger keeps the sum of digests."""
    row = connection.execute("SELECT seq, state FROM claims WHERE uid = ?", (uid,)).fetchone()
    if row is None or (state is not None and row[1] != state.value):
        return
    connection.execute("DELETE FROM grants WHERE claim = ?", row[:1])
    connection.execute("DELETE FROM claims WHERE seq = ?", row[:1])


class _Moving(NamedTuple):
    """A claim that a move is legal for: its row number (0 when absent), its state after the move, and columns of its row."""

    seq: int
    after: lifecycle.State
    boot_id: str
    prepared_digest: int


def _check_move(connection: sqlite3.Connection, uid: names.ClaimUid, move: lifecycle.Move) -> _Moving:
    """Return the claim with its state after the move. Raises IllegalMoveError."""
    row = connection.execute("SELECT seq, state, boot_id, prepared_digest FROM claims WHERE uid = ?", (uid,)).fetchone()
    if row is None:
        return _Moving(0, lifecycle.after(lifecycle.State.ABSENT, move), "", digests.UNKNOWN)
    seq, state, boot_id, digest = row
    return _Moving(seq, lifecycle.after(codec.choice(lifecycle.State, state, f"claim {uid}: state"), move), boot_id, digest)


def _grouped(cursor: Iterable[tuple[Any, ...]]) -> Iterator[Rows]:
    for claim, joined in itertools.groupby(cursor, lambda row: row[:_CLAIM_COLUMNS]):
        grants = [row[_CLAIM_COLUMNS:] for row in joined]
        yield codec.ClaimRow(*claim), tuple(codec.GrantRow(*grant) for grant in grants if grant[0] is not None)
