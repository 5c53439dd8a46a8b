"""Device statuses and Events for the users of claims, sent to the API server by two threads in the background.

The framework itself sets one condition, ``Ready``. By default it is False, with reason and message, where a claim could not be prepared,
and True once that claim was prepared after all. ``always`` sets it on every claim, ``never`` on none. It is removed when the claim is
unprepared. A claim that has no status of this driver costs nothing: no request and no place in the queue.

A queue merges changes of one claim and retries failures, each claim with its own back-off. A change that the server rejects (422 and the
like) is retried a few times, because a webhook or a server during an upgrade also rejects. A full queue drops its oldest entry with a
warning.
"""

import collections
import dataclasses
import enum
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from drakit.core import backoff, claim_status, context, errors, names, ports
from drakit.core import claim as claims
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

TOLD_ONCE_SECONDS = 600.0
NOT_WRITTEN = "DeviceStatusNotWritten"
"""The reason of the Event for a claim whose status the API server never takes."""
_TOLD_MAX = 1024
_MESSAGE_MAX = 1024
_PREPARED = claim_status.Condition(type=claim_status.READY, status=True, reason="Prepared", message="the device is prepared")


class Conditions(enum.Enum):
    """Of which claims the framework itself says whether they are ready."""

    FAILURES = "failures"
    ALWAYS = "always"
    NEVER = "never"


NoticeKey = tuple[claims.ClaimRef, context.Event]


class StatusReporter:
    """``core.ports.ClaimReporter``, and the author's ``status`` and ``notice``. Every call returns at once."""

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
        self._status_box: RetryQueue[claims.ClaimRef, claim_status.StatusChange] = RetryQueue(
            "status", self._write_status, claim_status.StatusChange.then, clock
        )
        self._event_box: RetryQueue[NoticeKey, int] = RetryQueue("event", self._send_event, int.__add__, clock)

    def loops(self) -> tuple[tuple[str, Callable[[threading.Event], None]], ...]:
        """The loops to run, by name; each ends when its event is set and ``wake`` called."""
        return ("statuses", self._status_box.run), ("events", self._event_box.run)

    def wake(self) -> None:
        """Look whether to stop."""
        self._status_box.wake()
        self._event_box.wake()

    def status(self, claim: claims.ClaimRef, status: claim_status.DeviceStatus) -> None:
        """Write the device's status into the claim."""
        self._put(claim, claim_status.of_device(status, self._pool))

    def bound(self, claim: claims.ClaimRef, conditions: Mapping[claim_status.DeviceKey, claim_status.Condition]) -> None:
        """State a binding condition, or one of failure, of each of these devices, beside what is said of them already."""
        self._put(claim, claim_status.StatusChange(bound=conditions))

    def notice(self, claim: claims.ClaimRef, notice: context.Event) -> None:
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
        condition = claim_status.Condition(type=claim_status.READY, status=False, reason=reason_of(error), message=message)
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
            if self._notice(ref, context.Event(reason=NOT_WRITTEN, message=str(error), type=context.EventType.WARNING)):
                _log.warning("device status cannot be written", claim=str(ref), error=str(error))

    def _notice(self, claim: claims.ClaimRef, notice: context.Event) -> bool:
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


KEYS_MAX = 1024
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 120.0
REFUSED_PAUSE = 600.0
LAST_WORDS_SECONDS = 3.0
TRIES_MAX = 8
"""How often something is sent that the server calls wrong: over two minutes."""
_IDLE_SECONDS = 3600.0
_REFUSED = 403
_TRANSIENT = frozenset({0, 401, 408, 409, 425, 429})
_SERVER_ERROR = 500

Key = TypeVar("Key", bound=Hashable)
Load = TypeVar("Load")


@dataclasses.dataclass(frozen=True)
class _Parcel(Generic[Load]):
    """``due`` is a moment of the monotonic clock, ``pause`` the next back-off, ``wrong`` how often the server called the load wrong."""

    load: Load
    due: float
    pause: float = FIRST_PAUSE
    wrong: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Failed:
    """What was not told and is tried again after a ``pause`` in seconds; whether the server called it wrong."""

    pause: float
    is_wrong: bool = False


