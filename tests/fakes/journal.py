"""A journal in memory: core.ports.Journal with the contract of the real one, durable for as long as the object lives."""

import dataclasses
import datetime
import threading
from collections.abc import Collection, Mapping, Sequence

from drakit.core import device as devices
from drakit.core import errors, lifecycle, names, records

GrantKey = tuple[str, str, str, str]


class MemoryJournal:
    """Passed from one engine to the next, it is the journal that outlives a crash of the driver."""

    def __init__(self) -> None:
        self._entries: dict[names.ClaimUid, lifecycle.Entry] = {}
        self._lock = threading.Lock()
        self._driver_state: dict[tuple[names.ClaimUid, GrantKey], dict[str, records.Record]] = {}
        self._taints: dict[str, dict[tuple[str, str], devices.Taint]] = {}
        self._lost: frozenset[names.ClaimUid] | None = None

    def lose(self, *named: names.ClaimUid) -> None:
        """Drop all entries, as when the file is unreadable but names these claims."""
        self._entries.clear()
        self._driver_state.clear()
        self._lost = frozenset(named)

    def lost_claims(self) -> Collection[names.ClaimUid] | None:
        return self._lost

    def released(self, uids: Collection[names.ClaimUid]) -> None:
        if self._lost is not None:
            self._lost = self._lost.difference(uids)

    def rebuilt(self) -> None:
        self._lost = None

    def entry(self, uid: names.ClaimUid) -> lifecycle.Entry | None:
        return self._entries.get(uid)

    def entries(self, *, edits: bool = True) -> Sequence[lifecycle.Entry]:
        del edits
        with self._lock:
            return tuple(self._entries.values())

    def holdings(self, pool: str, devices: Collection[str], shares: Collection[str] = ()) -> Sequence[lifecycle.Holding]:
        held = [(entry, grant) for entry in self.entries() for grant in entry.grants if grant.pool == pool and grant.device.name in devices]
        first: dict[str, str] = {}
        for _, grant in held:
            if grant.share_id and not grant.admin_access:
                first[grant.device.name] = min(first.get(grant.device.name, grant.share_id), grant.share_id)
        return tuple(
            lifecycle.Holding(
                claim=entry.claim,
                state=entry.state,
                device=grant.device,
                share_id=grant.share_id,
                admin_access=grant.admin_access,
                consumed_capacity=grant.consumed_capacity,
            )
            for entry, grant in held
            if not grant.share_id or grant.share_id in shares or grant.share_id == first.get(grant.device.name)
        )

    def held_devices(self, boot_id: str) -> Sequence[lifecycle.HeldDevice]:
        entries = [entry for entry in self.entries() if entry.boot_id == boot_id]
        return tuple((grant.device, grant.pool, entry.claim) for entry in entries for grant in entry.grants if not grant.admin_access)

    def device_names(self, pool: str) -> Sequence[str]:
        grants = [grant for entry in self.entries() for grant in entry.grants]
        return sorted({grant.device.name for grant in grants if grant.device.node_pool(grant.pool) == pool})

    def intents_of(self, pool: str, devices: Collection[str]) -> Sequence[records.Record]:
        grants = [grant for entry in self.entries() for grant in entry.grants]
        return tuple(grant.intent for grant in grants if grant.device.node_pool(grant.pool) == pool and grant.device.name in devices)

    def begin(self, entry: lifecycle.Entry) -> None:
        with self._lock:
            state = self._after(entry.claim.uid, lifecycle.Move.BEGIN)
            grants = tuple(_frozen(grant) for grant in entry.grants)
            self._entries[entry.claim.uid] = dataclasses.replace(entry, state=state, grants=grants)

    def complete(self, uid: names.ClaimUid, grants: Sequence[lifecycle.GrantEntry], boot_id: str) -> None:
        with self._lock:
            self._entries[uid] = dataclasses.replace(self._filled(uid, lifecycle.Move.COMPLETE, grants), boot_id=boot_id)

    def refresh(self, uid: names.ClaimUid, grants: Sequence[lifecycle.GrantEntry]) -> None:
        with self._lock:
            self._entries[uid] = self._filled(uid, lifecycle.Move.REFRESH, grants)

    def begin_unprepare(self, uid: names.ClaimUid) -> None:
        with self._lock:
            state = self._after(uid, lifecycle.Move.BEGIN_UNPREPARE)
            self._entries[uid] = dataclasses.replace(self._entries[uid], state=state)

    def finish_unprepare(self, uid: names.ClaimUid) -> None:
        with self._lock:
            self._after(uid, lifecycle.Move.FINISH_UNPREPARE)
            del self._entries[uid]
            self._driver_state = {key: kept for key, kept in self._driver_state.items() if key[0] != uid}

    def rebuilt_by_hand(self) -> bool:
        self._lost = None
        return True

    def forget(self, uid: names.ClaimUid, *, state: lifecycle.State | None = None) -> None:
        with self._lock:
            entry = self._entries.get(uid)
            if entry is None or state not in (None, entry.state):
                return
            del self._entries[uid]
            self._driver_state = {key: kept for key, kept in self._driver_state.items() if key[0] != uid}

    def state(self, uid: names.ClaimUid, grant: GrantKey) -> Mapping[str, records.Record]:
        with self._lock:
            return dict(self._driver_state.get((uid, grant), {}))

    def set_state(self, uid: names.ClaimUid, grant: GrantKey, key: str, record: records.Record | None) -> None:
        with self._lock:
            entry = self._entries.get(uid)
            if entry is None or entry.state is not lifecycle.State.PREPARED or grant not in {one.key for one in entry.grants}:
                raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, f"claim {uid} has no prepared grant of {grant[2]}")
            kept = self._driver_state.setdefault((uid, grant), {})
            kept.pop(key, None)
            if record is not None:
                kept[key] = records.freeze_record(record)

    def taints(self) -> Mapping[str, Sequence[devices.Taint]]:
        with self._lock:
            return {name: tuple(kept[key] for key in sorted(kept)) for name, kept in sorted(self._taints.items()) if kept}

    def taint(self, device: str, taint: devices.Taint, *, since: datetime.datetime) -> None:
        with self._lock:
            kept = self._taints.setdefault(device, {})
            before = kept.get((taint.key, taint.effect.value))
            added = taint.time_added or (before.time_added if before and before.value == taint.value else since)
            kept[taint.key, taint.effect.value] = dataclasses.replace(taint, time_added=added)

    def untaint(self, device: str, key: str) -> None:
        with self._lock:
            self._taints[device] = {of: one for of, one in self._taints.get(device, {}).items() if one.key != key}

    def _filled(self, uid: names.ClaimUid, move: lifecycle.Move, grants: Sequence[lifecycle.GrantEntry]) -> lifecycle.Entry:
        state = self._after(uid, move)
        begun, done = self._entries[uid], {grant.key: grant for grant in grants}
        if len(done) != len(grants) or done.keys() != {grant.key for grant in begun.grants}:
            raise lifecycle.IllegalMoveError(f"claim {uid} cannot complete with other grants than it began with")
        kept = tuple(_frozen(dataclasses.replace(old, record=done[old.key].record, edits=done[old.key].edits)) for old in begun.grants)
        return dataclasses.replace(begun, state=state, grants=kept)

    def _after(self, uid: names.ClaimUid, move: lifecycle.Move) -> lifecycle.State:
        entry = self._entries.get(uid)
        return lifecycle.after(entry.state if entry else lifecycle.State.ABSENT, move)


def _frozen(grant: lifecycle.GrantEntry) -> lifecycle.GrantEntry:
    """The grant as the real journal reads it back."""
    return dataclasses.replace(
        grant,
        config=None,
        parameters=None if grant.parameters is None else records.freeze_record(grant.parameters),
        intent=records.freeze_record(grant.intent),
        record=records.freeze_record(grant.record),
    )
