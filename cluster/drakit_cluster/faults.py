"""Faults of a kubelet and an API server that tests inject: each one is real, on the real socket.

A driver must survive all of it: calls are repeated, come for claims it never saw, and end when a connection breaks in the middle; requests are
refused, answered late, in part, or with something that is not JSON.
"""

import enum
import random
import threading
from dataclasses import dataclass


@dataclass(kw_only=True)
class Faults:
    """Switches of one kubelet; set and cleared at any time, from any thread.

    ``call_twice`` sends every call a second time at the same moment, and uses the first answer. ``unprepare_first`` sends an Unprepare
    before every Prepare. ``drop_calls`` is how many of the coming calls lose their connection ``drop_after`` seconds after they began.
    """

    call_twice: bool = False
    unprepare_first: bool = False
    drop_calls: int = 0
    drop_after: float = 0.05

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def take_drop(self) -> bool:
        """Return whether the call that begins now loses its connection, and count it."""
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
    """Does what was asked for, and breaks the connection in the middle of the answer."""
    NONSENSE = "nonsense"
    """Does nothing, and answers 200 with something that is not JSON."""


@dataclass(frozen=True, kw_only=True)
class ApiFault:
    """The fault of requests by clients whose user agent is ``agent``, whatever its version; of all clients if empty.

    ``methods`` are those concerned, all if empty; ``share`` is the part of the requests it happens to. ``status`` is that of a refusal, ``seconds``
    the longest delay: it ends when the fault is cleared.
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
    """Switches of one API server; set and cleared at any time, from any thread. ``hits`` counts the requests that something happened to."""

    def __init__(self) -> None:
        self.hits = 0
        self._standing: tuple[ApiFault, ...] = ()
        self._chance = random.Random()  # noqa: S311 - no secret hangs on it

    def add(self, fault: ApiFault) -> None:
        """Let this happen too, from now on."""
        self._standing = (*self._standing, fault)

    def clear(self, fault: ApiFault | None = None) -> None:
        """End a fault, or all."""
        self._standing = tuple(one for one in self._standing if fault is not None and one is not fault)

    def stands(self, fault: ApiFault) -> bool:
        """Return whether a fault is still active."""
        return any(one is fault for one in self._standing)

    def choose(self, method: str, agent: str) -> ApiFault | None:
        """Return what happens to a request, None for nothing."""
        for fault in self._standing:
            if fault.concerns(method, agent) and self._chance.random() < fault.share:
                self.hits += 1
                return fault
        return None
