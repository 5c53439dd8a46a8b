"""Restore the claims of a lost journal.

``Restorer`` restores the claims of a lost journal (``journal.opening`` says when one is). Until its claims are restored the driver is not registered
with the kubelet, so the kubelet prepares and unprepares nothing meanwhile. A claim is missing when the journal does not have it, and it has CDI files
on this node, or the unreadable file named it, or the API server has it allocated to a pool of this node and the kubelet tracks it (where its
checkpoint cannot be read: a pod has it reserved). Each missing claim is restored so:

- Its allocation matches its CDI files: it is prepared again, which does not disturb a running pod.
- It is deleted, or allocated differently: it is journaled as prepared, with the devices that its CDI files name. The kubelet's next call undoes
  that, or ``orphans`` does.
- One of its devices is gone: the restoration retries for ``DEVICE_GRACE`` seconds. Then the claim is journaled with the devices that remain; where
  none remains, its CDI files are removed.
- Anything else fails: it is retried, and the driver does not serve until it succeeds or an admin runs the program's ``unprepare UID``. A claim that
  only the API server has may never have been prepared here, so it is retried for ``DEVICE_GRACE`` seconds only.

An entry whose claim ended since it was written is removed (``stale_entries``).

Invariants:
1. One process restores at a time (``alone``), and reads the journal after it holds the lock. Unprepare by hand holds the lock too.
2. A claim is journaled as preparing before its hardware is touched. After a crash or a failure the next attempt continues it: recovery, which undoes
   half states, runs only once the API server's list shows that no claim is missing. On a node whose driver asks the API server, commands by hand
   restore and release claims, but do not end the loss.
3. A failure leaves hardware and CDI files as they are.
4. An intent that no CDI file records is planned only after every claim is restored whose CDI files record its intents. Where the hardware to plan
   exists already, the author recalls the intent from the device as it was published: the present form of a device may be that of foreign hardware.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from drakit.core import advanced, config, edits, errors, lifecycle, names, ports, record_versions
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.node import engine, inventory_cache, recovery, resolution, stale_entries
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

DEVICE_GRACE = 60.0
LOCK = "restore"

Grants = resolution.Grants
Files = Mapping[edits.CdiName, edits.Edits | None]
# The errors with which an author rejects a CDI file. Other errors may be transient, and are retried.
_REFUSALS = (errors.ConfigError, errors.DeviceGoneError, errors.DeviceBusyError)


class Journal(ports.Journal, Protocol):
    """The journal with its record of a loss (``journal.Journal``)."""

    def lost_claims(self) -> Collection[names.ClaimUid] | None:
        """Return the claims that the unreadable file named and that are neither restored nor released; None if no journal is lost."""

    def released(self, uids: Collection[names.ClaimUid]) -> None:
        """Record that these claims hold nothing any more."""

    def rebuilt(self) -> None:
        """Record that all claims are restored."""

    def rebuilt_by_hand(self) -> bool:
        """Record that all claims with CDI files are restored, and return whether those are all: no driver asks the API server."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestorerParts:
    """The dependencies of a ``Restorer``, from ``local_node.LocalNode``. ``own_lock`` makes the locks of ``Restorer.alone``."""

    author: inventory_cache.Author
    pool: str
    boot_id: str
    offered: inventory_cache.InventoryCache
    journal: Journal
    cdi: ports.CdiDirectory
    engine: engine.Engine
    device_locks: ports.Locks
    own_lock: Callable[[], ports.Locks]
    metadata: ports.DeviceMetadata | None = None
    is_unverified: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeState:
    """What others know of the node: the claims that the kubelet tracks (None: unknown), and the published devices by name, flat."""

    tracked: frozenset[names.ClaimUid] | None = None
    published: Mapping[str, devices.Device] = dataclasses.field(default_factory=dict)


NO_STATE = NodeState()


