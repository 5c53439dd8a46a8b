"""Report device statuses and Events to the users of claims, by two background threads that write to the API server.

The framework itself sets one condition, ``Ready``. By default it is False, with reason and message, on a claim that failed to prepare, and True once
that claim is prepared. ``always`` sets it on every claim, ``never`` on none. It is removed when the claim is unprepared. A claim without a status of
this driver costs no request and no entry in the queue.

``retry_queue`` merges the changes of one claim and retries failures.
"""

import enum
import threading
from collections.abc import Callable, Mapping

from drakit import texts
from drakit.core import claim as claims
from drakit.core import claim_status, context, errors, names, ports
from drakit.node import retry_queue
from drakit.telemetry import logs, repeats

_log = logs.get_logger(__name__)

EVENT_INTERVAL_SECONDS = 600.0
DELAY_SECONDS = 0.2
"""The wait before a write: a call reports several changes of a claim, and its answer does not share the processor with them."""
NOT_WRITTEN = "DeviceStatusNotWritten"
"""The reason of the Event for a claim whose status the API server always rejects."""
MESSAGE_MAX = 1024
_PREPARED = claim_status.Condition(type=claim_status.READY, status=True, reason="Prepared", message="the device is prepared")


class Conditions(enum.Enum):
    """The claims on which the framework sets the ``Ready`` condition."""

    FAILURES = "failures"
    ALWAYS = "always"
    NEVER = "never"


EventKey = tuple[claims.ClaimRef, context.Event]


class StatusReporter:
    """The ``core.ports.ClaimReporter`` of a node, and the sink of the author's statuses and Events. Every call returns at once."""

    def __init__(
        self,
        statuses: ports.ClaimStatuses,
        events: ports.Events,
        clock: ports.Clock,
        *,
        pool: str,
        conditions: Conditions = Conditions.FAILURES,
    ) -> None:
        self._statuses = statuses
        self._events = events
        self._clock = clock
        self._pool = pool
        self._conditions = conditions
        self._lock = threading.Lock()
        self._sent_events: repeats.Repeats[EventKey] = repeats.Repeats(EVENT_INTERVAL_SECONDS, clock.monotonic)
        self._written: set[names.ClaimUid] = set()
        self._status_queue: retry_queue.RetryQueue[claims.ClaimRef, claim_status.StatusChange] = retry_queue.RetryQueue(
            "status", self._write_status, claim_status.StatusChange.then, clock, delay=DELAY_SECONDS
        )
        self._event_queue: retry_queue.RetryQueue[EventKey, int] = retry_queue.RetryQueue(
            "event", self._send_event, int.__add__, clock, delay=DELAY_SECONDS
        )

    def loops(self) -> tuple[tuple[str, Callable[[threading.Event], None]], ...]:
        """Return the loops to run, by name; each ends when its stop event is set and ``wake`` is called."""
        return ("statuses", self._status_queue.run), ("events", self._event_queue.run)

    def wake(self) -> None:
        """Make both loops check their stop events now."""
        self._status_queue.wake()
        self._event_queue.wake()

    def status(self, claim: claims.ClaimRef, status: claim_status.DeviceStatus) -> None:
        """Write the device's status into the claim."""
        self._put(claim, claim_status.of_device(status, self._pool))

    def bound(self, claim: claims.ClaimRef, conditions: Mapping[claim_status.DeviceKey, claim_status.Condition]) -> None:
        """Set a binding condition, or a binding failure condition, of each of these devices, beside its other conditions."""
        self._put(claim, claim_status.StatusChange(bound=conditions))

    def event(self, claim: claims.ClaimRef, event: context.Event) -> None:
        """Record an Event of a claim. Within ten minutes equal Events are only counted, and the next one carries the count."""
        self._event(claim, event)

    def prepared(self, ref: claims.ClaimRef) -> None:
        """Report that all devices of the claim are prepared."""
        if self._conditions is Conditions.ALWAYS or (self._conditions is Conditions.FAILURES and not self._is_blank(ref)):
            self._put(ref, claim_status.StatusChange(ready=_PREPARED))

    def failed(self, ref: claims.ClaimRef, error: Exception) -> None:
        """Report that preparing the claim failed. Errors that are not about the claim (the caller has gone, an API error) are not reported."""
        if self._conditions is Conditions.NEVER or isinstance(error, errors.CallerGoneError | errors.ApiError):
            return
        message = texts.cut(str(error) or type(error).__name__, MESSAGE_MAX)
        condition = claim_status.Condition(type=claim_status.READY, status=False, reason=reason_of(error), message=message)
        self._put(ref, claim_status.StatusChange(ready=condition))

    def unprepared(self, ref: claims.ClaimRef) -> None:
        """Remove the claim's status, because the claim is unprepared."""
        if not self._is_blank(ref):
            self._put(ref, claim_status.StatusChange(cleared=True))
        with self._lock:
            self._written.discard(ref.uid)

    def _write_status(self, ref: claims.ClaimRef, change: claim_status.StatusChange) -> None:
        """Write a status. Where the server rejects it for good, record an Event, because only the claim's users can act."""
        try:
            self._statuses.write(ref, change)
        except errors.ConfigError as error:
            if self._event(ref, context.Event(reason=NOT_WRITTEN, message=str(error), type=context.EventType.WARNING)):
                _log.warning("device status cannot be written", claim=str(ref), error=str(error))

    def _event(self, claim: claims.ClaimRef, event: context.Event) -> bool:
        """Queue an Event unless an equal one was queued in the last ten minutes; return whether it was queued."""
        suppressed = self._sent_events.due((claim, event))
        if suppressed is None:
            return False
        self._event_queue.put((claim, event), suppressed + 1)
        return True

    def _put(self, ref: claims.ClaimRef, change: claim_status.StatusChange) -> None:
        with self._lock:
            self._written.add(ref.uid)
        self._status_queue.put(ref, change)

    def _is_blank(self, ref: claims.ClaimRef) -> bool:
        """Return whether the claim has no status of this driver, neither written nor queued."""
        with self._lock:
            is_queued = ref.uid in self._written
        return not is_queued and self._statuses.is_blank(ref.uid)

    def _send_event(self, key: EventKey, times: int) -> None:
        claim, event = key
        self._events.record(claim, event, times, self._clock.now())


def reason_of(error: Exception) -> str:
    """Return a CamelCase reason: the error's class without the suffix Error, and InternalError for a bug."""
    if isinstance(error, errors.ClaimError):
        return "Claim" + "".join(part.capitalize() for part in error.fault.value.split("-"))
    if isinstance(error, errors.DrakitError):
        return type(error).__name__.removesuffix("Error") or "Failed"
    return "InternalError"
