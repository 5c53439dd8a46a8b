"""Release orphaned claims: prepared on this node, but force-deleted on the API server or replaced by another claim of the same name.

A kubelet unprepares such a claim itself once the containers of its pods are gone, and retries for as long as its checkpoint has the claim. So this
collector releases only claims that the kubelet has lost. It waits until all of these hold for the whole grace period: the API server answers that
the claim does not exist; the kubelet was able to call; its checkpoint does not have the claim. Where the checkpoint cannot be read, the grace period
is an hour. Any error restarts the grace period. The work is bounded: one claim at a time, a few requests a second.
"""

import threading
from collections.abc import Callable, Collection

from drakit.core import claim as claims
from drakit.core import errors, names, ports
from drakit.node import recovery, resolution
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

FIRST_CHECK_SECONDS = 60.0
SUSPECTED_INTERVAL = 120.0
INTERVAL = 900.0
GRACE = 300.0
BLIND_GRACE = 3600.0
BETWEEN_REQUESTS = 0.25
_GONE = frozenset({errors.ClaimFault.NOT_FOUND, errors.ClaimFault.REPLACED})

Tracked = Callable[[], Collection[names.ClaimUid] | None]


class GracePeriod:
    """The grace periods of suspected orphans: how long each claim has been gone and unknown to the kubelet.

    ``tracked`` returns the claims in the kubelet's checkpoint, None if it cannot be read.
    """

    def __init__(self, tracked: Tracked, clock: ports.Clock) -> None:
        self._tracked = tracked
        self._clock = clock
        self._since: dict[names.ClaimUid, float] = {}

    @property
    def is_suspected(self) -> bool:
        """Return whether a grace period is running for any claim."""
        return bool(self._since)

    def is_over(self, uid: names.ClaimUid, is_gone: Callable[[], bool] = lambda: True) -> bool:
        """Return whether the claim's grace period is over. It restarts when the kubelet tracks the claim or ``is_gone`` returns False.

        ``is_gone`` is called only for claims that the kubelet does not track.
        """
        now, tracked = self._clock.monotonic(), self._tracked()
        if (tracked is not None and uid in tracked) or not is_gone():
            self.end(uid)
            return False
        return now - self._since.setdefault(uid, now) >= (BLIND_GRACE if tracked is None else GRACE)

    def end(self, uid: names.ClaimUid) -> None:
        """End a claim's grace period; the next check starts a new one."""
        self._since.pop(uid, None)

    def retain(self, uids: Collection[names.ClaimUid]) -> None:
        """End the grace periods of all other claims."""
        self._since = {uid: since for uid, since in self._since.items() if uid in uids}


class OrphanCollector:
    """The collector that finds orphaned claims and unprepares them.

    ``tracked`` is as in GracePeriod; ``is_registered`` returns whether the kubelet can call now.
    """

    def __init__(
        self,
        claim_engine: ports.ClaimEngine,
        journal: ports.Journal,
        claim_source: ports.ClaimSource,
        *,
        tracked: Tracked,
        is_registered: Callable[[], bool],
        clock: ports.Clock,
    ) -> None:
        self._engine = claim_engine
        self._journal = journal
        self._claims = claim_source
        self._grace = GracePeriod(tracked, clock)
        self._is_registered = is_registered
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Check all claims at intervals until ``stop`` is set; more often while a claim is suspected."""
        self._clock.wait(stop, FIRST_CHECK_SECONDS)
        while not stop.is_set():
            self.check(stop)
            self._clock.wait(stop, SUSPECTED_INTERVAL if self._grace.is_suspected else INTERVAL)

    def check(self, stop: threading.Event) -> int:
        """Check every claim once, and return the number of unprepared ones."""
        refs = [entry.claim for entry in self._journal.entries(edits=False)]
        self._grace.retain({ref.uid for ref in refs})
        unprepared = 0
        for ref in refs:
            if self._is_orphaned(ref):
                unprepared += self._unprepare(ref)
            if self._clock.wait(stop, BETWEEN_REQUESTS):
                break
        return unprepared

    def _is_orphaned(self, ref: claims.ClaimRef) -> bool:
        return self._grace.is_over(ref.uid, lambda: self._is_registered() and self._is_gone(ref))

    def _is_gone(self, ref: claims.ClaimRef) -> bool:
        if ref.name == resolution.UNKNOWN:
            # The restoration of a lost journal had only its CDI files: the list of all claims did not have it.
            return True
        try:
            self._claims.fetch(ref)
        except errors.ClaimError as error:
            return error.fault in _GONE
        except errors.DrakitError as error:
            _log.debug("fetching claim failed", claim=str(ref), error=str(error))
        return False

    def _unprepare(self, ref: claims.ClaimRef) -> int:
        _log.warning("releasing orphaned claim", claim=str(ref), claim_uid=ref.uid)
        error = self._engine.unprepare([ref], recovery.Deadline())[ref.uid]
        if not error:
            self._grace.end(ref.uid)
        return int(not error)
