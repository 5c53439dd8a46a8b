"""The quarantine record of a journal, in its table ``meta``: claims may be missing from it, until they are restored."""

import dataclasses
import pathlib
import sqlite3
from collections.abc import Collection

from drakit.core import names
from drakit.journal import codec, schema


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


KEY = "quarantine"
_SERVED_KEY = "served"
"""Whether a driver that asks the API server for its claims has opened the journal: "1", or "0" where only commands have."""
NEW = "it is new"
UNMARKED = "the mark of its last change is missing"
DOUBTS = frozenset({NEW, UNMARKED})
"""The reasons of an unverified journal. Only the API server may know the claims of a new one."""
_CONVERTER = codec.FORMAT.converter(Quarantine)


def read(database: sqlite3.Connection) -> Quarantine | None:
    """Return the quarantine record, None if no claim is missing. Raises UnreadableError."""
    text = schema.meta(database, KEY)
    if text is None:
        return None
    quarantine: Quarantine = codec.read(_CONVERTER, text, f"meta.{KEY}")
    return quarantine


def write(database: sqlite3.Connection, quarantine: Quarantine) -> None:
    """Store the quarantine record. Inside the caller's transaction."""
    schema.set_meta(database, KEY, codec.dump(_CONVERTER.encode(quarantine)))


def release(database: sqlite3.Connection, released: Collection[names.ClaimUid]) -> Quarantine | None:
    """Remove released claims from the quarantine record, if there is one, and return it. Inside the caller's transaction."""
    before = read(database)
    if before is None:
        return None
    after = dataclasses.replace(before, lost=tuple(uid for uid in before.lost if uid not in released))
    write(database, after)
    return after


def served(database: sqlite3.Connection) -> bool | None:
    """Return whether a driver that asks the API server has opened the journal; None if an older version made it."""
    text = schema.meta(database, _SERVED_KEY)
    return None if text is None else text == "1"


def set_served(database: sqlite3.Connection, *, is_served: bool) -> None:
    """Record whether a driver that asks the API server has opened the journal. Inside the caller's transaction."""
    schema.set_meta(database, _SERVED_KEY, "1" if is_served else "0")


def clear(database: sqlite3.Connection) -> None:
    """Delete the quarantine record. Inside the caller's transaction."""
    database.execute("DELETE FROM meta WHERE key = ?", (KEY,))


def clear_by_hand(database: sqlite3.Connection) -> None:
    """Delete the quarantine record, unless a driver that asks the API server has opened the journal."""
    if served(database) is not True:
        clear(database)
