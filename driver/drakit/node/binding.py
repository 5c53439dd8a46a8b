"""Devices made ready before their pods are bound (KEP-5007): claims that wait are bound, what is bound and no longer wanted is undone.

One thread follows the claims, and each claim that needs something has a thread of its own while it does, because ``bind`` may take minutes. Such a
thread asks the API server how the claim is and then does what is due, so it does not matter what was seen, missed or done before. What was begun is
in the journal; a process that starts looks at that first.
"""

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence

from drakit.core import backoff, claim_status, errors, names, ports
from drakit.core import claim as claims
from drakit.node import device_status, engine
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
JOIN_SECONDS = 10.0
_AT_ONCE = 32
_MESSAGE_MAX = 1024
_FREE = frozenset({errors.ClaimFault.NOT_FOUND, errors.ClaimFault.NOT_ALLOCATED, errors.ClaimFault.REPLACED})

ReportConditions = Callable[[claims.ClaimRef, Mapping[claim_status.DeviceKey, claim_status.Condition]], None]


class UntilStopped:
    """A ``ports.Caller`` that waits until the node stops."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def is_waiting(self) -> bool:
        """Whether the node goes on."""
        return not self._stop.is_set()

    def seconds_left(self) -> float | None:
        """Nobody sets a deadline."""
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnDevices:
    """Whose devices are bound: one driver's, of the pools of the node whose own pool is ``pool``."""

    driver: str
    pool: str

    def among(self, claim: claims.Claim) -> Sequence[claims.AllocationResult]:
        """The claim's devices of ours that have binding conditions."""
        results = claim.results_of(self.driver)
        return [one for one in results if names.is_pool_of_node(one.pool, self.pool) and one.binding_conditions]


class Binding:
    """``tell`` states conditions of devices in a claim's status; ``first_pause`` is in seconds."""

    def __init__(
        self,
        claim_engine: engine.Engine,
        journal: ports.Journal,
        claim_source: ports.ClaimSource,
        bindings: ports.Bindings,
        tell: ReportConditions,
        clock: ports.Clock,
        *,
        ours: OwnDevices,
        first_pause: float = FIRST_PAUSE,
    ) -> None:
        self._engine = claim_engine
        self._journal = journal
        self._claims = claim_source
        self._bindings = bindings
        self._tell = tell
        self._clock = clock
        self._ours = ours
        self._first_pause = first_pause
        self._lock = threading.Lock()
        self._news: dict[names.ClaimUid, threading.Event] = {}
        self._begun: set[names.ClaimUid] = set()
        self._seats = threading.BoundedSemaphore(_AT_ONCE)

    @property
    def is_idle(self) -> bool:
        """Whether no verb is being carried out."""
        with self._lock:
            return not self._news

    def run(self, stop: threading.Event) -> None:
        """Follow the claims until ``stop`` is set; then wait some seconds for what is being bound."""
        for standing in self._bindings.follow(stop):
            if standing is None:
                for entry in self._journal.entries():
                    if self._engine.is_unfinished(entry):
                        self._look_at(entry.claim, stop)
            elif standing.waits or (not standing.allocated and standing.claim.uid in self._begun):
                self._look_at(standing.claim, stop)
        with self._lock:
            for news in self._news.values():
                news.set()
        end = self._clock.monotonic() + JOIN_SECONDS
        while not self.is_idle and self._clock.monotonic() < end:
            self._clock.wait(threading.Event(), 0.05)

    def _look_at(self, ref: claims.ClaimRef, stop: threading.Event) -> None:
        """See to a claim soon; what is seen while somebody does is one more look."""
        with self._lock:
            self._begun.add(ref.uid)
            if ref.uid in self._news:
                self._news[ref.uid].set()
                return
            self._news[ref.uid] = news = threading.Event()
        threading.Thread(target=self._see_to, args=(ref, news, stop), name=f"bind-{ref.name}", daemon=True).start()

    def _see_to(self, ref: claims.ClaimRef, news: threading.Event, stop: threading.Event) -> None:
        """Do what is due until nothing is, with pauses after errors that pass."""
        pauses = backoff.Backoff(self._first_pause, LONGEST_PAUSE)
        while True:
            news.clear()
            wait = self._seated(ref, stop, pauses.next())
            if wait is None:
                pauses.reset()
            if wait is not None and not stop.is_set():
                self._clock.wait(news, wait)
            with self._lock:
                if stop.is_set() or (wait is None and not news.is_set()):
                    del self._news[ref.uid]
                    return

    def _seated(self, ref: claims.ClaimRef, stop: threading.Event, pause: float) -> float | None:
        """Do what is due; seconds until it is to be tried again, None when it is done."""
        try:
            with self._seats:
                self._settle(ref, UntilStopped(stop))
        except errors.RetryError as error:
            _log.info("binding delayed", claim=str(ref), claim_uid=ref.uid, error=str(error), retry_in_s=error.after)
            return error.after
        except errors.DrakitError as error:
            _log.warning("binding failed", claim=str(ref), claim_uid=ref.uid, error=str(error), retry_in_s=pause)
            return pause
        except Exception:  # noqa: BLE001 - an author's bug is that claim's failure, not the node's
            _log.exception("bug in driver", claim=str(ref), claim_uid=ref.uid)
            return pause
        return None

    def _settle(self, ref: claims.ClaimRef, caller: ports.Caller) -> None:
        claim = self._claim(ref)
        self._engine.abandon(ref, claim, caller)
        ours = self._ours.among(claim) if claim else ()
        if claim is None or not ours:
            with self._lock:
                self._begun.discard(ref.uid)
            return
        try:
            self._engine.bind(ref, caller)
        except (errors.ConfigError, errors.DeviceGoneError, errors.ClaimError) as error:
            if isinstance(error, errors.ClaimError) and error.fault in _FREE:
                raise
            _log.warning("cannot be bound", claim=str(ref), claim_uid=ref.uid, error=str(error))
            failed = {_key(one): _failure(one, error) for one in ours if one.binding_failure_conditions}
            self._tell(ref, failed)
        else:
            _log.info("claim bound", claim=str(ref), claim_uid=ref.uid, devices=[one.device for one in ours])
            self._tell(ref, {_key(one): _success(one) for one in ours})

    def _claim(self, ref: claims.ClaimRef) -> claims.Claim | None:
        """The claim as it is, None where it is not allocated; raises ApiError, and ClaimError for one that makes no sense."""
        try:
            return self._claims.fetch(ref)
        except errors.ClaimError as error:
            if error.fault in _FREE:
                return None
            raise


def _key(result: claims.AllocationResult) -> claim_status.DeviceKey:
    return result.pool, result.device, result.share_id or ""


def _success(result: claims.AllocationResult) -> claim_status.Condition:
    return claim_status.Condition(type=result.binding_conditions[0], status=True, reason="Bound", message="the device is ready")


def _failure(result: claims.AllocationResult, error: Exception) -> claim_status.Condition:
    kind = result.binding_failure_conditions[0]
    return claim_status.Condition(type=kind, status=True, reason=device_status.reason_of(error), message=str(error)[:_MESSAGE_MAX])
