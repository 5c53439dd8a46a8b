"""Recover what an earlier process left: half states and CDI files at every start, and before that the claims of a lost journal.

``recover`` does what a start owes to the process that ran before: it undoes half states, rewrites lost CDI files and removes orphaned ones. A claim
that cannot be recovered now does not keep the others from it, nor the driver from starting: it stays in the journal and is tried again by the next
call for it or by the next start.

``Restorer`` restores the claims of a lost journal: one whose file was unreadable, or that is missing beside CDI files of the driver. Until the claims
are restored the driver is not registered with the kubelet, so that nobody prepares or unprepares meanwhile. A claim is missing when it has CDI files
here, or was named by the unreadable file, and the journal does not have it. What becomes of a missing claim:

- It is allocated as its CDI files say: it is prepared again, which does not disturb a running pod.
- It is gone, or allocated otherwise: it is journaled as prepared, with the devices that its CDI files name. The kubelet's next call undoes that,
  or ``orphans`` does.
- A device of it is gone: the restoration retries for ``DEVICE_GRACE`` seconds. Then the claim is journaled with the devices that are left; where
  none is left its CDI files are removed.
- Anything else fails: it is retried, and the driver does not serve until it succeeds or an admin calls the program's ``unprepare UID``.

Invariants:
1. One process restores at a time (``alone``), and reads the journal after it holds the lock. Unprepare by hand holds the lock too.
2. A claim is journaled as preparing before its hardware is touched. After a crash the next start continues it: recovery, which undoes
   half states, runs only when nothing is missing.
3. A failure leaves hardware and CDI files as they are.
4. An intent that no CDI file tells is planned only after all claims are restored whose CDI files tell theirs.
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
from drakit.node import device_preparer, engine, inventory_cache, resolution
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

PATIENCE_SECONDS = 30.0
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
DEVICE_GRACE = 60.0
SHOWN = 3
"""Claims that the status names; the log has all."""
LOCK = "restore"

Grant = drivers.Grant[object]
Files = Mapping[edits.CdiName, edits.Edits | None]
# What an author answers when the intent cannot be known from a CDI file. Other errors may pass, and are retried.
_REFUSALS = (errors.ConfigError, errors.DeviceGoneError, errors.DeviceBusyError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What was found at start, by claim UID."""

    undone: tuple[names.ClaimUid, ...] = ()
    verified: tuple[names.ClaimUid, ...] = ()
    orphans: tuple[names.ClaimUid, ...] = ()
    failed: tuple[names.ClaimUid, ...] = ()


class Deadline:
    """A ``ports.Caller`` that waits for so many seconds: a start does not hang on hardware that another process is stuck on."""

    def __init__(self, seconds: float = PATIENCE_SECONDS) -> None:
        self._end = time.monotonic() + seconds

    def is_waiting(self) -> bool:
        """Whether the time is not over yet."""
        return self.seconds_left() > 0

    def seconds_left(self) -> float:
        """What is left of the time."""
        return self._end - time.monotonic()


def recover(claim_engine: engine.Engine, journal: ports.Journal, cdi: ports.CdiDirectory) -> Report:
    """Bring journal, hardware and CDI directory into agreement; not before a lost journal is restored.

    CDI files are listed before the journal is read, and read again under the claim's lock. A file whose claim the journal does not have then is
    an orphan, because a claim is journaled before its first file is written.
    """
    with_files = cdi.claims()
    known = [entry.claim.uid for entry in journal.entries()]
    found: dict[engine.Recovered, list[names.ClaimUid]] = {kind: [] for kind in engine.Recovered}
    failed: list[names.ClaimUid] = []
    patience = Deadline()
    for uid in (*known, *sorted(with_files.difference(known))):
        try:
            found[claim_engine.recover(uid, patience)].append(uid)
        except Exception:  # noqa: BLE001 - one claim's trouble must not keep the node from starting
            _log.exception("could not recover claim", claim_uid=uid)
            failed.append(uid)
    report = Report(
        undone=tuple(found[engine.Recovered.HALF]),
        verified=tuple(found[engine.Recovered.WHOLE]),
        orphans=tuple(found[engine.Recovered.ORPHAN]),
        failed=tuple(failed),
    )
    say = _log.info if report.undone or report.orphans or report.failed else _log.debug
    say("recovered", undone=len(report.undone), verified=len(report.verified), orphans=len(report.orphans), failed=len(failed))
    return report


