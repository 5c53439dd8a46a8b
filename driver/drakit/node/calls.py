"""The kubelet's calls as they are carried out: how many are running, so that a stop can wait for the last."""

import threading
from collections.abc import Mapping, Sequence

from drakit.core import claim as claims
from drakit.core import names, outcome, ports


class Calls:
    """``ports.ClaimEngine`` before another one, counting."""

    def __init__(self, engine: ports.ClaimEngine) -> None:
        self._engine = engine
        self._guard = threading.Lock()
        self._changed = threading.Condition(self._guard)
        self._running = 0
        self._is_awaited = False

    def prepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, outcome.Outcome]:
        """As the engine."""
        self._started()
        try:
            return self._engine.prepare(refs, caller)
        finally:
            self._ended()

    def unprepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, str]:
        """As the engine."""
        self._started()
        try:
            return self._engine.unprepare(refs, caller)
        finally:
            self._ended()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until none is running; whether that is so."""
        with self._changed:
            self._is_awaited = True
            return self._changed.wait_for(lambda: not self._running, seconds)

    def _started(self) -> None:
        with self._guard:
            self._running += 1

    def _ended(self) -> None:
        with self._guard:
            self._running -= 1
            if self._is_awaited:
                self._changed.notify_all()
