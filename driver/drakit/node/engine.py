"""Prepare and unprepare claims so that no crash, retry or race leaves anything behind.

Invariants:
1. Hardware is touched only between ``journal.begin`` and ``journal.forget``: whatever exists, the journal knows of.
2. A claim is answered as prepared only if its hardware, its CDI files and its entry agree; a half state is undone before anything else.
3. Calls for one claim never overlap, nor do calls for one physical device, also not between processes. The order is always claim lock, then
   device locks, so nobody waits in a circle; and nobody waits once the caller has gone. An entry is read under its claim's lock, so it is true
   until that is released. No lock is held while the API server is asked.
4. Nothing commits once the caller has gone: the kubelet may already have called Unprepare for the claim.
5. Every claim asked for gets exactly one outcome, and one claim's failure is not another's.
"""

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping, Sequence

from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import edits, errors, lifecycle, names, outcome, ports
from drakit.node import offer, resolution, room
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

Grant = drivers.Grant[object]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where the engine works: one pool of one boot of one node."""

    pool: str
    boot_id: str


class Found(enum.Enum):
    """What recovery found of a claim."""

    WHOLE = "whole"
    EARLIER_BOOT = "earlier boot"
    HALF = "half"
    ORPHAN = "orphan"


class Engine:
    """Carries out what the kubelet asks for one driver; implements ``ports.ClaimEngine``."""

    def __init__(
        self,
        author: offer.Author,
        *,
        place: Place,
        offered: offer.Offer,
        claim_source: ports.ClaimSource,
        journal: ports.Journal,
        cdi: ports.CdiDirectory,
        device_locks: ports.Locks,
        locks_of_claims: ports.Locks,
    ) -> None:
        self._author = author
        self._place = place
        self._offered = offered
        self._claims = claim_source
        self._journal = journal
        self._cdi = cdi
        self._device_locks = device_locks
        self._claim_locks = locks_of_claims

    def prepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, outcome.Outcome]:
        """Prepare claims one after the other; an outcome for each."""
        return {ref.uid: self._outcome_of(ref, functools.partial(self._prepare, ref, caller)) for ref in refs}

    def unprepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, str]:
        """Unprepare claims; needs neither the API server nor the process that prepared, and accepts claims it never saw."""
        return {ref.uid: self._error_of(ref, functools.partial(self._unprepare, ref, caller)) for ref in refs}

    def recover(self, uid: names.ClaimUid, caller: ports.Caller) -> Found:
        """Finish what an earlier process left of a claim: undo a half state, rewrite lost CDI files, remove those of a claim nobody knows."""
        with self._claim_locks.hold([uid], caller.is_waiting):
            entry = self._journal.entry(uid)
            if entry is None:
                self._cdi.remove(uid)
                return Found.ORPHAN
            if entry.state is not lifecycle.State.PREPARED:
                with self._device_locks.hold(resolution.lock_names(entry.grants), caller.is_waiting):
                    self._undo(entry)
                return Found.HALF
            if entry.boot_id != self._place.boot_id:
                return Found.EARLIER_BOOT
            self._write_cdi(entry.claim, entry.grants)
            return Found.WHOLE

    def _outcome_of(self, ref: claims.ClaimRef, work: Callable[[], outcome.Outcome]) -> outcome.Outcome:
        prepared: list[outcome.Outcome] = []
        error = self._error_of(ref, lambda: prepared.append(work()))
        return prepared[0] if prepared else outcome.Outcome(error=error)

    def _error_of(self, ref: claims.ClaimRef, work: Callable[[], None]) -> str:
        try:
            work()
        except errors.DrakitError as error:
            _log.warning("claim refused", claim=str(ref), uid=ref.uid, error=str(error), kind=type(error).__name__)
            return str(error) or type(error).__name__
        except Exception as error:  # noqa: BLE001 - an author's bug is that claim's failure, not the node's
            _log.exception("bug in driver", claim=str(ref), uid=ref.uid)
            return f"internal error of driver {self._author.name}: {type(error).__name__}: {error}"
        return ""

    def _prepare(self, ref: claims.ClaimRef, caller: ports.Caller) -> outcome.Outcome:
        claim = self._claims.fetch(ref)
        with self._claim_locks.hold([ref.uid], caller.is_waiting):
            entry = self._journal.entry(ref.uid)
            if entry is not None:
                answer = self._prepare_again(entry, claim, caller)
                if answer is not None:
                    return answer
            return self._prepare_new(claim, caller)

    def _prepare_again(self, entry: lifecycle.Entry, claim: claims.Claim, caller: ports.Caller) -> outcome.Outcome | None:
        """The answer for a claim that is prepared and still whole; otherwise undo what there is and return None."""
        with self._device_locks.hold(resolution.lock_names(entry.grants), caller.is_waiting):
            _check_waiting(caller)
            current = entry.state is lifecycle.State.PREPARED and entry.boot_id == self._place.boot_id
            if current and resolution.is_same(entry, claim, self._author) and self._is_whole(entry):
                return self._answer(entry.grants, entry.claim)
            _log.info("undoing an earlier state", claim=str(entry.claim), uid=entry.claim.uid, state=entry.state.value)
            self._undo(entry)
        return None

    def _is_whole(self, entry: lifecycle.Entry) -> bool:
        """Whether hardware still answers as it did; lost or altered CDI files are rewritten."""
        for kept in entry.grants:
            prepared = self._author.prepare(resolution.from_entry(entry.claim, kept, self._author))
            if prepared.record != kept.record or prepared.edits != kept.edits:
                return False
        self._write_cdi(entry.claim, entry.grants)
        return True

    def _prepare_new(self, claim: claims.Claim, caller: ports.Caller) -> outcome.Outcome:
        grants = resolution.resolve(claim, self._author, self._place.pool, self._offered.device)
        with self._device_locks.hold(resolution.lock_names(grants), caller.is_waiting):
            _check_waiting(caller)
            offered = self._offered.flat
            shares = [grant.share_id for grant in grants if grant.share_id]
            room.check(grants, self._journal.holdings(self._place.pool, room.neighbours(grants, offered), shares), offered)
            planned = tuple(dataclasses.replace(grant, intent=self._author.plan(grant)) for grant in grants)
            entry = lifecycle.Entry(
                claim=claim.ref,
                state=lifecycle.State.PREPARING,
                grants=tuple(map(resolution.to_entry, planned)),
                boot_id=self._place.boot_id,
            )
            self._journal.begin(entry)
            try:
                return self._carry_out(entry, planned, caller)
            except Exception:
                self._undo_after_failure(entry)
                raise

    def _carry_out(self, entry: lifecycle.Entry, grants: Sequence[Grant], caller: ports.Caller) -> outcome.Outcome:
        prepared = [self._author.prepare(grant) for grant in grants]
        kept = tuple(
            dataclasses.replace(begun, record=done.record, edits=done.edits) for begun, done in zip(entry.grants, prepared, strict=True)
        )
        self._write_cdi(entry.claim, kept)
        _check_waiting(caller)
        self._journal.complete(entry.claim.uid, kept, self._place.boot_id)
        _log.info("claim prepared", claim=str(entry.claim), uid=entry.claim.uid, devices=[grant.device.name for grant in grants])
        return self._answer(kept, entry.claim)

    def _unprepare(self, ref: claims.ClaimRef, caller: ports.Caller) -> None:
        with self._claim_locks.hold([ref.uid], caller.is_waiting):
            entry = self._journal.entry(ref.uid)
            if entry is None:
                self._cdi.remove(ref.uid)
                return
            with self._device_locks.hold(resolution.lock_names(entry.grants), caller.is_waiting):
                _check_waiting(caller)
                self._undo(entry)
            _log.info("claim unprepared", claim=str(ref), uid=ref.uid)

    def _undo(self, entry: lifecycle.Entry) -> None:
        """From any state to absent; the caller holds the locks. Every step may be repeated after a crash."""
        uid = entry.claim.uid
        self._journal.withdraw(uid)
        self._cdi.remove(uid)
        for kept in reversed(entry.grants):
            self._author.unprepare(resolution.from_entry(entry.claim, kept, self._author))
        self._journal.forget(uid)

    def _undo_after_failure(self, entry: lifecycle.Entry) -> None:
        """Undo at once; what cannot be undone now stays in the journal as unpreparing and is undone by the next call or start."""
        try:
            self._undo(entry)
        except Exception:  # noqa: BLE001 - the first error is the one to report; this one is kept in the journal's state
            _log.exception("could not undo", claim=str(entry.claim), uid=entry.claim.uid)

    def _write_cdi(self, ref: claims.ClaimRef, grants: Sequence[lifecycle.GrantEntry]) -> None:
        for kept in grants:
            if kept.edits:
                self._cdi.write(self._cdi_name(ref, kept), kept.edits)

    def _cdi_name(self, ref: claims.ClaimRef, kept: lifecycle.GrantEntry) -> edits.CdiName:
        request = kept.request.replace("/", ".") if kept.admin_access else ""
        return edits.CdiName(driver=self._author.name, claim_uid=ref.uid, device=kept.device.name, share_id=kept.share_id, request=request)

    def _answer(self, grants: Sequence[lifecycle.GrantEntry], ref: claims.ClaimRef) -> outcome.Outcome:
        return outcome.Outcome(
            devices=tuple(
                outcome.PreparedDevice(
                    request=kept.request.partition("/")[0],
                    pool=kept.pool,
                    device=kept.device.name,
                    cdi_ids=(self._cdi_name(ref, kept).qualified,) if kept.edits else (),
                    share_id=kept.share_id,
                )
                for kept in grants
            )
        )


def _check_waiting(caller: ports.Caller) -> None:
    if not caller.is_waiting():
        raise errors.CallerGoneError("the kubelet stopped waiting; nothing was changed")
