"""What waits to be told to the API server: one thread sends, what is put for one key meanwhile becomes one, failures are tried again.

``put`` never waits. Each key has its own back-off, so that one that is refused holds up no other. What the server calls wrong (422 and its like) is
sent some times more, because a webhook or a server in the midst of an upgrade says that too, and a pod may wait for what is told. At most so many
keys wait; beyond that the oldest is dropped, with a warning: telling is a service, and must not eat the memory of a driver whose API server is away.
"""

import collections
import dataclasses
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from drakit.core import errors, ports
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

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


class Outbox(Generic[Key, Load]):
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
            _log.warning("too much waits to be told; the oldest is dropped", what=self._name, key=str(dropped))
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
            _log.exception("cannot be told; dropped", what=self._name, key=str(key))
        return None

    def _failed(self, key: Key, parcel: _Parcel[Load], error: errors.ApiError) -> _Failed | None:
        if error.status == _REFUSED:
            self._warn_once(str(error))
            return _Failed(pause=REFUSED_PAUSE)
        is_wrong = error.status not in _TRANSIENT and error.status < _SERVER_ERROR
        if is_wrong and parcel.wrong + 1 >= TRIES_MAX:
            _log.error("the API server does not take what it is told; dropped", what=self._name, key=str(key), error=str(error))
            return None
        write = _log.warning if is_wrong else _log.info
        write("not told yet", what=self._name, key=str(key), error=str(error), retry_in_s=parcel.pause)
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
            self._waiting[key] = _Parcel(load, self._clock.monotonic() + failed.pause, min(parcel.pause * 2, LONGEST_PAUSE), wrong)

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
