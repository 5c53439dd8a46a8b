"""Make devices ready before their pods are bound (KEP-5007), and undo what was bound for an allocation that changed.

One thread follows the claims. Each claim that needs work gets a thread of its own, because ``bind`` may take minutes. That thread reads the claim
from the API server and reconciles it, so missed and repeated events do no harm. The journal has every claim that was begun; a process that starts
reconciles those first.
"""

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence

from drakit import texts
from drakit.core import backoff, claim_status, errors, names, ports
from drakit.core import claim as claims
from drakit.node import device_status, engine
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
JOIN_SECONDS = 10.0
_CONCURRENT_MAX = 32
_NOT_ALLOCATED = frozenset({errors.ClaimFault.NOT_FOUND, errors.ClaimFault.NOT_ALLOCATED, errors.ClaimFault.REPLACED})

ReportConditions = Callable[[claims.ClaimRef, Mapping[claim_status.DeviceKey, claim_status.Condition]], None]


class UntilStopped:
    """A ``ports.Caller`` that waits until the node stops, without a deadline."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def is_waiting(self) -> bool:
        """Return whether the node still runs."""
        return not self._stop.is_set()

    def seconds_left(self) -> float | None:
        """Return None: there is no deadline."""
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnDevices:
    """The devices that this node binds: those of one driver in the pools of the node whose own pool is ``pool``."""

    driver: str
    pool: str

    def results_to_bind(self, claim: claims.Claim) -> Sequence[claims.AllocationResult]:
        """Return the claim's results of this node's devices that have binding conditions."""
        results = claim.results_of(self.driver)
        return [result for result in results if names.is_pool_of_node(result.pool, self.pool) and result.binding_conditions]


class Binding:
    """The controller that binds waiting claims. ``report`` writes binding conditions of devices to a claim's status."""

    def __init__(
        self,
        claim_engine: engine.Engine,
        journal: ports.Journal,
        claim_source: ports.ClaimSource,
        bindings: ports.Bindings,
        report: ReportConditions,
        clock: ports.Clock,
        *,
        ours: OwnDevices,
        first_pause: float = FIRST_PAUSE,
    ) -> None:
        self._engine = claim_engine
        self._journal = journal
        self._claims = claim_source
        self._bindings = bindings
        self._report = report
        self._clock = clock
        self._ours = ours
        self._first_pause = first_pause
        self._lock = threading.Lock()
        self._changes: dict[names.ClaimUid, threading.Event] = {}
        self._begun: set[names.ClaimUid] = set()
        self._slots = threading.BoundedSemaphore(_CONCURRENT_MAX)

    @property
    def is_idle(self) -> bool:
        """Return whether no claim is being reconciled."""
        with self._lock:
            return not self._changes

    def run(self, stop: threading.Event) -> None:
        """Follow the claims until ``stop`` is set, then wait up to ``JOIN_SECONDS`` for the claims in progress."""
        for binding in self._bindings.follow(stop):
            if binding is None:
                for entry in self._journal.entries():
                    if self._engine.is_unfinished(entry):
                        self._enqueue(entry.claim, stop)
            elif binding.waits or (not binding.allocated and binding.claim.uid in self._begun):
                self._enqueue(binding.claim, stop)
        with self._lock:
            for changed in self._changes.values():
                changed.set()
        deadline = self._clock.monotonic() + JOIN_SECONDS
        while not self.is_idle and self._clock.monotonic() < deadline:
            self._clock.wait(threading.Event(), 0.05)

    def _enqueue(self, ref: claims.ClaimRef, stop: threading.Event) -> None:
        """Reconcile a claim in a thread of its own; a claim that has one already is reconciled once more by that thread."""
        with self._lock:
            self._begun.add(ref.uid)
            if ref.uid in self._changes:
                self._changes[ref.uid].set()
                return
            self._changes[ref.uid] = changed = threading.Event()
        threading.Thread(target=self._reconcile_until_done, args=(ref, changed, stop), name=f"bind-{ref.name}", daemon=True).start()

    def _reconcile_until_done(self, ref: claims.ClaimRef, changed: threading.Event, stop: threading.Event) -> None:
        """Reconcile a claim until that succeeds without a change in between, with growing pauses after errors."""
        pauses = backoff.Backoff(self._first_pause, LONGEST_PAUSE)
        while True:
            changed.clear()
            wait = self._try_reconcile(ref, stop, pauses.next())
            if wait is None:
                pauses.reset()
            if wait is not None and not stop.is_set():
                self._clock.wait(changed, wait)
            with self._lock:
                if stop.is_set() or (wait is None and not changed.is_set()):
                    del self._changes[ref.uid]
                    return

    def _try_reconcile(self, ref: claims.ClaimRef, stop: threading.Event, pause: float) -> float | None:
        """Reconcile a claim once; return None on success, else the seconds until the next attempt."""
        try:
            with self._slots:
                self._reconcile(ref, UntilStopped(stop))
        except errors.RetryError as error:
            _log.info("binding delayed", claim=str(ref), claim_uid=ref.uid, error=str(error), retry_in_s=error.after)
            return error.after
        except errors.DrakitError as error:
            _log.warning("binding failed", claim=str(ref), claim_uid=ref.uid, error=str(error), retry_in_s=pause)
            return pause
        except Exception:  # noqa: BLE001 - a bug of the author fails that claim, not the node
            _log.exception("driver raised an unexpected error", claim=str(ref), claim_uid=ref.uid)
            return pause
        return None

    def _reconcile(self, ref: claims.ClaimRef, caller: ports.Caller) -> None:
        claim = self._claim(ref)
        self._engine.abandon(ref, claim, caller)
        results = self._ours.results_to_bind(claim) if claim else ()
        if not results:
            with self._lock:
                self._begun.discard(ref.uid)
            return
        try:
            self._engine.bind(ref, caller)
        except (errors.ConfigError, errors.DeviceGoneError, errors.ClaimError) as error:
            if isinstance(error, errors.ClaimError) and error.fault in _NOT_ALLOCATED:
                raise
            _log.warning("binding rejected", claim=str(ref), claim_uid=ref.uid, error=str(error))
            self._report(ref, {_key(result): _failure(result, error) for result in results if result.binding_failure_conditions})
        else:
            _log.info("claim bound", claim=str(ref), claim_uid=ref.uid, devices=[result.device for result in results])
            self._report(ref, {_key(result): _success(result) for result in results})

    def _claim(self, ref: claims.ClaimRef) -> claims.Claim | None:
        """Return the claim as the API server has it, None if it is not allocated. Raises ApiError, and ClaimError for an invalid claim."""
        try:
            return self._claims.fetch(ref)
        except errors.ClaimError as error:
            if error.fault in _NOT_ALLOCATED:
                return None
            raise


def _key(result: claims.AllocationResult) -> claim_status.DeviceKey:
    return result.pool, result.device, result.share_id or ""


def _success(result: claims.AllocationResult) -> claim_status.Condition:
    return claim_status.Condition(type=result.binding_conditions[0], status=True, reason="Bound", message="the device is ready")


def _failure(result: claims.AllocationResult, error: Exception) -> claim_status.Condition:
    kind = result.binding_failure_conditions[0]
    return claim_status.Condition(
        type=kind, status=True, reason=device_status.reason_of(error), message=texts.cut(str(error), device_status.MESSAGE_MAX)
    )
