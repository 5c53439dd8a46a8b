"""Release claims whose release the driver deferred, because their hardware could not be reached when their pods ended.

Such a claim is unpreparing in the journal, and the kubelet has forgotten it. The loop retries all unpreparing claims: those that the kubelet retries
too are undone under the same locks, whoever comes first. ``recovery_retry`` is another loop: it retries claims of any state, ends when none is left,
and begins soon, because most of its claims wait for a lock.
"""

import threading
from collections.abc import Sequence

from drakit.core import errors, lifecycle, names, ports
from drakit.journal import journal as journals
from drakit.node import engine, recovery
from drakit.telemetry import logs, plurals

_log = logs.get_logger(__name__)

INTERVAL = 30.0
SHOWN = 3
"""The number of claims that the note names."""


class DeferredReleases:
    """The loop that releases unpreparing claims of one driver."""

    def __init__(self, claim_engine: engine.Engine, journal: journals.Journal, clock: ports.Clock) -> None:
        self._engine = claim_engine
        self._journal = journal
        self._clock = clock
        self._failures: dict[names.ClaimUid, str] = {}

    def note(self) -> str:
        """Return a text about the claims whose last retry failed, empty where there are none."""
        failed = sorted(dict(self._failures))  # A copy, because the loop changes it meanwhile.
        return f"{plurals.counted(len(failed), 'claim')} not released yet, retrying: {', '.join(failed[:SHOWN])}" if failed else ""

    def run(self, stop: threading.Event) -> None:
        """Retry at intervals until ``stop`` is set."""
        while not self._clock.wait(stop, INTERVAL):
            try:
                self.check(stop)
            except errors.JournalError as error:
                _log.error("listing unpreparing claims failed", error=str(error))

    def check(self, stop: threading.Event) -> int:
        """Retry every unpreparing claim once, and return the number of released ones. Raises JournalError."""
        unpreparing: Sequence[names.ClaimUid] = ()
        if self._journal.counts().get(lifecycle.State.UNPREPARING):
            unpreparing = [entry.claim.uid for entry in self._journal.entries(edits=False) if entry.state is lifecycle.State.UNPREPARING]
        self._failures = {uid: text for uid, text in self._failures.items() if uid in unpreparing}
        return sum(self._release(uid) for uid in unpreparing if not stop.is_set())

    def _release(self, uid: names.ClaimUid) -> bool:
        """Release one claim; return False where that failed or the claim is not unpreparing any more. The same failure is logged once."""
        try:
            is_released = self._engine.release(uid, recovery.Deadline())
        except Exception as error:  # noqa: BLE001 - a bug of the driver in one claim must not end the loop
            text = str(error) or type(error).__name__
            if self._failures.get(uid) != text:
                is_expected = isinstance(error, errors.DrakitError)
                _log.warning("claim not released yet", claim_uid=uid, error=text, retry_in_s=INTERVAL, exc_info=not is_expected)
            self._failures[uid] = text
            return False
        self._failures.pop(uid, None)
        if is_released:
            _log.info("claim released", claim_uid=uid)
        return is_released
