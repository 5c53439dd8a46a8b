"""Run the author's ``prepare`` for the devices of a claim: the first time, for the devices still unfinished, and to verify a prepared claim.

Invariants:
1. A finished device is never undone because its caller has gone, nor because a later device raises RetryError. The call writes the results of the
   finished devices into the claim's journal entry, and the next call continues with the rest. So slow hardware converges.
2. The journal alone says that a device of a *preparing* claim is finished. If another process undoes the claim and begins it again, the new entry has
   no finished devices.
3. Results are cached in memory until a call for the claim returns while its caller still waits, but at most ``CACHED_SECONDS`` after the last device
   was finished. They are used only while the journal still has the entry that they belong to; otherwise ``prepare`` is called again.
4. A prepared claim is repaired in place. This module removes no CDI file, never calls ``unprepare`` and never begins to unprepare an entry.
5. Device metadata files, of a driver that asks for them, are written after all devices are prepared and before the CDI files that mount them.

The caller holds the locks of the claim and of its devices in every call.
"""

import dataclasses
import threading
from collections.abc import Iterable, Mapping, Sequence

from drakit.core import advanced, config, errors, lifecycle, names, ports, record_versions, records
from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.node import inventory_cache, resolution, running_verbs
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

Key = tuple[str, str, str, str]
CACHED_SECONDS = 600.0
STAYS_PREPARED = "the claim stays prepared and nothing was torn down; delete its pods to release the device"
_ENDED_BY_DELETING_PODS = (errors.ConfigError, errors.DeviceGoneError, errors.DeviceBusyError, errors.HardwareError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _CachedResults:
    """The results of a claim's finished devices by grant, the entry that they belong to, and when the last device was finished."""

    entry: lifecycle.Entry
    results: Mapping[Key, drivers.Prepared]
    since: float


def has_finished(entry: lifecycle.Entry) -> bool:
    """Return whether an earlier call finished some of the entry's devices."""
    return any(grant.edits is not None for grant in entry.grants)


class DevicePreparer:
    """The preparer of one author's devices; it also writes their CDI and metadata files. Safe between threads that hold the claim's lock.

    ``metadata`` is None for a driver that does not ask for device metadata.
    """

    def __init__(
        self,
        author: inventory_cache.Author,
        journal: ports.Journal,
        cdi: ports.CdiDirectory,
        clock: ports.Clock,
        meter: ports.Meter,
        metadata: ports.DeviceMetadata | None,
        verbs: running_verbs.RunningVerbs,
    ) -> None:
        self._author = author
        self._journal = journal
        self._cdi = cdi
        self._clock = clock
        self._meter = meter
        self._metadata = metadata
        self._verbs = verbs
        self._guard = threading.Lock()
        self._results: dict[names.ClaimUid, _CachedResults] = {}

    def complete(self, entry: lifecycle.Entry, caller: ports.Caller, pod_claim_name: str = "") -> tuple[lifecycle.GrantEntry, ...]:
        """Prepare the devices of a claim that was begun in this boot, commit them, and return the grants as the journal has them.

        ``pod_claim_name`` is the claim's name in its pod. Commit even if the caller has gone meanwhile: a late Unprepare waits for the claim's lock.
        Raises CallerGoneError between two devices when the caller has gone, and the errors of the author.
        After CallerGoneError and RetryError the journal says which devices are finished.
        """
        results = self._prepare_unfinished(entry, caller)
        completed = self._with_results(entry, results, pod_claim_name)
        self.write_cdi(entry.claim, completed)
        with self._meter.phase("journal"):
            self._journal.complete(entry.claim.uid, completed, entry.boot_id)
        if not caller.is_waiting():
            _log.info("claim prepared after the kubelet stopped waiting", claim=str(entry.claim), claim_uid=entry.claim.uid)
        self._cache(dataclasses.replace(entry, state=lifecycle.State.PREPARED, grants=completed), results)
        return completed

    def verify(self, entry: lifecycle.Entry, caller: ports.Caller, pod_claim_name: str = "") -> tuple[lifecycle.GrantEntry, ...]:
        """Call the author's ``prepare`` again for each device of a prepared claim, repair differences in place, and return the present grants.

        Journal new edits and records first, then rewrite a CDI file that is lost or altered. An empty record from the author means that the device's
        hardware state is gone: drop the old record durably, and prepare the device as for the first time.
        Raises the errors of the author, with ``STAYS_PREPARED`` in the text where only deleting the pods helps. The claim stays prepared.
        """
        try:
            results = self._prepare_unfinished(entry, caller)
            lost = [grant.key for grant in entry.grants if grant.record and not results[grant.key].record]
            if lost:
                results |= self._prepare_lost(entry, lost, caller)
            current = self._with_results(entry, results, pod_claim_name)
        except _ENDED_BY_DELETING_PODS as error:
            error.args = (f"{error}; {STAYS_PREPARED}",)
            raise
        # After a loss the journal has an empty record, even where the device came back unchanged.
        if lost or current != entry.grants:
            changed = [now.device.name for old, now in zip(entry.grants, current, strict=True) if old != now or now.key in lost]
            log = _log.warning if lost else _log.info
            log("prepared claim repaired", claim=str(entry.claim), claim_uid=entry.claim.uid, devices=changed, remade=len(lost))
            self._refresh(entry, current)
        self.write_cdi(entry.claim, current)
        self._cache(dataclasses.replace(entry, grants=current), results)
        return current

    def refresh(self, entry: lifecycle.Entry, caller: ports.Caller) -> bool:
        """Call the author's ``prepare`` again for each device of a prepared claim, and store and write new edits. Return whether there were any.

        Unlike ``verify``, leave a device as it is whose hardware state is gone, and device metadata too: no call of the kubelet waits for it.
        Raises the errors of the author.
        """
        self.drop(entry.claim.uid)
        results = self._prepare_unfinished(entry, caller)
        current = tuple(self._refreshed(grant, results[grant.key]) for grant in entry.grants)
        if current != entry.grants:
            changed = [now.device.name for old, now in zip(entry.grants, current, strict=True) if old != now]
            _log.info("CDI files of a prepared claim refreshed", claim=str(entry.claim), claim_uid=entry.claim.uid, devices=changed)
            self._refresh(entry, current)
        self.write_cdi(entry.claim, current)
        return current != entry.grants

    def drop(self, uid: names.ClaimUid) -> None:
        """Drop the cached results of a claim, because it is undone or begun."""
        with self._guard:
            self._results.pop(uid, None)

    def drop_answers(self, uids: Iterable[names.ClaimUid]) -> None:
        """Drop the cached results of prepared claims, because the caller received the answer; the next call verifies the claims."""
        with self._guard:
            for uid in uids:
                if uid in self._results and self._results[uid].entry.state is lifecycle.State.PREPARED:
                    del self._results[uid]

    def write_cdi(self, ref: claims.ClaimRef, grants: Sequence[lifecycle.GrantEntry]) -> None:
        """Write the CDI file of every grant that has edits."""
        for grant in grants:
            if grant.edits:
                with self._meter.phase("cdi"):
                    self._cdi.write(resolution.cdi_name(self._author.name, ref, grant), grant.edits)

    def _refresh(self, entry: lifecycle.Entry, grants: Sequence[lifecycle.GrantEntry]) -> None:
        with self._meter.phase("journal"):
            self._journal.refresh(entry.claim.uid, grants)

    def _refreshed(self, grant: lifecycle.GrantEntry, prepared: drivers.Prepared) -> lifecycle.GrantEntry:
        """Return the grant with new record and edits, and with the mount of its metadata file; unchanged if its hardware state is gone."""
        if grant.record and not prepared.record:
            return grant
        before = grant.edits.mounts if grant.edits is not None else ()
        metadata = tuple(mount for mount in before if self._metadata is not None and self._metadata.shows(mount))
        edits = dataclasses.replace(prepared.edits, mounts=(*prepared.edits.mounts, *metadata))
        return dataclasses.replace(self._with_result(grant, prepared), edits=edits)

    def _prepare_unfinished(self, entry: lifecycle.Entry, caller: ports.Caller) -> dict[Key, drivers.Prepared]:
        """Return the result of ``prepare`` for each of the entry's grants; grants that an earlier call finished are not prepared again."""
        results = self._cached(entry)
        unfinished = [grant for grant in entry.grants if grant.key not in results]
        if unfinished:
            self.drop(entry.claim.uid)
        if unfinished and isinstance(self._author, advanced.ClaimDriver):
            return self._prepare(entry, entry.grants, caller)
        for number, grant in enumerate(unfinished):
            if number and not caller.is_waiting():
                self._save_progress(entry, results)
                raise errors.CallerGoneError(
                    f"the kubelet stopped waiting; devices finished and kept: {len(results)} of {len(entry.grants)}"
                )
            try:
                results |= self._prepare(entry, [grant], caller)
            except errors.RetryError:
                self._save_progress(entry, results)
                raise
        return results

    def _save_progress(self, entry: lifecycle.Entry, results: Mapping[Key, drivers.Prepared]) -> None:
        """Write the finished devices to the journal and the cache, so that the next call continues with the rest."""
        if entry.state is lifecycle.State.PREPARING and results:
            grants = tuple(self._with_result(grant, results[grant.key]) if grant.key in results else grant for grant in entry.grants)
            entry = dataclasses.replace(entry, grants=grants)
            self._refresh(entry, grants)
        self._cache(entry, results)

    def _prepare(self, entry: lifecycle.Entry, stored: Sequence[lifecycle.GrantEntry], caller: ports.Caller) -> dict[Key, drivers.Prepared]:
        """Bind and prepare devices, all at once where the driver prepares whole claims. Raises TypeError for a result that is no valid Prepared."""
        if entry.state is lifecycle.State.PREPARING:
            # With a record, an author says by an empty result that the hardware is gone. Only a prepared claim can be repaired from that.
            stored = [dataclasses.replace(grant, record=records.EMPTY) if grant.record else grant for grant in stored]
        grants = [resolution.grant_of(entry.claim, grant, self._author, caller=caller) for grant in stored]
        conditional = [grant for grant in grants if grant.device.binding_conditions]
        with config.author_errors(), self._verbs.run("prepare", entry.claim, stored):
            if conditional:
                advanced.bind(self._author, conditional)
            with self._meter.phase("device_prepare"):
                if isinstance(self._author, advanced.ClaimDriver):
                    prepared = advanced.prepare_claim(self._author, grants)
                else:
                    prepared = [self._author.prepare(grant) for grant in grants]
        for answer in prepared:
            if not isinstance(answer, drivers.Prepared):
                raise TypeError(f"prepare() returned {type(answer).__name__}; return drakit.Prepared(edits=drakit.Edits(...))")
            if answer.metadata and self._metadata is None:
                raise TypeError("Prepared.metadata would reach no container; write device_metadata = True in the driver's class")
        return {grant.key: answer for grant, answer in zip(stored, prepared, strict=True)}

    def _prepare_lost(self, entry: lifecycle.Entry, lost: Sequence[Key], caller: ports.Caller) -> dict[Key, drivers.Prepared]:
        """Prepare the lost devices as for the first time.

        The journal drops their records first, so after a crash the claim looks as after a crash in its first prepare.
        """
        reset = tuple(dataclasses.replace(grant, record=records.EMPTY) if grant.key in lost else grant for grant in entry.grants)
        self._refresh(entry, reset)
        if isinstance(self._author, advanced.ClaimDriver):
            return self._prepare(entry, reset, caller)
        results: dict[Key, drivers.Prepared] = {}
        for grant in reset:
            if grant.key in lost:
                results |= self._prepare(entry, [grant], caller)
        return results

    def _with_results(
        self, entry: lifecycle.Entry, results: Mapping[Key, drivers.Prepared], pod_claim_name: str
    ) -> tuple[lifecycle.GrantEntry, ...]:
        """Return the entry's grants with their records and edits, and write the device metadata files that the edits mount."""
        finished = []
        for grant in entry.grants:
            prepared = results[grant.key]
            done = self._with_result(grant, prepared)
            if self._metadata is not None:
                mount = self._metadata.add(entry.claim, pod_claim_name, grant, prepared.metadata)
                done = dataclasses.replace(done, edits=dataclasses.replace(prepared.edits, mounts=(*prepared.edits.mounts, mount)))
            finished.append(done)
        return tuple(finished)

    def _with_result(self, grant: lifecycle.GrantEntry, prepared: drivers.Prepared) -> lifecycle.GrantEntry:
        return dataclasses.replace(grant, record=record_versions.stamped(self._author, prepared.record), edits=prepared.edits)

    def _cached(self, entry: lifecycle.Entry) -> dict[Key, drivers.Prepared]:
        """Return the cached results of an entry that have not expired."""
        with self._guard:
            cached = self._results.get(entry.claim.uid)
        is_valid = cached is not None and cached.entry == entry and self._clock.monotonic() - cached.since < CACHED_SECONDS
        return dict(cached.results) if cached is not None and is_valid else {}

    def _cache(self, entry: lifecycle.Entry, results: Mapping[Key, drivers.Prepared]) -> None:
        """Cache the results of a call, and drop expired ones. Results that are cached already keep their age."""
        if not results or self._cached(entry).keys() == results.keys():
            return
        now = self._clock.monotonic()
        with self._guard:
            self._results.pop(entry.claim.uid, None)
            self._results[entry.claim.uid] = _CachedResults(entry=entry, results=results, since=now)
            while (oldest := next(iter(self._results))) and now - self._results[oldest].since >= CACHED_SECONDS:
                del self._results[oldest]


def outcome_of(driver: str, ref: claims.ClaimRef, grants: Sequence[lifecycle.GrantEntry]) -> claims.Outcome:
    """Return the devices of a prepared claim in the order of its grants; a grant without edits has no CDI id."""
    return claims.Outcome(
        devices=tuple(
            claims.PreparedDevice(
                request=grant.request.partition("/")[0],
                pool=grant.pool,
                device=grant.device.name,
                cdi_ids=(resolution.cdi_name(driver, ref, grant).qualified,) if grant.edits else (),
                share_id=grant.share_id,
            )
            for grant in grants
        )
    )
