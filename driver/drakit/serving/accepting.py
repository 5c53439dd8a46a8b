"""The errors and limits that a server meets while it accepts connections. It must outlive every one of them.

Errors of one connection, such as a client that left, are ignored. Lasting errors (no descriptor, no memory, no new thread) are counted and logged
once a period. The server pauses after one, because accept(2) fails again at once while the connection waits in the backlog.
"""

import collections
import enum
import errno
import threading
import time
from collections.abc import Callable, Mapping


class Cause(enum.Enum):
    """The cause of a refused connection or request, as a metric's label."""

    CONNECTIONS = "connections"
    PAGE = "page"
    DESCRIPTORS = "descriptors"
    MEMORY = "memory"
    THREADS = "threads"
    OTHER = "other"


LOG_SECONDS = 60.0
PAUSE_SECONDS = 0.1
_LASTING: Mapping[int, Cause] = {
    errno.EMFILE: Cause.DESCRIPTORS,
    errno.ENFILE: Cause.DESCRIPTORS,
    errno.ENOMEM: Cause.MEMORY,
    errno.ENOBUFS: Cause.MEMORY,
}
_BY_CLIENT = frozenset({errno.ECONNABORTED, errno.ECONNRESET, errno.EPROTO, errno.EAGAIN, errno.EINTR, errno.ENOTCONN, errno.EPIPE})
"""The errors of accept(2) that concern one connection only."""


def cause_of(error: Exception) -> Cause | None:
    """Return the cause of a failure to accept or serve a connection, None for an error of that connection only."""
    if isinstance(error, OSError):
        return None if error.errno in _BY_CLIENT else _LASTING.get(error.errno or 0, Cause.OTHER)
    if isinstance(error, MemoryError):
        return Cause.MEMORY
    return Cause.THREADS if isinstance(error, RuntimeError) else Cause.OTHER


class Overload:
    """The refused connections of one server, counted by cause and logged once a period. Safe between threads."""

    def __init__(self, server: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.server = server
        self._monotonic = monotonic
        self._guard = threading.Lock()
        self._counts: collections.Counter[Cause] = collections.Counter()
        self._log_at: dict[Cause, float] = {}

    def counts(self) -> Mapping[Cause, int]:
        """Return the number of refusals by cause, also those that are zero."""
        with self._guard:
            return {cause: self._counts[cause] for cause in Cause}

    def refuse(self, cause: Cause, **keys: object) -> None:
        """Count a refusal, and log the first of a period with the total."""
        with self._guard:
            self._counts[cause] += 1
            count, now = self._counts[cause], self._monotonic()
            if now < self._log_at.get(cause, now):
                return
            self._log_at[cause] = now + LOG_SECONDS
        from drakit.telemetry import logs  # noqa: PLC0415 - the public API imports this module, and most of its users log nothing

        _log = logs.get_logger(__name__)
        _log.warning("connection refused", part=self.server, reason=cause.value, count=count, **keys)

    def failed(self, error: Exception, *, pause: Callable[[float], object] = time.sleep) -> Cause | None:
        """Count the failure to accept or serve a connection, pause where it will last, and return its cause, None for the client's own."""
        cause = cause_of(error)
        if cause is not None:
            self.refuse(cause, error=str(error))
            pause(PAUSE_SECONDS)
        return cause
