"""Run the author's ``prepare`` for the devices of a claim: for the first time, for those that are left, and again to verify what is prepared.

Invariants:
1. A device that is finished is never undone because its caller has gone. What a call finished for a caller that left is kept in memory, and the
   next call for the claim goes on from there. So every call finishes at least one device, and slow hardware converges.
2. What is kept counts only for the journal entry it was finished for. Another process may have undone the claim in between.
3. A prepared claim is repaired where it lies. Nothing here removes a CDI file, calls ``unprepare`` or withdraws an entry.

The caller holds the locks of the claim and of its devices in every call.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from drakit.core import driver as drivers
from drakit.core import errors, lifecycle, names, ports, records
from drakit.node import answering, offer, resolution
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

Grant = drivers.Grant[object]
Key = tuple[str, str, str, str]
STAYS = "the claim stays prepared and nothing was torn down; delete its pods to release the device"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Finished:
    """The devices of one claim that are finished, by grant, and the entry they were finished for."""

    entry: lifecycle.Entry
    made: Mapping[Key, drivers.Prepared]


class DevicePreparer:
    """Prepares devices for one author and writes what containers get of them; safe between threads that hold the claim's lock."""

    def __init__(self, author: offer.Author, journal: ports.Journal, cdi: ports.CdiDirectory) -> None:
        self._author = author
        self._journal = journal
        self._cdi = cdi
        self._finished: dict[names.ClaimUid, _Finished] = {}

    def complete(
        self, entry: lifecycle.Entry, grants: Sequence[Grant], boot_id: str, caller: ports.Caller
    ) -> tuple[lifecycle.GrantEntry, ...]:
        """Prepare the devices of a claim that was begun and commit them; the grants as they are remembered.

        Commits even when the caller has gone meanwhile: a late Unprepare waits for the claim's lock. Raises CallerGoneError between two devices
        when the caller has gone; ``can_continue`` is then true of the entry. Raises what the author raises.
        """
        prepared = self._each(entry, grants, caller)
        kept = answering.filled(entry.grants, prepared)
        self.write_cdi(entry, kept)
        self._journal.complete(entry.claim.uid, kept, boot_id)
        done = dataclasses.replace(entry, state=lifecycle.State.PREPARED, grants=kept, boot_id=boot_id)
        self._keep_unheard(done, prepared, caller)
        return kept

    def verify(self, entry: lifecycle.Entry, caller: ports.Caller) -> tuple[lifecycle.GrantEntry, ...]:
        """Ask the author again for each device of a prepared claim, and repair in place what differs; the grants as they are now.

        A CDI file that is lost or altered is written again. New edits and a new record are remembered first. Where the author answers with an empty
        record, what it made is gone: the old record is dropped durably, and the device is prepared as for the first time. Raises what the author
        raises, with ``STAYS`` in the text; the claim stays prepared then.
        """
        try:
            prepared = self._each(entry, [resolution.from_entry(entry.claim, kept, self._author) for kept in entry.grants], caller)
            current = answering.filled(entry.grants, prepared)
            lost = [now.key for before, now in zip(entry.grants, current, strict=True) if before.record and not now.record]
            if lost:
                prepared = self._prepare_lost(entry, prepared, lost)
                current = answering.filled(entry.grants, prepared)
        except (errors.CallerGoneError, errors.RetryError):
            raise
        except errors.DrakitError as error:
            error.args = (f"{error}; {STAYS}",)
            raise
        # After a loss the journal holds an empty record, also where the device came back just as it was.
        if lost or current != entry.grants:
            changed = [now.device.name for old, now in zip(entry.grants, current, strict=True) if old != now or now.key in lost]
            say = _log.warning if lost else _log.info
            say("prepared claim repaired", claim=str(entry.claim), claim_uid=entry.claim.uid, devices=changed, remade=len(lost))
            self._journal.refresh(entry.claim.uid, current)
        self.write_cdi(entry, current)
        self._keep_unheard(dataclasses.replace(entry, grants=current), prepared, caller)
        return current

    def can_continue(self, entry: lifecycle.Entry) -> bool:
        """Whether a call finished some of the entry's devices and left the rest to the next call."""
        finished = self._finished.get(entry.claim.uid)
        return finished is not None and finished.entry == entry

    def drop(self, uid: names.ClaimUid) -> None:
        """Drop what is kept of a claim: it is being undone."""
        self._finished.pop(uid, None)

    def write_cdi(self, entry: lifecycle.Entry, grants: Sequence[lifecycle.GrantEntry]) -> None:
        """Write the CDI file of every grant that has edits."""
        for kept in grants:
            if kept.edits:
                self._cdi.write(resolution.cdi_name(self._author.name, entry.claim, kept), kept.edits)

    def _each(self, entry: lifecycle.Entry, grants: Sequence[Grant], caller: ports.Caller) -> list[drivers.Prepared]:
        """What ``prepare`` returns for each grant, in order; those that an earlier call finished are not prepared again."""
        finished = self._finished.pop(entry.claim.uid, None)
        made = dict(finished.made) if finished is not None and finished.entry == entry else {}
        is_first = True
        for kept, grant in zip(entry.grants, grants, strict=True):
            if kept.key in made:
                continue
            if not is_first and not caller.is_waiting():
                self._finished[entry.claim.uid] = _Finished(entry=entry, made=made)
                raise errors.CallerGoneError(f"the kubelet stopped waiting; {len(made)} of {len(grants)} devices are finished and kept")
            made[kept.key] = self._prepare(grant)
            is_first = False
        return [made[kept.key] for kept in entry.grants]

    def _prepare(self, grant: Grant) -> drivers.Prepared:
        if grant.device.binding_conditions:
            self._author.bind(grant)
        return self._author.prepare(grant)

    def _prepare_lost(self, entry: lifecycle.Entry, prepared: Sequence[drivers.Prepared], lost: Sequence[Key]) -> list[drivers.Prepared]:
        """Prepare the lost devices as for the first time. The journal drops their records before, so a crash leaves what a first prepare leaves."""
        without = tuple(dataclasses.replace(kept, record=records.EMPTY) if kept.key in lost else kept for kept in entry.grants)
        self._journal.refresh(entry.claim.uid, without)
        return [
            self._prepare(resolution.from_entry(entry.claim, kept, self._author)) if kept.key in lost else made
            for kept, made in zip(without, prepared, strict=True)
        ]

    def _keep_unheard(self, entry: lifecycle.Entry, prepared: Sequence[drivers.Prepared], caller: ports.Caller) -> None:
        """Keep an answer that nobody waits for: the next call gets it without another look at hardware that may take longer than a call."""
        if not caller.is_waiting():
            _log.info("claim finished after the kubelet stopped waiting", claim=str(entry.claim), claim_uid=entry.claim.uid)
            made = {kept.key: one for kept, one in zip(entry.grants, prepared, strict=True)}
            self._finished[entry.claim.uid] = _Finished(entry=entry, made=made)
