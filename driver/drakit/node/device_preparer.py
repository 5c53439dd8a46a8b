"""Run the author's ``prepare`` for the devices of a claim: for the first time, for those that are left, and again to verify what is prepared.

Invariants:
1. A device that is finished is never undone because its caller has gone, nor because a later device raises RetryError. The call writes what the
   finished devices returned into the claim's journal entry, and the next call goes on from there. So slow hardware converges.
2. The journal alone says that a device of a *preparing* claim is finished. If another process undoes the claim and begins it again, the new entry has
   no finished devices.
3. Results are cached in memory until a call for the claim returns while its caller still waits, but at most ``KEPT_SECONDS`` after the last device
   was finished. They are used only while the journal still holds the entry that they belong to; otherwise ``prepare`` is called again.
4. A prepared claim is repaired in place. Nothing here removes a CDI file, calls ``unprepare`` or begins to unprepare an entry.
5. Device metadata files, of a driver that asks for them, are written once all devices are prepared, and before CDI files that mount them.

The caller holds the locks of the claim and of its devices in every call.
"""

import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from drakit.core import advanced, errors, lifecycle, names, ports, records
from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.node import inventory_cache, resolution
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

Grant = drivers.Grant[object]
Key = tuple[str, str, str, str]
KEPT_SECONDS = 600.0
STAYS = "the claim stays prepared and nothing was torn down; delete its pods to release the device"
_ENDED_BY_DELETING_PODS = (errors.ConfigError, errors.DeviceGoneError, errors.DeviceBusyError, errors.HardwareError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Kept:
    """What a claim's finished devices returned, by grant; the entry it belongs to; and when the last of them was finished."""

    entry: lifecycle.Entry
    made: Mapping[Key, drivers.Prepared]
    since: float


def has_finished(entry: lifecycle.Entry) -> bool:
    """Whether an earlier call finished some of the entry's devices."""
    return any(kept.edits is not None for kept in entry.grants)


class DevicePreparer:
    """Prepares devices for one author and writes what containers get of them; safe between threads that hold the claim's lock.

    ``metadata`` is None for a driver that does not ask for device metadata.
    """

    def __init__(
        self,
        author: inventory_cache.Author,
        journal: ports.Journal,
        cdi: ports.CdiDirectory,
        clock: ports.Clock,
        metadata: ports.DeviceMetadata | None = None,
    ) -> None:
        self._author = author
        self._journal = journal
        self._cdi = cdi
        self._clock = clock
        self._metadata = metadata
        self._guard = threading.Lock()
        self._kept: dict[names.ClaimUid, _Kept] = {}

    def complete(
        self, entry: lifecycle.Entry, grants: Sequence[Grant], caller: ports.Caller, pod_claim_name: str = ""
    ) -> tuple[lifecycle.GrantEntry, ...]:
        """Prepare the devices of a claim that was begun in this boot, commit them, and return the grants as the journal has them.

        ``pod_claim_name`` is the claim's name in its pod. Commits even when the caller has gone meanwhile: a late Unprepare waits for the claim's
        lock. Raises CallerGoneError between two devices when the caller has gone, and what the author raises.
        After CallerGoneError and RetryError the journal says which devices are finished.
        """
        made = self._prepare_unfinished(entry, grants, caller)
        kept = with_results(entry.grants, self._with_metadata(entry, made, pod_claim_name))
        self.write_cdi(entry, kept)
        self._journal.complete(entry.claim.uid, kept, entry.boot_id)
        if not caller.is_waiting():
            _log.info("claim finished after the kubelet stopped waiting", claim=str(entry.claim), claim_uid=entry.claim.uid)
        self._keep(dataclasses.replace(entry, state=lifecycle.State.PREPARED, grants=kept), made)
        return kept

    def verify(self, entry: lifecycle.Entry, caller: ports.Caller, pod_claim_name: str = "") -> tuple[lifecycle.GrantEntry, ...]:
        """Ask the author again for each device of a prepared claim, and repair in place what differs; the grants as they are now.

        A CDI file that is lost or altered is written again. New edits and a new record are remembered first. Where the author answers with an empty
        record, what it made is gone: the old record is dropped durably, and the device is prepared as for the first time. Raises what the author
        raises, with ``STAYS`` in the text where only deleting the pods helps; the claim stays prepared after any error.
        """
        try:
            made = self._prepare_unfinished(
                entry, [resolution.from_entry(entry.claim, kept, self._author) for kept in entry.grants], caller
            )
            lost = [kept.key for kept in entry.grants if kept.record and not made[kept.key].record]
            if lost:
                made |= self._prepare_lost(entry, lost, caller)
            current = with_results(entry.grants, self._with_metadata(entry, made, pod_claim_name))
        except _ENDED_BY_DELETING_PODS as error:
            error.args = (f"{error}; {STAYS}",)
            raise
        # After a loss the journal holds an empty record, also where the device came back just as it was.
        if lost or current != entry.grants:
            changed = [now.device.name for old, now in zip(entry.grants, current, strict=True) if old != now or now.key in lost]
            say = _log.warning if lost else _log.info
            say("prepared claim repaired", claim=str(entry.claim), claim_uid=entry.claim.uid, devices=changed, remade=len(lost))
            self._journal.refresh(entry.claim.uid, current)
        self.write_cdi(entry, current)
        self._keep(dataclasses.replace(entry, grants=current), made)
        return current

    def drop(self, uid: names.ClaimUid) -> None:
        """Drop what is kept of a claim: it is being undone, or begun."""
        with self._guard:
            self._kept.pop(uid, None)

    def drop_answers(self, uids: Iterable[names.ClaimUid]) -> None:
        """Drop what prepared claims were answered: the caller heard it. The next call verifies them."""
        with self._guard:
            for uid in uids:
                if uid in self._kept and self._kept[uid].entry.state is lifecycle.State.PREPARED:
                    del self._kept[uid]

    def write_cdi(self, entry: lifecycle.Entry, grants: Sequence[lifecycle.GrantEntry]) -> None:
        """Write the CDI file of every grant that has edits."""
        for kept in grants:
            if kept.edits:
                self._cdi.write(resolution.cdi_name(self._author.name, entry.claim, kept), kept.edits)

    def _prepare_unfinished(self, entry: lifecycle.Entry, grants: Sequence[Grant], caller: ports.Caller) -> dict[Key, drivers.Prepared]:
        """Return what ``prepare`` returns for each of the entry's grants; those that an earlier call finished are not prepared again."""
        made = self._made(entry)
        wanted = {key: dataclasses.replace(grant, caller=caller) for key, grant in resolution.in_order(grants, entry.grants).items()}
        left = {key: grant for key, grant in wanted.items() if key not in made}
        if left:
            self.drop(entry.claim.uid)
        if left and advanced.prepares_claims(self._author):
            return self._prepare(wanted)
        for number, (key, grant) in enumerate(left.items()):
            if number and not caller.is_waiting():
                self._save_progress(entry, made)
                raise errors.CallerGoneError(f"the kubelet stopped waiting; devices finished and kept: {len(made)} of {len(grants)}")
            try:
                made |= self._prepare({key: grant})
            except errors.RetryError:
                self._save_progress(entry, made)
                raise
        return made

    def _save_progress(self, entry: lifecycle.Entry, made: Mapping[Key, drivers.Prepared]) -> None:
        """Record the finished devices, so that the next call continues with the rest."""
        if entry.state is lifecycle.State.PREPARING and made:
            entry = dataclasses.replace(entry, grants=with_results(entry.grants, made))
            self._journal.refresh(entry.claim.uid, entry.grants)
        self._keep(entry, made)

    def _prepare(self, grants: Mapping[Key, Grant]) -> dict[Key, drivers.Prepared]:
        """Bind and prepare devices, all at once where the driver prepares claims; raises TypeError where an answer is no usable Prepared."""
        advanced.bind(self._author, list(grants.values()))
        if advanced.prepares_claims(self._author):
            prepared = advanced.prepare_claim(self._author, list(grants.values()))
        else:
            prepared = [self._author.prepare(grant) for grant in grants.values()]
        for answer in prepared:
            if not isinstance(answer, drivers.Prepared):
                raise TypeError(f"prepare() returned {type(answer).__name__}; return drakit.Prepared(edits=drakit.Edits(...))")
            if answer.metadata and self._metadata is None:
                raise TypeError("Prepared.metadata would reach no container; write device_metadata = True in the driver's class")
        return dict(zip(grants, prepared, strict=True))

    def _prepare_lost(self, entry: lifecycle.Entry, lost: Sequence[Key], caller: ports.Caller) -> dict[Key, drivers.Prepared]:
        """Prepare the lost devices as for the first time. The journal drops their records before, so a crash leaves what a first prepare leaves."""
        without = tuple(dataclasses.replace(kept, record=records.EMPTY) if kept.key in lost else kept for kept in entry.grants)
        self._journal.refresh(entry.claim.uid, without)
        grants = {kept.key: dataclasses.replace(resolution.from_entry(entry.claim, kept, self._author), caller=caller) for kept in without}
        if advanced.prepares_claims(self._author):
            return self._prepare(grants)
        made: dict[Key, drivers.Prepared] = {}
        for key in lost:
            made |= self._prepare({key: grants[key]})
        return made

    def _with_metadata(
        self, entry: lifecycle.Entry, made: Mapping[Key, drivers.Prepared], pod_claim_name: str
    ) -> Mapping[Key, drivers.Prepared]:
        """Write the device metadata files; return the results with the mounts that show them."""
        if self._metadata is None:
            return made
        mounted: dict[Key, drivers.Prepared] = {}
        for kept in entry.grants:
            prepared = made[kept.key]
            mount = self._metadata.add(entry.claim, pod_claim_name, kept, prepared.metadata)
            edits = dataclasses.replace(prepared.edits, mounts=(*prepared.edits.mounts, mount))
            mounted[kept.key] = dataclasses.replace(prepared, edits=edits)
        return mounted

    def _made(self, entry: lifecycle.Entry) -> dict[Key, drivers.Prepared]:
        """What is kept of an entry and not too old."""
        with self._guard:
            kept = self._kept.get(entry.claim.uid)
        is_valid = kept is not None and kept.entry == entry and self._clock.monotonic() - kept.since < KEPT_SECONDS
        return dict(kept.made) if kept is not None and is_valid else {}

    def _keep(self, entry: lifecycle.Entry, made: Mapping[Key, drivers.Prepared]) -> None:
        """Keep what a call found out, and drop what has become too old. Results that were kept already do not become younger."""
        if not made or self._made(entry).keys() == made.keys():
            return
        now = self._clock.monotonic()
        with self._guard:
            self._kept.pop(entry.claim.uid, None)
            self._kept[entry.claim.uid] = _Kept(entry=entry, made=made, since=now)
            while (oldest := next(iter(self._kept))) and now - self._kept[oldest].since >= KEPT_SECONDS:
                del self._kept[oldest]


ClaimWrapper = Callable[[Callable[[], claims.Outcome]], claims.Outcome]


def call_directly(work: Callable[[], claims.Outcome]) -> claims.Outcome:
    """Call the work of a claim and do nothing else."""
    return work()


def with_results(begun: Sequence[lifecycle.GrantEntry], made: Mapping[Key, drivers.Prepared]) -> tuple[lifecycle.GrantEntry, ...]:
    """Return the grants as they were begun, each that is finished with what its author's ``prepare`` returned."""
    return tuple(
        dataclasses.replace(kept, record=made[kept.key].record, edits=made[kept.key].edits) if kept.key in made else kept for kept in begun
    )


def outcome_of(driver: str, ref: claims.ClaimRef, grants: Sequence[lifecycle.GrantEntry]) -> claims.Outcome:
    """The devices of a prepared claim in the order of its grants; a grant without edits has no CDI id."""
    return claims.Outcome(
        devices=tuple(
            claims.PreparedDevice(
                request=kept.request.partition("/")[0],
                pool=kept.pool,
                device=kept.device.name,
                cdi_ids=(resolution.cdi_name(driver, ref, kept).qualified,) if kept.edits else (),
                share_id=kept.share_id,
            )
            for kept in grants
        )
    )
