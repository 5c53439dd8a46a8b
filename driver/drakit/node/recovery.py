"""Recover half states and CDI files at every start, and restore the claims of a lost journal first.

``recover`` undoes the half states that an earlier process left, rewrites lost CDI files and removes orphaned ones. A claim that cannot be recovered
blocks neither the others nor the start: it stays in the journal, and ``recovery_retry`` or the next call for it retries it.

``Restorer`` restores the claims of a lost journal. A journal is lost when its file is unreadable, or is missing although CDI files of the driver
exist. Until its claims are restored the driver is not registered with the kubelet, so the kubelet prepares and unprepares nothing meanwhile. A claim
is missing when the journal does not have it, and it has CDI files on this node or the unreadable file named it. Each missing claim is restored so:

- Its allocation matches its CDI files: it is prepared again, which does not disturb a running pod.
- It is deleted, or allocated differently: it is journaled as prepared, with the devices that its CDI files name. The kubelet's next call undoes
  that, or ``orphans`` does.
- One of its devices is gone: the restoration retries for ``DEVICE_GRACE`` seconds. Then the claim is journaled with the devices that remain; where
  none remains, its CDI files are removed.
- Anything else fails: it is retried, and the driver does not serve until it succeeds or an admin runs the program's ``unprepare UID``.

Invariants:
1. One process restores at a time (``alone``), and reads the journal after it holds the lock. Unprepare by hand holds the lock too.
2. A claim is journaled as preparing before its hardware is touched. After a crash the next start continues it: recovery, which undoes
   half states, runs only when no claim is missing.
3. A failure leaves hardware and CDI files as they are.
4. An intent that no CDI file records is planned only after every claim is restored whose CDI files record its intents.
"""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from drakit.core import advanced, backoff, edits, errors, lifecycle, names, ports
from drakit.core import claim as claims
from drakit.core import config as configs
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.node import device_preparer, engine, inventory_cache, resolution, running_verbs
from drakit.telemetry import logs, plurals

_log = logs.get_logger(__name__)