class Restorer:
    """Restores the missing claims of one driver on one node."""

    def __init__(self, parts: RestorerParts) -> None:
        self._parts = parts
        self._author, self._journal, self._cdi, self._engine = parts.author, parts.journal, parts.cdi, parts.engine
        self._resolver = parts.engine.resolver
        self.program = self._resolver.program
        self._stale = stale_entries.Remover(parts.journal, self._resolver, parts.author)
        self._published: Mapping[str, devices.Device] = {}
        self.subject = "journal unverified" if parts.is_unverified else "journal lost"

    @contextlib.contextmanager
    def alone(self, is_wanted: Callable[[], bool]) -> Iterator[None]:
        """Exclude other processes that restore or release claims. Raises CallerGoneError once ``is_wanted`` is false, and JournalError."""
        with self._parts.own_lock().hold([LOCK], is_wanted):
            yield

    def missing(self) -> Sequence[names.ClaimUid]:
        """Return the claims to restore; none where no journal is lost. Raises JournalError, CdiError."""
        named = self._journal.lost_claims()
        if named is None:
            return ()
        # A claim leaves its CDI files before it leaves the journal, so the journal is read first.
        restored = self._restored()
        return sorted(self._cdi.claims().union(named) - restored)

    def _restored(self) -> frozenset[names.ClaimUid]:
        return frozenset(entry.claim.uid for entry in self._journal.entries(edits=False) if not self._is_half(entry))

    def restore(
        self, listing: ports.ClaimList, *, without_devices: bool = False, by_hand: bool = False, state: NodeState = NO_STATE
    ) -> Mapping[names.ClaimUid, str]:
        """Restore every missing claim, and return those that failed, with the reason. If none failed, the journal is no longer lost.

        ``without_devices`` drops devices that are gone. Commands restore ``by_hand``. The caller is ``alone``. Raises JournalError,
        and ApiError when the list fails.
        """
        if self._journal.lost_claims() is None:
            return {}
        listed = listing.allocated(self._author.name, self._serves)
        self._stale.begin(stale_entries.find(self._journal.entries(), listed, self._cdi, self._author, self._parts.boot_id))
        self._published = state.published
        by_uid = {claim.ref.uid: claim for claim in listed.claims}
        missing = self.missing()
        only_listed = self._only_listed(listed, state.tracked).difference(missing)
        failed, waiting = self._restore_all([*missing, *only_listed], by_uid, listed.unreadable, without_devices=without_devices)
        for uid in only_listed.intersection(failed) if without_devices else ():
            self._give_up(by_uid[uid].ref, failed.pop(uid))
        failed |= dict.fromkeys(waiting, "waits until the other claims are restored")
        if not failed and by_hand:
            self._journal.rebuilt_by_hand()
        elif not failed:
            self._stale.finish()
            self._journal.rebuilt()
            log = _log.warning if missing or only_listed or not self._parts.is_unverified else _log.info
            log("journal restored", claims=len(missing) + len(only_listed))
        return failed

    def _give_up(self, ref: claims.ClaimRef, error: str) -> None:
        """Drop what a failed attempt journaled, without touching hardware: recovery would undo it, and a pod may be using it."""
        _log.error("claim not restored: its hardware may be left", claim=str(ref), claim_uid=ref.uid, error=error)
        self._journal.forget(ref.uid, state=lifecycle.State.PREPARING)

    def _only_listed(self, listed: claims.Listed, tracked: frozenset[names.ClaimUid] | None) -> frozenset[names.ClaimUid]:
        """Return the claims in use on this node that only the API server has: those with a device of the node's own pools."""
        restored = self._restored()
        return frozenset(
            claim.ref.uid
            for claim in listed.claims
            if claim.ref.uid not in restored
            and (claim.is_reserved if tracked is None else claim.ref.uid in tracked)
            and any(names.is_pool_of_node(result.pool, self._parts.pool) for result in claim.results_of(self._author.name))
        )

    def _restore_all(
        self,
        uids: Sequence[names.ClaimUid],
        by_uid: Mapping[names.ClaimUid, claims.Claim],
        unreadable: Collection[names.ClaimUid],
        *,
        without_devices: bool,
    ) -> tuple[dict[names.ClaimUid, str], Sequence[names.ClaimUid]]:
        """Restore these claims, and return those that failed, with the reason, and those that wait for them."""
        failed = dict.fromkeys((uid for uid in uids if uid in unreadable), "the API server has the claim, but it cannot be read")
        # Claims in use come first: they own their devices, whatever the CDI file of a deleted claim names.
        pending = sorted((uid for uid in uids if uid not in failed), key=lambda uid: (uid not in by_uid, uid))
        for may_plan in (False, True):
            pending = [
                uid for uid in pending if not self._try(uid, by_uid.get(uid), failed, without_devices=without_devices, may_plan=may_plan)
            ]
            if failed:
                break
        return failed, pending

    def release(self, uid: names.ClaimUid) -> None:
        """Journal a missing claim with the devices of its CDI files, so that ``Engine.unprepare`` can undo it. The caller is ``alone``.

        Raises the errors of ``recall``, except those that reject the claim's CDI file.
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
            named, is_bug = "" if claim is None else str(claim.ref), not isinstance(error, errors.DrakitError)
            _log.warning("claim not restored", claim=named, claim_uid=uid, error=str(error), exc_info=is_bug)
            failed[uid] = str(error) or type(error).__name__
            return True

    def _restore(self, claim: claims.Claim, *, without_devices: bool, may_plan: bool) -> bool:
        """Restore a claim that has devices of this node and return True, or return False when it must be planned and may not."""
        files, entry = self._cdi.of(claim.ref.uid), self._journal.entry(claim.ref.uid)
        try:
            grants = [self._as_published(grant) for grant in self._resolver.resolve(claim, begun=True, published=self._published)]
            if not self._is_current(claim, grants, files, entry):
                _log.warning("claim allocation does not match its CDI files", claim=str(claim.ref), claim_uid=claim.ref.uid)
                self._keep(claim.ref, files, without_devices=without_devices)
            elif entry is None and not may_plan and any(self._file_of(claim.ref, grant) not in files for grant in grants):
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

    def _is_current(self, claim: claims.Claim, grants: Grants, files: Files, entry: lifecycle.Entry | None) -> bool:
        """Return whether a claim's entry, or else its CDI files, belong to its present allocation.

        CDI files of an earlier allocation name other devices and lack present ones.
        """
        if entry is not None:
            return resolution.is_same(entry, claim, self._author)
        expected = {self._file_of(claim.ref, grant) for grant in grants}
        return files.keys() >= expected or files.keys() <= expected

    def _prepare(self, claim: claims.Claim, grants: Grants, files: Files, entry: lifecycle.Entry | None) -> None:
        """Prepare a claim in use again. A failure leaves it journaled as preparing, and the next attempt continues it."""
        deadline = recovery.Deadline()
        with self._parts.device_locks.hold(resolution.lock_names(grants), deadline.is_waiting):
            if entry is None:
                self._stale.check_free(claim.ref.uid, grants)
                entry = self._engine.begin(claim.ref, self._with_intents(claim.ref, grants, files))
            else:
                entry = resolution.with_configs(entry, self._author)
            self._engine.preparer.complete(entry, deadline, claim.pod_claim_name)
        self._engine.preparer.drop(claim.ref.uid)

    def _with_intents(self, ref: claims.ClaimRef, grants: Grants, files: Files) -> Grants:
        """Return the grants with the intents recalled from their CDI files.

        The intent of a grant without a file is planned, or recalled where its hardware exists already.
        """
        without_file = [grant for grant in grants if self._file_of(ref, grant) not in files]
        planned = iter(
            self._resolver.plan(ref, without_file, self._author.recall if isinstance(self._author, advanced.IntentRecovery) else None)
        )
        return [self._recalled(ref, grant, files) if self._file_of(ref, grant) in files else next(planned) for grant in grants]

    def _as_published(self, grant: lifecycle.GrantEntry) -> lifecycle.GrantEntry:
        """Return the grant with its device as it was published and allocated."""
        published = self._published.get(grant.device.name)
        if published is None or not names.is_pool_of_node(grant.pool, self._parts.pool):
            return grant
        return dataclasses.replace(grant, device=dataclasses.replace(grant.device, attributes=published.attributes))

    def _keep(self, ref: claims.ClaimRef, files: Files, *, without_devices: bool) -> None:
        """Journal a claim as prepared with the devices that its CDI files name, without touching hardware.

        If none of these devices is left, remove the files.
        """
        if (entry := self._journal.entry(ref.uid)) is None:
            grants = self._by_files(files, without_devices=without_devices)
            with self._parts.device_locks.hold(resolution.lock_names(grants), recovery.Deadline().is_waiting):
                own = [self._recalled_or_bare(ref, grant, files) for grant in grants if self._is_free(ref, grant)]
                if not own:
                    _log.warning("removing CDI files: no device of the claim is left", claim=str(ref), claim_uid=ref.uid)
                    self._cdi.remove(ref.uid)
                    self._journal.released([ref.uid])
                    return
                entry = self._engine.begin(ref, own)
        completed = [dataclasses.replace(grant, edits=files.get(self._file_of(ref, grant))) for grant in entry.grants]
        self._journal.complete(ref.uid, completed, self._parts.boot_id)

    def _by_files(self, files: Files, *, without_devices: bool) -> Grants:
        """Return grants built from the names of CDI files alone.

        Raises DeviceGoneError for a device that is gone, unless ``without_devices``.
        """
        located = [(name, self._device(name.device)) for name in files]
        gone = [name.device for name, location in located if location is None]
        if gone and not without_devices:
            raise errors.DeviceGoneError(f"this node has no device {', '.join(gone)}")
        grants = [
            lifecycle.GrantEntry(
                request=name.request or resolution.UNKNOWN,
                pool=location[0],
                device=location[1],
                share_id=name.share_id,
                admin_access=bool(name.request),
            )
            for name, location in located
            if location is not None
        ]
        return [self._as_published(grant) for grant in grants]

    def _device(self, name: str) -> tuple[str, devices.Device] | None:
        """Return the pool and the device of this name: the node's own, or the only one in pools of the cluster, as a CDI file names no pool."""
        own = self._parts.offered.device(name) or self._published.get(name)
        if own is not None:
            return own.pool_on(self._parts.pool), own
        cluster_pools = [(pool.name, pool.inventory.flat().by_name()) for pool in advanced.cluster_pools(self._author)]
        matches = [(pool, by_name[name]) for pool, by_name in cluster_pools if name in by_name]
        return matches[0] if len(matches) == 1 else None

    def _is_free(self, ref: claims.ClaimRef, grant: lifecycle.GrantEntry) -> bool:
        """Return whether no journaled claim holds the device: of two claims whose files name one device, only one can have it."""
        try:
            self._stale.check_free(ref.uid, [grant])
        except errors.DeviceBusyError as error:
            _log.warning("CDI file names the device of another claim", claim_uid=ref.uid, device=grant.device.name, error=str(error))
            return False
        return True

    def _recalled(self, ref: claims.ClaimRef, grant: lifecycle.GrantEntry, files: Files) -> lifecycle.GrantEntry:
        """Return the grant with the intent that its author recalls from its CDI file. Raises the errors of the author."""
        if not isinstance(self._author, advanced.IntentRecovery):
            return grant
        stored = files[self._file_of(ref, grant)]
        if stored is not None and (metadata := self._parts.metadata) is not None:
            # The framework added this mount, not the author.
            stored = dataclasses.replace(stored, mounts=tuple(mount for mount in stored.mounts if not metadata.shows(mount)))
        with config.author_errors():
            intent = self._author.recall(dataclasses.replace(resolution.grant_of(ref, grant, self._author), found=stored))
        return dataclasses.replace(grant, intent=record_versions.stamped(self._author, drivers.frozen("grant.intent", intent)))

    def _recalled_or_bare(self, ref: claims.ClaimRef, grant: lifecycle.GrantEntry, files: Files) -> lifecycle.GrantEntry:
        """Return the grant as ``_recalled`` does, but with an empty intent where the author rejects the file, as a retry would not help."""
        try:
            return self._recalled(ref, grant, files)
        except _REFUSALS as error:
            _log.warning("CDI file rejected by the driver", claim_uid=ref.uid, device=grant.device.name, error=str(error))
            return grant

    def _is_half(self, entry: lifecycle.Entry) -> bool:
        """Return whether a claim was begun in this boot and not completed, by a restoration that died or by the process before it."""
        return entry.state is lifecycle.State.PREPARING and entry.boot_id == self._parts.boot_id

    def _file_of(self, ref: claims.ClaimRef, grant: lifecycle.GrantEntry) -> edits.CdiName:
        return resolution.cdi_name(self._author.name, ref, grant)

    def _serves(self, pool: str, device: str) -> bool:
        """Return whether this node prepares a device: one of its own pools, or of a cluster pool that this node is a part of."""
        return names.is_pool_of_node(pool, self._parts.pool) or advanced.cluster_device(self._author, pool, device) is not None
