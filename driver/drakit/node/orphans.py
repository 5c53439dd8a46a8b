"""Claims that are prepared here and that the API server no longer has: force-deleted, or replaced by another of the same name.

A kubelet unprepares such a claim itself, as soon as the containers of its pods are gone, and asks again for as long as it remembers the claim. So
this is only for what a kubelet forgot, and it waits until that is sure: the API server said clearly, at every look, that there is no such claim;
the kubelet could have called all the while; its own books, where they can be read, do not have the claim. Where they cannot be read the wait is an
hour. Errors of any kind prove nothing and start the wait anew. Work is bounded: a few questions a second, one claim at a time.
"""

import threading
from collections.abc import Callable, Collection

from drakit.core import claim as claims
from drakit.core import errors, names, ports
from drakit.node import recovery, resolution
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

FIRST_LOOK = 60.0
LOOK_AGAIN = 120.0
INTERVAL = 900.0
GRACE = 300.0
BLIND_GRACE = 3600.0
BETWEEN_QUESTIONS = 0.25
_GONE = frozenset({errors.ClaimFault.NOT_FOUND, errors.ClaimFault.REPLACED})

Tracked = Callable[[], Collection[names.ClaimUid] | None]


class GracePeriod:
    """Since when nobody could have asked for claims that are gone, and whether that is long enough.

    ``tracked`` gives the claims that the kubelet remembers, None where it cannot be known.
    """

    def __init__(self, tracked: Tracked, clock: ports.Clock) -> None:
        self._tracked = tracked
        self._clock = clock
        self._since: dict[names.ClaimUid, float] = {}

    @property
    def is_suspected(self) -> bool:
        """Whether any claim is being waited for."""
        return bool(self._since)

    def is_long(self, uid: names.ClaimUid, is_gone: Callable[[], bool] = lambda: True) -> bool:
        """Whether the kubelet has not known the claim, and ``is_gone`` has held, at every look of the grace; asked is only what has to be."""
        now, tracked = self._clock.monotonic(), self._tracked()
        if (tracked is not None and uid in tracked) or not is_gone():
            self.end(uid)
            return False
        return now - self._since.setdefault(uid, now) >= (BLIND_GRACE if tracked is None else GRACE)

    def end(self, uid: names.ClaimUid) -> None:
        """Begin anew with the next look."""
        self._since.pop(uid, None)

    def only(self, uids: Collection[names.ClaimUid]) -> None:
        """Drop all others."""
        self._since = {uid: since for uid, since in self._since.items() if uid in uids}


class OrphanCollector:
    """Looks for such claims and unprepares them.

    ``tracked`` is as in GracePeriod; ``is_registered`` says whether the kubelet can call now.
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
        self._silence = GracePeriod(tracked, clock)
        self._is_registered = is_registered
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Look at intervals until ``stop`` is set; sooner while a claim is suspected."""
        self._clock.wait(stop, FIRST_LOOK)
        while not stop.is_set():
            self.look(stop)
            self._clock.wait(stop, LOOK_AGAIN if self._silence.is_suspected else INTERVAL)

    def look(self, stop: threading.Event) -> int:
        """Look at every claim once; how many were unprepared."""
        refs = [entry.claim for entry in self._journal.entries()]
        self._silence.only({ref.uid for ref in refs})
        unprepared = 0
        for ref in refs:
            if self._has_vanished(ref):
                unprepared += self._unprepare(ref)
            if self._clock.wait(stop, BETWEEN_QUESTIONS):
                break
        return unprepared

    def _has_vanished(self, ref: claims.ClaimRef) -> bool:
        """Whether the claim has been gone for so long, and the kubelet so silent, that nobody needs it."""
        return self._silence.is_long(ref.uid, lambda: self._is_registered() and self._is_gone(ref))

    def _is_gone(self, ref: claims.ClaimRef) -> bool:
        if ref.name == resolution.UNKNOWN:
            # A restoration knew only its CDI files: the list of all claims did not have it.
            return True
        try:
            self._claims.fetch(ref)
        except errors.ClaimError as error:
            return error.fault in _GONE
        except errors.DrakitError as error:
            _log.debug("cannot ask for a claim", claim=str(ref), error=str(error))
        return False

    def _unprepare(self, ref: claims.ClaimRef) -> int:
        _log.warning("orphaned claim released", claim=str(ref), claim_uid=ref.uid)
        error = self._engine.unprepare([ref], recovery.Deadline())[ref.uid]
        if not error:
            self._silence.end(ref.uid)
        return int(not error)