class Journal(ports.Journal, Protocol):
    """The journal, with what it records about its loss (``journal.Journal``)."""

    def lost_claims(self) -> Collection[names.ClaimUid] | None:
        """Return the claims that the unreadable file named and nobody restored or released since; None where no journal is lost."""

    def released(self, uids: Collection[names.ClaimUid]) -> None:
        """Record that nothing is left of these claims."""

    def rebuilt(self) -> None:
        """Record that all claims are restored."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestorerParts:
    """What a restoration works with: the parts of ``local_node.LocalNode``. ``own_lock`` makes the locks of ``Restorer.alone``."""

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


class Restorer:
    """Restores the missing claims of one driver on one node."""

    def __init__(self, parts: RestorerParts) -> None:
        self._parts = parts
        self.program = parts.resolver.program
        self._author, self._journal, self._cdi, self._resolver = parts.author, parts.journal, parts.cdi, parts.resolver
        self._preparer = device_preparer.DevicePreparer(parts.author, parts.journal, parts.cdi, parts.clock, parts.metadata)

    @contextlib.contextmanager
    def alone(self, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Exclude other processes that restore, or release a missing claim; raises CallerGoneError when no longer wanted, JournalError."""
        with self._parts.own_lock().hold([LOCK], is_wanted):
            yield

    def missing(self) -> Sequence[names.ClaimUid]:
        """Return the claims to restore; none where no journal is lost. Raises JournalError, CdiError."""
        named = self._journal.lost_claims()
        if named is None:
            return ()
        # A claim leaves its CDI files before it leaves the journal, so the journal is read first.
        known = {entry.claim.uid for entry in self._journal.entries() if not self._is_half(entry)}
        return sorted(self._cdi.claims().union(named) - known)

    def restore(self, listing: ports.ClaimList, *, without_devices: bool = False) -> Mapping[names.ClaimUid, str]:
        """Restore every missing claim, and return those that failed, with the reason. If none did, the journal is no longer lost.

        ``without_devices`` gives up devices that are gone. The caller is ``alone``. Raises JournalError, and ApiError when the list fails.
        """
        missing, failed = self.missing(), dict[names.ClaimUid, str]()
        if missing:
            listed = listing.allocated(self._author.name, self._serves)
            by_uid = {claim.ref.uid: claim for claim in listed.claims}
            failed = dict.fromkeys(listed.unreadable.intersection(missing), "the API server has the claim, but it cannot be read")
            # Claims in use first: what they hold is theirs, whatever the CDI file of a deleted claim names.
            left = sorted((uid for uid in missing if uid not in failed), key=lambda uid: (uid not in by_uid, uid))
            for may_plan in (False, True):
                left = [
                    uid for uid in left if not self._try(uid, by_uid.get(uid), failed, without_devices=without_devices, may_plan=may_plan)
                ]
                if failed:
                    failed.update((uid, "waits until the other claims are restored") for uid in left)
                    break
        if not failed:
            self._journal.rebuilt()
            _log.warning("journal restored", claims=len(missing))
        return failed

    def release(self, uid: names.ClaimUid) -> None:
        """Journal what is known of a missing claim, so that ``Engine.unprepare`` undoes it. The caller is ``alone``.

        Raises what ``recall`` raises, unless it refuses the claim's CDI file.
        """
        if uid in self.missing():
            self._keep(resolution.unknown_ref(uid), self._cdi.of(uid), without_devices=True)

    def _try(
        self, uid: names.ClaimUid, claim: claims.Claim | None, failed: dict[names.ClaimUid, str], *, without_devices: bool, may_plan: bool
    ) -> bool:
        """Restore a claim; False when it must be planned and may not. A failure is added to ``failed``."""
        try:
            if claim is None:
                self._keep(resolution.unknown_ref(uid), self._cdi.of(uid), without_devices=without_devices)
                return True
            return self._restore(claim, without_devices=without_devices, may_plan=may_plan)
        except Exception as error:  # noqa: BLE001 - one claim's failure must not keep the others from being restored
            _log.warning(
                "claim not restored", claim="" if claim is None else str(claim.ref), claim_uid=uid, error=str(error), exc_info=True
            )
            failed[uid] = str(error) or type(error).__name__
            return True

    def _restore(self, claim: claims.Claim, *, without_devices: bool, may_plan: bool) -> bool:
        """Restore a claim that has devices of this node; False when it must be planned and may not."""
        files, entry = self._cdi.of(claim.ref.uid), self._journal.entry(claim.ref.uid)
        try:
            grants = self._resolver.resolve(claim, begun=True)
            if not self._is_current(claim, grants, files, entry):
                _log.warning("claim is allocated otherwise than its CDI files say", claim=str(claim.ref), claim_uid=claim.ref.uid)
                self._keep(claim.ref, files, without_devices=without_devices)
            elif entry is None and not may_plan and any(self._file_of(grant) not in files for grant in grants):
                return False
            else:
                self._prepare(claim, grants, files, entry)
        except errors.ClaimError as error:
            # A DeviceGoneError of the author's ``recall`` rejects a CDI file; the device may well be there, and in use.
            if not without_devices or error.fault is not errors.ClaimFault.UNKNOWN_DEVICE:
                raise
            _log.error("device of a claim in use is gone", claim=str(claim.ref), claim_uid=claim.ref.uid, error=str(error))
            self._keep(claim.ref, files, without_devices=True)
        return True

    def _is_current(self, claim: claims.Claim, grants: Sequence[Grant], files: Files, entry: lifecycle.Entry | None) -> bool:
        """Whether what is known of a claim is of its present allocation; CDI files of an earlier one name other devices and lack present ones."""
        if entry is not None:
            return resolution.is_same(entry, claim, self._author)
        now = {self._file_of(grant) for grant in grants}
        return files.keys() >= now or files.keys() <= now

    def _prepare(self, claim: claims.Claim, grants: Sequence[Grant], files: Files, entry: lifecycle.Entry | None) -> None:
        """Prepare a claim in use again. A failure leaves it journaled as preparing, and the next attempt continues it."""
        patience = Deadline()
        with self._parts.device_locks.hold(resolution.lock_names(grants), patience.is_waiting):
            if entry is None:
                self._resolver.check_free(grants)
                grants = self._with_intents(grants, files)
                entry = self._begin(claim.ref, grants)
            else:
                grants = resolution.with_begun_intents(grants, entry)
            self._preparer.complete(entry, grants, patience, claim.pod_claim_name)
        self._preparer.drop(claim.ref.uid)

    def _with_intents(self, grants: Sequence[Grant], files: Files) -> Sequence[Grant]:
        """The grants with the intents that their CDI files tell; of a grant without a file the intent is planned, as by a first prepare."""
        planned = iter(self._resolver.plan([grant for grant in grants if self._file_of(grant) not in files]))
        return [self._recalled(grant, files) if self._file_of(grant) in files else next(planned) for grant in grants]

    def _keep(self, ref: claims.ClaimRef, files: Files, *, without_devices: bool) -> None:
        """Journal a claim as prepared with what its CDI files name, without touching hardware; remove its files where none of that is left."""
        if (entry := self._journal.entry(ref.uid)) is None:
            grants = self._by_files(ref, files, without_devices=without_devices)
            with self._parts.device_locks.hold(resolution.lock_names(grants), Deadline().is_waiting):
                own = [self._recalled_or_bare(grant, files) for grant in grants if self._is_free(grant)]
                if not own:
                    _log.warning("removing the CDI files of a claim without devices", claim=str(ref), claim_uid=ref.uid)
                    self._cdi.remove(ref.uid)
                    self._journal.released([ref.uid])
                    return
                entry = self._begin(ref, own)
        kept = [dataclasses.replace(one, edits=files.get(resolution.cdi_name(self._author.name, ref, one))) for one in entry.grants]
        self._journal.complete(ref.uid, kept, self._parts.boot_id)

    def _by_files(self, ref: claims.ClaimRef, files: Files, *, without_devices: bool) -> Sequence[Grant]:
        """Grants by the names of CDI files alone; raises DeviceGoneError for a device that is gone, unless such devices are given up."""
        there = [(name, self._device(name.device)) for name in files]
        gone = [name.device for name, found in there if found is None]
        if gone and not without_devices:
            raise errors.DeviceGoneError(f"this node has no device {', '.join(gone)}")
        return [_bare(ref, name, found[1], self._author, found[0]) for name, found in there if found is not None]

    def _device(self, name: str) -> tuple[str, devices.Device] | None:
        """The pool and the device of this name: the node's own, or the only one in pools of the cluster, because a CDI file names no pool."""
        own = self._parts.offered.device(name)
        if own is not None:
            return own.pool_on(self._parts.pool), own
        shared = [(pool.name, pool.inventory.flat().by_name()) for pool in advanced.cluster_pools(self._author)]
        found = [(pool, known[name]) for pool, known in shared if name in known]
        return found[0] if len(found) == 1 else None

    def _is_free(self, grant: Grant) -> bool:
        """Whether no journaled claim holds what a CDI file names: two claims whose files name one device cannot both have it."""
        try:
            self._resolver.check_free([grant])
        except errors.DeviceBusyError as error:
            _log.warning(
                "CDI file names the device of another claim", claim_uid=grant.claim.uid, device=grant.device.name, error=str(error)
            )
            return False
        return True

    def _recalled(self, grant: Grant, files: Files) -> Grant:
        """A grant with the intent that its author recalls from its CDI file; raises what the author raises."""
        if not isinstance(self._author, advanced.IntentRecovery):
            return grant
        found = files[self._file_of(grant)]
        if found is not None and (metadata := self._parts.metadata) is not None:
            # The author did not give this mount.
            found = dataclasses.replace(found, mounts=tuple(mount for mount in found.mounts if not metadata.shows(mount)))
        return dataclasses.replace(grant, intent=self._author.recall(dataclasses.replace(grant, found=found)))

    def _recalled_or_bare(self, grant: Grant, files: Files) -> Grant:
        """As ``_recalled``, with an empty intent where the author refuses the file: no later attempt would know more."""
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
        """Whether a claim was begun in this boot and not completed, by a restoration that died or by whoever wrote the lost journal."""
        return entry.state is lifecycle.State.PREPARING and entry.boot_id == self._parts.boot_id

    def _file_of(self, grant: Grant) -> edits.CdiName:
        return resolution.cdi_name(self._author.name, grant.claim, resolution.to_entry(grant))

    def _serves(self, pool: str, device: str) -> bool:
        """Whether this node prepares a device: one of its own pools, or one of a cluster pool in which it has a part."""
        return names.is_pool_of_node(pool, self._parts.pool) or advanced.cluster_device(self._author, pool, device) is not None


