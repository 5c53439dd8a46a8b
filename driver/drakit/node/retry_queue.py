"""A queue of values to send to the API server, with one pending value for each key, retries and back-off.

A queue merges the values of one key and retries failures, each key with its own back-off. A value that the server rejects (422 and the like) is
retried a few times, because a webhook or a server during an upgrade may also reject it. A full queue drops its oldest entry with a warning.
"""

import collections
import dataclasses
import http
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from drakit.core import backoff, errors, ports
from drakit.telemetry import logs, repeats

_log = logs.get_logger(__name__)

KEYS_MAX = 1024
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 120.0
REFUSED_PAUSE = 600.0
FLUSH_SECONDS = 3.0
ATTEMPTS_MAX = 8
"""The number of attempts for a value that the server rejects; they take over two minutes."""
LOG_SECONDS = 600.0
_IDLE_SECONDS = 3600.0
FORBIDDEN = "Forbidden"
"""The reason of an error that only a new right ends; the API server answers 422 where it checks some rights."""
_TRANSIENT = frozenset({0, 401, 408, 409, 425, 429})
_SERVER_ERROR = 500

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class _Pending(Generic[Value]):
    """A value that waits to be sent. ``due`` is monotonic seconds, ``pause`` the next back-off, ``rejections`` counts the server's rejections."""

    value: Value
    due: float
    pause: float = FIRST_PAUSE
    rejections: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Retry:
    """A failed attempt that is retried after ``pause`` seconds; ``is_rejected`` is true where the server rejected the value."""

    pause: float
    is_rejected: bool = False


class RetryQueue(Generic[Key, Value]):
    """A queue with one pending value for each key, retries and back-off.

    ``send`` raises ClaimError when the claim is gone, ConfigError when the value can never be sent, and ApiError when the server rejects the value
    or does not answer. ``merge`` joins an old and a new value. Each kind of failure is logged once a period, because all entries may fail alike.
    """

    def __init__(
        self,
        name: str,
        send: Callable[[Key, Value], None],
        merge: Callable[[Value, Value], Value],
        clock: ports.Clock,
        *,
        limit: int = KEYS_MAX,
        delay: float = 0.0,
    ) -> None:
        self._name = name
        self._send = send
        self._merge = merge
        self._clock = clock
        self._limit = limit
        self._delay = delay
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._waiting: collections.OrderedDict[Key, _Pending[Value]] = collections.OrderedDict()
        self._logged: repeats.Repeats[tuple[str, int]] = repeats.Repeats(LOG_SECONDS, clock.monotonic)

    def __len__(self) -> int:
        with self._lock:
            return len(self._waiting)

    def put(self, key: Key, value: Value) -> None:
        """Queue a value, merged with the key's pending value."""
        with self._lock:
            before = self._waiting.get(key)
            merged = value if before is None else self._merge(before.value, value)
            # A key in back-off stays in it: a new value does not change a refusal.
            self._waiting[key] = _Pending(
                merged, before.due if before else self._clock.monotonic() + self._delay, before.pause if before else FIRST_PAUSE
            )
            dropped = self._waiting.popitem(last=False)[0] if len(self._waiting) > self._limit else None
        if dropped is not None:
            self._report(_log.warning, "status queue full: oldest entry dropped", key=dropped)
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Send due values until ``stop`` is set and ``wake`` is called, then flush the queue for at most ``FLUSH_SECONDS``."""
        while not stop.is_set():
            self._wake.clear()
            wait = self._send_next()
            if wait > 0 and not stop.is_set():
                self._clock.wait(self._wake, wait)
        self._flush()

    def wake(self) -> None:
        """Make the loop check its stop event now."""
        self._wake.set()

    def _send_next(self) -> float:
        """Send the first due value, and return the seconds until the next one is due, 0 to continue at once."""
        now = self._clock.monotonic()
        with self._lock:
            key = next((key for key, pending in self._waiting.items() if pending.due <= now), None)
            if key is None:
                return min((pending.due for pending in self._waiting.values()), default=now + _IDLE_SECONDS) - now
            pending = self._waiting.pop(key)
        retry = self._attempt(key, pending)
        if retry is not None:
            self._requeue(key, pending, retry)
        return 0

    def _attempt(self, key: Key, pending: _Pending[Value]) -> _Retry | None:
        """Send a value; return None when it is done, sent or dropped."""
        try:
            self._send(key, pending.value)
        except errors.ClaimError as error:
            _log.debug("status update dropped: claim gone", what=self._name, key=str(key), error=str(error))
        except errors.ApiError as error:
            return self._retry_for(key, pending, error)
        except errors.DrakitError as error:
            self._report(_log.error, "status update impossible: entry dropped", key=key, error=error)
        except Exception:  # noqa: BLE001 - one entry that cannot be sent must not block the others
            _log.exception("status update raised an unexpected error: entry dropped", what=self._name, key=str(key))
        return None

    def _retry_for(self, key: Key, pending: _Pending[Value], error: errors.ApiError) -> _Retry | None:
        if error.status == http.HTTPStatus.FORBIDDEN or error.reason == FORBIDDEN:
            self._report(_log.error, "API server forbids the update", key=key, error=error, retry_in_s=REFUSED_PAUSE)
            return _Retry(pause=REFUSED_PAUSE)
        is_rejected = error.status not in _TRANSIENT and error.status < _SERVER_ERROR
        if is_rejected and pending.rejections + 1 >= ATTEMPTS_MAX:
            self._report(_log.error, "status update rejected: entry dropped", key=key, error=error)
            return None
        self._report(
            _log.warning if is_rejected else _log.info,
            "status update failed",
            key=key,
            error=error,
            retry_in_s=pending.pause,
        )
        return _Retry(pause=pending.pause, is_rejected=is_rejected)

    def _report(
        self, log: Callable[..., object], text: str, *, key: Key, error: errors.DrakitError | None = None, **fields: object
    ) -> None:
        """Log the first failure of a kind in a period, with the number of those that were not logged before it."""
        status = error.status if isinstance(error, errors.ApiError) else 0
        suppressed = self._logged.due((text, status))
        if suppressed is None:
            return
        if error is not None:
            fields |= {"error": str(error)} | ({"status": status} if status else {})
        if suppressed:
            fields["suppressed"] = suppressed
        log(text, what=self._name, key=str(key), **fields)

    def _requeue(self, key: Key, pending: _Pending[Value], retry: _Retry) -> None:
        with self._lock:
            newer = self._waiting.pop(key, None)
            value = pending.value if newer is None else self._merge(pending.value, newer.value)
            # A merged value may be valid, so it gets all attempts again.
            rejections = pending.rejections + retry.is_rejected if newer is None else 0
            due = self._clock.monotonic() + retry.pause
            self._waiting[key] = _Pending(value, due, backoff.longer(pending.pause, LONGEST_PAUSE), rejections)

    def _flush(self) -> None:
        """Send each pending value once, until a transient failure or ``FLUSH_SECONDS`` are over."""
        deadline = self._clock.monotonic() + FLUSH_SECONDS
        while self._clock.monotonic() < deadline:
            with self._lock:
                if not self._waiting:
                    return
                key, pending = self._waiting.popitem(last=False)
            retry = self._attempt(key, pending)
            if retry is not None and not retry.is_rejected:
                return
