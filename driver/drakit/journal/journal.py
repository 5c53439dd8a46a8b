"""The journal: core.ports.Journal on SQLite.

A method that returns has made its change: it outlives the process, killed in whatever way, and where hardware depends on it (``begin``,
``finish_unprepare``, notes, taints) a power cut too (see ``relax``). One that raises has changed nothing. Commits reach the disk in order:
with any of them, all before it. Reads see every change that returned before, of any process. Any number of threads and processes may use
one data directory; one process writes through one connection (``sqlite.Writer``).
"""

import collections
import contextlib
import datetime
import pathlib
import sqlite3
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Self

from drakit.core import device as hardware
from drakit.core import errors, lifecycle, names, records
from drakit.journal import codec, opening, sqlite, store
from drakit.journal import store as notebook

Quarantine = opening.Quarantine
_POOL = "pool"


class Journal:
    """Crash-safe memory of claims. Made by ``open``; closed by ``close`` or by leaving a ``with`` block.

    ``quarantine`` says that an unreadable file was set aside, at this opening or at an earlier one after which nobody called ``rebuilt``.
    ``last_boot_id`` is the boot in which the journal was opened before, empty for a new one.
    """

    def __init__(self, opened: opening.Opened) -> None:
        self.path = opened.path
        self.quarantine = opened.quarantine
        self.boot_id = opened.boot_id
        self.last_boot_id = opened.last_boot_id
        self._use = opened.use
        self._writer = sqlite.Writer(opened.path)
        self._idle: collections.deque[sqlite3.Connection] = collections.deque()
        self._closed = False

    @classmethod
    def open(cls, directory: pathlib.Path, *, driver: str, boot_id: str, traces: opening.Traces = opening.no_traces) -> Self:
        """Open the journal of a data directory, making both where missing; raises JournalError, and what ``traces`` raises.

        ``traces`` says whether claims were prepared here; a journal that is missing then was lost, which is a quarantine too.
        """
        try:
            return cls(opening.open_file(directory, driver=driver, boot_id=boot_id, traces=traces))
        except codec.UnreadableError as error:
            raise errors.JournalError(f"{directory}: {error}; delete that row with sqlite3") from error

    def close(self) -> None:
        """End the writer and close every connection; twice is fine."""
        self._closed = True
        self._writer.close()
        self._close_idle()
        self._use.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        self.close()

    def entry(self, uid: names.ClaimUid) -> lifecycle.Entry | None:
        """The claim's entry, or None when it is absent; raises JournalError."""
        with self._reading() as database:
            found = store.of_claim(database, uid)
            return None if found is None else codec.entry(*found)

    def entries(self) -> Sequence[lifecycle.Entry]:
        """All entries, oldest first, as of one moment; raises JournalError."""
        with self._reading() as database:
            return tuple(codec.entry(claim, grants) for claim, grants in store.all_rows(database))

    def intents(self, claim: names.ClaimUid | None = None) -> Sequence[records.Record]:
        """The intents of one claim's grants, or of all, oldest claim first, without reading anything else of them; raises JournalError."""
        with self._reading() as database:
            return tuple(codec.intent(*row) for row in store.intents(database, claim))

    def counts(self) -> dict[lifecycle.State, int]:
        """How many claims are in each state; raises JournalError."""
        with self._reading() as database:
            return {lifecycle.State(state): count for state, count in store.counts(database).items()}

    def holdings(self, pool: str, devices: Collection[str], shares: Collection[str] = ()) -> Sequence[lifecycle.Holding]:
        """What claims hold of these devices, oldest first: alone, by one of these shares, and one share of each device; raises JournalError."""
        with self._reading() as database:
            return tuple(codec.holding(*row) for row in store.holders(database, pool, devices, shares))

    def intents_of(self, pool: str, device: str) -> Sequence[records.Record]:
        """The intents of a device's grants, oldest claim first, without a look at any other grant; raises JournalError."""
        with self._reading() as database:
            return tuple(codec.intent(*row) for row in store.intents_of(database, pool, device))

    def begin(self, entry: lifecycle.Entry) -> None:
        """absent -> preparing. Raises IllegalMoveError, ClaimError for a claim that names one grant twice, JournalError."""
        _check_grants(entry.grants)
        claim = codec.claim_row(entry)
        grants = [codec.grant_row(position, grant) for position, grant in enumerate(entry.grants)]
        self._commit(lambda database: store.begin(database, claim, grants))

    def complete(self, uid: names.ClaimUid, grants: Sequence[lifecycle.GrantEntry], boot_id: str) -> None:
        """preparing -> prepared: store the boot and each grant's record and edits; all else stays as it was begun.

        Raises IllegalMoveError, also when the grants are not those begun, and JournalError.
        """
        done = [codec.done_row(grant) for grant in grants]
        self._commit(lambda database: store.complete(database, uid, done, boot_id), synced=False)

    def refresh(self, uid: names.ClaimUid, grants: Sequence[lifecycle.GrantEntry]) -> None:
        """Store each grant's record and edits anew; the state and all else stay, notes too. Raises as ``complete``."""
        done = [codec.done_row(grant) for grant in grants]
        self._commit(lambda database: store.refresh(database, uid, done), synced=False)

    def begin_unprepare(self, uid: names.ClaimUid) -> None:
        """preparing, prepared or unpreparing -> unpreparing. Raises IllegalMoveError, JournalError."""
        self._commit(lambda database: store.begin_unprepare(database, uid), synced=False)

    def finish_unprepare(self, uid: names.ClaimUid) -> None:
        """unpreparing -> absent. Raises IllegalMoveError, JournalError."""
        self._commit(lambda database: store.finish_unprepare(database, uid))

    def notes(self, uid: names.ClaimUid, grant: notebook.GrantKey) -> Mapping[str, records.Record]:
        """The notes of a grant by key, empty when there are none; raises JournalError."""
        with self._reading() as database:
            return notebook.notes_of(database, uid, grant)

    def note(self, uid: names.ClaimUid, grant: notebook.GrantKey, key: str, record: records.Record | None) -> None:
        """Set a note of a prepared grant, None to remove it. Raises ClaimError when the grant is not prepared, JournalError."""
        text = None if record is None else codec.dump(records.thaw(record))
        self._commit(lambda database: notebook.set_note(database, uid, grant, key, text))

    def taints(self) -> Mapping[str, Sequence[hardware.Taint]]:
        """The taints of this boot by device; raises JournalError."""
        with self._reading() as database:
            return notebook.taints(database, self.boot_id)

    def taint(self, device: str, taint: hardware.Taint, *, since: datetime.datetime) -> None:
        """Add or replace a taint of a device. One that says the same as before keeps its time; ``since`` is that of a new one that names none."""
        self._commit(lambda database: notebook.set_taint(database, device, taint, self.boot_id, since=since))

    def untaint(self, device: str, key: str) -> None:
        """Remove the taints of a key from a device; none is success. Raises JournalError."""
        self._commit(lambda database: notebook.remove_taints(database, device, key))

    def pool(self) -> str:
        """Return the node's own pool that a driver served here last; empty where none has. Raises JournalError."""
        with self._reading() as database:
            return sqlite.value(database, _POOL) or ""

    def set_pool(self, pool: str) -> None:
        """Record the node's own pool that a driver serves here. Raises JournalError."""
        if pool != self.pool():
            self._commit(lambda database: sqlite.put(database, _POOL, pool))

    def relax(self) -> None:
        """Wait for the disk no more: what is committed outlives this process from now on, and of the kernel's end only what happens to be written.

        For hardware whose state ends with the kernel too. The file stays whole in any case.
        """
        self._writer.relax()

    def lost_claims(self) -> Collection[names.ClaimUid] | None:
        """Return the claims that an unreadable file named and that nobody restored or released since; None where no journal is lost.

        Reads the file: another process may have restored the claims since this one opened the journal. Raises JournalError.
        """
        with self._reading() as database:
            self.quarantine = opening.note(database)
        return None if self.quarantine is None else self.quarantine.lost

    def rebuilt(self) -> None:
        """Record that the claims of a lost journal are restored: the quarantine is not reported again. Raises JournalError."""
        self._commit(opening.clear_note)
        self.quarantine = None

    def released(self, uids: Collection[names.ClaimUid]) -> None:
        """Record that nothing is left of these claims: the note of the quarantine no longer names them. Raises JournalError."""

        def narrow(database: sqlite3.Connection) -> None:
            self.quarantine = opening.narrow_note(database, uids)

        self._commit(narrow)

    def _commit(self, change: sqlite.Change, *, synced: bool = True) -> None:
        try:
            self._writer.commit(change, synced=synced)
        except (sqlite3.Error, codec.UnreadableError) as error:
            raise self._refusal(error) from error

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that nobody else uses meanwhile; one that failed is not used again."""
        if self._closed:
            raise errors.JournalError(f"{self.path} is closed; open the journal again")
        try:
            try:
                database = self._idle.pop()
            except IndexError:
                database = sqlite.connect_reader(self.path)
            try:
                yield database
            except BaseException:
                database.close()
                raise
        except (sqlite3.Error, codec.UnreadableError) as error:
            raise self._refusal(error) from error
        self._take_back(database)

    def _take_back(self, database: sqlite3.Connection) -> None:
        """Keep a connection for the next reader; also called by a reader that outlived the closing."""
        self._idle.append(database)
        if self._closed:
            self._close_idle()

    def _close_idle(self) -> None:
        """Close the connections that nobody uses."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _refusal(self, error: sqlite3.Error | codec.UnreadableError) -> errors.JournalError:
        if isinstance(error, sqlite3.Error):
            return sqlite.refusal(self.path, error)
        return errors.JournalError(f"{self.path}: {error}; restart the driver: the file is then set aside and rebuilt")


def _check_grants(grants: Sequence[lifecycle.GrantEntry]) -> None:
    keys = [grant.key for grant in grants]
    for key in keys:
        if keys.count(key) > 1:
            request, pool, device, _ = key
            raise errors.ClaimError(
                errors.ClaimFault.MALFORMED,
                f"request {request} is given device {pool}/{device} twice",
                field="status.allocation.devices.results",
            )