def _bare(ref: claims.ClaimRef, name: edits.CdiName, device: devices.Device, author: inventory_cache.Author, pool: str) -> Grant:
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
    """Restores until nothing is missing. ``status`` says why the driver does not serve yet; ``failed`` is called after each failed attempt."""

    def __init__(self, restorer: Restorer, listing: ports.ClaimList, clock: ports.Clock, failed: Callable[[], None]) -> None:
        self._restorer = restorer
        self._listing = listing
        self._clock = clock
        self._failed = failed
        self.status = "journal lost: its claims are being restored"

    def run(self, stop: threading.Event) -> bool:
        """Try with growing pauses; return whether everything is restored, False when ``stop`` was set before."""
        pauses, began = backoff.Backoff(FIRST_PAUSE, LONGEST_PAUSE), self._clock.monotonic()
        while not stop.is_set():
            is_late = self._clock.monotonic() - began >= DEVICE_GRACE
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
    """Say which claims are not restored, why, and how ``program`` gives one up."""
    count = f"{len(failed)} claim{'s' if len(failed) > 1 else ''}"
    named = "; ".join(f"{uid}: {reason}" for uid, reason in list(failed.items())[:SHOWN])
    more = f"; and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
    return f"journal lost: {count} to restore: {named}{more}. To give a claim up, delete its pods and call: {program} unprepare UID"
