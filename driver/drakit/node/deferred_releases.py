"""Release claims whose release the driver deferred, because their hardware could not be reached when their pods ended.

Such a claim is unpreparing in the journal, and the kubelet has forgotten it. The loop retries all unpreparing claims: those that the kubelet retries
too are undone under the same locks, whoever comes first.
"""

import threading
from collections.abc import Mapping
from typing import Protocol

from drakit.core import errors, lifecycle, names, ports
from drakit.node import engine, recovery
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

INTERVAL = 30.0


class Journal(ports.Journal, Protocol):
    """The journal with its counts (``journal.Journal``)."""

    def counts(self) -> Mapping[lifecycle.State, int]:
        """Return the number of claims in each state. Raise JournalError."""


class DeferredReleases:
    """The loop that releases unpreparing claims of one driver."""

    def __init__(self, claim_engine: engine.Engine, journal: Journal, clock: ports.Clock) -> None:
        self._engine = claim_engine
        self._journal = journal
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Retry at intervals until ``stop`` is set."""
        while not self._clock.wait(stop, INTERVAL):
            try:
                self.check(stop)
            except errors.JournalError as error:
                _log.error("listing unpreparing claims failed", error=str(error))

    def check(self, stop: threading.Event) -> int:
        """Retry every unpreparing claim once, and return the number of released ones. Raise JournalError."""
        if not self._journal.counts().get(lifecycle.State.UNPREPARING):
            return 0
        unpreparing = [entry.claim.uid for entry in self._journal.entries(edits=False) if entry.state is lifecycle.State.UNPREPARING]
        return sum(self._release(uid) for uid in unpreparing if not stop.is_set())

    def _release(self, uid: names.ClaimUid) -> bool:
        try:
            is_released = self._engine.release(uid, recovery.Deadline())
        except errors.DrakitError as error:
            _log.debug("claim not released yet", claim_uid=uid, error=str(error))
            return False
        except Exception:  # noqa: BLE001 - a bug of the driver in one claim must not end the loop
            _log.exception("releasing claim raised an unexpected error", claim_uid=uid)
            return False
        if is_released:
            _log.info("claim released", claim_uid=uid)
        return is_released
