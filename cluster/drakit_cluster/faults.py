"""Faults of a kubelet and an API server that tests inject on the real sockets.

A driver must survive all of them. The kubelet repeats calls, sends calls for unknown claims, and closes connections during a call. The API server
refuses requests, answers late or in part, or answers with something that is not JSON.
"""

import enum
import random
import threading
from dataclasses import dataclass


@dataclass(kw_only=True)
class Faults:
    """Switches of one kubelet; set and cleared at any time, from any thread.

    ``call_twice`` sends every call twice at the same time, and uses the first answer. ``unprepare_first`` sends an Unprepare
    before every Prepare. ``drop_calls`` is the number of next calls that lose their connection ``drop_after`` seconds after their start.
    """

    call_twice: bool = False
    unprepare_first: bool = False
    drop_calls: int = 0
    drop_after: float = 0.05

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def take_drop(self) -> bool:
        """Return whether the call that starts now loses its connection, and count it."""
        with self._lock:
            if self.drop_calls <= 0:
                return False
            self.drop_calls -= 1
            return True


class FaultKind(enum.Enum):
    """The API server's reaction to a request."""

    REFUSE = "refuse"
    """Answers with a status, and does nothing."""
    DELAY = "delay"
    """Waits before it does anything."""
    CUT = "cut"
    """Executes the request, and closes the connection in the middle of the answer."""
    NONSENSE = "nonsense"
    """Does nothing, and answers 200 with something that is not JSON."""


@dataclass(frozen=True, kw_only=True)
class ApiFault:
    """The fault of requests by clients with the user agent ``agent`` of any version; of all clients if empty.

    ``methods`` are the affected HTTP methods, all if empty. ``share`` is the fraction of affected requests. ``status`` is the status of a
    refusal. ``seconds`` is the longest delay, which also ends when the fault is cleared.
    """

    kind: FaultKind
    status: int = 500
    seconds: float = 0.0
    share: float = 1.0
    methods: frozenset[str] = frozenset()
    agent: str = ""

    def concerns(self, method: str, agent: str) -> bool:
        """Return whether the fault applies to such a request."""
        return self.agent in {"", agent.partition("/")[0]} and (not self.methods or method in self.methods)


class ApiFaults:
    """Switches of one API server; set and cleared at any time, from any thread. ``hits`` counts the affected requests."""

    def __init__(self) -> None:
        self.hits = 0
        self._active: tuple[ApiFault, ...] = ()
        self._chance = random.Random()  # noqa: S311 - not used for secrets

    def add(self, fault: ApiFault) -> None:
        """Add a fault to the active faults."""
        self._active = (*self._active, fault)

    def clear(self, fault: ApiFault | None = None) -> None:
        """End a fault, or all."""
        self._active = tuple(active for active in self._active if fault is not None and active is not fault)

    def is_active(self, fault: ApiFault) -> bool:
        """Return whether a fault is still active."""
        return any(active is fault for active in self._active)

    def choose(self, method: str, agent: str) -> ApiFault | None:
        """Return the fault of a request, or None."""
        for fault in self._active:
            if fault.concerns(method, agent) and self._chance.random() < fault.share:
                self.hits += 1
                return fault
        return None