class RetryQueue(Generic[Key, Load]):
    """``send`` raises ClaimError when nobody can be told any more, ApiError when refused or not answered; ``merge`` joins old and new."""

    def __init__(
        self,
        name: str,
        send: Callable[[Key, Load], None],
        merge: Callable[[Load, Load], Load],
        clock: ports.Clock,
        *,
        limit: int = KEYS_MAX,
    ) -> None:
        self._name = name
        self._send = send
        self._merge = merge
        self._clock = clock
        self._limit = limit
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._waiting: collections.OrderedDict[Key, _Parcel[Load]] = collections.OrderedDict()
        self._warned: set[str] = set()

    def __len__(self) -> int:
        with self._lock:
            return len(self._waiting)

    def put(self, key: Key, load: Load) -> None:
        """Send this soon; joins what waits for the key already."""
        with self._lock:
            before = self._waiting.get(key)
            joined = load if before is None else self._merge(before.load, load)
            # What waits out a refusal goes on waiting: news does not change whether it is allowed.
            self._waiting[key] = _Parcel(joined, before.due if before else self._clock.monotonic(), before.pause if before else FIRST_PAUSE)
            dropped = self._waiting.popitem(last=False)[0] if len(self._waiting) > self._limit else None
        if dropped is not None:
            _log.warning("status queue full: oldest entry dropped", what=self._name, key=str(dropped))
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Send what is due until ``stop`` is set and ``wake`` called; then what waits once more, for some seconds at most."""
        while not stop.is_set():
            self._wake.clear()
            wait = self._round()
            if wait > 0 and not stop.is_set():
                self._clock.wait(self._wake, wait)
        self._last_words()

    def wake(self) -> None:
        """Look whether to stop."""
        self._wake.set()

    def _round(self) -> float:
        """Send the first that is due; seconds until there is more to do, 0 for now."""
        now = self._clock.monotonic()
        with self._lock:
            key = next((key for key, parcel in self._waiting.items() if parcel.due <= now), None)
            if key is None:
                return min((parcel.due for parcel in self._waiting.values()), default=now + _IDLE_SECONDS) - now
            parcel = self._waiting.pop(key)
        failed = self._attempt(key, parcel)
        if failed is not None:
            self._again(key, parcel, failed)
        return 0

    def _attempt(self, key: Key, parcel: _Parcel[Load]) -> _Failed | None:
        """Send; None when that is done with."""
        try:
            self._send(key, parcel.load)
        except errors.ClaimError as error:
            _log.debug("nobody is left to be told", what=self._name, key=str(key), error=str(error))
        except errors.ApiError as error:
            return self._failed(key, parcel, error)
        except Exception:  # noqa: BLE001 - one message that cannot be sent must not silence the others
            _log.exception("status update raised an unexpected error: entry dropped", what=self._name, key=str(key))
        return None

    def _failed(self, key: Key, parcel: _Parcel[Load], error: errors.ApiError) -> _Failed | None:
        if error.status == _REFUSED:
            self._warn_once(str(error))
            return _Failed(pause=REFUSED_PAUSE)
        is_wrong = error.status not in _TRANSIENT and error.status < _SERVER_ERROR
        if is_wrong and parcel.wrong + 1 >= TRIES_MAX:
            _log.error("status update rejected: entry dropped", what=self._name, key=str(key), error=str(error))
            return None
        write = _log.warning if is_wrong else _log.info
        write("status update failed", what=self._name, key=str(key), error=str(error), retry_in_s=parcel.pause)
        return _Failed(pause=parcel.pause, is_wrong=is_wrong)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned and len(self._warned) < KEYS_MAX:
            self._warned.add(message)
            _log.error("API server forbids the update (403)", what=self._name, error=message)

    def _again(self, key: Key, parcel: _Parcel[Load], failed: _Failed) -> None:
        with self._lock:
            newer = self._waiting.pop(key, None)
            load = parcel.load if newer is None else self._merge(parcel.load, newer.load)
            # News may say it rightly, so what is joined has all its tries before it.
            wrong = parcel.wrong + failed.is_wrong if newer is None else 0
            self._waiting[key] = _Parcel(load, self._clock.monotonic() + failed.pause, backoff.longer(parcel.pause, LONGEST_PAUSE), wrong)

    def _last_words(self) -> None:
        """One attempt for each, until the first that fails or the time is over."""
        end = self._clock.monotonic() + LAST_WORDS_SECONDS
        while self._clock.monotonic() < end:
            with self._lock:
                if not self._waiting:
                    return
                key, parcel = self._waiting.popitem(last=False)
            failed = self._attempt(key, parcel)
            if failed is not None and not failed.is_wrong:
                return
