"""Retry the claims that recovery could not recover at the start, while the driver serves.

Another process may hold a claim's or a device's lock for as long as its hardware call hangs. A claim that a call of the kubelet changed meanwhile is
left to the kubelet's calls.
"""

import threading
from collections.abc import Collection

from drakit.core import backoff, errors, lifecycle, names, ports
from drakit.node import engine, recovery
from drakit.telemetry import logs, plurals

_log = logs.get_logger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
LOCK_SECONDS = 1.0
"""The time that one attempt waits for the locks of one claim."""


class RecoveryRetry:
    """The claims of one node that are not recovered yet."""

    def __init__(self, claim_engine: engine.Engine, journal: ports.Journal, clock: ports.Clock) -> None:
        self._engine = claim_engine
        self._journal = journal
        self._clock = clock
        self._pending: dict[names.ClaimUid, lifecycle.Entry | None] = {}

    @property
    def pending(self) -> Collection[names.ClaimUid]:
        """Return the claims that are not recovered yet."""
        return tuple(self._pending)

    def note(self) -> str:
        """Return a text about the claims that are not recovered yet, empty where there are none."""
        pending = self.pending
        return f"{plurals.counted(len(pending), 'claim')} not recovered yet, retrying: {', '.join(sorted(pending)[:3])}" if pending else ""

    def add(self, failed: Collection[names.ClaimUid]) -> None:
        """Add the claims that recovery failed to recover. Raises JournalError."""
        self._pending |= {uid: self._journal.entry(uid) for uid in failed}

    def run(self, stop: threading.Event) -> None:
        """Retry with growing pauses until no claim is left or ``stop`` is set."""
        pauses = backoff.Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while self._pending and not self._clock.wait(stop, pauses.next()):
            for uid in self.pending:
                if self._is_recovered(uid):
                    del self._pending[uid]

    def _is_recovered(self, uid: names.ClaimUid) -> bool:
        try:
            if self._journal.entry(uid) != self._pending[uid]:
                return True
            outcome = self._engine.recover(uid, recovery.Deadline(LOCK_SECONDS))
        except errors.DrakitError as error:
            _log.warning("claim recovery failed", claim_uid=uid, error=str(error))
            return False
        except Exception:  # noqa: BLE001 - a bug of the author in one claim must not keep the others
            _log.exception("claim recovery failed", claim_uid=uid)
            return False
        _log.info("claim recovered", claim_uid=uid, state=outcome.value)
        return True
