"""Keep the CDI files of prepared claims current: at each start, and when the driver's ``edits_revision`` changes.

The kubelet does not call Prepare again for a claim that it has prepared, so a container that starts later reads the CDI file as it is. After an
upgrade of the host's libraries that file names files that are gone. A loop therefore calls the author's ``prepare`` for each prepared claim, as the
kubelet does after its restart, and stores and writes the edits that differ (ADR 35). It runs while the node serves, one claim at a time, under the
claim's locks, so a start does not wait for it. A claim that fails stays as it is and is retried, later each time.
"""

import threading
from collections.abc import Sequence

from drakit.core import advanced, backoff, errors, lifecycle, names, ports
from drakit.node import engine, inventory_cache, recovery
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

CHECK_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0


class EditsRefresher:
    """The loop of one node."""

    def __init__(self, claim_engine: engine.Engine, journal: ports.Journal, author: inventory_cache.Author, clock: ports.Clock) -> None:
        self._engine = claim_engine
        self._journal = journal
        self._author = author
        self._clock = clock
        self._pauses = backoff.Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._revision: str | None = None
        self._waiting: Sequence[names.ClaimUid] = ()
        self._retry_at = 0.0
        self._unchecked = ""
        self._reported: dict[names.ClaimUid, str] = {}

    def run(self, stop: threading.Event) -> None:
        """Refresh until ``stop`` is set."""
        while not stop.is_set():
            self.check(stop)
            self._clock.wait(stop, CHECK_SECONDS)

    def check(self, stop: threading.Event) -> None:
        """Refresh all prepared claims if the revision has changed, else those that failed and are due."""
        try:
            revision = advanced.edits_revision(self._author)
            self._unchecked = ""
            if revision != self._revision:
                self._waiting = [entry.claim.uid for entry in self._journal.entries(edits=False) if entry.state is lifecycle.State.PREPARED]
                self._pauses.reset()
                self._revision = revision
            elif not self._waiting or self._clock.monotonic() < self._retry_at:
                return
        except errors.DrakitError as error:
            if self._unchecked != str(error):
                _log.warning("CDI files of prepared claims not checked", error=str(error))
            self._unchecked = str(error)
            return
        except Exception:  # noqa: BLE001 - no error of the author may end the loop
            _log.exception("edits_revision raised an unexpected error", driver=self._author.name)
            return
        self._waiting = [uid for uid in self._waiting if not stop.is_set() and not self._is_refreshed(uid)]
        self._reported = {uid: text for uid, text in self._reported.items() if uid in self._waiting}
        if self._waiting:
            self._retry_at = self._clock.monotonic() + self._pauses.next()

    def _is_refreshed(self, uid: names.ClaimUid) -> bool:
        """Refresh one claim; return False where that failed. The same failure is logged once."""
        try:
            self._engine.refresh_edits(uid, recovery.Deadline())
        except Exception as error:  # noqa: BLE001 - the failure of one claim must not block the others
            text = str(error) or type(error).__name__
            if self._reported.get(uid) != text:
                is_expected = isinstance(error, errors.DrakitError)
                _log.warning("CDI files of a prepared claim not refreshed", claim_uid=uid, error=text, exc_info=not is_expected)
            self._reported[uid] = text
            return False
        return True