PATIENCE_SECONDS = 30.0
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
DEVICE_GRACE = 60.0
SHOWN = 3
"""The number of claims that the status names; the log has all of them."""
LOCK = "restore"
Grant = drivers.Grant[object]
Files = Mapping[edits.CdiName, edits.Edits | None]
# The errors with which an author rejects a CDI file. Other errors may be transient, and are retried.
_REFUSALS = (errors.ConfigError, errors.DeviceGoneError, errors.DeviceBusyError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The result of a recovery: the UIDs of the claims by outcome."""

    undone: tuple[names.ClaimUid, ...] = ()
    verified: tuple[names.ClaimUid, ...] = ()
    orphans: tuple[names.ClaimUid, ...] = ()
    failed: tuple[names.ClaimUid, ...] = ()


class Deadline:
    """A ``ports.Caller`` that waits for ``seconds``, so that a start does not hang on hardware that another process holds."""

    def __init__(self, seconds: float = PATIENCE_SECONDS) -> None:
        self._end = time.monotonic() + seconds

    def is_waiting(self) -> bool:
        """Return whether time is left."""
        return self.seconds_left() > 0

    def seconds_left(self) -> float:
        """Return the seconds until the deadline, negative after it."""
        return self._end - time.monotonic()


def recover(claim_engine: engine.Engine, journal: ports.Journal, cdi: ports.CdiDirectory) -> Report:
    """Make journal, hardware and CDI directory agree, and return a report. A lost journal must be restored before.

    CDI files are listed before the journal is read, and read again under the claim's lock. A file whose claim is then absent from the journal is an
    orphan, because a claim is journaled before its first file is written.
    """
    with_files = cdi.claims()
    journaled = [entry.claim.uid for entry in journal.entries()]
    by_outcome: dict[engine.Recovered, list[names.ClaimUid]] = {outcome: [] for outcome in engine.Recovered}
    failed: list[names.ClaimUid] = []
    deadline = Deadline()
    for uid in (*journaled, *sorted(with_files.difference(journaled))):
        try:
            by_outcome[claim_engine.recover(uid, deadline)].append(uid)
        except Exception as error:  # noqa: BLE001 - the failure of one claim must not keep the node from starting
            _log.warning("claim recovery failed", claim_uid=uid, error=str(error), exc_info=not isinstance(error, errors.LockedError))
            failed.append(uid)
    report = Report(
        undone=tuple(by_outcome[engine.Recovered.HALF]),
        verified=tuple(by_outcome[engine.Recovered.WHOLE]),
        orphans=tuple(by_outcome[engine.Recovered.ORPHAN]),
        failed=tuple(failed),
    )
    log = _log.info if report.undone or report.orphans or report.failed else _log.debug
    log("claims recovered", undone=len(report.undone), verified=len(report.verified), orphans=len(report.orphans), failed=len(failed))
    return report


class Journal(ports.Journal, Protocol):
    """The journal with its record of a loss (``journal.Journal``)."""

    def lost_claims(self) -> Collection[names.ClaimUid] | None:
        """Return the claims that the unreadable file named and that are neither restored nor released; None where no journal is lost."""

    def released(self, uids: Collection[names.ClaimUid]) -> None:
        """Record that these claims hold nothing any more."""

    def rebuilt(self) -> None:
        """Record that all claims are restored."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestorerParts:
    """The dependencies of a ``Restorer``, from ``local_node.LocalNode``. ``own_lock`` makes the locks of ``Restorer.alone``."""

    author: inventory_cache.Author
    pool: str
    boot_id: str
    offered: inventory_cache.InventoryCache
    journal: Journal
    cdi: ports.CdiDirectory
    resolver: resolution.Resolver
    device_locks: ports.Locks
    own_lock: Callable[[], ports.Locks]
    clock: ports.Clock
    metadata: ports.DeviceMetadata | None = None
    verbs: running_verbs.RunningVerbs | None = None


class Restorer:
    """Restores the missing claims of one driver on one node."""

    def __init__(self, parts: RestorerParts) -> None:
        self._parts = parts
        self.program = parts.resolver.program
        self._author, self._journal, self._cdi, self._resolver = parts.author, parts.journal, parts.cdi, parts.resolver
        self._preparer = device_preparer.DevicePreparer(parts.author, parts.journal, parts.cdi, parts.clock, parts.metadata, parts.verbs)

    @contextlib.contextmanager
    def alone(self, is_wanted: Callable[[], bool]) -> Iterator[None]:
        """Exclude other processes that restore or release claims. Raise CallerGoneError once ``is_wanted`` is false, and JournalError."""
        with self._parts.own_lock().hold([LOCK], is_wanted):
            yield

    def missing(self) -> Sequence[names.ClaimUid]:
        """Return the claims to restore; none where no journal is lost. Raise JournalError, CdiError."""
        named = self._journal.lost_claims()
        if named is None:
            return ()
        # A claim leaves its CDI files before it leaves the journal, so the journal is read first.
        restored = {entry.claim.uid for entry in self._journal.entries() if not self._is_half(entry)}
        return sorted(self._cdi.claims().union(named) - restored)

    def restore(self, listing: ports.ClaimList, *, without_devices: bool = False) -> Mapping[names.ClaimUid, str]:
        """Restore every missing claim, and return those that failed, with the reason. If none failed, the journal is no longer lost.

        ``without_devices`` drops devices that are gone. The caller is ``alone``. Raise JournalError, and ApiError when the list fails.
        """
        missing, failed = self.missing(), dict[names.ClaimUid, str]()
        if missing:
            listed = listing.allocated(self._author.name, self._serves)
            by_uid = {claim.ref.uid: claim for claim in listed.claims}
            failed = dict.fromkeys(listed.unreadable.intersection(missing), "the API server has the claim, but it cannot be read")
            # Claims in use come first: they own their devices, whatever the CDI file of a deleted claim names.
            pending = sorted((uid for uid in missing if uid not in failed), key=lambda uid: (uid not in by_uid, uid))
            for may_plan in (False, True):
                pending = [
                    uid
                    for uid in pending
                    if not self._try(uid, by_uid.get(uid), failed, without_devices=without_devices, may_plan=may_plan)
                ]
                if failed:
                    failed.update((uid, "waits until the other claims are restored") for uid in pending)
                    break
        if not failed:
            self._journal.rebuilt()
            _log.warning("journal restored", claims=len(missing))
        return failed

    def release(self, uid: names.ClaimUid) -> None:
        """Journal a missing claim with the devices of its CDI files, so that ``Engine.unprepare`` can undo it. The caller is ``alone``.

        Raise the errors of ``recall``, except those that reject the claim's CDI file.
        """
        if uid in self.missing():
            self._keep(resolution.unknown_ref(uid), self._cdi.of(uid), without_devices=True)

    def _try(
        self, uid: names.ClaimUid, claim: claims.Claim | None, failed: dict[names.ClaimUid, str], *, without_devices: bool, may_plan: bool
    ) -> bool:
        """Restore a claim and return True, or return False when it must be planned and may not. A failure is added to ``failed``."""
        try:
            if claim is None:
                self._keep(resolution.unknown_ref(uid), self._cdi.of(uid), without_devices=without_devices)
                return True
            return self._restore(claim, without_devices=without_devices, may_plan=may_plan)
        except Exception as error:  # noqa: BLE001 - the failure of one claim must not block the others
            _log.warning(
                "claim not restored", claim="" if claim is None else str(claim.ref), claim_uid=uid, error=str(error), exc_info=True
            )
            failed[uid] = str(error) or type(error).__name__
            return True

    def _restore(self, claim: claims.Claim, *, without_devices: bool, may_plan: bool) -> bool:
        """Restore a claim that has devices of this node and return True, or return False when it must be planned and may not."""
        files, entry = self._cdi.of(claim.ref.uid), self._journal.entry(claim.ref.uid)
        try:
            grants = self._resolver.resolve(claim, begun=True)
            if not self._is_current(claim, grants, files, entry):
                _log.warning("claim allocation does not match its CDI files", claim=str(claim.ref), claim_uid=claim.ref.uid)
                self._keep(claim.ref, files, without_devices=without_devices)
            elif entry is None and not may_plan and any(self._file_of(grant) not in files for grant in grants):
                return False
            else:
                self._prepare(claim, grants, files, entry)
        except errors.ClaimError as error:
            # A DeviceGoneError of the author's ``recall`` rejects a CDI file; the device may still exist and be in use.
            if not without_devices or error.fault is not errors.ClaimFault.UNKNOWN_DEVICE:
                raise
            _log.error("device of a claim in use is gone", claim=str(claim.ref), claim_uid=claim.ref.uid, error=str(error))
            self._keep(claim.ref, files, without_devices=True)
        return True

    def _is_current(self, claim: claims.Claim, grants: Sequence[Grant], files: Files, entry: lifecycle.Entry | None) -> bool:
        """Return whether a claim's entry, or else its CDI files, belong to its present allocation.

        CDI files of an earlier allocation name other devices and lack present ones.
        """
        if entry is not None:
            return resolution.is_same(entry, claim, self._author)
        expected = {self._file_of(grant) for grant in grants}
        return files.keys() >= expected or files.keys() <= expected

    def _prepare(self, claim: claims.Claim, grants: Sequence[Grant], files: Files, entry: lifecycle.Entry | None) -> None:
        """Prepare a claim in use again. A failure leaves it journaled as preparing, and the next attempt continues it."""
        deadline = Deadline()
        with self._parts.device_locks.hold(resolution.lock_names(grants), deadline.is_waiting):
            if entry is None:
                self._resolver.check_free(grants)
                grants = self._with_intents(grants, files)
                entry = self._begin(claim.ref, grants)
            else:
                grants = resolution.with_begun_intents(grants, entry)
            self._preparer.complete(entry, grants, deadline, claim.pod_claim_name)
        self._preparer.drop(claim.ref.uid)

    def _with_intents(self, grants: Sequence[Grant], files: Files) -> Sequence[Grant]:
        """Return the grants with the intents recalled from their CDI files; the intent of a grant without a file is planned."""
        planned = iter(self._resolver.plan([grant for grant in grants if self._file_of(grant) not in files]))
        return [self._recalled(grant, files) if self._file_of(grant) in files else next(planned) for grant in grants]

    def _keep(self, ref: claims.ClaimRef, files: Files, *, without_devices: bool) -> None:
        """Journal a claim as prepared with the devices that its CDI files name, without touching hardware.

        If none of these devices is left, remove the files.
        """
        if (entry := self._journal.entry(ref.uid)) is None:
            grants = self._by_files(ref, files, without_devices=without_devices)
            with self._parts.device_locks.hold(resolution.lock_names(grants), Deadline().is_waiting):
                own = [self._recalled_or_bare(grant, files) for grant in grants if self._is_free(grant)]
                if not own:
                    _log.warning("removing CDI files: no device of the claim is left", claim=str(ref), claim_uid=ref.uid)
                    self._cdi.remove(ref.uid)
                    self._journal.released([ref.uid])
                    return
                entry = self._begin(ref, own)
        completed = [
            dataclasses.replace(grant, edits=files.get(resolution.cdi_name(self._author.name, ref, grant))) for grant in entry.grants
        ]
        self._journal.complete(ref.uid, completed, self._parts.boot_id)

    def _by_files(self, ref: claims.ClaimRef, files: Files, *, without_devices: bool) -> Sequence[Grant]:
        """Return grants built from the names of CDI files alone.

        Raise DeviceGoneError for a device that is gone, unless ``without_devices``.
        """
        located = [(name, self._device(name.device)) for name in files]
        gone = [name.device for name, location in located if location is None]
        if gone and not without_devices:
            raise errors.DeviceGoneError(f"this node has no device {', '.join(gone)}")
        return [_bare_grant(ref, name, location[1], self._author, location[0]) for name, location in located if location is not None]

    def _device(self, name: str) -> tuple[str, devices.Device] | None:
        """Return the pool and the device of this name: the node's own, or the only one in pools of the cluster, as a CDI file names no pool."""
        own = self._parts.offered.device(name)
        if own is not None:
            return own.pool_on(self._parts.pool), own
        cluster_pools = [(pool.name, pool.inventory.flat().by_name()) for pool in advanced.cluster_pools(self._author)]
        matches = [(pool, by_name[name]) for pool, by_name in cluster_pools if name in by_name]
        return matches[0] if len(matches) == 1 else None

    def _is_free(self, grant: Grant) -> bool:
        """Return whether no journaled claim holds the device: of two claims whose files name one device, only one can have it."""
        try:
            self._resolver.check_free([grant])
        except errors.DeviceBusyError as error:
            _log.warning(
                "CDI file names the device of another claim", claim_uid=grant.claim.uid, device=grant.device.name, error=str(error)
            )
            return False
        return True

    def _recalled(self, grant: Grant, files: Files) -> Grant:
        """Return the grant with the intent that its author recalls from its CDI file. Raise the errors of the author."""
        if not isinstance(self._author, advanced.IntentRecovery):
            return grant
        stored = files[self._file_of(grant)]
        if stored is not None and (metadata := self._parts.metadata) is not None:
            # The framework added this mount, not the author.
            stored = dataclasses.replace(stored, mounts=tuple(mount for mount in stored.mounts if not metadata.shows(mount)))
        return dataclasses.replace(grant, intent=self._author.recall(dataclasses.replace(grant, found=stored)))

    def _recalled_or_bare(self, grant: Grant, files: Files) -> Grant:
        """Return the grant as ``_recalled`` does, but with an empty intent where the author rejects the file, as a retry would not help."""
        try:
            return self._recalled(grant, files)
        except _REFUSALS as error:
            _log.warning("CDI file rejected by the driver", claim_uid=grant.claim.uid, device=grant.device.name, error=str(error))
            return grant

    def _begin(self, ref: claims.ClaimRef, grants: Sequence[Grant]) -> lifecycle.Entry:
        entry = resolution.begun(ref, grants, self._parts.boot_id)
        self._journal.begin(entry)
        return entry

    def _is_half(self, entry: lifecycle.Entry) -> bool:
        """Return whether a claim was begun in this boot and not completed, by a restoration that died or by the process before it."""
        return entry.state is lifecycle.State.PREPARING and entry.boot_id == self._parts.boot_id

    def _file_of(self, grant: Grant) -> edits.CdiName:
        return resolution.cdi_name(self._author.name, grant.claim, resolution.to_entry(grant))

    def _serves(self, pool: str, device: str) -> bool:
        """Return whether this node prepares a device: one of its own pools, or of a cluster pool that this node is a part of."""
        return names.is_pool_of_node(pool, self._parts.pool) or advanced.cluster_device(self._author, pool, device) is not None


def _bare_grant(ref: claims.ClaimRef, name: edits.CdiName, device: devices.Device, author: inventory_cache.Author, pool: str) -> Grant:
    try:
        config = configs.default_for(author, device)
    except errors.ConfigError:
        config = drivers.NoConfig()
    return drivers.Grant(
        claim=ref,
        request=name.request or resolution.UNKNOWN,
        pool=pool,
        device=device,
        config=config,
        share_id=name.share_id,
        admin_access=bool(name.request),
    )


class RestoreLoop:
    """A loop that restores until no claim is missing.

    ``status`` says why the driver does not serve yet; ``failed`` is called after each failed attempt.
    """

    def __init__(self, restorer: Restorer, listing: ports.ClaimList, clock: ports.Clock, failed: Callable[[], None]) -> None:
        self._restorer = restorer
        self._listing = listing
        self._clock = clock
        self._failed = failed
        self.status = "journal lost: its claims are being restored"

    def run(self, stop: threading.Event) -> bool:
        """Retry with growing pauses, and return whether all claims are restored; False when ``stop`` is set first."""
        pauses, started = backoff.Backoff(FIRST_PAUSE, LONGEST_PAUSE), self._clock.monotonic()
        while not stop.is_set():
            is_late = self._clock.monotonic() - started >= DEVICE_GRACE
            try:
                with self._restorer.alone(lambda: not stop.is_set()):
                    failed = self._restorer.restore(self._listing, without_devices=is_late)
                if not failed:
                    return True
                self.status = describe(failed, self._restorer.program)
            except errors.DrakitError as error:
                self.status = f"journal lost: its claims cannot be restored: {error}"
            _log.error("restoring the lost journal failed", error=self.status, retry_in_s=pauses.pause)
            self._failed()
            self._clock.wait(stop, pauses.next())
        return False


def describe(failed: Mapping[names.ClaimUid, str], program: str) -> str:
    """Return a text that says which claims are not restored, why, and how ``program`` releases one."""
    named = "; ".join(f"{uid}: {reason}" for uid, reason in list(failed.items())[:SHOWN])
    more = f"; and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
    count = plurals.counted(len(failed), "claim")
    return f"journal lost: {count} to restore: {named}{more}. To release a claim, delete its pods and run: {program} unprepare UID"
