"""Prepare and unprepare claims so that no crash, retry or race leaves anything behind.

Invariants:
1. The engine touches hardware only between ``journal.begin`` and ``journal.finish_unprepare``, so the journal has every claim that holds hardware.
2. A claim is answered as prepared only if its hardware, its CDI files and its journal entry agree. A prepare first undoes a half state that a crash
   left. It never undoes a claim that is prepared in this boot with the same allocation: it repairs the claim in place, or it fails and the claim
   stays prepared (``device_preparer``).
3. Calls for one claim never overlap, nor do calls for one physical device, not even between processes. Every call takes the claim lock first and
   device locks second, so there is no deadlock, and it stops waiting for a lock once its caller has gone. An entry is read under its claim's lock,
   so it stays valid until the lock is released. No call holds a lock while it reads from the API server. The wait for a lock ends while there is time
   to answer which verb holds it.
4. Nothing commits after an Unprepare has begun: both hold the claim's lock, and a call that gets the lock first checks that its caller still
   waits. A device that was begun before the caller left is finished and committed. Between two devices a call ends if its caller has gone, and also
   if the driver raises RetryError; the journal then keeps the results of the finished devices for the next call. Any other error undoes the claim.
   An unprepare that the driver defers (ReleaseDeferredError) removes the CDI files and succeeds, so that the pod can end; the claim stays
   unpreparing, and holds its devices, until ``release`` succeeds.
5. Every requested claim gets exactly one outcome, and the failure of one claim does not affect another.
6. The journal is complete: a lost one is restored before the driver serves (``recovery``).
7. A claim with binding conditions is begun by ``bind`` and continued by ``prepare``. Its half state is undone only when its allocation has changed
   (``abandon``). Every prepare calls ``bind`` again for devices that were bound, and a RetryError from it leaves the claim begun.
"""

import contextlib
import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence

from drakit.core import advanced, config, errors, lifecycle, names, ports
from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.node import call_budget, device_preparer, inventory_cache, resolution, running_verbs, timing
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

Grant = drivers.Grant[object]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeIdentity:
    """One boot of one node, whose own pool is ``pool``. ``program`` is the driver's command, for messages."""

    pool: str
    boot_id: str
    program: str = "drakit"


class Recovered(enum.Enum):
    """The state in which recovery found a claim."""

    WHOLE = "whole"
    EARLIER_BOOT = "earlier boot"
    BOUND = "bound"
    HALF = "half"
    DEFERRED = "release deferred"
    ORPHAN = "orphan"


