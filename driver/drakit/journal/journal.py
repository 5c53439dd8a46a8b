"""Implement core.ports.Journal on SQLite.

When a method returns, its change survives the death of the process. Changes on which hardware depends (``begin``, ``finish_unprepare``, the
driver's state, taints) also survive a power cut (see ``relax``). A method that raises has changed nothing. Commits reach the disk in order, each
with all before it. Reads see every change that returned before, of any process. Any number of threads and processes may use one data directory;
one process writes through one connection (``sqlite.Writer``).
"""

import collections
import contextlib
import datetime
import pathlib
import sqlite3
import threading
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Self

from drakit.core import device as hardware
from drakit.core import errors, lifecycle, names, records
from drakit.journal import codec, driver_state, examination, opening, quarantine, schema, sqlite, store

_POOL = "pool"


class Journal:
    """An open journal; ``open`` makes it, ``close`` or the end of a ``with`` block closes it.

    ``quarantine`` is the record of an unreadable file that was set aside, until ``rebuilt`` is called.
    ``last_boot_id`` is the boot in which the journal was opened before, empty for a new journal.
    """

    def __init__(self, opened: opening.Opened, evidence: examination.Evidence | None = None) -> None:
        self.path = opened.path
        self.quarantine = opened.quarantine
        self.boot_id = opened.boot_id
        self.last_boot_id = opened.last_boot_id
        self._use_lock = opened.use_lock
        self._writer = sqlite.Writer(opened.path, None if evidence is None else evidence.mark.write, opened.database)
        self._idle_readers: collections.deque[sqlite3.Connection] = collections.deque()
        self._closed = threading.Event()

    @classmethod
    def open(cls, directory: pathlib.Path, *, driver: str, boot_id: str, evidence: examination.Evidence | None = None) -> Self:
        """Open the journal of a data directory, and create both if they are missing. Raises JournalError, and the errors of ``evidence``.

        ``evidence`` is what shows that a journal is missing or behind, which is a quarantine too. A copy has none.
        """
        try:
            return cls(opening.open_file(directory, driver=driver, boot_id=boot_id, evidence=evidence), evidence)
        except codec.UnreadableError as error:
            raise errors.JournalError(f"{directory}: {error}; delete that row with sqlite3") from error

    def close(self) -> None:
        """Stop the writer and close every connection. Safe to call twice."""
        self._closed.set()
        self._writer.close()
        self._close_idle_readers()
        self._use_lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        self.close()

    def entry(self, uid: names.ClaimUid) -> lifecycle.Entry | None:
        """Return the claim's entry, None when it is absent. Raises JournalError."""
        with self._reader() as database:
            rows = store.claim_rows(database, uid)
            return None if rows is None else codec.entry(*rows)

    def entries(self, *, edits: bool = True) -> Sequence[lifecycle.Entry]:
        """Return a consistent snapshot of all entries, oldest first; without ``edits`` those are None. Raises JournalError."""
        with self._reader() as database:
            return tuple(codec.entry(claim, grants) for claim, grants in store.all_rows(database, edits=edits))

    def intents(self, claim: names.ClaimUid | None = None) -> Sequence[records.Record]:
        """Return the intents of all grants or of one claim's grants, oldest claim first. Raises JournalError."""
        with self._reader() as database:
            return tuple(codec.intent(*row) for row in store.intents(database, claim))

    def counts(self) -> dict[lifecycle.State, int]:
        """Return the number of claims in each state. Raises JournalError."""
        with self._reader() as database:
            return {lifecycle.State(state): count for state, count in store.counts(database).items()}

    def holdings(self, pool: str, devices: Collection[str], shares: Collection[str] = ()) -> Sequence[lifecycle.Holding]:
        """Return the holdings of these devices, oldest claim first. Raises JournalError.

        The result has exclusive grants, grants of these shares, and one share of each device.
        """
        with self._reader() as database:
            return tuple(codec.holding(*row) for row in store.holders(database, pool, devices, shares))

    def held_devices(self, boot_id: str) -> Sequence[lifecycle.HeldDevice]:
        """Return the device of each grant that was made in a boot, without admin access, oldest claim first. Raises JournalError."""
        with self._reader() as database:
            return tuple(codec.held_device(*row) for row in store.held_devices(database, boot_id))

    def device_names(self, pool: str) -> Sequence[str]:
        """Return the names of the devices that claims hold, sorted. Raises JournalError."""
        with self._reader() as database:
            return store.device_names(database, pool)

    def intents_of(self, pool: str, devices: Collection[str]) -> Sequence[records.Record]:
        """Return the intents of these devices' grants, oldest claim first. Raises JournalError."""
        with self._reader() as database:
            return tuple(codec.intent(*row) for row in store.intents_of(database, pool, devices))

    def begin(self, entry: lifecycle.Entry) -> None:
        """Insert an absent claim as preparing. Raises IllegalMoveError, JournalError."""
        claim = codec.claim_row(entry)
        grants = [codec.grant_row(position, grant) for position, grant in enumerate(entry.grants)]
        self._commit(lambda database: store.begin(database, claim, grants))

    def complete(self, uid: names.ClaimUid, grants: Sequence[lifecycle.GrantEntry], boot_id: str) -> None:
        """Move a preparing claim to prepared, and store the boot and each grant's record and edits.

        Raises IllegalMoveError, also for other grants than the claim was begun with, and JournalError.
        """
        rows = [codec.prepared_row(grant) for grant in grants]
        self._commit(lambda database: store.complete(database, uid, rows, boot_id), synced=False)

    def refresh(self, uid: names.ClaimUid, grants: Sequence[lifecycle.GrantEntry]) -> None:
        """Update each grant's record and edits, and nothing else. Raises as ``complete`` does."""
        rows = [codec.prepared_row(grant) for grant in grants]
        self._commit(lambda database: store.refresh(database, uid, rows), synced=False)

    def begin_unprepare(self, uid: names.ClaimUid) -> None:
        """Move a preparing, prepared or unpreparing claim to unpreparing. Raises IllegalMoveError, JournalError."""
        self._commit(lambda database: store.begin_unprepare(database, uid), synced=False)

    def finish_unprepare(self, uid: names.ClaimUid) -> None:
        """Delete an unpreparing claim. Raises IllegalMoveError, JournalError."""
        self._commit(lambda database: store.finish_unprepare(database, uid))

    def state(self, uid: names.ClaimUid, grant: driver_state.GrantKey) -> Mapping[str, records.Record]:
        """Return the driver's state of a grant by key. Raises JournalError."""
        with self._reader() as database:
            return driver_state.read(database, uid, grant)

    def set_state(self, uid: names.ClaimUid, grant: driver_state.GrantKey, key: str, record: records.Record | None) -> None:
        """Store a record of a prepared grant; None deletes it. Raises ClaimError when the grant is not prepared, JournalError."""
        text = None if record is None else codec.dump(record)
        self._commit(lambda database: driver_state.write(database, uid, grant, key, text))

    def taints(self) -> Mapping[str, Sequence[hardware.Taint]]:
        """Return the taints of this boot by device. Raises JournalError."""
        with self._reader() as database:
            return driver_state.taints(database, self.boot_id)

    def taint(self, device: str, taint: hardware.Taint, *, since: datetime.datetime) -> None:
        """Add or replace a taint of a device. A taint that equals the stored one keeps its time; a new one without a time gets ``since``."""
        self._commit(lambda database: driver_state.set_taint(database, device, taint, self.boot_id, since=since))

    def untaint(self, device: str, key: str) -> None:
        """Remove the taints of a key from a device, if there are any. Raises JournalError."""
        self._commit(lambda database: driver_state.remove_taints(database, device, key))

    def pool(self) -> str:
        """Return the node's own pool that a driver served here last; empty where none has. Raises JournalError."""
        with self._reader() as database:
            return schema.meta(database, _POOL) or ""

    def set_pool(self, pool: str) -> None:
        """Record the node's own pool that a driver serves here. Raises JournalError."""
        if pool != self.pool():
            self._commit(lambda database: schema.set_meta(database, _POOL, pool))

    def relax(self) -> None:
        """Stop waiting for the disk: later commits survive the death of this process, but may be lost in a crash of the kernel.

        This is for hardware whose state also ends with the kernel. The file is never corrupted by it.
        """
        self._writer.relax()

    def lost_claims(self) -> Collection[names.ClaimUid] | None:
        """Return the claims that an unreadable file named and that are neither restored nor released; None if no journal is lost.

        Read the file, because another process may have restored the claims since this one opened the journal. Raises JournalError.
        """
        with self._reader() as database:
            self.quarantine = quarantine.read(database)
        return None if self.quarantine is None else self.quarantine.lost

    def rebuilt(self) -> None:
        """Record that the claims of a lost journal are restored, and end the quarantine. Raises JournalError."""
        self._commit(quarantine.clear)
        self.quarantine = None

    def rebuilt_by_hand(self) -> bool:
        """Record that all claims with CDI files are restored, and return whether the quarantine has ended. Raises JournalError.

        It does not end where a driver that asks the API server has opened the journal: only that can know that no other claim is missing.
        """
        self._commit(quarantine.clear_by_hand)
        return self.lost_claims() is None

    def released(self, uids: Collection[names.ClaimUid]) -> None:
        """Record that these claims hold nothing any more, and remove them from the quarantine record. Raises JournalError."""

        def remove(database: sqlite3.Connection) -> None:
            self.quarantine = quarantine.release(database, uids)

        self._commit(remove)

    def forget(self, uid: names.ClaimUid, *, state: lifecycle.State | None = None) -> None:
        """Delete an entry, or only one in this state, without its hardware: another claim or a running pod may use that. Raises JournalError."""
        self._commit(lambda database: store.forget(database, uid, state))

    def _commit(self, change: sqlite.Change, *, synced: bool = True) -> None:
        try:
            self._writer.commit(change, synced=synced)
        except (*sqlite.FAILURES, codec.UnreadableError) as error:
            raise self._journal_error(error) from error

    @contextlib.contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """Yield a read connection for exclusive use; a connection that failed is closed."""
        if self._closed.is_set():
            raise errors.JournalError(f"{self.path} is closed; open the journal again")
        try:
            try:
                database = self._idle_readers.pop()
            except IndexError:
                database = sqlite.connect_reader(self.path)
            try:
                yield database
            except BaseException:
                database.close()
                raise
        except (*sqlite.FAILURES, codec.UnreadableError) as error:
            raise self._journal_error(error) from error
        self._idle_readers.append(database)
        if self._closed.is_set():
            # It was closed meanwhile.
            self._close_idle_readers()

    def _close_idle_readers(self) -> None:
        """Close the idle connections."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle_readers.pop().close()

    def _journal_error(self, error: sqlite3.Error | UnicodeDecodeError | codec.UnreadableError) -> errors.JournalError:
        if not isinstance(error, codec.UnreadableError):
            return sqlite.journal_error(self.path, error)
        return errors.JournalError(f"{self.path}: {error}; restart the driver: the file is then set aside and rebuilt")
