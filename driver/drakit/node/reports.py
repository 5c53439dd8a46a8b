"""What is told to the users of claims beside the kubelet's answers: device statuses and Events, sent by two threads in the background.

The framework itself says one thing: the condition ``Ready``. By default it is False, with reason and message, where a claim could not be prepared,
and True once that claim was prepared after all; ``always`` says it of every claim, ``never`` of none. What was said of a claim is taken back when
it is unprepared. A claim that has no status of this driver costs nothing: neither a request nor a place in the queue.
"""

import collections
import enum
import threading
from collections.abc import Callable, Mapping

from drakit.core import claim as claims
from drakit.core import claim_status, errors, names, ports
from drakit.core import site as sites
from drakit.node import outbox
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

TOLD_ONCE_SECONDS = 600.0
NOT_WRITTEN = "DeviceStatusNotWritten"
"""The reason of the Event for a claim whose status the API server never takes."""
_TOLD_MAX = 1024
_MESSAGE_MAX = 1024
_PREPARED = sites.Condition(type=claim_status.READY, status=True, reason="Prepared", message="the device is prepared")


class Conditions(enum.Enum):
    """Of which claims the framework itself says whether they are ready."""

    FAILURES = "failures"
    ALWAYS = "always"
    NEVER = "never"


NoticeKey = tuple[claims.ClaimRef, sites.Notice]


class Reports:
    """``core.ports.Witness``, and the author's ``status`` and ``notice``. Every call returns at once."""

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
        self._told: collections.OrderedDict[NoticeKey, tuple[float, int]] = collections.OrderedDict()
        self._written: set[names.ClaimUid] = set()
        self._status_box: outbox.Outbox[claims.ClaimRef, claim_status.StatusChange] = outbox.Outbox(
            "status", self._write_status, claim_status.StatusChange.then, clock
        )
        self._event_box: outbox.Outbox[NoticeKey, int] = outbox.Outbox("event", self._send_event, int.__add__, clock)

    def loops(self) -> tuple[tuple[str, Callable[[threading.Event], None]], ...]:
        """The loops to run, by name; each ends when its event is set and ``wake`` called."""
        return ("statuses", self._status_box.run), ("events", self._event_box.run)

    def wake(self) -> None:
        """Look whether to stop."""
        self._status_box.wake()
        self._event_box.wake()

    def status(self, claim: claims.ClaimRef, status: sites.DeviceStatus) -> None:
        """Write the device's status into the claim."""
        self._put(claim, claim_status.of_device(status, self._pool))

    def bound(self, claim: claims.ClaimRef, conditions: Mapping[claim_status.DeviceKey, sites.Condition]) -> None:
        """State a binding condition, or one of failure, of each of these devices, beside what is said of them already."""
        self._put(claim, claim_status.StatusChange(bound=conditions))

    def notice(self, claim: claims.ClaimRef, notice: sites.Notice) -> None:
        """Tell the users of a claim; an equal one within ten minutes is only counted, and its count told with the next after that."""
        self._notice(claim, notice)

    def prepared(self, ref: claims.ClaimRef) -> None:
        """All devices of the claim are prepared."""
        if self._conditions is Conditions.ALWAYS or (self._conditions is Conditions.FAILURES and not self._is_blank(ref)):
            self._put(ref, claim_status.StatusChange(ready=_PREPARED))

    def failed(self, ref: claims.ClaimRef, error: Exception) -> None:
        """The claim could not be prepared. What is no fact about the claim (nobody waits any more, the API server is away) is not told."""
        if self._conditions is Conditions.NEVER or isinstance(error, errors.CallerGoneError | errors.ApiError):
            return
        message = (str(error) or type(error).__name__)[:_MESSAGE_MAX]
        condition = sites.Condition(type=claim_status.READY, status=False, reason=reason_of(error), message=message)
        self._put(ref, claim_status.StatusChange(ready=condition))

    def unprepared(self, ref: claims.ClaimRef) -> None:
        """Nothing of the claim is left, so nothing is to be said of it any more."""
        if not self._is_blank(ref):
            self._put(ref, claim_status.StatusChange(cleared=True))
        with self._lock:
            self._written.discard(ref.uid)

    def _write_status(self, ref: claims.ClaimRef, change: claim_status.StatusChange) -> None:
        """Write, and tell the claim's users where only they can act; to try again would change nothing."""
        try:
            self._statuses.write(ref, change)
        except errors.ConfigError as error:
            if self._notice(ref, sites.Notice(reason=NOT_WRITTEN, message=str(error), weight=sites.Weight.WARNING)):
                _log.warning("device status cannot be written", claim=str(ref), error=str(error))

    def _notice(self, claim: claims.ClaimRef, notice: sites.Notice) -> bool:
        """Tell, unless an equal one was told in the last ten minutes; return whether it was told."""
        now, key = self._clock.monotonic(), (claim, notice)
        with self._lock:
            last, held_back = self._told.get(key, (now - TOLD_ONCE_SECONDS, 0))
            fresh = now - last >= TOLD_ONCE_SECONDS
            self._told[key] = (now, 0) if fresh else (last, held_back + 1)
            self._told.move_to_end(key)
            while len(self._told) > _TOLD_MAX:
                self._told.popitem(last=False)
        if fresh:
            self._event_box.put(key, held_back + 1)
        return fresh

    def _put(self, ref: claims.ClaimRef, change: claim_status.StatusChange) -> None:
        with self._lock:
            self._written.add(ref.uid)
        self._status_box.put(ref, change)

    def _is_blank(self, ref: claims.ClaimRef) -> bool:
        """Whether nothing of ours stands in the claim, nor waits to be written."""
        with self._lock:
            spoken = ref.uid in self._written
        return not spoken and self._statuses.is_blank(ref.uid)

    def _send_event(self, key: NoticeKey, times: int) -> None:
        claim, notice = key
        self._events.tell(claim, notice, times, self._clock.now())


def reason_of(error: Exception) -> str:
    """A CamelCase reason: the kind of error without the word Error; a bug is InternalError."""
    if isinstance(error, errors.ClaimError):
        return "Claim" + "".join(part.capitalize() for part in error.fault.value.split("-"))
    if isinstance(error, errors.DrakitError):
        return type(error).__name__.removesuffix("Error") or "Failed"
    return "InternalError"