class Engine:
    """Carries out what the kubelet asks for one driver; implements ``ports.ClaimEngine``.

    ``defers_release`` is set where a thread calls ``release`` for unpreparing claims. Then an unprepare that the driver defers succeeds.
    """

    def __init__(  # noqa: PLR0913 - the ports that it works with
        self,
        author: inventory_cache.Author,
        *,
        identity: NodeIdentity,
        offered: inventory_cache.InventoryCache,
        claim_source: ports.ClaimSource,
        journal: ports.Journal,
        cdi: ports.CdiDirectory,
        device_locks: ports.Locks,
        locks_of_claims: ports.Locks,
        clock: ports.Clock = timing.SYSTEM,
        meter: ports.Meter | None = None,
        metadata: ports.DeviceMetadata | None = None,
    ) -> None:
        self._author = author
        self._identity = identity
        self._offered = offered
        self._claims = claim_source
        self._journal = journal
        self._cdi = cdi
        self._metadata = metadata
        self._clock = clock
        self._meter = meter = meter or ports.Unmeasured()
        self._device_locks = device_locks
        self._claim_locks = locks_of_claims
        self.reporter: ports.ClaimReporter | None = None
        self.defers_release = False
        self.verbs = running_verbs.RunningVerbs(clock)
        self.preparer = device_preparer.DevicePreparer(author, journal, cdi, clock, meter, metadata, self.verbs)
        self.resolver = resolution.Resolver(author, journal, offered, pool=identity.pool, program=identity.program)

    def prepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, claims.Outcome]:
        """Prepare claims one after the other while there is time, and return an outcome for each.

        The results stay in memory until a call answers all its claims before its deadline, because the kubelet takes all answers of a call or none.
        """
        outcomes: dict[names.ClaimUid, claims.Outcome] = {}
        refusal = ""
        for ref, refusal in call_budget.spend(self.verbs.busy_last(refs), caller, self._clock.monotonic):
            if refusal:
                outcomes[ref.uid] = claims.Outcome(error=refusal)
                continue
            with self._answering("prepare", ref) as failure:
                outcomes[ref.uid] = self._prepare(ref, caller)
            if failure.error is not None:
                outcomes[ref.uid] = claims.Outcome(error=failure.text)
                if self.reporter is not None:
                    self.reporter.failed(ref, failure.error)
            elif self.reporter is not None:
                self.reporter.prepared(ref)
        if not refusal and caller.is_waiting():
            self.preparer.drop_answers(uid for uid, outcome in outcomes.items() if not outcome.error)
        return outcomes

    def unprepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, str]:
        """Unprepare claims while there is time, and return an error text for each, empty on success.

        Needs no API server, and accepts unknown claims.
        """
        answers: dict[names.ClaimUid, str] = {}
        for ref, refusal in call_budget.spend(self.verbs.busy_last(refs), caller, self._clock.monotonic):
            answers[ref.uid] = refusal
            if not refusal:
                with self._answering("unprepare", ref) as failure:
                    self._unprepare(ref, caller)
                answers[ref.uid] = failure.text
        for ref in refs:
            if self.reporter is not None and not answers[ref.uid]:
                self.reporter.unprepared(ref)
        return answers

    @contextlib.contextmanager
    def _answering(self, verb: str, ref: claims.ClaimRef) -> Iterator["_Failure"]:
        """Measure the work for one claim in the block, and yield what becomes its failure where the block raises."""
        failure = _Failure()
        with self._meter.claim(verb) as measured, logs.bound(claim=str(ref), claim_uid=ref.uid):
            try:
                yield failure
                measured.ok = True
            except errors.DrakitError as error:
                # The server logs the refusal with its answer.
                holder = self.verbs.holding(error.lock) if isinstance(error, errors.LockedError) else ""
                failure.error, failure.text = error, (str(error) or type(error).__name__) + (f": {holder}" if holder else "")
            except Exception as error:  # noqa: BLE001 - a bug of the author fails that claim, not the node
                _log.exception("driver raised an unexpected error")
                failure.error = error
                failure.text = f"internal error of driver {self._author.name}: {type(error).__name__}: {error}"

    def recover(self, uid: names.ClaimUid, caller: ports.Caller) -> Recovered:
        """Recover one claim after a restart: undo a half state, rewrite lost CDI files, or remove the CDI files of an unknown claim.

        A volatile driver's claim of an earlier boot has no hardware. It is undone too, and holds no device until the kubelet prepares it again.
        """
        with self._claim_locks.hold([uid], caller.is_waiting):
            entry = self._journal.entry(uid)
            if entry is None:
                self._cdi.remove(uid)
                return Recovered.ORPHAN
            if self._is_bound(entry):
                return Recovered.BOUND
            is_earlier = entry.boot_id != self._identity.boot_id
            # A power cut may lose the end of a volatile driver's claim, and nobody would release it again.
            if entry.state is not lifecycle.State.PREPARED or (is_earlier and self._author.volatile):
                with self._device_locks.hold(resolution.lock_names(entry.grants), caller.is_waiting):
                    return Recovered.HALF if self._undo_or_defer(entry) else Recovered.DEFERRED
            if is_earlier:
                return Recovered.EARLIER_BOOT
            self.preparer.write_cdi(entry.claim, entry.grants)
            return Recovered.WHOLE

    def has_only_files(self, uid: names.ClaimUid, caller: ports.Caller) -> bool:
        """Return whether a claim for which no call runs has CDI files but no entry."""
        with self._claim_locks.hold([uid], caller.is_waiting):
            return self._journal.entry(uid) is None and bool(self._cdi.of(uid))

    def refresh_edits(self, uid: names.ClaimUid, caller: ports.Caller) -> bool:
        """Store and write the new edits of a claim that is prepared in this boot, and return whether there were any.

        Raises the errors of the author's ``prepare``; the claim stays prepared.
        """
        with self._claim_locks.hold([uid], caller.is_waiting):
            entry = self._journal.entry(uid)
            if entry is None or not self._is_prepared(entry):
                return False
            with self._device_locks.hold(resolution.lock_names(entry.grants), caller.is_waiting):
                return self.preparer.refresh(entry, caller)

    def _prepare(self, ref: claims.ClaimRef, caller: ports.Caller) -> claims.Outcome:
        with self._meter.phase("fetch"):
            claim = self._claims.fetch(ref)
        with self._claim_locks.hold([ref.uid], call_budget.is_waiting_for_lock(caller)):
            entry = self._journal.entry(ref.uid)
            if entry is not None:
                answer = self._prepare_again(entry, claim, caller)
                if answer is not None:
                    return answer
            grants = self.resolver.resolve(claim, begun=entry is not None and resolution.is_same(entry, claim, self._author))
            with self._device_locks.hold(resolution.lock_names(grants), call_budget.is_waiting_for_lock(caller)):
                return self._complete_or_undo(self._plan_and_begin(ref, grants, caller), caller, claim.pod_claim_name)

    def _prepare_again(self, entry: lifecycle.Entry, claim: claims.Claim, caller: ports.Caller) -> claims.Outcome | None:
        """Return the outcome of a claim that is prepared or can continue; otherwise undo its earlier state and return None."""
        with self._device_locks.hold(resolution.lock_names(entry.grants), call_budget.is_waiting_for_lock(caller)):
            _check_waiting(caller)
            if resolution.is_same(entry, claim, self._author):
                if self._is_prepared(entry):
                    verified = self.preparer.verify(entry, caller, claim.pod_claim_name)
                    return device_preparer.outcome_of(self._author.name, entry.claim, verified)
                if self._can_continue(entry):
                    return self._complete_or_undo(resolution.with_configs(entry, self._author), caller, claim.pod_claim_name)
            _log.info("undoing earlier state", claim=str(entry.claim), claim_uid=entry.claim.uid, state=entry.state.value)
            self._undo(entry)
        return None

    def _plan_and_begin(self, ref: claims.ClaimRef, grants: Sequence[lifecycle.GrantEntry], caller: ports.Caller) -> lifecycle.Entry:
        _check_waiting(caller)
        self.resolver.check_free(ref.uid, grants)
        with self.verbs.run("plan", ref, grants):
            planned = self.resolver.plan(ref, grants)
        return self.begin(ref, planned)

    def begin(self, ref: claims.ClaimRef, grants: Sequence[lifecycle.GrantEntry]) -> lifecycle.Entry:
        """Journal a claim with the intents of its grants, before hardware is touched. The caller holds the locks of claim and devices."""
        entry = lifecycle.Entry(claim=ref, state=lifecycle.State.PREPARING, grants=tuple(grants), boot_id=self._identity.boot_id)
        # Cached results belong to an earlier entry of this claim, which another process undid.
        self.preparer.drop(ref.uid)
        self.resolver.beginning(entry.grants)
        with self._meter.phase("journal"):
            self._journal.begin(entry)
        return entry

    def _complete_or_undo(self, entry: lifecycle.Entry, caller: ports.Caller, pod_claim_name: str) -> claims.Outcome:
        try:
            completed = self.preparer.complete(entry, caller, pod_claim_name)
            return device_preparer.outcome_of(self._author.name, entry.claim, completed)
        except Exception as error:
            # A device that needs several calls, for example because it is bound after a reboot, would never be ready if each call started over.
            latest = self._journal.entry(entry.claim.uid) if isinstance(error, errors.CallerGoneError | errors.RetryError) else None
            if latest is None or not self._can_continue(latest):
                self._undo_after_failure(entry)
            raise

    def _unprepare(self, ref: claims.ClaimRef, caller: ports.Caller) -> None:
        with self._claim_locks.hold([ref.uid], call_budget.is_waiting_for_lock(caller)):
            entry = self._journal.entry(ref.uid)
            if entry is None:
                self._cdi.remove(ref.uid)
                return
            with self._device_locks.hold(resolution.lock_names(entry.grants), call_budget.is_waiting_for_lock(caller)):
                _check_waiting(caller)
                if not self.defers_release:
                    self._undo(entry)
                elif not self._undo_or_defer(entry):
                    return
            _log.info("claim unprepared", claim=str(ref), claim_uid=ref.uid)

    def release(self, uid: names.ClaimUid, caller: ports.Caller) -> bool:
        """Undo a claim that is still unpreparing, and return whether it was. Raises ReleaseDeferredError and the errors of the author."""
        with self._claim_locks.hold([uid], caller.is_waiting):
            entry = self._journal.entry(uid)
            if entry is None or entry.state is not lifecycle.State.UNPREPARING:
                return False
            with self._device_locks.hold(resolution.lock_names(entry.grants), caller.is_waiting):
                self._undo(entry)
        return True

    def bind(self, ref: claims.ClaimRef, caller: ports.Caller) -> Sequence[Grant]:
        """Make the claim's devices with binding conditions ready before its pod is bound, and return their grants.

        Raises the errors that ``prepare`` reports. ConfigError and DeviceGoneError undo the claim. After any other error the claim stays begun: the
        next call continues it, or ``abandon`` undoes it.
        """
        with self._meter.phase("fetch"):
            claim = self._claims.fetch(ref)
        with self._claim_locks.hold([ref.uid], call_budget.is_waiting_for_lock(caller)):
            entry = self._journal.entry(ref.uid)
            if entry is not None and not (
                resolution.is_same(entry, claim, self._author) and (self._is_prepared(entry) or self._is_bound(entry))
            ):
                with self._device_locks.hold(resolution.lock_names(entry.grants), call_budget.is_waiting_for_lock(caller)):
                    self._undo(entry)
                entry = None
            grants = self.resolver.resolve(claim) if entry is None else entry.grants
            with self._device_locks.hold(resolution.lock_names(grants), call_budget.is_waiting_for_lock(caller)):
                if entry is None:
                    entry = self._plan_and_begin(ref, grants, caller)
                elif entry.state is lifecycle.State.PREPARING:
                    entry = resolution.with_configs(entry, self._author)
                conditional = [grant for grant in entry.grants if grant.device.binding_conditions]
                to_bind = [resolution.grant_of(ref, grant, self._author, caller=caller) for grant in conditional]
                try:
                    if entry.state is lifecycle.State.PREPARING and to_bind:
                        with config.author_errors(), self.verbs.run("bind", ref, conditional):
                            advanced.bind(self._author, to_bind)
                except (errors.ConfigError, errors.DeviceGoneError):
                    self._undo_after_failure(entry)
                    raise
                return to_bind

    def abandon(self, ref: claims.ClaimRef, claim: claims.Claim | None, caller: ports.Caller) -> bool:
        """Undo a begun claim whose allocation changed (``claim`` is None if it has none), and return whether anything was undone.

        A prepared claim stays as it is.
        """
        with self._claim_locks.hold([ref.uid], call_budget.is_waiting_for_lock(caller)):
            entry = self._journal.entry(ref.uid)
            if entry is None or entry.state is lifecycle.State.PREPARED or not self._binds(entry):
                return False
            if claim is not None and resolution.is_same(entry, claim, self._author):
                return False
            with self._device_locks.hold(resolution.lock_names(entry.grants), call_budget.is_waiting_for_lock(caller)):
                self._undo(entry)
        if self.reporter is not None:
            self.reporter.unprepared(ref)
        return True

    def is_unfinished(self, entry: lifecycle.Entry) -> bool:
        """Return whether a claim with binding conditions was begun and is not prepared, so that it must be continued or abandoned."""
        return entry.state is not lifecycle.State.PREPARED and self._binds(entry)

    def _binds(self, entry: lifecycle.Entry) -> bool:
        return any(grant.device.binding_conditions for grant in entry.grants) and advanced.binds(self._author)

    def _is_bound(self, entry: lifecycle.Entry) -> bool:
        """Return whether a claim with binding conditions was begun in this boot and can continue."""
        return entry.state is lifecycle.State.PREPARING and entry.boot_id == self._identity.boot_id and self._binds(entry)

    def _can_continue(self, entry: lifecycle.Entry) -> bool:
        """Return whether a claim was begun in this boot and an earlier call left the rest of it to the next one."""
        is_begun = entry.state is lifecycle.State.PREPARING and entry.boot_id == self._identity.boot_id
        return is_begun and (self._binds(entry) or device_preparer.has_finished(entry))

    def _is_prepared(self, entry: lifecycle.Entry) -> bool:
        return entry.state is lifecycle.State.PREPARED and entry.boot_id == self._identity.boot_id

    def _undo(self, entry: lifecycle.Entry) -> None:
        """Bring a claim from any state to absent. The caller holds the locks. Every step may be repeated after a crash."""
        uid = entry.claim.uid
        # An intent that this release cannot read leaves the claim as it is.
        grants = [resolution.grant_of(entry.claim, stored, self._author) for stored in entry.grants]
        self.preparer.drop(uid)
        with self._meter.phase("journal"):
            self._journal.begin_unprepare(uid)
        with self._meter.phase("cdi"):
            self._cdi.remove(uid)
        if self._metadata is not None:
            self._metadata.remove(uid)
        deferred: errors.ReleaseDeferredError | None = None
        for stored, grant in reversed(list(zip(entry.grants, grants, strict=True))):
            try:
                with self.verbs.run("unprepare", entry.claim, [stored]), self._meter.phase("device_unprepare"):
                    self._author.unprepare(grant)
            except errors.ReleaseDeferredError as error:
                deferred = error
        if deferred is not None:
            raise deferred
        with self._meter.phase("journal"):
            self._journal.finish_unprepare(uid)
        self._offered.unprepared(entry)

    def _undo_or_defer(self, entry: lifecycle.Entry) -> bool:
        """Undo a claim; return False where the driver defers that, so that the claim stays unpreparing until ``release``."""
        try:
            self._undo(entry)
        except errors.ReleaseDeferredError as error:
            _log.warning("claim release deferred", claim=str(entry.claim), claim_uid=entry.claim.uid, error=str(error))
            return False
        return True

    def _undo_after_failure(self, entry: lifecycle.Entry) -> None:
        """Undo a claim now. Where that fails, the claim stays in the journal as unpreparing, and the next call or start undoes it."""
        try:
            self._undo_or_defer(entry)
        except Exception:  # noqa: BLE001 - the call reports its first error; the journal keeps this one as a state
            _log.exception("undoing claim failed", claim=str(entry.claim), claim_uid=entry.claim.uid)


@dataclasses.dataclass
class _Failure:
    """The error of one claim and its text for the kubelet; None and empty after success."""

    error: Exception | None = None
    text: str = ""


def _check_waiting(caller: ports.Caller) -> None:
    if not caller.is_waiting():
        raise errors.CallerGoneError("the kubelet stopped waiting before this call began its work")
